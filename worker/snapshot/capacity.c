#include "worker/snapshot/capacity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"

#define FILE_MAX (64u << 10)
#define GROUP_ROOT "/sys/fs/cgroup"

static uint64_t after(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* The number after key in a file ("": at its start); 0 when there is none, as in "max". */
static uint64_t number_in(const char *folder, const char *name, const char *key)
{
    char path[4096];
    struct buf b;
    uint64_t n = 0;

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return 0;
    buf_init(&b, FILE_MAX);
    if (io_read_file(path, &b, NULL) == 0)
        n = after(buf_text(&b), key);
    buf_clear(&b);
    return n;
}

/* The tightest limit on the way up from this process's group. File cache counts as used there, though it could be
 * dropped: it is given back here. */
static void capacity_of_groups(char *group, struct capacity *c)
{
    char folder[4096];

    for (char *slash; (slash = strrchr(group, '/')); *slash = '\0') {
        uint64_t most, used, cache;

        if (snprintf(folder, sizeof(folder), GROUP_ROOT "%s", group) >= (int)sizeof(folder))
            return;
        most = number_in(folder, "memory.max", "");
        if (most == 0)
            continue;
        used = number_in(folder, "memory.current", "");
        cache = number_in(folder, "memory.stat", "\ninactive_file ");
        used = used > cache ? used - cache : 0;
        if (most < c->total || c->total == 0)
            c->total = most;
        if (c->free == 0 || (most > used ? most - used : 1) < c->free)
            c->free = most > used ? most - used : 1;
    }
}

void capacity_here(struct capacity *ret)
{
    struct buf b;

    *ret = (struct capacity){number_in("/proc", "meminfo", "MemAvailable:") << 10,
                             number_in("/proc", "meminfo", "MemTotal:") << 10};
    buf_init(&b, FILE_MAX);
    if (io_read_file("/proc/self/cgroup", &b, NULL) == 0 && strncmp(buf_text(&b), "0::/", 4) == 0) {
        char group[2048];

        (void)snprintf(group, sizeof(group), "%.*s", (int)strcspn(buf_text(&b) + 3, "\n"), buf_text(&b) + 3);
        capacity_of_groups(group, ret);
    }
    buf_clear(&b);
}
