/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong, as a user is told it: the thing, the cause and the next step. The same in
 * xsegctl (exit code, message or JSON) and on the keeper's socket (JSON-RPC error).
 *
 * Errors: set returns -code, so that `return fault_set(...)` reads well. Ownership: the caller's
 * struct. Threads: any. Blocking: none.
 */
#ifndef SKERRY_TOOLS_FAULT_H
#define SKERRY_TOOLS_FAULT_H

#include <jansson.h>
#include <stdbool.h>

/* Exit codes and error codes. */
enum fault_code {
	FAULT_NONE,
	FAULT_FAILED,
	FAULT_USAGE,
	FAULT_NOT_FOUND,
	FAULT_CONFLICT,
	FAULT_BUSY,
	FAULT_KEEPER_AWAY,
	FAULT_TIMEOUT,
	FAULT_PARTLY,
	FAULT_CODES
};

struct fault {
	enum fault_code code;
	bool again; /* it passes by itself: the same call may do in a moment */
	char message[768];
	char hint[256];
	char object[256];
};

/* object and hint may be NULL. */
int fault_set(struct fault *fault, enum fault_code code, const char *object, const char *hint,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Another one with that hint, busy for a moment: -FAULT_BUSY. */
int fault_set_again(struct fault *fault, const char *object, const char *hint, const char *format,
	...) __attribute__((format(printf, 4, 5)));
/* A hint made of parts, after fault_set(). */
void fault_hint(struct fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "did you mean 'X'?" when something is near; else `otherwise`. */
void fault_nearest(struct fault *fault, const char *given, const char *const *names, size_t count,
	const char *otherwise);
/* The code that a negative errno stands for. */
enum fault_code fault_code_of_errno(int error);
/* "not-found" */
const char *fault_name(enum fault_code code);
/* {"code", "name", "message", "hint", "object"}, and "again" when that is true; new reference. */
json_t *fault_to_json(const struct fault *fault);
/* From the same; what is missing or of another type becomes "failed" and empty. */
void fault_from_json(struct fault *fault, const json_t *json);

#endif
