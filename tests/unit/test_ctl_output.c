/* SPDX-License-Identifier: Apache-2.0 */
/* Output: cells, formats as they are printed, faults as JSON, times, and runs of zeros. */
#include <base/time.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tools/ctl/ctl_copy.h"
#include "tools/ctl/ctl_output.h"
#include "tools/report/program.h"

static const struct ctl_column columns[] = {{"name", "NAME", CTL_TEXT}, {"size", "SIZE", CTL_SIZE},
	{"in.ns", "TIME", CTL_TIME}, {"good", "GOOD", CTL_TEXT}};

static json_t *row(const char *name, json_int_t size)
{
	return json_pack("{s:s, s:I, s:{s:I}, s:b}", "name", name, "size", size, "in", "ns",
		(json_int_t)1500, "good", 1);
}

/* What a call prints on stdout. */
static char printed[4096];
static int saved_stdout;

static void print_begin(void)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/out", scratch_dir());
	fflush(stdout);
	saved_stdout = dup(STDOUT_FILENO);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	dup2(fd, STDOUT_FILENO);
	close(fd);
}

static void print_end(void)
{
	fflush(stdout);
	ssize_t n = pread(STDOUT_FILENO, printed, sizeof(printed) - 1, 0);
	printed[n > 0 ? n : 0] = 0;
	dup2(saved_stdout, STDOUT_FILENO);
	close(saved_stdout);
}

static void print_rows(enum ctl_format format)
{
	struct ctl ctl = {.format = format};
	json_t *rows = json_array();
	json_array_append_new(rows, row("a", 4096));
	json_array_append_new(rows, row("b, \"c\"", 1));
	print_begin();
	ctl_output_rows(&ctl, "rows", rows, columns, 4);
	print_end();
}

UNIT(test_rows)
{
	print_rows(CTL_CSV);
	ck_assert_str_eq(printed, "name,size,in.ns,good\na,4096,1500,true\n"
				  "\"b, \"\"c\"\"\",1,1500,true\n");
	print_rows(CTL_JSONL);
	ck_assert_str_eq(printed,
		"{\"schema_version\":1,\"name\":\"a\",\"size\":4096,\"in\":{\"ns\":1500},"
		"\"good\":true}\n{\"schema_version\":1,\"name\":\"b, \\\"c\\\"\",\"size\":1,"
		"\"in\":{\"ns\":1500},\"good\":true}\n");
	print_rows(CTL_JSON);
	json_t *all = json_loads(printed, 0, NULL);
	ck_assert_int_eq(json_integer_value(json_object_get(all, "schema_version")), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(all, "rows")), 2);
	json_decref(all);
	print_rows(CTL_TABLE);
	ck_assert_ptr_nonnull(strstr(printed, "NAME"));
	ck_assert_ptr_nonnull(strstr(printed, "4.0 KiB 1.5 us yes"));
}

UNIT(test_one)
{
	struct ctl ctl = {.format = CTL_CSV};
	print_begin();
	ctl_output_one(&ctl, row("x", 512), columns, 4);
	print_end();
	ck_assert_str_eq(printed, "name,size,in.ns,good\nx,512,1500,true\n");
	ctl.format = CTL_TABLE;
	print_begin();
	ctl_output_one(&ctl, row("x", 512), columns, 4);
	print_end();
	ck_assert_ptr_nonnull(strstr(printed, "NAME x\nSIZE 512 B\n"));
}

UNIT(test_cells)
{
	json_t *object = json_pack("{s:n, s:f, s:[], s:b}", "null", "real", 1.25, "list", "no", 0);
	char cell[64];
	static const struct ctl_column missing = {"a.b", "X", CTL_TEXT},
				       real = {"real", "X", CTL_TEXT}, no = {"no", "X", CTL_TEXT},
				       null = {"null", "X", CTL_SIZE};
	ctl_output_cell(object, &missing, false, cell, sizeof(cell));
	ck_assert_str_eq(cell, "-");
	ctl_output_cell(object, &null, true, cell, sizeof(cell));
	ck_assert_str_eq(cell, "");
	ctl_output_cell(object, &real, false, cell, sizeof(cell));
	ck_assert_str_eq(cell, "1.2");
	ctl_output_cell(object, &no, false, cell, sizeof(cell));
	ck_assert_str_eq(cell, "no");
	json_decref(object);
	ck_assert_str_eq(ctl_output_time(999, cell, sizeof(cell)), "999 ns");
	ck_assert_str_eq(ctl_output_time(1000, cell, sizeof(cell)), "1.0 us");
	ck_assert_str_eq(ctl_output_time(2500000, cell, sizeof(cell)), "2.5 ms");
	ck_assert_str_eq(ctl_output_time(90000000000, cell, sizeof(cell)), "90.0 s");
}

