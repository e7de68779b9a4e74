#include "server/control/scrapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/cluster/gpus.h"
#include "server/cluster/stragglers.h"
#include "server/control/audit.h"
#include "server/control/device_uses.h"
#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/control/trace.h"
#include "server/control/waiters.h"
#include "server/http/call.h"
#include "server/http/http_page.h"

struct scrapes {
    struct http_page *page[SCRAPES_KEPT_MAX + 1]; /* n, oldest first; each a reference of ours */
    size_t n;
    int64_t fresh_until_us; /* monotonic: so long the last is told again */

    struct call *waiting; /* for the page that is being printed; n_waiting; none: none is */
    size_t n_waiting;
    struct buf text; /* of that page, and what comes next: */
    size_t part, step;
    char node[JOB_NODE_MAX]; /* the last one that this part has told */
    struct device_uses uses;
    size_t told; /* jobs whose steps this page has */
    bool gpus;   /* some node has told of its GPUs */
    enum gpus_metric metric;
};

struct scrapes *scrapes_new(void)
{
    struct scrapes *s = calloc(1, sizeof(*s));

    if (s)
        buf_init(&s->text, SCRAPES_PAGE_BYTES);
    return s;
}

static void forget_page(struct scrapes *s, size_t i)
{
    http_page_unref(s->page[i]);
    memmove(&s->page[i], &s->page[i + 1], (--s->n - i) * sizeof(s->page[0]));
}

void scrapes_free(struct scrapes *s)
{
    while (s && s->n > 0)
        forget_page(s, s->n - 1);
    if (s)
        buf_clear(&s->text);
    free(s);
}

/* --- the text ---------------------------------------------------------------------------------------- */

/* The node after the last one that the part has told; NULL: that was all. Nodes may come and go between two of them. */
static const struct node *next_node(const struct core *c, struct scrapes *s)
{
    size_t at = cluster_after(&c->cluster, s->node);
    const struct node *n = at < c->cluster.n_nodes ? c->cluster.nodes[at] : NULL;

    if (n)
        (void)snprintf(s->node, sizeof(s->node), "%s", n->name);
    return n;
}

static bool print_jobs(struct core *c, struct scrapes *s)
{
    (void)buf_addstr(&s->text, "# HELP muster_jobs Jobs by state; those that have ended are counted over all time\n"
                               "# TYPE muster_jobs gauge\n");
    for (int i = 0; i < JOB_STATES; i++)
        (void)buf_printf(
            &s->text, "muster_jobs{state=\"%s\"} %llu\n", job_state_name((enum job_state)i),
            (unsigned long long)(i >= JOB_SUCCEEDED ? c->jobs.ended[i - JOB_SUCCEEDED] : c->jobs.by_state[i]));
    (void)buf_addstr(&s->text, "# HELP muster_node_up Whether the node's agent reports\n# TYPE muster_node_up gauge\n");
    return true;
}

static bool print_node(struct core *c, struct scrapes *s)
{
    const struct node *n = next_node(c, s);

    if (!n)
        return true;
    (void)buf_printf(&s->text, "muster_node_up{node=\"%s\"} %d\n", n->name, n->contact == NODE_READY && n->registered);
    device_uses_add(&s->uses, &c->cluster.classes, &c->jobs, n);
    s->gpus = s->gpus || json_array_size(n->gpus) > 0;
    return false;
}

