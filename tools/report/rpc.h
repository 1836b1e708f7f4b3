/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: RUN_DIR/SEGMENT/xsegd.sock, JSON-RPC 2.0, one message a line.
 *
 * Units: bytes. Threads: one. Blocking: none; a client that does not read or does not end its
 * line is let go after a while and holds nobody up.
 */
#ifndef SKERRY_TOOLS_RPC_H
#define SKERRY_TOOLS_RPC_H

#define RPC_MESSAGE_MAX 65536u
#define RPC_CLIENTS_MAX 64u
#define RPC_OUTPUT_MAX (4u << 20) /* waiting for a client to read */
#define RPC_IDLE_S 60

enum rpc_code {
	RPC_PARSE = -32700,
	RPC_INVALID_REQUEST = -32600,
	RPC_NO_METHOD = -32601,
	RPC_INVALID_PARAMS = -32602,
	RPC_APPLICATION = -32000, /* data says what */
};

#endif
