/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plug and unplug share. Both are a row of steps that may be said again from the beginning:
 * what the segment and the keeper show is the truth, nothing is remembered.
 *
 *   plug:   the cache runs and passes everything on -> the edge leads to it -> nothing older is on
 *           its way past it -> it begins to cache
 *   unplug: it has written everything back and passes everything on -> the edges lead past it ->
 *           nothing is left at it -> it is stopped, its pages are freed, the keeper forgets it;
 *           one that shares its process stays there, out of the way
 *
 * Errors, ownership: as ctl.h. Threads: one. Blocking: until it is so, ^C, or the limit.
 */
#ifndef SKERRY_TOOLS_CTL_PLUG_H
#define SKERRY_TOOLS_CTL_PLUG_H

#include "tools/ctl/ctl_cache.h"
#include "tools/ctl/ctl_uri.h"
#include "tools/ctl/ctl_work.h"

#define CTL_EDGES_MAX 16u

struct ctl_plug {
	struct ctl *ctl;
	struct ctl_work *work;
	struct xseg seg;
	char name[NAME_LENGTH_MAX + 1];	 /* the cache */
	char store[NAME_LENGTH_MAX + 1]; /* whom its edge leads to */
	/* edges that lead to the cache, or shall: "PEER:EDGE" */
	char edges[CTL_EDGES_MAX][XSEG_EDGE_NAME_MAX + 1];
	unsigned edge_count;
	bool shares;	   /* its process has other peers */
	uint64_t until_ns; /* 0: no limit */
};

/* Of a row of peer.list: does it say so? */
bool ctl_plug_row_is(const json_t *row, const char *key, const char *text);
/* All edges that lead to the cache. */
void ctl_plug_edges(struct ctl_plug *plug);
/* All edges lead to `to` from now on; it or who is left passes everything on. */
int ctl_plug_switch(struct ctl_plug *plug, const char *to, bool *changed);
/* Whoever stands above says in which term it may write to its volumes; not all do. */
int ctl_plug_refence(struct ctl_plug *plug);
/* The keeper is asked; steals params. Its answer, or NULL. */
int ctl_plug_ask(struct ctl_plug *plug, const char *method, json_t *params, json_t **result);
/* Has somebody said ^C, or is the time over? A fault that names the cache. */
int ctl_plug_check(struct ctl_plug *plug, const char *what);

/*
 * Waits until whoever is above has seen where the edges lead now, and until no request is left that
 * it sent to port `port` before (with `anybody`: that anybody did).
 */
int ctl_settle(struct ctl_plug *plug, const char *port, bool anybody);
/* The first half only. */
int ctl_settle_turns(struct ctl_plug *plug);

/* The importing end of a bridge to there, called plug->name: it is there and reached, or is started
   (ctl_bridge.c). */
int ctl_bridge_to(struct ctl_plug *plug, const struct ctl_uri *uri);

/* The end of an unplug: from edges that lead past it on. `discard`: it is killed, what waits for it
   goes to the store. */
int ctl_unplug_rest(struct ctl_plug *plug, bool discard);

#endif
