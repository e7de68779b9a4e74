#include "server/control/finishes.h"

#include <stdlib.h>

#include "server/control/events.h"
#include "server/control/state.h"

#define BASIS_OF_NEED(f) ((f)->needs_us < 0 ? "unknown" : (f)->by_limit ? "time-limit" : "work-left")

static json_t *seconds(int64_t us)
{
    return us < 0 ? json_null() : json_integer((us + 999999) / 1000000);
}

static json_t *view(const struct finish *f, int64_t now_us)
{
    char text[FINISH_TEXT_MAX];

    finish_text(f, now_us, text, sizeof(text));
    return json_pack("{s:o, s:s, s:s, s:o, s:s, s:i, s:o, s:s, s:o}", "by", cluster_time(f->by_us), "verdict",
                     finish_verdict_name(f->verdict), "text", text, "needs_s", seconds(f->needs_us), "needs_basis",
                     BASIS_OF_NEED(f), "devices", f->devices, "starts_at",
                     cluster_time(f->start_us > 0 ? f->start_us : 0), "starts_basis",
                     f->start_us > 0 && f->start_us <= now_us ? "runs" : forecast_basis_name(f->basis), "ends_at",
                     cluster_time(f->end_us > 0 ? f->end_us : 0));
}

/* Told once, however often it changes later. */
static void tell(struct core *c, struct entry *e)
{
    const struct finish *f = &e->finish;
    char text[FINISH_TEXT_MAX];

    if (e->job.told_late || (f->verdict != FINISH_UNLIKELY && f->verdict != FINISH_CANNOT))
        return;
    finish_text(f, c->now.wall_us, text, sizeof(text));
    events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", "finish_late", text,
                view(f, c->now.wall_us));
    e->job.told_late = true;
    table_dirty(&c->jobs, e);
}

void finishes_note(struct core *c, const struct round *r, const struct sched_plan *plan)
{
    for (size_t i = 0; i < r->in.n_jobs; i++)
        if (r->in.jobs[i].finish_us > 0) {
            r->entries[i]->finish = finish_of(&r->in, plan, i, &r->entries[i]->forecast);
            tell(c, r->entries[i]);
        }
}

void finishes_ask(struct core *c, struct entry *e)
{
    struct forecast *all = NULL;
    struct sched_plan plan;
    struct round r;
    size_t i = 0;

    if (e->job.finish_by_us == 0)
        return;
    if (round_init(c, SCHED_FAST, round_of(c, e), &r) == 0 && sched_schedule(&r.in, &plan, NULL) == 0) {
        all = calloc(r.in.n_jobs + 1, sizeof(*all));
        while (i < r.in.n_jobs && r.entries[i] != e)
            i++;
        if (all && i < r.in.n_jobs && forecast_all(&r.in, &plan, all) == 0)
            e->finish = finish_of(&r.in, &plan, i, &all[i]);
        sched_plan_clear(&plan);
    }
    free(all);
    round_clear(&r);
}

void finishes_view(const struct core *c, const struct entry *e, json_t *o)
{
    struct finish f = {.by_us = 0};

    if (!e || e->job.finish_by_us == 0)
        return;
    f = e->finish;
    if (f.verdict == FINISH_NONE) /* no round has looked at it yet */
        f = (struct finish){.verdict = FINISH_UNKNOWN,
                            .by_us = e->job.finish_by_us,
                            .needs_us = -1,
                            .start_us = -1,
                            .end_us = -1,
                            .devices = e->job.min};
    (void)json_object_set_new(o, "finish", view(&f, c->now.wall_us));
}
