#include "server/control/reports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "base/log.h"
#include "server/cluster/meter.h"
#include "server/control/agent_rights.h"
#include "server/control/arrays.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/contact.h"
#include "server/control/events.h"
#include "server/control/source_nodes.h"
#include "server/control/hangs.h"
#include "server/control/lags.h"
#include "server/control/learn.h"
#include "server/control/offsets.h"
#include "server/control/proofs.h"
#include "server/control/rank_steps.h"
#include "server/control/replay.h"
#include "server/control/runs.h"
#include "server/control/saves.h"
#include "server/control/stalls.h"
#include "server/control/state.h"
#include "server/control/storing.h"
#include "server/control/swaps.h"
#include "server/control/trace.h"
#include "server/control/view.h"
#include "server/http/call.h"

#define TELL_US INT64_C(60000000) /* how often a node that sends what is not its own is told of */

#define WORDS_BYTES 16384                               /* of a line whose object stays with the job */
#define LINE_WORDS 512                                  /* of its message, which is told as words */
#define LINE_BYTES (EVENTS_NOTE_BYTES - 2 * LINE_WORDS) /* of a line that is kept as it is */

/* --- ranks ------------------------------------------------------------------------------------------- */

struct first_fault { /* the rank of a report that failed first; its machine's clock tells */
    int rank;
    int64_t at_ms;
    enum act_class class_;
    char message[EXIT_WHY_MAX];
    json_t *log_tail; /* borrowed */
};

/* Take in one rank. A first cause is left in *f: the earliest exit that does not follow from another's. */
static void take_rank(const struct cluster *cl, struct entry *e, const struct node *n, const struct report_rank *told,
                      int64_t now_us, struct first_fault *f)
{
    static const enum rank_phase phase_of[REPORT_STATES] = {
        [REPORT_STARTING] = RANK_STARTING, [REPORT_RUNNING] = RANK_RUNNING, [REPORT_EXITED] = RANK_EXITED};
    enum rank_phase phase = phase_of[told->state];
    struct rank *r;
    bool ended;

    if ((size_t)told->rank >= e->job.n_places || strcmp(e->job.places[told->rank].node, n->name) != 0)
        return;
    r = &e->run.ranks[told->rank];
    ended = phase == RANK_EXITED && r->phase != RANK_EXITED;
    if (r->phase != RANK_EXITED && phase > r->phase)
        r->phase = phase;
    if (told->step >= 0)
        r->step = (uint64_t)told->step;
    stalls_take(&e->run.stalls, e->job.n_places, told, now_us);
    lags_take(cl, e, told);
    rank_steps_take(e, told);
    if (!ended)
        return;
    r->exit = exit_settle(told->exit, e->job.kind);
    if (r->exit.cause == EXIT_CAUSE_ABORTED && !e->run.gave_up) {
        e->run.gave_up = true;
        e->run.gave_up_us = now_us;
    }
    if (exit_well(&r->exit) || r->exit.cause == EXIT_CAUSE_ABORTED)
        return;
    r->of_itself = true;
    if (f->rank >= 0 && r->exit.at_ms >= f->at_ms)
        return;
    f->rank = told->rank;
    f->at_ms = r->exit.at_ms;
    f->class_ = job_exit_class(e->job.kind, &r->exit);
    f->log_tail = told->log_tail;
    exit_describe(&r->exit, e->job.kind, f->message, sizeof(f->message));
}

static struct report_ref run_ref(const struct report_run *run)
{
    struct report_ref ref = {.generation = run->generation};

    (void)snprintf(ref.job, sizeof(ref.job), "%s", run->job);
    return ref;
}

/* A report carries nothing of this run that is still to be stored. */
static bool all_shipped(const struct report *r, const struct report_run *run)
{
    for (int k = 0; k < REPORT_KINDS; k++)
        for (size_t i = 0; i < r->pieces[k].n; i++)
            if (r->pieces[k].v[i].generation == run->generation && strcmp(r->pieces[k].v[i].job, run->job) == 0)
                return false;
    return true;
}

