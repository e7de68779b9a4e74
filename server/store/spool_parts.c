#include "server/store/spool_parts.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/spool_times.h"

#define PARTS_KNOWN 256 /* kept of one file, at most */

static void part_name(const char *name, int64_t part, char ret[SPOOL_NAME_MAX])
{
    if (part == 0)
        (void)snprintf(ret, SPOOL_NAME_MAX, "%s", name);
    else
        (void)snprintf(ret, SPOOL_NAME_MAX, "%s.%lld", name, (long long)part);
}

/* Whether a file is name or a part of it. */
static bool part_of(const char *file, const char *name, int64_t *ret_part)
{
    size_t n = strlen(name);
    long long part;
    int end = 0;

    *ret_part = 0;
    if (strncmp(file, name, n) != 0)
        return false;
    if (!file[n])
        return true;
    if (sscanf(file + n, ".%15lld%n", &part, &end) != 1 || end == 0 || file[n + (size_t)end] || part < 1)
        return false;
    *ret_part = part;
    return true;
}

static int64_t length_of(const struct spool *s, uint64_t job, const char *name, int64_t part)
{
    char file[SPOOL_NAME_MAX];
    int64_t length = 0;
    ssize_t r;

    part_name(name, part, file);
    r = s->ops->read(s->self, job, file, 0, NULL, 0, &length);
    return r < 0 ? r : length;
}

struct parts { /* of one file, beside the first; growing */
    const char *name;
    int64_t v[PARTS_KNOWN];
    size_t n;
};

static void note_part(void *arg, const char *file)
{
    struct parts *p = arg;
    int64_t part;
    size_t at;

    if (!part_of(file, p->name, &part) || part == 0 || p->n == PARTS_KNOWN)
        return;
    for (at = p->n++; at > 0 && p->v[at - 1] > part; at--)
        p->v[at] = p->v[at - 1];
    p->v[at] = part;
}

int spool_measure(const struct spool *s, uint64_t job, const char *name, struct spool_extent *ret)
{
    struct parts parts = {.name = name};
    int64_t first = length_of(s, job, name, 0), last;
    int r;

    if (first < 0)
        return (int)first;
    *ret = (struct spool_extent){.length = first, .whole = first > SPOOL_PART};
    if (first != SPOOL_PART)
        return 0;
    r = s->ops->list(s->self, job, note_part, &parts);
    if (r < 0 || parts.n == 0)
        return r;
    last = length_of(s, job, name, parts.v[parts.n - 1]);
    if (last < 0)
        return (int)last;
    ret->length = parts.v[parts.n - 1] * SPOOL_PART + last;
    for (size_t i = 0; i < parts.n; i++)
        if (parts.v[i] != (int64_t)i + 1) {
            ret->gap_from = (int64_t)(i + 1) * SPOOL_PART;
            ret->gap_to = parts.v[i] * SPOOL_PART;
            break;
        }
    return 0;
}

