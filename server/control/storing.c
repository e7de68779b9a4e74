#include "server/control/storing.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/protocol/report.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/http/call.h"

static const struct bucket_rule bytes_of_node = {.per_s = STORING_BYTES_S, .burst = STORING_BYTES_BURST};

struct one {
    struct one *next;
    uint64_t number;
    struct call *call; /* NULL: it was taken without its pieces */
    char node[JOB_NODE_MAX];
    int64_t deadline_us;
    size_t bytes;
};

struct storing {
    struct storing_ops ops;
    struct one *first, **end; /* oldest first */
    uint64_t last;            /* number */
    size_t bytes;
};

struct storing *storing_new(const struct storing_ops *ops)
{
    struct storing *s = calloc(1, sizeof(*s));

    if (s) {
        s->ops = *ops;
        s->end = &s->first;
    }
    return s;
}

void storing_free(struct storing *s)
{
    for (struct one *o = s ? s->first : NULL, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    free(s);
}

static void finish(struct core *c, struct call *call)
{
    c->storing->ops.finish(c, call);
    state_answered(c, call);
}

/* Back on the core's thread. call has no request: it is of the pieces alone. */
static void run_stored(void *core, struct call *call)
{
    struct core *c = core;
    struct storing *s = c->storing;
    struct one **at = &s->first, *o;
    struct node *n;

    c->handed = true;
    while (*at && (*at)->number != call->hash)
        at = &(*at)->next;
    o = *at;
    if (o) {
        n = cluster_node(&c->cluster, o->node);
        if (n && n->storing == o->number)
            n->storing = 0;
        s->bytes -= o->bytes;
        *at = o->next;
        if (!o->next)
            s->end = at;
    }
    if (o && o->call) {
        o->call->acks = json_incref(call->acks);
        o->call->fresh = json_incref(call->fresh);
        if (call->status != 0)
            call_answer_new(o->call, call->status, json_incref(call->reply));
        finish(c, o->call);
    } else {
        s->ops.late(c, call);
    }
    free(o);
    call_free(call);
}

/* On the files' thread. */
static void run_store(void *core, struct call *call)
{
    struct core *c = core;

    files_take_report(c->files, call);
    call->run = run_stored;
    if (!files_threaded(c->files))
        run_stored(c, call);
    else if (!queue_give(&c->turn.queue, call))
        call_free(call); /* the server stops */
}

static bool has_pieces(const struct call *call)
{
    return json_array_size(json_object_get(call->body, report_kind_names[REPORT_LOGS])) > 0 ||
           json_array_size(json_object_get(call->body, report_kind_names[REPORT_METRICS])) > 0;
}

void storing_take(struct core *c, struct call *call, struct node *n)
{
    struct storing *s = c->storing;
    struct call *pieces = NULL;
    struct one *o = NULL;
    size_t bytes = 0;

    (void)http_body(call->req, &bytes);
    c->handed = true;
    if (!call->acks && has_pieces(call) && n->storing == 0 && s->bytes + bytes <= STORING_BYTES_MAX &&
        bucket_take(&n->bytes, &bytes_of_node, (double)bytes, c->now.mono_us) == 0) {
        pieces = call_new(NULL, run_store);
        o = calloc(1, sizeof(*o));
    }
    if (!pieces || !o) {
        call_free(pieces);
        free(o);
        finish(c, call);
        return;
    }
    *o = (struct one){
        .number = ++s->last, .call = call, .deadline_us = c->now.mono_us + STORING_WAIT_US, .bytes = bytes};
    (void)snprintf(o->node, sizeof(o->node), "%s", n->name);
    s->bytes += bytes;
    *s->end = o;
    s->end = &o->next;
    n->storing = o->number;
    pieces->hash = o->number;
    pieces->body = json_incref(call->body);
    files_post(c->files, pieces);
}

void storing_tick(struct core *c)
{
    for (struct one *o = c->storing->first; o && o->deadline_us <= c->now.mono_us; o = o->next) {
        struct call *call = o->call;

        o->call = NULL;
        if (call)
            finish(c, call);
    }
}

void storing_stop(struct core *c)
{
    for (struct one *o = c->storing->first; o; o = o->next) {
        if (!o->call)
            continue;
        call_problem(o->call, 503, "stopping", "the server is stopping; ask again");
        call_deliver(o->call);
        o->call = NULL;
    }
}
