#include "server/control/scrapes.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/cluster/gpus.h"
#include "server/cluster/slots.h"
#include "server/cluster/stragglers.h"
#include "server/control/audit.h"
#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/control/waiters.h"
#include "server/http/call.h"
#include "server/http/http_page.h"

struct scrapes {
    struct http_page *page[SCRAPES_KEPT_MAX + 1]; /* n, oldest first; each a reference of ours */
    size_t n;
    int64_t fresh_until_us; /* monotonic: so long the last is told again */
};

struct scrapes *scrapes_new(void)
{
    return calloc(1, sizeof(struct scrapes));
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
    free(s);
}

/* --- the text ---------------------------------------------------------------------------------------- */

static void print_stragglers(const struct core *c, struct buf *b)
{
    (void)buf_printf(b,
                     "# HELP muster_slow_devices Devices known to be slower than others of their class\n"
                     "# TYPE muster_slow_devices gauge\nmuster_slow_devices %zu\n"
                     "# HELP muster_devices_found_slow_total Devices found slow since the server started\n"
                     "# TYPE muster_devices_found_slow_total counter\nmuster_devices_found_slow_total %llu\n"
                     "# HELP muster_slow_replaced_total Times that a job was moved off slow devices\n"
                     "# TYPE muster_slow_replaced_total counter\nmuster_slow_replaced_total %llu\n",
                     stragglers_count(&c->cluster), (unsigned long long)c->dispatch.slow_found,
                     (unsigned long long)c->dispatch.slow_replaced);
}

static void print_users(const struct core *c, struct buf *b)
{
    (void)buf_addstr(b, "# HELP muster_user_log_bytes Bytes of logs and metrics kept of a user's jobs that are known\n"
                        "# TYPE muster_user_log_bytes gauge\n");
    for (size_t i = 0; i < CATALOG_BUCKETS; i++)
        for (const struct catalog_name *n = c->jobs.catalog.users[i]; n; n = n->next)
            (void)buf_printf(b, "muster_user_log_bytes{user=\"%s\"} %llu\n", n->name, (unsigned long long)n->shipped);
}

static void print_all(struct core *c, struct buf *b)
{
    size_t slots[3] = {0, 0, 0};

    (void)buf_addstr(b, "# HELP muster_jobs Jobs by state; those that have ended are counted over all time\n"
                        "# TYPE muster_jobs gauge\n");
    for (int s = 0; s < JOB_STATES; s++)
        (void)buf_printf(
            b, "muster_jobs{state=\"%s\"} %llu\n", job_state_name((enum job_state)s),
            (unsigned long long)(s >= JOB_SUCCEEDED ? c->jobs.ended[s - JOB_SUCCEEDED] : c->jobs.by_state[s]));
    (void)buf_addstr(b, "# HELP muster_node_up Whether the node's agent reports\n# TYPE muster_node_up gauge\n");
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];

        (void)buf_printf(b, "muster_node_up{node=\"%s\"} %d\n", n->name, n->contact == NODE_READY && n->registered);
        for (size_t k = 0; k < n->n_slots; k++)
            slots[n->slots[k].job ? 1 : !slots_usable(&n->slots[k]) || n->drain || n->contact != NODE_READY ? 2 : 0]++;
    }
    (void)buf_printf(b,
                     "# HELP muster_slots Devices by use\n# TYPE muster_slots gauge\n"
                     "muster_slots{state=\"free\"} %zu\nmuster_slots{state=\"busy\"} %zu\n"
                     "muster_slots{state=\"unusable\"} %zu\n",
                     slots[0], slots[1], slots[2]);
    (void)buf_printf(b,
                     "# HELP muster_followers Streams that are open\n# TYPE muster_followers gauge\n"
                     "muster_followers %zu\n# HELP muster_long_polls Agents' calls that wait\n"
                     "# TYPE muster_long_polls gauge\nmuster_long_polls %zu\n",
                     events_followers(c), waiters_count(c->waiters));
    (void)buf_printf(b,
                     "# HELP muster_store_up Whether the store answers\n# TYPE muster_store_up gauge\n"
                     "muster_store_up %d\n# HELP muster_call_queue Requests that wait for the core\n"
                     "# TYPE muster_call_queue gauge\nmuster_call_queue %zu\n",
                     store_up(c->store), queue_length(&c->turn.queue));
    (void)buf_printf(b,
                     "# HELP muster_logs_waiting Whether logs and metrics wait at the agents for this server's disk\n"
                     "# TYPE muster_logs_waiting gauge\nmuster_logs_waiting %d\n",
                     files_trouble(c->files) != 0);
    gpus_metrics(&c->cluster, b);
    print_stragglers(c, b);
    audit_metrics(c, b);
    print_users(c, b);
    stats_print(c->stats, b);
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

/* Print a page. False: it is too long, or there is no memory. */
static bool print_page(struct core *c)
{
    struct scrapes *s = c->scrapes;
    BUF_CLEAR_AUTO struct buf b;
    size_t len;
    char *text;

    make_room(s);
    buf_init(&b, SCRAPES_PAGE_BYTES);
    print_all(c, &b);
    len = b.len;
    text = buf_detach(&b);
    s->page[s->n] = text ? http_page_new(text, len) : NULL;
    if (!s->page[s->n])
        return false;
    s->n++;
    s->fresh_until_us = c->now.mono_us + (int64_t)(len / SCRAPES_BYTES_A_US);
    return true;
}

void scrapes_answer(struct core *c, struct call *call)
{
    struct scrapes *s = c->scrapes;

    if ((s->n == 0 || c->now.mono_us >= s->fresh_until_us) && !print_page(c)) {
        call_problem(call, 500, "internal", "the metrics do not fit %d bytes", SCRAPES_PAGE_BYTES);
        return;
    }
    call_answer_new(call, 200, NULL);
    call->shared = http_page_ref(s->page[s->n - 1]);
}
