/* SPDX-License-Identifier: Apache-2.0 */
/* Roles are modules: ROLE.so in one folder, each with `peer_module`. */
#include <base/name.h>
#include <base/path.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/core/core.h"

#define MODULE_SUFFIX ".so"
#define MODULES_MAX 64u

/* Beside a program that was built but not installed: <its folder>/.libs, as libtool has it. */
static bool module_build_dir(char out[PATH_LENGTH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", out, PATH_LENGTH_MAX - 1);
	if (length <= 0 || length >= PATH_LENGTH_MAX - 1)
		return false;
	out[length] = '\0';
	char *slash = strrchr(out, '/');
	if (!slash)
		return false;
	*slash = '\0';
	/* the program itself may lie in .libs, behind libtool's script */
	char *last = strrchr(out, '/');
	if (last && !strcmp(last, "/.libs"))
		return access(out, R_OK | X_OK) == 0;
	if (strlen(out) + sizeof("/.libs") > PATH_LENGTH_MAX)
		return false;
	strcat(out, "/.libs");
	return access(out, R_OK | X_OK) == 0;
}

static const char *module_dir(char buffer[PATH_LENGTH_MAX])
{
	const char *moved = getenv("SKERRY_MODULE_DIR");
	if (moved && *moved)
		return moved;
	return module_build_dir(buffer) ? buffer : PKGLIBDIR;
}

static bool module_role(const char *file, char role[NAME_LENGTH_MAX + 1])
{
	size_t length = strlen(file), suffix = strlen(MODULE_SUFFIX);
	if (length <= suffix || length - suffix > NAME_LENGTH_MAX ||
		strcmp(file + length - suffix, MODULE_SUFFIX))
		return false;
	memcpy(role, file, length - suffix);
	role[length - suffix] = '\0';
	return name_check(role);
}

/* 0, or -ENOENT, -ELIBBAD with the linker's own words in `why`. */
static int module_load(
	const char *dir, const char *role, void **module, const struct peer_ops **ops, char *why)
{
	char path[PATH_LENGTH_MAX];
	if (snprintf(path, sizeof(path), "%s/%s%s", dir, role, MODULE_SUFFIX) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (access(path, R_OK) != 0)
		return -ENOENT;
	*module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!*module) {
		snprintf(why, WHY_SIZE, "module %s does not load: %s", path, dlerror());
		return -ELIBBAD;
	}
	const struct peer_ops *const *symbol = dlsym(*module, "peer_module");
	const unsigned *interface = dlsym(*module, "peer_module_interface");
	if (symbol && interface && *interface != PEER_INTERFACE) {
		snprintf(why, WHY_SIZE,
			"module %s was built with version %u of the peer interface, this program "
			"has "
			"%u; build it anew",
			path, *interface, PEER_INTERFACE);
	} else if (symbol && interface && *symbol && (*symbol)->name &&
		   !strcmp((*symbol)->name, role)) {
		*ops = *symbol;
		return 0;
	} else {
		snprintf(why, WHY_SIZE, "module %s does not hold the role '%s'", path, role);
	}
	dlclose(*module);
	*module = NULL;
	return -ELIBBAD;
}

/* Roles that are part of the program itself. */
static const struct peer_ops *module_inside[MODULES_MAX];
static size_t module_inside_count;

void module_register(const struct peer_ops *ops)
{
	must(module_inside_count < MODULES_MAX && ops->name);
	module_inside[module_inside_count++] = ops;
}

static const struct peer_ops *module_find_inside(const char *role)
{
	for (size_t i = 0; i < module_inside_count; i++)
		if (!strcmp(module_inside[i]->name, role))
			return module_inside[i];
	return NULL;
}

static int module_by_name(const void *a, const void *b) { return strcmp(a, b); }

/* Names of the roles there are, in order; how many. */
static size_t module_names(const char *dir, char names[MODULES_MAX][NAME_LENGTH_MAX + 1])
{
	size_t count = 0;
	DIR *folder = opendir(dir);
	if (!folder)
		return 0;
	for (struct dirent *entry; (entry = readdir(folder)) && count < MODULES_MAX;)
		if (module_role(entry->d_name, names[count]))
			count++;
	closedir(folder);
	qsort(names, count, sizeof(names[0]), module_by_name);
	return count;
}

static void module_unknown(const char *dir, const char *role, char why[WHY_SIZE])
{
	char names[MODULES_MAX][NAME_LENGTH_MAX + 1];
	const char *list[MODULES_MAX];
	size_t count = module_names(dir, names);
	for (size_t i = 0; i < count; i++)
		list[i] = names[i];
	const char *nearest = name_nearest(role, list, count);
	if (nearest)
		snprintf(why, WHY_SIZE, "there is no role '%s'; did you mean '%s'?", role, nearest);
	else
		snprintf(why, WHY_SIZE,
			"there is no role '%s' in %s; 'xsegpeer --list' shows those there are",
			role, dir);
}

int module_open(const char *role, void **module, const struct peer_ops **ops, char why[WHY_SIZE])
{
	char buffer[PATH_LENGTH_MAX];
	const char *dir = module_dir(buffer);
	*module = NULL;
	*ops = module_find_inside(role);
	if (*ops)
		return 0;
	int error = name_check(role) ? module_load(dir, role, module, ops, why) : -ENOENT;
	if (error == -ENOENT)
		module_unknown(dir, role, why);
	else if (error == -ENAMETOOLONG)
		snprintf(why, WHY_SIZE, "the module folder %s has too long a name", dir);
	return error;
}

void module_close(void *module)
{
	if (module)
		dlclose(module);
}

int module_visit(void (*visit)(const struct peer_ops *ops, void *context), void *context)
{
	char buffer[PATH_LENGTH_MAX], names[MODULES_MAX][NAME_LENGTH_MAX + 1], why[WHY_SIZE];
	const char *dir = module_dir(buffer);
	size_t count = module_names(dir, names);
	for (size_t i = 0; i < count; i++) {
		const struct peer_ops *ops;
		void *module;
		if (module_load(dir, names[i], &module, &ops, why))
			continue; /* another kind of module */
		visit(ops, context);
		module_close(module);
	}
	return count ? 0 : -ENOENT;
}
