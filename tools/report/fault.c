/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as users meet them: code, message, hint and the object they are about. */
#include "tools/report/fault.h"

#include <base/name.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const fault_names[FAULT_CODES] = {
	[FAULT_NONE] = "none",
	[FAULT_FAILED] = "failed",
	[FAULT_USAGE] = "usage",
	[FAULT_NOT_FOUND] = "not-found",
	[FAULT_CONFLICT] = "conflict",
	[FAULT_BUSY] = "busy",
	[FAULT_KEEPER_AWAY] = "keeper-away",
	[FAULT_TIMEOUT] = "timeout",
	[FAULT_PARTLY] = "partly-done",
};

static int set(struct fault *fault, enum fault_code code, const char *object, const char *hint,
	const char *format, va_list list)
{
	vsnprintf(fault->message, sizeof(fault->message), format, list);
	fault->code = code;
	fault->again = false;
	snprintf(fault->hint, sizeof(fault->hint), "%s", hint ? hint : "");
	snprintf(fault->object, sizeof(fault->object), "%s", object ? object : "");
	name_make_utf8(fault->message);
	name_make_utf8(fault->hint);
	name_make_utf8(fault->object);
	return -(int)code;
}

int fault_set(struct fault *fault, enum fault_code code, const char *object, const char *hint,
	const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int rc = set(fault, code, object, hint, format, list);
	va_end(list);
	return rc;
}

int fault_set_again(
	struct fault *fault, const char *object, const char *hint, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int rc = set(fault, FAULT_BUSY, object, hint, format, list);
	va_end(list);
	fault->again = true;
	return rc;
}

void fault_hint(struct fault *fault, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(fault->hint, sizeof(fault->hint), format, list);
	va_end(list);
	name_make_utf8(fault->hint);
}

void fault_nearest(struct fault *fault, const char *given, const char *const *names, size_t count,
	const char *otherwise)
{
	const char *nearest = name_nearest(given, names, count);
	if (nearest)
		fault_hint(fault, "did you mean '%s'?", nearest);
	else
		fault_hint(fault, "%s", otherwise);
}

enum fault_code fault_code_of_errno(int error)
{
	switch (-error) {
	case 0: return FAULT_NONE;
	case ENOENT: return FAULT_NOT_FOUND;
	case EEXIST: return FAULT_CONFLICT;
	case EBUSY: return FAULT_BUSY;
	case ETIMEDOUT: return FAULT_TIMEOUT;
	default: return FAULT_FAILED;
	}
}

const char *fault_name(enum fault_code code)
{
	return (unsigned)code < FAULT_CODES ? fault_names[code] : "failed";
}

json_t *fault_to_json(const struct fault *fault)
{
	json_t *json = json_pack("{s:i, s:s, s:s, s:s, s:s}", "code", (int)fault->code, "name",
		fault_name(fault->code), "message", fault->message, "hint", fault->hint, "object",
		fault->object);
	if (fault->again)
		json_object_set_new(json, "again", json_true());
	return json;
}

static void fault_copy_text(char *out, size_t out_size, const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));
	snprintf(out, out_size, "%s", text ? text : "");
}

void fault_from_json(struct fault *fault, const json_t *json)
{
	json_int_t code = json_integer_value(json_object_get(json, "code"));
	fault->code = code > 0 && code < FAULT_CODES ? (enum fault_code)code : FAULT_FAILED;
	fault->again = json_is_true(json_object_get(json, "again"));
	fault_copy_text(fault->message, sizeof(fault->message), json, "message");
	fault_copy_text(fault->hint, sizeof(fault->hint), json, "hint");
	fault_copy_text(fault->object, sizeof(fault->object), json, "object");
}
