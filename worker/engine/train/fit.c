#include "worker/engine/train/fit.h"

#include <errno.h>
#include <inttypes.h>
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
static void room_of_groups(char *group, struct fit_room *room)
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
        if (most < room->total || room->total == 0)
            room->total = most;
        if (room->free == 0 || (most > used ? most - used : 1) < room->free)
            room->free = most > used ? most - used : 1;
    }
}

void fit_room_here(struct fit_room *ret)
{
    struct buf b;

    *ret = (struct fit_room){number_in("/proc", "meminfo", "MemAvailable:") << 10,
                             number_in("/proc", "meminfo", "MemTotal:") << 10};
    buf_init(&b, FILE_MAX);
    if (io_read_file("/proc/self/cgroup", &b, NULL) == 0 && strncmp(buf_text(&b), "0::/", 4) == 0) {
        char group[2048];

        (void)snprintf(group, sizeof(group), "%.*s", (int)strcspn(buf_text(&b) + 3, "\n"), buf_text(&b) + 3);
        room_of_groups(group, ret);
    }
    buf_clear(&b);
}

/* What makes the largest part smaller, recomputation first where it does or where it is enough. */
static const char *advice(const struct fit *f, double lacking_each)
{
    bool most = f->activations >= f->weights && f->activations >= f->gradients && f->activations >= f->optimizer;
    double saved = (double)f->activations - (double)f->activations_least;

    if (saved > 0 && saved >= lacking_each)
        return "parallel.recompute 'full', which would be enough, or a smaller train.batch.micro";
    if (saved > 0 && most)
        return "parallel.recompute 'full' and a smaller train.batch.micro or batch.length";
    if (most)
        return "a smaller train.batch.micro or batch.length";
    if (f->gradients > f->weights && f->gradients > f->optimizer)
        return "fewer parallel.virtual_workers, more tp or more pp";
    return "more tp, more pp or, with zero 1, more replicas";
}

int fit_check(const struct fit *need, int ranks, const struct fit_room *room, const char *whose, struct merr *err)
{
    const double gib = 1u << 30;
    uint64_t one = fit_all(need);
    double all = (double)one * ranks, have;
    int code = 0;

    if (room->total > 0 && all > (double)room->total)
        code = -EINVAL;
    else if (room->free > 0 && all > (double)room->free)
        code = -ENOMEM;
    if (code == 0)
        return 0;
    have = (double)(code == -EINVAL ? room->total : room->free);
    return merr_set(err, code,
                    "%.2f GiB too little memory: %d rank%s here want %.2f GiB each (weights %.2f, gradients "
                    "%.2f, optimizer %.2f, activations %.2f, rest %.2f) and %s has %.2f GiB%s; %s would help",
                    (all - have) / gib, ranks, ranks > 1 ? "s" : "", (double)one / gib, (double)need->weights / gib,
                    (double)need->gradients / gib, (double)need->optimizer / gib, (double)need->activations / gib,
                    (double)need->rest / gib, whose, have / gib, code == -EINVAL ? "" : " free",
                    advice(need, (all - have) / ranks));
}