static bool print_counts(struct core *c, struct scrapes *s)
{
    device_uses_print(&s->uses, &s->text);
    (void)buf_printf(&s->text,
                     "# HELP muster_followers Streams that are open\n# TYPE muster_followers gauge\n"
                     "muster_followers %zu\n# HELP muster_long_polls Agents' calls that wait\n"
                     "# TYPE muster_long_polls gauge\nmuster_long_polls %zu\n",
                     events_followers(c), waiters_count(c->waiters));
    (void)buf_printf(&s->text,
                     "# HELP muster_store_up Whether the store answers\n# TYPE muster_store_up gauge\n"
                     "muster_store_up %d\n# HELP muster_call_queue Requests that wait for the core\n"
                     "# TYPE muster_call_queue gauge\nmuster_call_queue %zu\n",
                     store_up(c->store), queue_length(&c->turn.queue));
    trace_print(c, &s->text);
    (void)buf_printf(&s->text,
                     "# HELP muster_logs_waiting Whether logs and metrics wait at the agents for this server's disk\n"
                     "# TYPE muster_logs_waiting gauge\nmuster_logs_waiting %d\n",
                     files_trouble(c->files) != 0);
    return true;
}

/* How long the steps of a training job take that runs: of so many jobs at most, the oldest. Jobs that come or go
 * meanwhile leave out some or none, and tell none twice. */
static bool print_steps(struct core *c, struct scrapes *s)
{
    const struct entry *e = s->step < c->jobs.n_order ? table_at(&c->jobs, s->step) : NULL;

    if (s->step == 0)
        (void)buf_addstr(&s->text, "# HELP muster_job_step_seconds How long a step of a running training job takes\n"
                                   "# TYPE muster_job_step_seconds gauge\n");
    if (e && e->job.state == JOB_RUNNING && e->job.step_ms > 0) {
        (void)buf_printf(&s->text, "muster_job_step_seconds{job=\"j%llu\",project=\"%s\"} %.6g\n",
                         (unsigned long long)e->job.id, e->job.project, e->job.step_ms / 1e3);
        s->told++;
    }
    return s->step + 1 >= c->jobs.n_order || s->told == SCRAPES_JOBS_MAX;
}

/* One metric of the GPUs of a node: of all nodes, one after the other, and then the next metric. */
static bool print_gpus(struct core *c, struct scrapes *s)
{
    const struct node *n;

    if (!s->gpus)
        return true;
    if (!s->node[0])
        gpus_print_head(&s->text, s->metric);
    n = next_node(c, s);
    if (n) {
        gpus_print_node(&s->text, s->metric, n);
    } else {
        s->metric++;
        s->node[0] = '\0';
    }
    return s->metric == GPUS_METRICS;
}

static bool print_stragglers(struct core *c, struct scrapes *s)
{
    (void)buf_printf(&s->text,
                     "# HELP muster_slow_devices Devices known to be slower than others of their class\n"
                     "# TYPE muster_slow_devices gauge\nmuster_slow_devices %zu\n"
                     "# HELP muster_devices_found_slow_total Devices found slow since the server started\n"
                     "# TYPE muster_devices_found_slow_total counter\nmuster_devices_found_slow_total %llu\n"
                     "# HELP muster_slow_replaced_total Times that a job was moved off slow devices\n"
                     "# TYPE muster_slow_replaced_total counter\nmuster_slow_replaced_total %llu\n",
                     stragglers_count(&c->cluster), (unsigned long long)c->dispatch.slow_found,
                     (unsigned long long)c->dispatch.slow_replaced);
    audit_metrics(c, &s->text);
    return true;
}

static bool print_users(struct core *c, struct scrapes *s)
{
    if (s->step == 0)
        (void)buf_addstr(&s->text,
                         "# HELP muster_user_log_bytes Bytes of logs and metrics kept of a user's jobs that are known\n"
                         "# TYPE muster_user_log_bytes gauge\n");
    for (const struct catalog_name *n = c->jobs.catalog.users[s->step]; n; n = n->next)
        (void)buf_printf(&s->text, "muster_user_log_bytes{user=\"%s\"} %llu\n", n->name,
                         (unsigned long long)n->shipped);
    return s->step + 1 == CATALOG_BUCKETS;
}

static bool print_stats(struct core *c, struct scrapes *s)
{
    stats_print(c->stats, &s->text);
    return true;
}

/* Each prints what comes in its step, which is little. True: that was its last. */
static bool (*const parts[])(struct core *c, struct scrapes *s) = {
    print_jobs, print_node, print_counts, print_steps, print_gpus, print_stragglers, print_users, print_stats,
};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

