/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Redis does as one step. All of them are given the connection's key and name first: what a
 * connection of before still had on its way is not done any more. Numbers that are compared are 16
 * hexadecimal digits, since Lua's have 53 bits.
 */
#ifndef SKERRY_BLOCKER_REDIS_SCRIPT_H
#define SKERRY_BLOCKER_REDIS_SCRIPT_H

enum redis_script { REDIS_CHANGE, REDIS_MAY, REDIS_DELETE, REDIS_SWAP, REDIS_CLAIM, REDIS_SCRIPTS };

#define REDIS_HEARD \
	"if redis.call('GET', KEYS[1]) ~= ARGV[1] then " \
	"return redis.error_reply('SKCONN another connection has taken its place') end "

/* KEYS: connection, fence, object, index. ARGV: connection, writer, term + 1 or '', key in the
   index, what (w: bytes, z: zeros, d: zeros as far as it goes), offset, bytes or length. */
#define REDIS_SCRIPT_CHANGE \
	REDIS_HEARD \
	"local f = redis.call('HMGET', KEYS[2], 'writer', 'line') " \
	"if f[1] and (f[1] ~= ARGV[2] or (ARGV[3] ~= '' and ARGV[3] < f[2])) then " \
	"return redis.error_reply('SKSTALE another one has the volume') end " \
	"local size = redis.call('STRLEN', KEYS[3]) " \
	"local bytes = ARGV[7] " \
	"if ARGV[5] == 'd' then bytes = math.min(bytes, size - ARGV[6]) " \
	"if bytes <= 0 then return 0 end end " \
	"if ARGV[5] ~= 'w' then bytes = string.rep('\\0', bytes) end " \
	"if size == 0 then redis.call('ZADD', KEYS[4], 0, ARGV[4]) end " \
	"redis.call('SETRANGE', KEYS[3], ARGV[6], bytes) " \
	"return size == 0 and 1 or 0"

/* May it write by itself from now on, until somebody claims the volume? KEYS: connection, fence.
   ARGV: connection, writer. The line, or ''. */
#define REDIS_SCRIPT_MAY \
	REDIS_HEARD \
	"local f = redis.call('HMGET', KEYS[2], 'writer', 'line') " \
	"if f[1] and f[1] ~= ARGV[2] then " \
	"return redis.error_reply('SKSTALE another one has the volume') end " \
	"redis.call('HSET', KEYS[2], 'p:' .. ARGV[2], '1') " \
	"return f[2] or ''"

/* KEYS: connection, object, index. ARGV: connection, key in the index. */
#define REDIS_SCRIPT_DELETE \
	REDIS_HEARD \
	"redis.call('DEL', KEYS[2]) redis.call('ZREM', KEYS[3], ARGV[2]) return 1"

/* KEYS: connection, record, index of its kind, what goes with it. ARGV: connection, old value, new
   one ('': none), key in the index. */
#define REDIS_SCRIPT_SWAP \
	REDIS_HEARD \
	"if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return 0 end " \
	"if ARGV[3] == '' then redis.call('DEL', KEYS[2], KEYS[4]) " \
	"redis.call('ZREM', KEYS[3], ARGV[4]) " \
	"else redis.call('SET', KEYS[2], ARGV[3]) redis.call('ZADD', KEYS[3], 0, ARGV[4]) end " \
	"return 1"

/* KEYS: connection, fence. ARGV: connection, writer, term, line or '', nobody: 1. Who else may
   write by itself: their connections must end before this is answered. */
#define REDIS_SCRIPT_CLAIM \
	REDIS_HEARD \
	"local f = redis.call('HMGET', KEYS[2], 'term', 'writer', 'line') " \
	"local who = ARGV[5] == '1' and '' or ARGV[2] " \
	"if f[1] and ARGV[3] < f[1] then " \
	"return redis.error_reply('SKSTALE another one has a higher term') end " \
	"local line, as_before = ARGV[4], f[2] == who or f[1] == ARGV[3] " \
	"if line == '' then line = as_before and f[3] or ARGV[3] end " \
	"redis.call('HSET', KEYS[2], 'term', ARGV[3], 'writer', who, 'line', line) " \
	"local others = {} " \
	"for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do " \
	"if name:sub(1, 2) == 'p:' and name ~= 'p:' .. who then " \
	"others[#others + 1] = name:sub(3) end end " \
	"return others"

#endif
