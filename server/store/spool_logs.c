#include "server/store/spool_logs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "logs-removed"

struct logs { /* of a job, with all their parts */
    char (*v)[SPOOL_NAME_MAX];
    size_t n, cap;
};

static void collect(void *arg, const char *name)
{
    struct logs *all = arg;

    if (strncmp(name, "rank-", 5) != 0 || !strstr(name, ".log"))
        return;
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 16;
        char(*v)[SPOOL_NAME_MAX] = realloc(all->v, cap * sizeof(*v));

        if (!v)
            return; /* it is found the next time */
        all->v = v;
        all->cap = cap;
    }
    (void)snprintf(all->v[all->n++], SPOOL_NAME_MAX, "%s", name);
}

uint64_t spool_logs_bytes(const struct spool *s, uint64_t job)
{
    struct logs all = {.n = 0};
    uint64_t bytes = 0;

    (void)s->ops->list(s->self, job, collect, &all);
    for (size_t i = 0; i < all.n; i++) {
        int64_t length = 0;

        if (s->ops->read(s->self, job, all.v[i], 0, NULL, 0, &length) >= 0)
            bytes += (uint64_t)length;
    }
    free(all.v);
    return bytes;
}

int spool_remove_logs(const struct spool *s, uint64_t job)
{
    struct logs all = {.n = 0};
    int r = s->ops->mark(s->self, job, MARK); /* first: where this process dies below, the rest is removed later */

    (void)s->ops->list(s->self, job, collect, &all);
    for (size_t i = 0; i < all.n; i++)
        s->ops->drop_file(s->self, job, all.v[i]);
    free(all.v);
    return r == -ENOSPC ? s->ops->mark(s->self, job, MARK) : r; /* there may be room now */
}

bool spool_logs_removed(const struct spool *s, uint64_t job)
{
    int64_t length;

    return s->ops->read(s->self, job, MARK, 0, NULL, 0, &length) >= 0;
}