/* Print on for a little while. True: the page is whole. */
static bool print_piece(struct core *c, struct scrapes *s)
{
    size_t end = s->text.len + SCRAPES_PIECE_BYTES;

    for (int i = 0; i < SCRAPES_PIECE_STEPS && s->part < PARTS && s->text.len < end && !buf_failed(&s->text); i++) {
        if (parts[s->part](c, s)) {
            s->part++;
            s->step = 0;
            s->node[0] = '\0';
        } else {
            s->step++;
        }
    }
    return s->part == PARTS || buf_failed(&s->text);
}

/* --- the pages --------------------------------------------------------------------------------------- */

/* Let go of the pages that nobody reads, and of the oldest ones beyond the limit. */
static void make_room(struct scrapes *s)
{
    size_t bytes = 0;

    for (size_t i = s->n; i-- > 0;)
        if (!http_page_shared(s->page[i]))
            forget_page(s, i);
    for (size_t i = 0; i < s->n; i++)
        bytes += http_page_bytes(s->page[i]);
    while (s->n > 0 && (bytes > SCRAPES_KEPT_BYTES || s->n == SCRAPES_KEPT_MAX)) {
        bytes -= http_page_bytes(s->page[0]);
        http_page_withdraw(s->page[0]);
        forget_page(s, 0);
    }
}

/* Keep the page that was printed. False: it is too long, or there is no memory. */
static bool keep_page(const struct core *c, struct scrapes *s)
{
    size_t len = s->text.len;
    char *text = buf_detach(&s->text);

    make_room(s);
    s->page[s->n] = text ? http_page_new(text, len) : NULL;
    if (!s->page[s->n])
        return false;
    s->n++;
    s->fresh_until_us = c->now.mono_us + (int64_t)(len / SCRAPES_BYTES_A_US);
    return true;
}

static void answer(const struct scrapes *s, struct call *call, bool good)
{
    if (!good) {
        call_problem(call, 500, "internal", "the metrics do not fit %d bytes", SCRAPES_PAGE_BYTES);
        return;
    }
    call_answer_new(call, 200, NULL);
    call->shared = http_page_ref(s->page[s->n - 1]);
}

bool scrapes_printing(const struct scrapes *s)
{
    return s->waiting;
}

void scrapes_turn(struct core *c)
{
    struct scrapes *s = c->scrapes;
    bool good;

    if (!s->waiting || !print_piece(c, s))
        return;
    good = keep_page(c, s);
    while (s->waiting) {
        struct call *call = s->waiting;

        s->waiting = call->next;
        answer(s, call, good);
        state_answered(c, call);
    }
    s->n_waiting = 0;
}

void scrapes_stop(struct core *c)
{
    struct scrapes *s = c->scrapes;

    while (s->waiting) {
        struct call *call = s->waiting;

        s->waiting = call->next;
        call_problem(call, 503, "stopping", "the server is stopping; ask again");
        call_deliver(call);
    }
    s->n_waiting = 0;
}

void scrapes_answer(struct core *c, struct call *call)
{
    struct scrapes *s = c->scrapes;

    if (!s->waiting && s->n > 0 && c->now.mono_us < s->fresh_until_us) {
        answer(s, call, true);
        return;
    }
    if (s->n_waiting == SCRAPES_WAITING_MAX) {
        call_problem(call, 503, "busy", "%d requests wait for the metrics already; try again in a second",
                     SCRAPES_WAITING_MAX);
        return;
    }
    if (!s->waiting) {
        buf_clear(&s->text);
        s->part = s->step = 0;
        s->node[0] = '\0';
        memset(&s->uses, 0, sizeof(s->uses));
        s->told = 0;
        s->gpus = false;
        s->metric = 0;
    }
    call->next = s->waiting;
    s->waiting = call;
    s->n_waiting++;
    c->handed = true;
}
