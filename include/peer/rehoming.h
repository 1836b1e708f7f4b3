/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that move volumes between hosts and have a part in it (libxseg-rehome,
 * skerry-rehome.pc). A seeder is a program on the host where a volume is, a leecher one on the host
 * that it goes to; one of the two is enough, and does what `xsegctl rehome --to` or `--from` does.
 *
 *   struct rehoming_ask ask = {.segment = "demo", .bridge = "far0", .before_suspend = flush_all};
 *   struct rehoming *rehoming = rehoming_seed(&ask, "vm1");
 *   if (!rehoming)
 *           errx(1, "%s", rehoming_why());
 *   int error;
 *   while ((error = rehoming_step(rehoming)) > 0)
 *           usleep(20000);
 *   ...                                 0: the other host has it
 *   rehoming_close(rehoming);
 *
 * Nothing is remembered here: re-homers on both hosts do it, and the volume's home record says who
 * has it, whoever is killed. They, and the bridge between them, must be there: no peer is
 * started. docs/rehoming.md tells the whole.
 *
 * Units: bytes, ns. Errors: 0 or -errno as <peer/rehome.h> has them. Ownership: `ask` and what it
 * names is copied, but for `context`; a rehoming is the caller's until rehoming_close(). Threads:
 * one at a time; different ones do not know of each other. The functions of `ask` are called by
 * rehoming_step() and rehoming_close() alone, and may call rehoming_cancel() and rehoming_info().
 * Blocking: as noted. Source: the two roles and the four moments are those of r3map's migrations.
 */
#ifndef SKERRY_PEER_REHOMING_H
#define SKERRY_PEER_REHOMING_H

#include <peer/rehome.h>
#include <stdint.h>

struct rehoming_ask {
	const char *segment; /* of this host */
	const char *rehomer; /* there; NULL: the first one */
	const char *bridge;  /* there: the importing end of a bridge to the other host's re-homer */
	enum rehome_stall stall; /* what if writes are so fast that the pause cannot be kept */
	uint64_t pause_ns;	 /* so long requests may wait; 0: as in <peer/rehome.h> */
	uint64_t timeout_ns;	 /* of each question to a re-homer; 0: CLIENT_TIMEOUT_NS */

	/* Each may be NULL; they are called in this order. */
	void *context;
	/*
	 * The rest is short, and requests will wait while it goes; what is written until this has
	 * said 0 goes along. -EAGAIN: not ready yet, the next step asks again, within
	 * REHOME_HOLD_NS. Any other -errno: the volume stays.
	 */
	int (*before_suspend)(void *context);
	/* Requests go on. 0: the host that it was to go to has it; -errno: it has stayed. */
	void (*after_sync)(void *context, int error);
	/*
	 * Leecher: this stretch of the volume is in the cache here, or is known to be zeros: it is
	 * read without the other host from now on, until the cache needs the room. What is not
	 * there is fetched, if this is not NULL, from the volume's begin to its end.
	 */
	void (*chunk_is_local)(void *context, uint64_t offset, uint64_t length);
	/* By rehoming_close(), however it ended. */
	void (*before_close)(void *context);
};

struct rehoming;

/* NULL: errno says what, rehoming_why() in a sentence. ENOENT: no such segment, re-homer or volume.
   ENOLINK: seed: no edge of the re-homer leads to that bridge. */
struct rehoming *rehoming_seed(const struct rehoming_ask *ask, const char *volume);
struct rehoming *rehoming_leech(const struct rehoming_ask *ask, const char *volume);
/* What the last of these in this thread was refused for. */
const char *rehoming_why(void);

/* Could it be moved? Changes nothing. -EALREADY: it is there. Blocking: until the other host has
   answered. */
int rehoming_check(struct rehoming *rehoming);

/*
 * Goes on with it: to be said again, every 20 ms or so, while it says REHOMING_WAITS (it cannot
 * begin yet) or REHOMING_GOES. 0: it has moved, and a leecher has fetched what it can. -errno: it
 * has stayed; -ETIMEDOUT: that is not known, and beginning anew tells. When after_sync() was told
 * 0, it has come all the same, and a stretch could not be fetched: said again, it goes on there;
 * -ESTALE: it has left again.
 * Blocking: while a re-homer answers; a leecher that fetches, while 16 MiB come.
 */
enum rehoming_result { REHOMING_WAITS = 1, REHOMING_GOES };
int rehoming_step(struct rehoming *rehoming);

/* It stays, if it is not decided yet: the next steps tell. */
void rehoming_cancel(struct rehoming *rehoming);

/* As of the last step. */
const struct rehome_info *rehoming_info(const struct rehoming *rehoming);

/* One that is under way goes on without us; one that waits for before_suspend() stays, soon. */
void rehoming_close(struct rehoming *rehoming);

#endif
