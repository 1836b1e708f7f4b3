/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things lie; each folder is moved by one variable.
 *   SKERRY_SHM_DIR    segments            /dev/shm
 *   SKERRY_RUN_DIR    sockets and bells   /run/skerry
 * Errors: -ENAMETOOLONG. Threads: any.
 */
#ifndef SKERRY_BASE_PATH_H
#define SKERRY_BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define PATH_LENGTH_MAX 256

const char *path_shm_dir(void);
const char *path_run_dir(void);
/* <shm dir>/xseg.SEGMENT */
int path_segment(char out[PATH_LENGTH_MAX], const char *segment);
/* <run dir>/SEGMENT[/leaf]; leaf may be NULL */
int path_run(char out[PATH_LENGTH_MAX], const char *segment, const char *leaf);
/* <shm dir>/region:SEGMENT:LEAF: the memory of a front's volumes; leaf may be a pattern. */
int path_region(char out[PATH_LENGTH_MAX], const char *segment, const char *leaf);
/*
 * May we rely on what lies there? In folders that all may write to, others can be first to make
 * what we look for. It is to be ours, root's, or of whom the run folder is; and nobody else may
 * write to it.
 */
bool path_is_trusted(const struct stat *st);
/* As open(), but no link is followed in the last place; -EPERM, in errno too: not trusted. */
int path_open(const char *path, int flags, unsigned mode);
/* The same of a path that is not opened, such as a socket's: 0, -EPERM or -errno. */
int path_check(const char *path);
/* mkdir -p with mode 0771 for what is missing: others may go through, and see nothing; -EPERM: what
   there was is not trusted. */
int path_make_dir(const char *path);

#endif
