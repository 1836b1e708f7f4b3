/* SPDX-License-Identifier: Apache-2.0 */
/* From a member to the struct that it is in. */
#ifndef SKERRY_BASE_CONTAINER_H
#define SKERRY_BASE_CONTAINER_H

#include <stddef.h>
#include <stdint.h>

/* `member` points to the member `name` of a `type`. */
#define container_of(member, type, name) \
	((type *)(void *)((uint8_t *)(uintptr_t)(member)-offsetof(type, name)))

#endif
