/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the operations, as counters, traces and errors print them. */
#include <xseg/op.h>

const char *xseg_op_name(unsigned op)
{
	static const char *const names[XSEG_OP_COUNT] = {
		[XSEG_OP_NONE] = "none",
		[XSEG_OP_READ] = "read",
		[XSEG_OP_WRITE] = "write",
		[XSEG_OP_ZERO] = "zero",
		[XSEG_OP_DISCARD] = "discard",
		[XSEG_OP_FLUSH] = "flush",
		[XSEG_OP_PREFETCH] = "prefetch",
		[XSEG_OP_STATUS] = "status",
		[XSEG_OP_COPY] = "copy",
		[XSEG_OP_DELETE] = "delete",
		[XSEG_OP_CAS] = "cas",
		[XSEG_OP_OPEN] = "open",
		[XSEG_OP_CLOSE] = "close",
		[XSEG_OP_INFO] = "info",
		[XSEG_OP_LIST] = "list",
		[XSEG_OP_CREATE] = "create",
		[XSEG_OP_UPDATE] = "update",
		[XSEG_OP_REMOVE] = "remove",
		[XSEG_OP_CONTROL] = "control",
	};
	return op < XSEG_OP_COUNT ? names[op] : "unknown";
}
