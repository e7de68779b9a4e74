#include "worker/agent/frozen.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

#define TEXT_MAX 65536

struct group { /* of a process, which may be frozen */
    char folder[PATH_MAX];
    const char *file, *word; /* where its state is, and what of it says that it is frozen */
};

/* The group that a line of /proc/PID/cgroup names: "4:freezer:/a/b", or "0::/a/b" of version 2. */
static bool group_of(const char *cgroup, const char *line, struct group *ret)
{
    int n = (int)strcspn(line, "\n");
    const char *path = strchr(line, '/');
    char unified[PATH_MAX];
    bool is_2 = strncmp(line, "0::", 3) == 0;

    if (!path || path - line >= n || (!is_2 && !strstr(line, ":freezer:/")) || strstr(line, ":freezer:/") > path)
        return false;
    ret->file = is_2 ? "cgroup.events" : "freezer.state";
    ret->word = is_2 ? "frozen 1" : "FROZEN";
    /* Beside hierarchies of version 1, that of version 2 is mounted in a folder of its own. */
    (void)snprintf(unified, sizeof(unified), "%s/unified", cgroup);
    n -= (int)(path - line);
    if (is_2)
        n = snprintf(ret->folder, PATH_MAX, "%s%.*s", access(unified, F_OK) == 0 ? unified : cgroup, n, path);
    else
        n = snprintf(ret->folder, PATH_MAX, "%s/freezer%.*s", cgroup, n, path);
    return n < PATH_MAX;
}

static bool is_frozen(const struct group *g)
{
    BUF_CLEAR_AUTO struct buf text;
    char path[PATH_MAX + 32];

    buf_init(&text, TEXT_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s", g->folder, g->file);
    return io_read_file(path, &text, NULL) == 0 && strstr(buf_text(&text), g->word) != NULL;
}

bool frozen_is(const char *proc, const char *cgroup, pid_t pid)
{
    BUF_CLEAR_AUTO struct buf groups;
    char path[PATH_MAX];
    struct group g;

    buf_init(&groups, TEXT_MAX);
    if (pid <= 0 || snprintf(path, sizeof(path), "%s/%d/cgroup", proc, (int)pid) >= (int)sizeof(path) ||
        io_read_file(path, &groups, NULL) < 0)
        return false;
    for (const char *line = buf_text(&groups); *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (group_of(cgroup, line, &g) && is_frozen(&g))
            return true;
    return false;
}
