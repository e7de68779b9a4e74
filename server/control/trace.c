#include "server/control/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/version.h"
#include "server/control/span.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define SECOND_US INT64_C(1000000)
#define TRACE_BODY_MAX (8 << 20)
#define LOST_US (3 * POST_WAIT_MS * INT64_C(1000))

/* Before the second try, the third and so on. */
static const int wait_s[TRACE_TRIES - 1] = {1, 5, 30};

struct traces {
    char *spans[TRACE_WAITING]; /* a ring of n from first on, owned; those on their way are the first of it */
    size_t first, n, on_way;
    int tries;        /* of the body that is on its way, or to be sent again */
    int64_t due_us;   /* monotonic: nothing is sent earlier; */
    int64_t lost_us;  /* what is on its way counts as lost then */
    uint64_t next;    /* id of a body */
    int64_t round_us; /* wall: when the round of this turn began; 0: there was none */
    uint64_t sent, dropped;
    bool failing;
};

struct traces *trace_new(void)
{
    return calloc(1, sizeof(struct traces));
}

static void drop_first(struct traces *t, size_t n)
{
    for (; n > 0; n--) {
        free(t->spans[t->first]);
        t->first = (t->first + 1) % TRACE_WAITING;
        t->n--;
    }
}

void trace_free(struct traces *t)
{
    if (!t)
        return;
    drop_first(t, t->n);
    free(t);
}

static bool wanted(const struct core *c, const struct job *j)
{
    return c->cfg.traces.send && span_sampled(j->trace);
}

static void tell(struct core *c, const struct job *j, const struct span *s)
{
    struct traces *t = c->traces;
    char *text = t->n < TRACE_WAITING ? span_print(j, s) : NULL;

    if (text)
        t->spans[(t->first + t->n++) % TRACE_WAITING] = text;
    else
        t->dropped++;
}

/* --- what happens -------------------------------------------------------------------------------------- */

void trace_submit(struct core *c, const struct call *call, struct job *j)
{
    const char *context = call->req ? http_header(call->req, "traceparent") : NULL;
    int64_t took_us = c->now.mono_us - call->began_us;
    struct span s = {.part = SPAN_REQUEST,
                     .begin_us = c->now.wall_us - (took_us > 0 ? took_us : 0),
                     .end_us = c->now.wall_us,
                     .method = call->req ? http_method(call->req) : "schedule",
                     .path = call->req ? "/v1/jobs" : j->name,
                     .status = 201};

    if (!span_context_read(context, j->trace) && c->cfg.traces.send && !span_context_begin(c->cfg.chance, j->trace))
        return;
    if (wanted(c, j))
        tell(c, j, &s);
}

struct trace_before trace_look(const struct job *j)
{
    return (struct trace_before){j->live, j->state, j->generation, j->waiting_us, j->changed_us};
}

static void note_begin(struct core *c, const struct job *j, const struct trace_before *was)
{
    struct span wait = {.part = SPAN_QUEUE,
                        .generation = j->generation,
                        .begin_us = was->live ? was->changed_us : was->waiting_us,
                        .end_us = j->changed_us},
                decide = {.part = SPAN_DECIDE,
                          .generation = j->generation,
                          .begin_us = c->traces->round_us,
                          .end_us = j->changed_us};

    tell(c, j, &wait);
    if (c->traces->round_us)
        tell(c, j, &decide);
}

static void note_end(struct core *c, const struct job *j, const struct trace_before *was)
{
    struct span attempt = {.part = SPAN_ATTEMPT,
                           .generation = was->generation,
                           .begin_us = was->changed_us,
                           .end_us = j->changed_us,
                           .fault = j->state == JOB_FAILED || j->state == JOB_RECOVERING
                                        ? (j->reason_text ? j->reason_text : "it failed")
                                        : NULL};

    tell(c, j, &attempt);
}

void trace_note(struct core *c, const struct job *j, const struct trace_before *was)
{
    struct span start = {.part = SPAN_START,
                         .generation = j->generation,
                         .begin_us = j->changed_us,
                         .end_us = c->now.wall_us},
                whole = {.part = SPAN_JOB,
                         .begin_us = j->submitted_us,
                         .end_us = j->finished_us,
                         .fault = j->state == JOB_FAILED ? (j->reason_text ? j->reason_text : "it failed") : NULL};

    if (!wanted(c, j))
        return;
    if (was->live && (!j->live || j->generation != was->generation))
        note_end(c, j, was);
    if (j->live && (!was->live || j->generation != was->generation))
        note_begin(c, j, was);
    if (j->state == JOB_RUNNING && was->state == JOB_STARTING)
        tell(c, j, &start);
    if (job_ended(j->state) && !job_ended(was->state))
        tell(c, j, &whole);
}

void trace_first_step(struct core *c, const struct job *j)
{
    struct span s = {
        .part = SPAN_FIRST_STEP, .generation = j->generation, .begin_us = j->changed_us, .end_us = c->now.wall_us};

    if (wanted(c, j))
        tell(c, j, &s);
}

