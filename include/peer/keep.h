/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that outlive their process: what a cache is made of.
 *
 * A page is built while this shard holds it, described (peer_page_about), then published by one
 * store (peer_page_keep). From then on it belongs to the peer's port: killed at any instruction,
 * the peer's successor finds it, whole, and what it is (xseg_page_next_kept()).
 *
 *   peer_page_hold() --build, describe--> peer_page_keep() --> ... --> peer_page_drop()
 *         `---- peer_page_let_go() ----> pool
 *   a page of a WRITE with XSEG_F_DONATE: describe it, then peer_page_keep_job()
 *
 * The order that makes a replacement safe: the new page is published; the job is answered; the old
 * page is dropped. In between both are there, and the later sequence counts. A job whose pages were
 * kept must be answered before its handler returns: if it is served again instead, they go back to
 * its client. What can only be answered later is to be copied.
 *
 * Units: pages. Errors: 0 or -errno. Ownership: the shard's until let go, kept or dropped. Threads:
 * the shard's lane; what is in a held page, a worker. Blocking: none.
 */
#ifndef SKERRY_PEER_KEEP_H
#define SKERRY_PEER_KEEP_H

#include <peer/call.h>

/* Pages to build something in: all or nothing, -EAGAIN when the pool is low. */
int peer_page_hold(struct peer *peer, uint32_t *pages, uint32_t count);
void peer_page_let_go(struct peer *peer, uint32_t page);
/* What its descriptor says of it beside the word: to be written before it is kept. */
struct xseg_page_descriptor *peer_page_about(struct peer *peer, uint32_t page);
/* HELD by us -> KEPT by the peer's port. peer_page_drop() ends it. */
void peer_page_keep(struct peer *peer, uint32_t page);
/* As job_take_page(), for a page that has been described: KEPT by the peer's port. */
int peer_page_keep_job(struct job *job, uint32_t page);

/*
 * The data of a call are these pages of the shard's own, held or kept; they must stay until it has
 * ended, and are not freed with it. Data of READ and WRITE begin at call->offset % XSEG_PAGE of the
 * first: set op, offset and length before. -EAGAIN: no page for the list of a long run; call_end().
 */
int call_lend(struct call *call, const uint32_t *pages, uint32_t count);

/*
 * The pins that a READ was answered with (job_answer_pages) are dropped by its client, which tells
 * nobody. Taken before the job is completed, a ticket says later whether they are gone.
 */
uint64_t peer_ticket_of(const struct job *job);
bool peer_ticket_spent(const struct peer *peer, uint64_t ticket);

/* Another shard of this peer (or this one) is to have a turn, and its poll() called: what they
   share has changed. Any thread. */
void peer_wake(struct peer *peer, unsigned shard);

#endif
