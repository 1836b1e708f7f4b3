/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things lie; each folder is moved by one variable.
 *   SKERRY_SHM_DIR    segments            /dev/shm
 *   SKERRY_RUN_DIR    sockets and bells   /run/skerry
 * Errors: -ENAMETOOLONG. Threads: any.
 */
#ifndef SKERRY_BASE_PATH_H
#define SKERRY_BASE_PATH_H

#include <stddef.h>

#define PATH_LENGTH_MAX 256

const char *path_shm_dir(void);
const char *path_run_dir(void);
/* <shm dir>/xseg.SEGMENT */
int path_segment(char out[PATH_LENGTH_MAX], const char *segment);
/* <run dir>/SEGMENT[/leaf]; leaf may be NULL */
int path_run(char out[PATH_LENGTH_MAX], const char *segment, const char *leaf);
/* mkdir -p with mode 0770 for what is missing; 0 or -errno. */
int path_make_dir(const char *path);

#endif