void trace_round(struct core *c)
{
    c->traces->round_us = c->now.wall_us;
}

/* --- sending ------------------------------------------------------------------------------------------- */

static bool print_body(const struct core *c, size_t n, struct buf *out)
{
    json_auto_t *service = json_pack("[{s:s, s:{s:s}}, {s:s, s:{s:s}}]", "key", "service.name", "value", "stringValue",
                                     c->cfg.traces.service ? c->cfg.traces.service : "musterd", "key",
                                     "service.version", "value", "stringValue", MUSTER_VERSION);
    char *text = service ? json_dumps(service, JSON_COMPACT) : NULL;
    const struct traces *t = c->traces;

    (void)buf_printf(out,
                     "{\"resourceSpans\":[{\"resource\":{\"attributes\":%s},\"scopeSpans\":[{\"scope\":{\"name\":"
                     "\"muster\"},\"spans\":[",
                     text ? text : "[]");
    for (size_t i = 0; i < n; i++)
        (void)buf_printf(out, "%s%s", i ? "," : "", t->spans[(t->first + i) % TRACE_WAITING]);
    (void)buf_addstr(out, "]}]}]}");
    free(text);
    return !buf_failed(out);
}

void trace_due(struct core *c)
{
    struct traces *t = c->traces;
    struct post_message m = {.id = t->next + 1, .url = c->cfg.traces.url, .trusted = true};
    BUF_CLEAR_AUTO struct buf body;

    buf_init(&body, TRACE_BODY_MAX);
    t->round_us = 0;
    if (t->on_way > 0 && c->now.mono_us > t->lost_us)
        t->on_way = 0; /* and is sent again */
    if (t->n == 0 || t->on_way > 0 || !c->cfg.traces.send || (c->now.mono_us < t->due_us && t->n < TRACE_BODY_SPANS) ||
        (c->now.mono_us < t->due_us && t->tries > 0))
        return;
    t->on_way = t->n < TRACE_BODY_SPANS ? t->n : TRACE_BODY_SPANS;
    m.headers[0] = "Content-Type: application/json";
    for (size_t i = 1; i < POST_HEADERS_MAX; i++)
        m.headers[i] = c->cfg.traces.headers[i - 1];
    if (print_body(c, t->on_way, &body)) {
        m.body = body.data;
        m.len = body.len;
        if (c->cfg.traces.send(c->cfg.traces.self, &m)) {
            t->next++;
            t->lost_us = c->now.mono_us + LOST_US;
            return;
        }
    }
    t->on_way = 0;
    t->due_us = c->now.mono_us + SECOND_US;
}

/* What OTLP says may be sent again. */
static bool may_pass(int status)
{
    return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

static void note_answer(struct core *c, int status, const char *why)
{
    struct traces *t = c->traces;
    size_t n = t->on_way;
    bool ok = status >= 200 && status < 300;
    char answered[32];

    (void)snprintf(answered, sizeof(answered), "it answered %d", status);
    t->on_way = 0;
    t->due_us = c->now.mono_us + SECOND_US;
    if (ok != !t->failing) {
        if (ok)
            log_info("the collector of traces takes spans again");
        else
            log_warn("the collector of traces at %.200s takes no spans: %.200s", c->cfg.traces.url,
                     *why ? why : answered);
        t->failing = !ok;
    }
    if (!ok && may_pass(status) && t->tries < TRACE_TRIES - 1) {
        t->due_us = c->now.mono_us + wait_s[t->tries++] * SECOND_US;
        return;
    }
    t->tries = 0;
    *(ok ? &t->sent : &t->dropped) += n;
    drop_first(t, n);
}

/* On the core's thread. */
static void run_done(void *core, struct call *call)
{
    struct core *c = core;

    c->handed = true;
    if (c->traces->on_way > 0 && call->hash == c->traces->next)
        note_answer(c, (int)json_integer_value(json_object_get(call->body, "status")),
                    json_string_value(json_object_get(call->body, "why")));
    call_free(call);
}

void trace_done(void *arg, uint64_t id, int status, int ms, const char *why)
{
    struct call *call = call_new(NULL, run_done);

    (void)ms;
    if (call) {
        call->hash = id;
        call->body = json_pack("{s:i, s:s}", "status", status, "why", why);
    }
    if (call && !queue_give(&((struct core *)arg)->turn.queue, call))
        call_free(call);
}

void trace_print(const struct core *c, struct buf *out)
{
    if (c->cfg.traces.send)
        (void)buf_printf(out,
                         "# HELP muster_trace_spans_total Spans, by whether the collector has taken them\n"
                         "# TYPE muster_trace_spans_total counter\n"
                         "muster_trace_spans_total{result=\"sent\"} %llu\n"
                         "muster_trace_spans_total{result=\"dropped\"} %llu\n",
                         (unsigned long long)c->traces->sent, (unsigned long long)c->traces->dropped);
}
