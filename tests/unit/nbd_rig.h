/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NBD front without core and segment: its calls are answered by volumes in memory, when and in
 * which order the test says, with shortages and errors as it likes. Clients sit on socket pairs.
 *
 * Threads: one. Errors: must().
 */
#ifndef SKERRY_TESTS_UNIT_NBD_RIG_H
#define SKERRY_TESTS_UNIT_NBD_RIG_H

#include <peer/map.h>

#include "peers/front/nbd.h"

#define RIG_VOLUMES 2u
#define RIG_SIZE (16u << 20)

struct rig_volume {
	struct xseg_volume_info info;
	uint8_t *data;
	uint32_t opens;
	int refuses; /* what an OPEN to write ends with */
	uint32_t read_opens;
};

struct rig {
	struct peer peer;
	struct nbd_options options;
	const struct peer_ops *ops;
	struct nbd *nbd;
	struct rig_volume volume[RIG_VOLUMES];
	uint64_t now_ns, seed, wake_ns;
	/* knobs */
	unsigned refuse_every;	 /* one in n of call_begin and call_pages is -EAGAIN; 0: none */
	uint64_t pages_max;	 /* bytes of pages that can be out at once; 0: any */
	unsigned answer_max;	 /* calls answered in a turn; 0: none */
	bool shuffle;		 /* answers in any order */
	int fail[XSEG_OP_COUNT]; /* what calls of that op end with */
	uint64_t fail_from;	 /* ...at offsets from here on */
	/* seen */
	uint64_t pages, pages_most;
	unsigned calls, calls_most;
	unsigned submitted[XSEG_OP_COUNT];
	unsigned flags_seen; /* of all calls */
	uint32_t length_most;
	bool host_stopped;
	unsigned told; /* that all is open again */
	/* MAP_DIFF: since snapshot 33 of volume 11 */
	const struct map_stretch *stretches;
	unsigned stretch_count, stretch_room; /* told in one answer; at least one object's */
	unsigned diffs;
};

/* Whoever started us, as <peer/notify.h> shows him: what he keeps lives longer than any rig. */
#define RIG_KEPT_MAX 8u
struct rig_keeper {
	bool there;	/* somebody keeps what we store */
	bool successor; /* we stop for one */
	unsigned count;
	struct {
		char name[64];
		int fd;
		bool taken; /* by this process */
	} kept[RIG_KEPT_MAX];
};
extern struct rig_keeper rig_keeper;

/* One at a time. */
struct rig *rig_new(void);
/* Stops the front, lets everything end, and checks that nothing is left. */
void rig_free(struct rig *rig);
/* Another process serves the composer's port from now on; it knows nothing. */
void rig_composer(struct rig *rig, uint64_t epoch);
/* Turns until nothing moves any more, or `turns` times. */
void rig_turn(struct rig *rig, unsigned turns);
/* A connected client; the other end's descriptor. */
int rig_client(struct rig *rig);

/* Client's side: all of it, turning meanwhile; false when the server closed. */
bool rig_send(struct rig *rig, int fd, const void *data, size_t size);
bool rig_receive(struct rig *rig, int fd, void *data, size_t size);
/* The server has closed, and said nothing more. */
bool rig_closed(struct rig *rig, int fd);
/* The greeting is taken, GO on volume `name`; structured replies and contexts when asked for. */
void rig_go(struct rig *rig, int fd, const char *name, bool structured, bool blocks);
void rig_request(uint8_t wire[NBD_REQUEST_HEADER], unsigned type, unsigned flags, uint64_t cookie,
	uint64_t offset, uint32_t length);
/* Sends one, returns the error it was answered with; data of a read goes to `data`. */
unsigned rig_do(struct rig *rig, int fd, unsigned type, unsigned flags, uint64_t offset,
	uint32_t length, void *data);

#endif