UNIT(test_fault)
{
	struct fault fault = {0}, back;
	static const char *const names[] = {"store", "volume"};
	ck_assert_int_eq(fault_set(&fault, FAULT_BUSY, "x", "wait", "'%s' is busy", "x"), -5);
	json_t *json = fault_to_json(&fault);
	char *text = json_dumps(json, JSON_COMPACT);
	ck_assert_str_eq(text, "{\"code\":5,\"name\":\"busy\",\"message\":\"'x' is busy\","
			       "\"hint\":\"wait\",\"object\":\"x\"}");
	fault_from_json(&back, json);
	ck_assert_int_eq(back.code, FAULT_BUSY);
	ck_assert_str_eq(back.message, "'x' is busy");
	ck_assert(!back.again);
	free(text);
	json_decref(json);
	ck_assert_int_eq(fault_set_again(&fault, "x", "wait", "'%s' comes", "x"), -5);
	json = fault_to_json(&fault);
	fault_from_json(&back, json);
	ck_assert(back.again);
	json_decref(json);
	ck_assert_int_eq(fault_set(&fault, FAULT_BUSY, "x", "wait", "'%s' is busy", "x"), -5);
	ck_assert(!fault.again);
	json = json_loads("{\"code\": 99, \"message\": 3}", 0, NULL);
	fault_from_json(&back, json);
	ck_assert_int_eq(back.code, FAULT_FAILED);
	ck_assert_str_eq(back.message, "");
	json_decref(json);
	fault_nearest(&fault, "stor", names, 2, "none");
	ck_assert_str_eq(fault.hint, "did you mean 'store'?");
	fault_nearest(&fault, "zzzzzzzz", names, 2, "none");
	ck_assert_str_eq(fault.hint, "none");
	ck_assert_int_eq(fault_code_of_errno(-ETIMEDOUT), FAULT_TIMEOUT);
	ck_assert_int_eq(fault_code_of_errno(-EIO), FAULT_FAILED);
}

UNIT(test_times)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {{"1", 1000000000}, {"1.5s", 1500000000}, {"20ms", 20000000}, {"3us", 3000},
		{"7ns", 7}, {"2m", 120000000000}, {"1h", 3600000000000}};
	static const char *const bad[] = {"", "s", "0", "-1s", "1 s", "1d", "1e99", "nan", "0.1ns"};
	uint64_t ns;
	for (size_t i = 0; i < countof(good); i++) {
		ck_assert_int_eq(time_parse_positive(good[i].text, &ns), 0);
		ck_assert_uint_eq(ns, good[i].ns);
	}
	for (size_t i = 0; i < countof(bad); i++)
		ck_assert_msg(time_parse_positive(bad[i], &ns) == -EINVAL, "'%s' is taken", bad[i]);
}

/* Every block that is not all zero is in one run, and no other. */
UNIT(test_runs)
{
	static uint8_t data[64 * CTL_COPY_BLOCK];
	uint64_t seed = 42;
	for (int round = 0; round < 200; round++) {
		uint32_t length = (uint32_t)(random_next(&seed) % sizeof(data)) & ~511u;
		uint8_t seen[64] = {0};
		memset(data, 0, sizeof(data));
		for (int i = 0; i < 10 && length; i++)
			data[random_next(&seed) % length] = 1;
		uint32_t at = 0, run, end = 0;
		for (; ctl_copy_run(data, length, &at, &run); at += run, end = at) {
			ck_assert_uint_eq(at % CTL_COPY_BLOCK, 0);
			ck_assert(end == 0 || at > end); /* never two runs in touch */
			ck_assert_uint_le(at + run, length);
			memset(seen + at / CTL_COPY_BLOCK, 1,
				(run + CTL_COPY_BLOCK - 1) / CTL_COPY_BLOCK);
		}
		for (uint32_t b = 0; b < 64; b++) {
			bool any = memchr(data + b * CTL_COPY_BLOCK, 1, CTL_COPY_BLOCK) != NULL;
			ck_assert_uint_eq(seen[b], any);
		}
	}
}

/* However small the segment, a quarter of its pages is the most. */
UNIT(test_plan)
{
	for (uint32_t pages = 16; pages < 1u << 22; pages *= 2) {
		struct xseg seg = {.page_count = pages};
		struct ctl_copy_plan plan;
		ctl_copy_plan(&seg, &plan);
		ck_assert_uint_le(
			(uint64_t)plan.chunk * plan.depth, (uint64_t)pages * XSEG_PAGE / 4);
		ck_assert_uint_ge(plan.chunk, CTL_COPY_BLOCK);
	}
}

UNIT(test_last_line)
{
	char line[32];
	program_last_line("one\n<3>two: three\n\n", line, sizeof(line));
	ck_assert_str_eq(line, "two: three");
	program_last_line("", line, sizeof(line));
	ck_assert_str_eq(line, "");
	program_last_line("a line that is longer than there is room for it", line, sizeof(line));
	ck_assert_uint_eq(strlen(line), sizeof(line) - 1);
}

UNIT(test_program_run)
{
	struct program_result result;
	char *talk[] = {"/bin/sh", "-c", "echo out; echo err >&2; exit 3", NULL};
	ck_assert_int_eq(program_run(talk, 10000000000u, &result), 0);
	ck_assert_str_eq(result.out, "out\n");
	ck_assert_str_eq(result.err, "err\n");
	ck_assert_int_eq(result.status, 3 << 8);
	program_result_free(&result);
	char *sleep[] = {"/bin/sleep", "100", NULL};
	ck_assert_int_eq(program_run(sleep, 50000000u, &result), -ETIMEDOUT);
	program_result_free(&result);
	char *none[] = {"/nonexistent/program", NULL};
	ck_assert_int_eq(program_run(none, 10000000000u, &result), 0);
	ck_assert_int_eq(result.status, 127 << 8);
	program_result_free(&result);
}