/* Nobody gets the slots on which ranks of a run are alive that is over, or was taken for lost with its node: those that
 * are not held for its job (0: it holds none). Whether there are such ranks. */
static bool bar_slots(struct node *n, const struct report_run *run, uint64_t job)
{
    bool alive = false;

    for (size_t i = 0; i < run->n_ranks; i++) {
        if (run->ranks[i].state == REPORT_EXITED)
            continue;
        alive = true;
        for (size_t k = 0; k < n->n_slots; k++)
            if (n->slots[k].slot == run->ranks[i].slot && (job == 0 || n->slots[k].job != job))
                n->slots[k].stale = true;
    }
    return alive;
}

/* A run that is over: its agent shall stop what lives, and forget it once nothing does and all is stored. */
static void answer_over(struct node *n, const struct report_run *run, bool shipped, struct report_answer *ret)
{
    if (bar_slots(n, run, 0))
        ret->stale[ret->n_stale++] = run_ref(run);
    else if (shipped)
        ret->forget[ret->n_forget++] = run_ref(run);
}

static void take_run(struct core *c, struct node *n, const struct report *r, const struct report_run *run,
                     const char *actor, struct report_answer *ret)
{
    struct entry *e = table_find(&c->jobs, job_id_parse(run->job));
    struct first_fault f = {.rank = -1};
    size_t here = 0;
    bool was_failing;

    if (!e || !e->job.live || e->job.generation != run->generation) {
        answer_over(n, run, all_shipped(r, run), ret);
        return;
    }
    if (source_nodes_take(c, e, n, run) && all_shipped(r, run)) {
        ret->forget[ret->n_forget++] = run_ref(run);
        return;
    }
    if (run->trouble[0] && !e->run.trouble)
        events_note(c, e->job.id, e->job.user, "note", e->job.generation, actor, "file-not-read", run->trouble, NULL);
    e->run.trouble = e->run.trouble || run->trouble[0];
    for (size_t k = 0; k < run->n_ranks; k++)
        take_rank(&c->cluster, e, n, &run->ranks[k], c->now.mono_us, &f);
    saves_take(c, e, n, run, actor);
    for (size_t k = 0; k < e->job.n_places; k++)
        here += strcmp(e->job.places[k].node, n->name) == 0 && e->run.ranks[k].phase != RANK_EXITED;
    if (here == 0 && !swaps_keep(c, e))
        runs_release(c, e, n->name);
    (void)bar_slots(n, run, e->job.id);
    was_failing = e->job.state == JOB_RECOVERING;
    if (f.rank >= 0 && e->job.intent == JOB_GO_ON && e->job.state != JOB_RECOVERING && !hangs_blame(c, e, f.rank))
        runs_fault(c, e, f.rank, f.class_, f.message, f.log_tail, actor);
    else if (!runs_look_cut(c, e, n, actor))
        hangs_look(c, e);
    if (f.rank >= 0 && e->job.state == JOB_RECOVERING)
        runs_tell_roots(c, e, was_failing, actor);
    lags_look(c, e);
    runs_follow(c, e, actor);
    /* the run may have ended by this very report; it is forgotten with the next one, when that is durable */
}

static int list_jobs(struct node *n, const struct report *r)
{
    uint64_t *listed = calloc(r->n_runs + 1, sizeof(*listed));

    if (!listed)
        return -ENOMEM;
    free(n->listed);
    n->listed = listed;
    n->n_listed = r->n_runs;
    for (size_t i = 0; i < r->n_runs; i++)
        listed[i] = job_id_parse(r->runs[i].job);
    return 0;
}

bool reports_more_come(const struct core *c, uint64_t job)
{
    if (table_find(&c->jobs, job))
        return true;
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];

        for (size_t k = 0; k < n->n_listed && n->contact != NODE_LOST; k++)
            if (n->listed[k] == job)
                return true;
    }
    return false;
}

