#include "server/store/spool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/report.h"
#include "server/cluster/job.h"
#include "server/store/spool_logs.h"
#include "server/store/spool_parts.h"
#include "server/store/spool_times.h"

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
    /* One that is not known any more, or whose logs were removed, is acknowledged all the same. */
    if (s->ops->known(s->self, job) && !(log && spool_logs_removed(s, job)))
        at = spool_append_most(s, job, name, (int64_t)p.max_mib * (1 << 20) / SPOOL_PART, p.offset, p.text, len,
                               &is_new);
    if (at < 0)
        return (int)at;
    if (is_new && log && s->clock)
        spool_times_note(s, job, name, p.offset, clock_read_wall_us(s->clock) / 1000000);
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
