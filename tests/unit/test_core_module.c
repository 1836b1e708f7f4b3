/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: found by name in their folder, checked, and never loaded from anywhere else. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/core_rig.h"

static char folder[160];

static void folder_begin(void)
{
	snprintf(folder, sizeof(folder), "%s/modules.%d", scratch_dir(), (int)getpid());
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(setenv("SKERRY_MODULE_DIR", folder, 1), 0);
}

static void file_with(const char *name, const char *bytes)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	fputs(bytes, file);
	fclose(file);
}

UNIT(test_none)
{
	const struct peer_ops *ops;
	void *module;
	char why[WHY_SIZE] = "";
	folder_begin();
	ck_assert_int_eq(module_open("blocker_null", &module, &ops, why), -ENOENT);
	ck_assert(strstr(why, "there is no role 'blocker_null' in"));
	ck_assert(strstr(why, folder));
}

UNIT(test_nearest)
{
	const struct peer_ops *ops;
	void *module;
	char why[WHY_SIZE] = "";
	folder_begin();
	file_with("blocker_null.so", "");
	file_with("front_nbd.so", "");
	ck_assert_int_eq(module_open("blocker_nul", &module, &ops, why), -ENOENT);
	ck_assert_str_eq(why, "there is no role 'blocker_nul'; did you mean 'blocker_null'?");
}

UNIT(test_broken)
{
	const struct peer_ops *ops;
	void *module;
	char why[WHY_SIZE] = "";
	folder_begin();
	file_with("blocker_null.so", "this is no shared object");
	ck_assert_int_eq(module_open("blocker_null", &module, &ops, why), -ELIBBAD);
	ck_assert(strstr(why, "does not load"));
}

/* A real shared object without a role in it: the C library's own. */
UNIT(test_foreign)
{
	const struct peer_ops *ops;
	void *module = NULL;
	char why[WHY_SIZE] = "", path[256];
	folder_begin();
	snprintf(path, sizeof(path), "%s/libm.so", folder);
	if (symlink("/lib/x86_64-linux-gnu/libm.so.6", path) || access(path, R_OK))
		return; /* another machine: nothing to open */
	ck_assert_int_eq(module_open("libm", &module, &ops, why), -ELIBBAD);
	ck_assert(strstr(why, "does not hold the role 'libm'"));
	ck_assert_ptr_null(module);
}

UNIT(test_names)
{
	static const char *const wild[] = {"../x", "", ".", "a/b", "-x", "x y"};
	const struct peer_ops *ops;
	void *module;
	char why[WHY_SIZE];
	folder_begin();
	for (unsigned i = 0; i < countof(wild); i++)
		ck_assert_int_eq(module_open(wild[i], &module, &ops, why), -ENOENT);
}

UNIT(test_inside)
{
	const struct peer_ops *ops;
	void *module = &folder;
	char why[WHY_SIZE];
	folder_begin();
	module_register(&rig_store_ops);
	ck_assert_int_eq(module_open("t_store", &module, &ops, why), 0);
	ck_assert_ptr_eq(ops, &rig_store_ops);
	ck_assert_ptr_null(module);
	module_close(module);
}