int reports_take_runs(struct core *c, struct node *n, const struct report *r, struct report_answer *ret)
{
    char actor[JOB_NODE_MAX + 8];
    bool was_stale = false, is_stale = false;

    ret->stale = calloc(r->n_runs + 1, sizeof(*ret->stale));
    ret->forget = calloc(r->n_runs + 1, sizeof(*ret->forget));
    if (!ret->stale || !ret->forget || list_jobs(n, r) < 0)
        return -ENOMEM;
    (void)snprintf(actor, sizeof(actor), "agent:%s", n->name);
    for (size_t k = 0; k < n->n_slots; k++) {
        was_stale = was_stale || n->slots[k].stale;
        n->slots[k].stale = false;
    }
    for (size_t i = 0; i < r->n_runs; i++)
        take_run(c, n, r, &r->runs[i], actor, ret);
    contact_end_unstarted(c, n, r);
    for (size_t k = 0; k < n->n_slots; k++)
        is_stale = is_stale || n->slots[k].stale;
    if (was_stale && !is_stale)
        c->schedule_wanted = true;
    return 0;
}

/* --- the node itself --------------------------------------------------------------------------------- */

/* A device has failed: what runs there is not waited for. */
static void end_run(struct core *c, const struct node *n, const struct gpus_error *error)
{
    const struct slot *s = node_slot(n, error->slot);
    struct entry *e = s && s->job ? table_find(&c->jobs, s->job) : NULL;

    if (!e || !e->job.live || e->job.intent != JOB_GO_ON || e->job.state == JOB_RECOVERING)
        return;
    runs_fault(c, e, s->rank, ACT_DEVICE, error->why, NULL, "scheduler");
    runs_follow(c, e, "scheduler");
}

void reports_take_node(struct core *c, struct node *n, const json_t *body)
{
    struct gpus_errors errors = {.n = 0};

    learn_gpus(c, n, body, &errors);
    care_report(c, n, body);
    for (size_t i = 0; i < errors.n; i++) {
        care_accuse(c, n, errors.v[i].milli, errors.v[i].why);
        if (errors.v[i].stop)
            end_run(c, n, &errors.v[i]);
    }
}

/* --- metrics and output ------------------------------------------------------------------------------ */

/* A line of metrics.jsonl, which is taken over. */
static void take_metric_line_new(struct core *c, struct entry *e, uint32_t generation, json_t *line)
{
    json_t *progress = view_progress(line, e->steps), *loss = json_object_get(e->job.progress, "loss");
    char id[24], at[CLOCK_RFC3339_MAX];

    replay_measured(c, e, generation, json_integer_value(json_object_get(progress, "step")));
    if (loss && json_is_null(json_object_get(progress, "loss"))) /* a program tells it now and then */
        (void)json_object_set(progress, "loss", loss);
    json_decref(e->job.progress);
    e->job.progress = progress;
    if (e->progress_of < generation && generation == e->job.generation)
        trace_first_step(c, &e->job);
    e->progress_of = generation;
    learn_metrics(c, e, generation, line);
    arrays_measured(c, e, line);
    if (events_followers(c) == 0) {
        json_decref(line);
        return;
    }
    clock_rfc3339(c->now.wall_us, at);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)e->job.id);
    events_emit_new(c, e->job.id, e->job.user,
                    json_pack("{s:n, s:s, s:s, s:s, s:I, s:s, s:o}", "id", "at", at, "job", id, "type", "metrics",
                              "generation", (json_int_t)generation, "actor", "rank:0", "data", line),
                    false, false, false);
}

/* Count the bytes of a piece that was kept, for its job, user and project. Its job; NULL: it has ended, or the piece
 * cannot be read. */
