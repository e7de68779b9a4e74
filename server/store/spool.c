#include "server/store/spool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/report.h"
#include "server/cluster/job.h"
#include "server/store/spool_parts.h"

void spool_log_name(int rank, int generation, char ret[SPOOL_NAME_MAX])
{
    (void)snprintf(ret, SPOOL_NAME_MAX, "rank-%05d.g%d.log", rank, generation);
}

void spool_metrics_name(int generation, char ret[SPOOL_NAME_MAX])
{
    (void)snprintf(ret, SPOOL_NAME_MAX, "metrics.g%d.jsonl", generation);
}

bool spool_is_log(const char *name, int *ret_rank, int *ret_generation)
{
    int rank, generation, end = 0;

    if (sscanf(name, "rank-%5d.g%9d.log%n", &rank, &generation, &end) != 2 || end == 0 || name[end])
        return false;
    *ret_rank = rank;
    *ret_generation = generation;
    return true;
}

bool spool_is_metrics(const char *name, int *ret_generation)
{
    int generation, end = 0;

    if (sscanf(name, "metrics.g%9d.jsonl%n", &generation, &end) != 1 || end == 0 || name[end])
        return false;
    *ret_generation = generation;
    return true;
}

int spool_make_job(const struct spool *s, uint64_t job, struct merr *err)
{
    return s->ops->make(s->self, job, err);
}

int spool_newest_job(const struct spool *s, uint64_t *ret_job, struct merr *err)
{
    return s->ops->newest(s->self, ret_job, err);
}

void spool_drop_job(const struct spool *s, uint64_t job)
{
    s->ops->drop(s->self, job);
}

struct names { /* of one generation */
    int generation;
    char (*v)[SPOOL_NAME_MAX];
    size_t n, cap;
};

static void collect(void *arg, const char *name)
{
    struct names *all = arg;
    char whole[SPOOL_NAME_MAX]; /* without the number of a part */
    int rank, generation = 0;
    char *end;

    (void)snprintf(whole, sizeof(whole), "%s", name);
    end = strrchr(whole, '.');
    if (end && end[1] >= '0' && end[1] <= '9')
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

int spool_take_piece(const struct spool *s, const json_t *piece, bool log, json_t *acks, json_t *fresh)
{
    struct report_piece p;
    char name[SPOOL_NAME_MAX];
    uint64_t job;
    size_t len;
    bool is_new = false;
    int64_t at;
    int r = report_piece_read(piece, &p, NULL); /* it borrows: there is nothing to clear */

    if (r < 0)
        return r;
    job = job_id_parse(p.job);
    p.rank = p.rank < 0 ? 0 : p.rank; /* left out */
    if (job == 0 || p.generation > INT32_MAX || p.rank >= PLAN_RANKS_MAX)
        return -EINVAL;
    len = strlen(p.text);
    at = p.offset + (int64_t)len;
    if (log)
        spool_log_name(p.rank, (int)p.generation, name);
    else
        spool_metrics_name((int)p.generation, name);
    if (s->ops->known(s->self, job)) /* one that is not known any more is acknowledged all the same */
        at = spool_append_most(s, job, name, (int64_t)p.max_mib * (1 << 20) / SPOOL_PART, p.offset, p.text, len,
                               &is_new);
    if (at < 0)
        return (int)at;
    if (is_new) {
        json_t *told = json_copy((json_t *)piece);

        (void)json_object_del(told, "max_mib");
        (void)json_object_set_new(told, "next_offset", json_integer((json_int_t)at));
        (void)json_array_append_new(fresh, told);
    }
    p.rank = log ? p.rank : -1;
    p.offset = at;
    (void)json_array_append_new(acks, report_ack_write(&p));
    return 0;
}
