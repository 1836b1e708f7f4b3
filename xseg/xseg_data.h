/* SPDX-License-Identifier: Apache-2.0 */
/* Between the verbs and the data of the requests they move. */
#ifndef SKERRY_XSEG_XSEG_DATA_H
#define SKERRY_XSEG_XSEG_DATA_H

#include <xseg/lane.h>

/* Unpins and frees whatever the request holds: the last thing before its slot is free. */
void data_drop(struct xseg_lane *lane, struct xseg_request *request);
/* Run number i, from the slot or its list pages; -ENOENT where there cannot be one. */
int data_run(const struct xseg *seg, const struct xseg_request *request, uint32_t i,
	struct xseg_extent *run);

#endif