static struct entry *count_piece(struct core *c, const json_t *doc, struct report_piece *piece)
{
    uint64_t job = report_piece_read(doc, piece, NULL) < 0 ? 0 : job_id_parse(piece->job);
    struct catalog_row *row = job ? catalog_find(&c->jobs.catalog, job) : NULL;
    struct entry *e = job ? table_find(&c->jobs, job) : NULL;

    if (row)
        catalog_ship(&c->jobs.catalog, row, strlen(piece->text));
    if (e)
        e->job.shipped += (int64_t)strlen(piece->text);
    return e;
}

static void take_metrics(struct core *c, const json_t *fresh)
{
    struct report_piece piece = {.text = NULL}; /* borrows */
    json_t *doc;
    size_t i;

    json_array_foreach (json_object_get(fresh, report_kind_names[REPORT_METRICS]), i, doc) {
        struct entry *e = count_piece(c, doc, &piece);
        const char *nl;

        for (const char *p = piece.text; e && (nl = strchr(p, '\n')); p = nl + 1) {
            json_t *line = json_loadb(p, (size_t)(nl - p), 0, NULL);

            if (json_is_object(line))
                take_metric_line_new(c, e, (uint32_t)piece.generation, line);
            else
                json_decref(line);
        }
    }
    json_array_foreach (json_object_get(fresh, report_kind_names[REPORT_LOGS]), i, doc) {
        struct entry *e = count_piece(c, doc, &piece);

        if (e && events_followers(c) > 0)
            events_log_new(c, e->job.id, e->job.user, piece.rank < 0 ? 0 : piece.rank, json_incref(doc));
    }
}

/* --- events of runs ---------------------------------------------------------------------------------- */

/* A run went on from a step: those that the one before had done beyond it are to be done again. */
static void go_back(struct entry *e, json_int_t step)
{
    json_t *progress;

    if (e->progress_of >= e->job.generation || json_integer_value(json_object_get(e->job.progress, "step")) <= step)
        return;
    progress = json_copy(e->job.progress); /* answers under way may have the old one */
    (void)json_object_set_new(progress, "step", json_integer(step));
    json_decref(e->job.progress);
    e->job.progress = progress;
}

/* A line as it is kept: of one that is longer than LINE_BYTES its type, rank and the beginning of its message, and how
 * long it was. o is taken over; new. */
static json_t *shorten_new(json_t *o, size_t len)
{
    const char *message = json_string_value(json_object_get(o, "message"));
    char type[32], text[LINE_WORDS];
    json_t *brief;

    if (len <= LINE_BYTES)
        return o;
    utf8_copy(type, sizeof(type), json_string_value(json_object_get(o, "type")));
    utf8_copy(text, sizeof(text), message ? message : "");
    brief = json_pack("{s:s, s:I, s:s*, s:I}", "type", type, "rank", json_integer_value(json_object_get(o, "rank")),
                      "message", message ? text : NULL, "cut_bytes", (json_int_t)len);
    json_decref(o);
    return brief ? brief : json_pack("{s:s}", "type", "note");
}

/* What a program says that it was given, and came to, stays with the job: the newest that rank 0 says, however long. */
static void take_words(struct core *c, struct entry *e, const char *type, const json_t *line, size_t len)
{
    bool config = strcmp(type, "config") == 0;
    json_t *words;

    if ((!config && strcmp(type, "summary") != 0) || len > WORDS_BYTES ||
        json_integer_value(json_object_get(line, "rank")) != 0)
        return;
    words = config ? json_incref(json_object_get(line, "config")) : json_copy((json_t *)line);
    if (!config) {
        (void)json_object_del(words, "type");
        (void)json_object_del(words, "rank");
    }
    if (json_is_object(words)) {
        json_t **at = config ? &e->job.config : &e->job.summary;

        json_decref(*at);
        *at = json_incref(words);
        table_dirty(&c->jobs, e);
    }
    json_decref(words);
}