ssize_t spool_read(const struct spool *s, uint64_t job, const char *name, const struct spool_extent *e, int64_t *offset,
                   char *to, size_t n)
{
    bool whole = e->whole;
    size_t done = 0;

    if (*offset >= e->gap_from && *offset < e->gap_to)
        *offset = e->gap_to;
    if (*offset < e->gap_from && (int64_t)n > e->gap_from - *offset)
        n = (size_t)(e->gap_from - *offset);
    while (done < n) {
        int64_t at = *offset + (int64_t)done, part = whole ? 0 : at / SPOOL_PART, within = at - part * SPOOL_PART;
        size_t some = whole || n - done < (size_t)(SPOOL_PART - within) ? n - done : (size_t)(SPOOL_PART - within);
        char file[SPOOL_NAME_MAX];
        int64_t length;
        ssize_t got;

        part_name(name, part, file);
        got = s->ops->read(s->self, job, file, within, to + done, some, &length);
        if (got < 0 && done == 0 && got != -ENOENT) /* a part may have gone meanwhile */
            return got;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static bool is_next(const struct spool *s, uint64_t job, const char *name, int64_t part, int64_t most)
{
    struct spool_extent e;

    if (part <= most / 4) /* where a gap may begin: the one before it may be there all the same */
        return spool_measure(s, job, name, &e) == 0 && e.length == part * SPOOL_PART;
    return length_of(s, job, name, part - 1) == SPOOL_PART;
}

struct names { /* of one generation */
    int generation;
    char (*v)[SPOOL_NAME_MAX];
    size_t n, cap;
};

static void collect(void *arg, const char *name)
{
    struct names *all = arg;
    char whole[SPOOL_NAME_MAX]; /* without the number of a part, or the end of notes */
    int rank, generation = 0;
    char *end;

    (void)snprintf(whole, sizeof(whole), "%s", name);
    end = strrchr(whole, '.');
    if (end &&
        ((end[1] >= '0' && end[1] <= '9') || strcmp(end, SPOOL_TIMES_END) == 0 || strcmp(end, SPOOL_INDEX_END) == 0))
        *end = '\0';
    if ((!spool_is_log(whole, &rank, &generation) && !spool_is_metrics(whole, &generation)) ||
        generation != all->generation)
        return;
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 16;
        char(*v)[SPOOL_NAME_MAX] = realloc(all->v, cap * sizeof(*v));

        if (!v)
            return; /* it stays until the job goes */
        all->v = v;
        all->cap = cap;
    }
    (void)snprintf(all->v[all->n++], SPOOL_NAME_MAX, "%s", name);
}

void spool_drop_generation(const struct spool *s, uint64_t job, uint32_t generation)
{
    struct names all = {.generation = (int)generation};

    (void)s->ops->list(s->self, job, collect, &all);
    for (size_t i = 0; i < all.n; i++)
        s->ops->drop_file(s->self, job, all.v[i]);
    free(all.v);
}

struct use { /* of a job's files, those of its oldest generation beside */
    const struct spool *s;
    uint64_t job;
    int64_t bytes;
    int oldest;
};

static void note_use(void *arg, const char *file)
{
    struct use *u = arg;
    int64_t length = length_of(u->s, u->job, file, 0);
    int rank, generation = INT_MAX;

    if (length > 0)
        u->bytes += length;
    (void)(spool_is_log(file, &rank, &generation) || spool_is_metrics(file, &generation));
    u->oldest = generation < u->oldest ? generation : u->oldest;
}

/* A part of a file has begun. Where the job keeps too much, its oldest generations go, but not this one; and of this
 * file all but the first part and the newest two. */
static void keep_within(const struct spool *s, uint64_t job, const char *name, int64_t part)
{
    int rank, now = 0;

    (void)(spool_is_log(name, &rank, &now) || spool_is_metrics(name, &now));
    for (int rounds = 0; s->job_bytes > 0 && rounds < SPOOL_GENERATIONS; rounds++) {
        struct use u = {.s = s, .job = job, .oldest = now};

        if (s->ops->list(s->self, job, note_use, &u) < 0 || u.bytes <= s->job_bytes)
            return;
        if (u.oldest >= now)
            break;
        spool_drop_generation(s, job, (uint32_t)u.oldest);
    }
    for (int64_t old = 1; s->job_bytes > 0 && old < part - 1; old++) {
        char file[SPOOL_NAME_MAX];

        if (old > SPOOL_METRICS_PARTS && old < part - 1 - SPOOL_METRICS_PARTS) /* they went long ago */
            old = part - 1 - SPOOL_METRICS_PARTS;
        part_name(name, old, file);
        s->ops->drop_file(s->self, job, file);
    }
}

/* Append to one part; len fits it. */
static int64_t append_part(const struct spool *s, uint64_t job, const char *name, int64_t most, int64_t offset,
                           const char *text, size_t len, bool *ret_new)
{
    int64_t part = offset / SPOOL_PART, within = offset % SPOOL_PART, at, old;
    bool begins = within == 0 && part > 0;
    char file[SPOOL_NAME_MAX];
    struct spool_extent e;
    int r;

    part_name(name, part, file);
    if (part == 0 || (begins ? is_next(s, job, name, part, most) : length_of(s, job, name, part) >= 0)) {
        at = s->ops->append(s->self, job, file, within, text, len, ret_new);
        old = part - 1 - (most - most / 4);
        if (at >= 0 && *ret_new && begins)
            keep_within(s, job, name, part);
        if (at >= 0 && *ret_new && begins && old >= most / 4) {
            part_name(name, old, file);
            s->ops->drop_file(s->self, job, file);
        }
        if (at < 0 || *ret_new)
            return at < 0 ? at : offset + (int64_t)len;
    }
    r = spool_measure(s, job, name, &e);          /* it does not begin where the file ends */
    if (r == 0 && e.length == offset && part > 0) /* a file of before parts */
        return s->ops->append(s->self, job, name, offset, text, len, ret_new);
    return r == -ENOENT ? 0 : r < 0 ? r : e.length;
}

int64_t spool_append(const struct spool *s, uint64_t job, const char *name, int64_t offset, const char *text,
                     size_t len, bool *ret_new)
{
    return spool_append_most(s, job, name, 0, offset, text, len, ret_new);
}

int64_t spool_append_most(const struct spool *s, uint64_t job, const char *name, int64_t most, int64_t offset,
                          const char *text, size_t len, bool *ret_new)
{
    if (most == 0)
        most = strncmp(name, "metrics", 7) == 0 ? SPOOL_METRICS_PARTS : SPOOL_LOG_PARTS;
    do {
        size_t room = (size_t)(SPOOL_PART - offset % SPOOL_PART), some = len < room ? len : room;
        bool taken = false;
        int64_t at = append_part(s, job, name, most, offset, text, some, &taken);

        if (!taken)
            return *ret_new ? offset : at; /* what was taken before is acknowledged; the rest comes again */
        *ret_new = true;
        offset = at;
        text += some;
        len -= some;
    } while (len > 0);
    return offset;
}
