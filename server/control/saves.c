#include "server/control/saves.h"

#include <stdio.h>
#include <string.h>

#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/state.h"

void saves_ask(struct core *c, struct entry *e)
{
    if (e->job.kind == JOB_COMMAND && !e->run.save)
        e->run.save_by_us = c->now.mono_us + SAVES_ANSWER_S * INT64_C(1000000);
    e->run.save = true;
    change_orders(c, &e->job);
}

void saves_done(struct core *c, struct entry *e)
{
    if (!e->run.save)
        return;
    e->run.save = false;
    e->run.save_by_us = 0;
    change_orders(c, &e->job);
}

static void tell(struct core *c, struct entry *e, int rank, const struct report_ack *ack, const char *actor)
{
    char text[120], at[40] = "";
    bool saved = ack->did == REPORT_DID_SAVE;

    if (ack->step >= 0)
        (void)snprintf(at, sizeof(at), " at step %lld", (long long)ack->step);
    (void)snprintf(text, sizeof(text), "rank %d %s%s", rank, saved ? "has saved" : "refused to save", at);
    events_note(c, e->job.id, e->job.user, "note", e->job.generation, actor, saved ? "saved" : "save-refused", text,
                json_pack("{s:s, s:i, s:I}", "type", saved ? "saved" : "save-refused", "rank", rank, "step",
                          (json_int_t)ack->step));
    saves_done(c, e);
}

/* What a rank answered before it was asked is no answer. */
static void take(struct core *c, struct entry *e, const struct report_rank *told, const char *actor)
{
    struct rank *r = &e->run.ranks[told->rank];
    bool answers = told->ack.seq > 0 && r->acked > 0 && told->ack.seq != r->acked - 1;

    r->acked = told->ack.seq < INT64_MAX ? told->ack.seq + 1 : 0;
    if (answers && e->run.save && (told->ack.did == REPORT_DID_SAVE || told->ack.did == REPORT_DID_REFUSE))
        tell(c, e, told->rank, &told->ack, actor);
}

void saves_take(struct core *c, struct entry *e, const struct node *n, const struct report_run *run, const char *actor)
{
    if (e->job.kind != JOB_COMMAND)
        return;
    for (size_t k = 0; k < run->n_ranks; k++) {
        int rank = run->ranks[k].rank;

        if ((size_t)rank < e->job.n_places && strcmp(e->job.places[rank].node, n->name) == 0)
            take(c, e, &run->ranks[k], actor);
    }
    if (e->job.intent != JOB_GO_ON || e->job.state != JOB_RUNNING) {
        saves_done(c, e); /* an order to end stands instead */
    } else if (e->run.save && c->now.mono_us > e->run.save_by_us) {
        events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", "save-unanswered",
                    "the program has not answered the order to save: it does not know of orders, or hangs", NULL);
        saves_done(c, e);
    }
}