/* One line that a rank wrote. */
static void take_line(struct core *c, struct entry *e, uint64_t job, uint32_t generation, const char *line, size_t len)
{
    json_t *o = json_loadb(line, len, 0, NULL);
    const char *type = json_string_value(json_object_get(o, "type"));
    const char *kept = "note";
    char actor[32], text[LINE_WORDS], code[32], *message = NULL;

    if (!type) {
        json_decref(o);
        return;
    }
    if (strcmp(type, "links") == 0) { /* is of the nodes, not of the job; a command measures none */
        if (e && e->job.generation == generation && e->job.kind == JOB_TRAIN)
            learn_links(c, e, o);
        json_decref(o);
        return;
    }
    if (strcmp(type, "device-test") == 0) { /* as a part of a finding (slow_care.h) */
        if (e && e->job.generation == generation && e->job.kind == JOB_TRAIN && e->job.live)
            learn_device_test(c, e, o);
        json_decref(o);
        return;
    }
    if (e && e->job.generation == generation)
        take_words(c, e, type, o, len);
    o = shorten_new(o, len);
    type = code;
    utf8_copy(code, sizeof(code), json_string_value(json_object_get(o, "type")));
    if (json_is_string(json_object_get(o, "message"))) {
        utf8_copy(text, sizeof(text), json_string_value(json_object_get(o, "message")));
        message = text;
    }
    (void)snprintf(actor, sizeof(actor), "rank:%d", (int)json_integer_value(json_object_get(o, "rank")));
    if (strcmp(type, "checkpoint") == 0 || strcmp(type, "eval") == 0)
        kept = type;
    else if (strcmp(type, "fault") == 0)
        kept = "rank";
    if (e && e->job.generation == generation) {
        json_t **at = strcmp(type, "eval") == 0 ? &e->job.eval : &e->job.checkpoint;
        bool done = strcmp(type, "checkpoint") == 0 && !json_object_get(o, "error");

        if (done || strcmp(type, "eval") == 0) {
            json_decref(*at);
            *at = json_incref(o);
            table_dirty(&c->jobs, e);
        }
        if (strcmp(type, "checkpoint") == 0 && e->job.kind == JOB_TRAIN)
            saves_done(c, e);
        if (strcmp(type, "resumed") == 0) {
            source_nodes_resumed(c, e);
            go_back(e, json_integer_value(json_object_get(o, "step")));
        }
        if (strcmp(type, "fault") == 0 && message && !e->run.fault_message[0])
            (void)snprintf(e->run.fault_message, sizeof(e->run.fault_message), "%s", message);
    }
    events_note(c, job, e ? e->job.user : "", kept, generation, actor, type, message ? message : type, o);
}

#define LINES_A_REPORT 32 /* a turn that stores thousands of them is one for which all others wait */
static const struct bucket_rule lines_of_node = {.per_s = 50, .burst = 1024};

/* Take the whole lines of a piece, as many as this turn has room for, and the node may send: the others are sent again.
 * A piece without any is of a line longer than pieces are, and passed over. Returns the bytes that are done with. */
static size_t take_lines(struct core *c, struct node *n, struct entry *e, uint64_t job, uint32_t generation,
                         const char *text, int *left)
{
    const char *p = text, *nl = strchr(p, '\n');

    if (!nl)
        return strlen(text);
    for (; nl && state_has_room(c) && *left > 0; nl = strchr(p, '\n')) {
        if (bucket_take(&n->lines, &lines_of_node, 1, c->now.mono_us) > 0)
            *left = 0;
        if (*left == 0)
            break;
        --*left;
        take_line(c, e, job, generation, p, (size_t)(nl - p));
        p = nl + 1;
    }
    return (size_t)(p - text);
}

