/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what commands found: tables through libsmartcols, JSON, JSON lines and CSV. */
#include "tools/ctl/ctl_output.h"

#include <base/must.h>
#include <base/size.h>
#include <libsmartcols/libsmartcols.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define WIDE_COLUMNS 100

bool ctl_output_is_json(const struct ctl *ctl)
{
	return ctl->format == CTL_JSON || ctl->format == CTL_JSONL;
}

/* --- cells ------------------------------------------------------------------------------ */

const char *ctl_output_time(uint64_t ns, char *buffer, size_t buffer_size)
{
	if (ns < 1000)
		snprintf(buffer, buffer_size, "%llu ns", (unsigned long long)ns);
	else if (ns < 1000000)
		snprintf(buffer, buffer_size, "%.1f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(buffer, buffer_size, "%.1f ms", (double)ns / 1e6);
	else
		snprintf(buffer, buffer_size, "%.1f s", (double)ns / 1e9);
	return buffer;
}

static void format_date(uint64_t ns, char *out, size_t out_size)
{
	time_t seconds = (time_t)(ns / 1000000000u);
	struct tm tm;
	localtime_r(&seconds, &tm);
	strftime(out, out_size, "%Y-%m-%d %H:%M:%S", &tm);
}

static const json_t *look_into(const json_t *row, const char *key)
{
	char part[64];
	const char *dot;
	while ((dot = strchr(key, '.'))) {
		snprintf(part, sizeof(part), "%.*s", (int)(dot - key), key);
		row = json_object_get(row, part);
		key = dot + 1;
	}
	return json_object_get(row, key);
}

static void number_cell(uint64_t value, unsigned kind, char *out, size_t out_size)
{
	if (kind == CTL_SIZE)
		size_format(value, out, out_size);
	else if (kind == CTL_TIME)
		ctl_output_time(value, out, out_size);
	else if (kind == CTL_DATE)
		format_date(value, out, out_size);
	else
		snprintf(out, out_size, "%lld", (long long)value);
}

void ctl_output_cell(
	const json_t *row, const struct ctl_column *column, bool raw, char *out, size_t out_size)
{
	const json_t *value = look_into(row, column->key);
	if (json_is_integer(value))
		number_cell((uint64_t)json_integer_value(value),
			raw ? CTL_COUNT : column->kind & ~CTL_WIDE, out, out_size);
	else if (json_is_real(value))
		snprintf(out, out_size, "%.1f", json_real_value(value));
	else if (json_is_boolean(value) && raw)
		snprintf(out, out_size, "%s", json_is_true(value) ? "true" : "false");
	else if (json_is_boolean(value))
		snprintf(out, out_size, "%s", json_is_true(value) ? "yes" : "no");
	else if (json_is_string(value))
		snprintf(out, out_size, "%s", json_string_value(value));
	else
		snprintf(out, out_size, "%s", raw ? "" : "-");
}

/* --- CSV -------------------------------------------------------------------------------- */

/* RFC 4180: quoted where it must be, quotes doubled. */
static void csv_field(const char *text, bool last)
{
	if (strpbrk(text, ",\"\r\n")) {
		putchar('"');
		for (; *text; text++) {
			if (*text == '"')
				putchar('"');
			putchar(*text);
		}
		putchar('"');
	} else {
		fputs(text, stdout);
	}
	putchar(last ? '\n' : ',');
}

static void csv_rows(const json_t *rows, const struct ctl_column *columns, size_t count)
{
	char cell[512];
	for (size_t i = 0; i < count; i++)
		csv_field(columns[i].key, i + 1 == count);
	for (size_t r = 0; r < json_array_size(rows); r++)
		for (size_t i = 0; i < count; i++) {
			ctl_output_cell(
				json_array_get(rows, r), &columns[i], true, cell, sizeof(cell));
			csv_field(cell, i + 1 == count);
		}
}

/* --- tables ----------------------------------------------------------------------------- */

static void table_column(struct libscols_table *table, const char *title, bool right)
{
	must(scols_table_new_column(table, title, 0, right ? SCOLS_FL_RIGHT : 0));
}

static struct libscols_line *table_line(struct libscols_table *table)
{
	struct libscols_line *line = scols_table_new_line(table, NULL);
	must(line);
	return line;
}

static struct libscols_table *table_new(bool headings)
{
	struct libscols_table *table = scols_new_table();
	must(table);
	scols_table_enable_noheadings(table, !headings);
	return table;
}

static bool is_narrow(void)
{
	struct winsize size;
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 &&
	       size.ws_col < WIDE_COLUMNS;
}

static bool is_number(const struct ctl_column *column)
{
	unsigned kind = column->kind & ~CTL_WIDE;
	return kind != CTL_TEXT && kind != CTL_DATE;
}

static void table_rows(const json_t *rows, const struct ctl_column *columns, size_t count)
{
	struct libscols_table *table = table_new(true);
	unsigned without = is_narrow() ? CTL_WIDE : 0;
	char cell[512];
	for (size_t i = 0; i < count; i++)
		if (!(columns[i].kind & without))
			table_column(table, columns[i].title, is_number(&columns[i]));
	for (size_t r = 0; r < json_array_size(rows); r++) {
		struct libscols_line *line = table_line(table);
		for (size_t i = 0, at = 0; i < count; i++) {
			if (columns[i].kind & without)
				continue;
			ctl_output_cell(
				json_array_get(rows, r), &columns[i], false, cell, sizeof(cell));
			must(scols_line_set_data(line, at++, cell) == 0);
		}
	}
	scols_print_table(table);
	scols_unref_table(table);
}

void ctl_output_lines(
	const struct ctl *ctl, const json_t *object, const struct ctl_column *columns, size_t count)
{
	if (ctl->format == CTL_CSV) {
		json_t *rows = json_pack("[O]", object);
		csv_rows(rows, columns, count);
		json_decref(rows);
		return;
	}
	struct libscols_table *table = table_new(false);
	char cell[512];
	table_column(table, "KEY", false);
	table_column(table, "VALUE", false);
	for (size_t i = 0; i < count; i++) {
		struct libscols_line *line = table_line(table);
		ctl_output_cell(object, &columns[i], false, cell, sizeof(cell));
		must(scols_line_set_data(line, 0, columns[i].title) == 0);
		must(scols_line_set_data(line, 1, cell) == 0);
	}
	scols_print_table(table);
	scols_unref_table(table);
}

void ctl_output_table(
	const struct ctl *ctl, const json_t *rows, const struct ctl_column *columns, size_t count)
{
	if (ctl->format == CTL_CSV)
		csv_rows(rows, columns, count);
	else if (json_array_size(rows))
		table_rows(rows, columns, count);
}

/* --- JSON ------------------------------------------------------------------------------- */

json_t *ctl_output_versioned(json_t *object)
{
	json_t *out = json_pack("{s:i}", "schema_version", CTL_SCHEMA_VERSION);
	json_object_update_missing(out, object);
	json_decref(object);
	return out;
}

void ctl_output_json(const struct ctl *ctl, json_t *object)
{
	size_t flags = ctl->format == CTL_JSON ? JSON_INDENT(2) : JSON_COMPACT;
	json_dumpf(object, stdout, flags);
	putchar('\n');
	json_decref(object);
}

void ctl_output_rows(const struct ctl *ctl, const char *key, json_t *rows,
	const struct ctl_column *columns, size_t count)
{
	if (ctl->format == CTL_JSON) {
		ctl_output_json(ctl, ctl_output_versioned(json_pack("{s:O}", key, rows)));
	} else if (ctl->format == CTL_JSONL) {
		for (size_t i = 0; i < json_array_size(rows); i++)
			ctl_output_json(
				ctl, ctl_output_versioned(json_copy(json_array_get(rows, i))));
	} else {
		ctl_output_table(ctl, rows, columns, count);
	}
	json_decref(rows);
}

void ctl_output_one(
	const struct ctl *ctl, json_t *object, const struct ctl_column *columns, size_t count)
{
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, ctl_output_versioned(object));
		return;
	}
	ctl_output_lines(ctl, object, columns, count);
	json_decref(object);
}
