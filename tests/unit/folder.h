/* folder.h - a folder of the test's own: a group's setup makes it, its teardown removes it with all in it */
#ifndef MUSTER_TESTS_UNIT_FOLDER_H
#define MUSTER_TESTS_UNIT_FOLDER_H

#include "tests/unit/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"

static char top[] = "/tmp/muster-test.XXXXXX";

static inline int make_top(void **state)
{
    (void)state;
    return mkdtemp(top) ? 0 : -1;
}

static inline int remove_top(void **state)
{
    (void)state;
    return io_remove_tree(top, NULL);
}

/* Path of what lies in it, good until the next call. */
static inline const char *at(const char *name)
{
    static char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

#endif