static int take_events(struct core *c, struct node *n, const struct report_pieces *pieces, struct report_pieces *acks)
{
    int left = LINES_A_REPORT;

    acks->v = calloc(pieces->n + 1, sizeof(*acks->v));
    if (!acks->v)
        return -ENOMEM;
    for (size_t i = 0; i < pieces->n; i++) {
        const struct report_piece *p = &pieces->v[i];
        uint64_t job = job_id_parse(p->job);
        struct entry *e = table_find(&c->jobs, job);
        int64_t at;

        if (job == 0 || p->generation > UINT32_MAX)
            continue;
        at = offsets_read(c, e, job, n->name, (uint32_t)p->generation);
        if (at < 0)
            at = p->offset + (int64_t)strlen(p->text);
        else if (at == p->offset) {
            at = p->offset + (int64_t)take_lines(c, n, e, job, (uint32_t)p->generation, p->text, &left);
            if (at > p->offset)
                offsets_put(c, e, job, n->name, (uint32_t)p->generation, at);
        }
        acks->v[acks->n] = *p;
        acks->v[acks->n].text = NULL;
        acks->v[acks->n].rank = -1;
        acks->v[acks->n++].offset = at;
    }
    return 0;
}

/* --- a report ---------------------------------------------------------------------------------------- */

static void take_report(struct core *c, struct call *call, struct node *n, const struct report *r)
{
    struct report_answer answer = {.n_stale = 0};
    int code;

    reports_take_node(c, n, call->body);
    n->pressure = r->pressure;
    n->steal = r->steal;
    meter_take(n, r->host, r->n_host);
    answer.test = n->test.id;
    answer.now_ms = c->now.wall_us / 1000;
    answer.warm = calloc(REPORT_SLOTS_MAX, sizeof(*answer.warm)); /* without memory none */
    answer.n_warm = answer.warm ? swaps_warm(c, n, answer.warm) : 0;
    take_metrics(c, call->fresh);
    (void)report_acks_read(call->acks, &answer.acks, NULL); /* as the files' thread has left them */
    code = take_events(c, n, &r->pieces[REPORT_EVENTS], &answer.acks.of[REPORT_EVENTS]);
    if (code == 0)
        code = proofs_acknowledge(call->body, &answer.acks);
    if (code == 0)
        code = reports_take_runs(c, n, r, &answer);
    if (code < 0)
        call_problem(call, 503, "no-memory", "out of memory");
    else
        call_answer_new(call, 200, report_answer_write(&answer));
    report_answer_clear(&answer);
}

/* The node, which is this agent's. NULL: it is not, and the call is answered. */
static struct node *node_of(struct core *c, struct call *call)
{
    const char *incarnation = json_string_value(json_object_get(call->body, "incarnation"));
    struct node *n = cluster_node(&c->cluster, http_param(call->req, 0));

    if (n && n->registered && agent_is_registered(incarnation, n->incarnation))
        return n;
    call_problem(call, 404, "unknown-node",
                 "node '%s' is not registered with this server, or another agent took its name: register",
                 http_param(call->req, 0));
    return NULL;
}

/* Its pieces are stored, or are not waited for any more. */
static void finish(struct core *c, struct call *call)
{
    struct node *n = node_of(c, call); /* it may have gone meanwhile */
    struct report r;
    struct merr err;

    if (!n || call->status != 0)
        return;
    if (report_read(call->body, &r, &err) < 0) {
        call_problem(call, 422, "report-invalid", "%s", err.text);
        return;
    }
    take_report(c, call, n, &r);
    report_clear(&r);
}

static void late(struct core *c, struct call *call)
{
    take_metrics(c, call->fresh);
}

struct storing *reports_storing_new(void)
{
    return storing_new(&(struct storing_ops){.finish = finish, .late = late});
}

void reports_take(struct core *c, struct call *call)
{
    struct node *n = node_of(c, call);
    size_t refused;

    if (!n)
        return;
    contact_see(c, n);
    refused = proofs_check(c, n, call->body);
    if (refused > 0 && n->told_refused != c->now.mono_us / TELL_US + 1) {
        n->told_refused = c->now.mono_us / TELL_US + 1;
        log_warn("node %s: its report has %zu pieces of runs that it was not given; they are not stored", n->name,
                 refused);
    }
    storing_take(c, call, n);
}
