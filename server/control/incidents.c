#include "server/control/incidents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/store/spool_incidents.h"

/* --- keeping ----------------------------------------------------------------------------------------- */

static void tell(const struct call *call, int r)
{
    if (r < 0 && r != -ENOENT)
        log_warn("job j%llu: what is known of its fault is not kept: %s", (unsigned long long)call->job, strerror(-r));
}

/* On the files' thread. */
static void run_put(void *core, struct call *call)
{
    const struct core *c = core;

    tell(call, spool_incidents_put(&c->cfg.spool, call->job, (int)call->generation, INCIDENTS_OF_RUN, call->body));
    call_free(call);
}

/* On the files' thread. */
static void run_add(void *core, struct call *call)
{
    const struct core *c = core;

    tell(call, spool_incidents_add(&c->cfg.spool, call->job, (int)call->generation, INCIDENTS_OF_RUN, call->body));
    call_free(call);
}

static void post_new(struct core *c, void (*run)(void *core, struct call *call), uint64_t job, uint32_t generation,
                     json_t *body)
{
    struct call *call = body ? call_new(NULL, run) : NULL;

    if (!call) {
        json_decref(body);
        return;
    }
    call->job = job;
    call->generation = generation;
    call->body = body;
    files_post(c->files, call);
}

static void keep(struct core *c, const struct entry *e, struct incident *in)
{
    (void)snprintf(in->job, sizeof(in->job), "j%llu", (unsigned long long)e->job.id);
    in->generation = e->job.generation;
    in->number = INCIDENTS_OF_RUN;
    in->at_ms = c->now.wall_us / 1000;
    in->layout = e->job.layout;
    post_new(c, run_put, e->job.id, e->job.generation, incident_write(in));
}

void incidents_hang(struct core *c, struct entry *e, const struct incident_rank *ranks, size_t n,
                    const struct hang_verdict *v, const char *text)
{
    struct incident in = {.kind = INCIDENT_HANG, .n_ranks = n};

    if (incident_verdict(v, text, &in.verdict) < 0)
        return;
    in.ranks = (struct incident_rank *)ranks; /* only read */
    keep(c, e, &in);
    wire_clear(&incident_verdict_message, &in.verdict);
}

void incidents_failure(struct core *c, struct entry *e, int rank, const char *text)
{
    static const enum report_state state_of[] = {[RANK_NONE] = REPORT_NONE,
                                                 [RANK_STARTING] = REPORT_STARTING,
                                                 [RANK_RUNNING] = REPORT_RUNNING,
                                                 [RANK_EXITED] = REPORT_EXITED};
    struct incident in = {.kind = INCIDENT_FAILURE,
                          .verdict = {.class_ = "failure", .roots = &rank, .n_roots = 1, .waiter = -1}};

    if (e->run.judged)
        return;
    in.ranks = calloc(e->job.n_places + 1, sizeof(*in.ranks));
    if (!in.ranks)
        return;
    for (; in.n_ranks < e->job.n_places; in.n_ranks++) {
        struct incident_rank *r = &in.ranks[in.n_ranks];
        const struct rank *known = &e->run.ranks[in.n_ranks];

        (void)snprintf(r->node, sizeof(r->node), "%s", e->job.places[in.n_ranks].node);
        r->told = (struct report_rank){.rank = (int)in.n_ranks,
                                       .slot = e->job.places[in.n_ranks].slot,
                                       .state = state_of[known->phase],
                                       .step = (int64_t)(known->step & INT64_MAX),
                                       .stall = {.peer = -1},
                                       .exit = known->exit};
    }
    utf8_copy(in.verdict.text, sizeof(in.verdict.text), text);
    keep(c, e, &in);
    free(in.ranks);
}

void incidents_ask(struct core *c, struct entry *e)
{
    c->evidence = c->evidence < c->first_version ? c->first_version : c->evidence + 1;
    e->run.evidence = c->evidence;
}

void incidents_add_new(struct core *c, uint64_t job, uint32_t generation, json_t *part)
{
    post_new(c, run_add, job, generation, part);
}

/* --- reading ----------------------------------------------------------------------------------------- */

void incidents_answer_list(void *core, struct call *call)
{
    const struct core *c = core;

    call_answer_new(call, 200, spool_incidents_list(&c->cfg.spool, call->job));
    call_deliver(call);
}

void incidents_answer_one(void *core, struct call *call)
{
    const struct core *c = core;
    const char *name = http_param(call->req, 1);
    int generation, number, end = 0;
    json_t *doc = NULL;

    if (name && sscanf(name, "%9d-%9d%n", &generation, &number, &end) == 2 && end > 0 && name[end] == '\0' &&
        generation > 0 && number > 0)
        doc = spool_incidents_read(&c->cfg.spool, call->job, generation, number);
    if (doc)
        call_answer_new(call, 200, doc);
    else
        call_problem(call, 404, "unknown-incident",
                     "no incident '%.40s' of this job; `muster diagnose JOB --list` shows those there are",
                     name ? name : "");
    call_deliver(call);
}
