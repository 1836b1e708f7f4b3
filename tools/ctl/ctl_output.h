/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data on stdout: a table for people, JSON, one JSON object a line, or CSV, all from the same
 * JSON and a table of columns.
 *
 * Units: JSON sizes in bytes, times in ns; tables say their units. Ownership: JSON given is stolen.
 * Threads: one.
 */
#ifndef SKERRY_TOOLS_CTL_OUTPUT_H
#define SKERRY_TOOLS_CTL_OUTPUT_H

#include "tools/ctl/ctl.h"

enum ctl_kind {
	CTL_TEXT,  /* as it is; true and false as yes and no */
	CTL_COUNT, /* right-aligned */
	CTL_SIZE,  /* "4.0 KiB" */
	CTL_TIME,  /* ns -> "12.3 us" */
	CTL_DATE,  /* ns of the wall clock -> "2025-01-31 12:00:00" */
	/* kind | CTL_WIDE: left out of a table on a terminal of less than 100 columns */
	CTL_WIDE = 16,
};

struct ctl_column {
	const char *key; /* "pages.free" looks into objects */
	const char *title;
	unsigned kind; /* enum ctl_kind */
};

/* Many: {"schema_version", KEY: [rows]}, a line for each with -o jsonl. */
void ctl_output_rows(const struct ctl *ctl, const char *key, json_t *rows,
	const struct ctl_column *columns, size_t count);
/* One thing: as an object, or as lines "TITLE  value". */
void ctl_output_one(
	const struct ctl *ctl, json_t *object, const struct ctl_column *columns, size_t count);
/* Only for tables and CSV; borrows. */
void ctl_output_table(
	const struct ctl *ctl, const json_t *rows, const struct ctl_column *columns, size_t count);
void ctl_output_lines(const struct ctl *ctl, const json_t *object, const struct ctl_column *columns,
	size_t count);
/* An object, whole, in one of the JSON formats; steals. */
void ctl_output_json(const struct ctl *ctl, json_t *object);
/* "schema_version" first, then what `object` has; steals. */
json_t *ctl_output_versioned(json_t *object);
bool ctl_output_is_json(const struct ctl *ctl);
/* One cell as text: what tables show, or with `raw` what CSV does. */
void ctl_output_cell(
	const json_t *row, const struct ctl_column *column, bool raw, char *out, size_t out_size);
const char *ctl_output_time(uint64_t ns, char *buffer, size_t buffer_size);

#endif
