#include "server/control/measures.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/cluster/meter.h"
#include "server/control/files.h"
#include "server/control/readers.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/store/node_series.h"

#define TOGETHER 256 /* nodes whose samples are kept by one call */
#define BUCKETS_DEFAULT 240
#define NODES_DEFAULT 64
#define HOUR_S 3600
#define ANSWER_MAX (64 << 20)

static_assert((int)NODE_SERIES_HOST == (int)REPORT_HOST_NUMBERS, "a sample has what reports tell");
static_assert(NODE_SERIES_DEVICES_MAX >= REPORT_SLOTS_MAX, "a sample has each device");

/* --- samples ----------------------------------------------------------------------------------------- */

struct batch {
    size_t n;
    struct {
        char node[JOB_NODE_MAX];
        struct node_series_sample sample;
    } v[TOGETHER];
};

/* On the files' thread. */
static void run_keep(void *core, struct call *call)
{
    const struct core *c = core;
    const struct batch *b = (const struct batch *)(const void *)call->text;

    for (size_t i = 0; i < b->n; i++)
        (void)node_series_put(c->cfg.series, b->v[i].node, &b->v[i].sample);
    call_free(call);
}

static uint8_t byte_of(int v)
{
    return v < 0 || v >= NODE_SERIES_BYTE_NONE ? NODE_SERIES_BYTE_NONE : (uint8_t)v;
}

static void sample_node(const struct node *n, int64_t at_s, struct node_series_sample *x)
{
    x->at_s = at_s;
    for (int i = 0; i < NODE_SERIES_HOST; i++) {
        int64_t v = meter_read_host(n, (enum report_host)i);

        x->host[i] = v < 0 ? NODE_SERIES_NONE : (uint32_t)v;
    }
    x->n_devices = n->n_slots;
    for (size_t i = 0; i < n->n_slots; i++) {
        struct meter_device d = meter_read_device(&n->slots[i]);

        x->device[i] =
            (struct node_series_device){.job = (uint32_t)n->slots[i].job,
                                        .power_w = d.power_w < 0 ? NODE_SERIES_WATT_NONE : (uint16_t)d.power_w,
                                        .slot = (uint8_t)n->slots[i].slot,
                                        .busy = byte_of(d.busy),
                                        .use = byte_of(d.use),
                                        .memory = byte_of(d.memory),
                                        .temperature = byte_of(d.temperature)};
    }
}

static void hand_over(struct core *c, struct batch **b)
{
    struct call *call = *b ? call_new(NULL, run_keep) : NULL;

    if (call) {
        call->text = (char *)*b;
        files_post(c->files, call);
    } else {
        free(*b);
    }
    *b = NULL;
}

void measures_tick(struct core *c)
{
    int64_t tick = c->now.wall_us / 1000000 / NODE_SERIES_FINE_S, was = c->measured_tick;
    struct batch *b = NULL;

    if (!c->cfg.series || tick == was)
        return;
    c->measured_tick = tick;
    for (size_t i = 0; was > 0 && i < c->cluster.n_nodes; i++) {
        struct node *n = c->cluster.nodes[i];

        if (n->contact != NODE_READY || !n->registered)
            continue;
        if (!b && (b = malloc(sizeof(*b))))
            b->n = 0;
        if (!b)
            return; /* without memory there is a gap */
        memcpy(b->v[b->n].node, n->name, sizeof(n->name));
        sample_node(n, was * NODE_SERIES_FINE_S, &b->v[b->n].sample);
        meter_begin(n);
        if (++b->n == TOGETHER)
            hand_over(c, &b);
    }
    hand_over(c, &b);
}

/* --- series ------------------------------------------------------------------------------------------ */

struct mean {
    float sum, most;
    uint32_t n;
};

enum device_value { BUSY, USE, MEMORY, TEMPERATURE, POWER, DEVICE_VALUES };

static const struct {
    const char *name;
    double scale;
} host_values[NODE_SERIES_HOST] = {{"cpu_percent", 1}, {"memory_mib", 1}, {"memory_total_mib", 1}, {"load", 0.01},
                                   {"in_kib_s", 1},    {"out_kib_s", 1},  {"disk_free_mib", 1}};
static const char *const device_values[DEVICE_VALUES] = {"busy", "use", "memory", "temperature_c", "power_w"};

struct device {
    int slot;
    struct mean *v[DEVICE_VALUES]; /* each n_buckets */
    uint32_t job;                  /* of the newest sample, since */
    int64_t since_s, last_s;
    struct buf runs;
    bool any[DEVICE_VALUES];
};

struct series {
    int64_t from_s, to_s, width_s;
    int step_s;
    size_t n_buckets;
    bool host, full; /* the node's own values; all of the devices' */
    bool failed;     /* no memory */
    struct mean *of_host[NODE_SERIES_HOST];
    struct device *device[NODE_SERIES_DEVICES_MAX]; /* by slot */
};

static void add_value(struct mean *m, double v)
{
    m->sum += (float)v;
    m->most = m->n == 0 || v > (double)m->most ? (float)v : m->most;
    m->n++;
}

static struct device *device_of(struct series *s, int slot)
{
    struct device *d = s->device[slot];

    if (d || s->failed)
        return d;
    d = calloc(1, sizeof(*d));
    for (int k = 0; d && k < DEVICE_VALUES; k++) {
        d->v[k] = k <= USE || s->full ? calloc(s->n_buckets, sizeof(*d->v[k])) : NULL;
        s->failed = s->failed || (!d->v[k] && (k <= USE || s->full));
    }
    s->failed = s->failed || !d;
    if (d) {
        d->slot = slot;
        buf_init(&d->runs, ANSWER_MAX);
    }
    return s->device[slot] = d;
}

/* The job that the device had is told. */
static void end_run(struct device *d, int step_s)
{
    if (d->job)
        (void)buf_printf(&d->runs, "%s{\"job\":\"j%u\",\"from\":%lld,\"to\":%lld}", d->runs.len ? "," : "", d->job,
                         (long long)d->since_s, (long long)d->last_s + step_s);
    d->job = 0;
}

static void add_device(struct series *s, size_t bucket, int64_t at_s, const struct node_series_device *x)
{
    struct device *d = device_of(s, x->slot);
    const int v[DEVICE_VALUES] = {x->busy, x->use, x->memory, x->temperature,
                                  x->power_w == NODE_SERIES_WATT_NONE ? -1 : x->power_w};

    if (!d || s->failed)
        return;
    for (int k = 0; k < DEVICE_VALUES; k++)
        if (d->v[k] && v[k] >= 0 && (k == POWER || v[k] != NODE_SERIES_BYTE_NONE)) {
            add_value(&d->v[k][bucket], v[k]);
            d->any[k] = true;
        }
    if (d->job != x->job || at_s - d->last_s > 4 * s->step_s) {
        end_run(d, s->step_s);
        d->job = x->job;
        d->since_s = at_s;
    }
    d->last_s = at_s;
}

static void add_sample(void *arg, const struct node_series_sample *x)
{
    struct series *s = arg;
    size_t bucket = (size_t)((x->at_s - s->from_s) / s->width_s);

    if (x->at_s < s->from_s || bucket >= s->n_buckets)
        return;
    for (int i = 0; s->host && i < NODE_SERIES_HOST; i++)
        if (x->host[i] != NODE_SERIES_NONE)
            add_value(&s->of_host[i][bucket], x->host[i] * host_values[i].scale);
    for (size_t i = 0; i < x->n_devices; i++)
        add_device(s, bucket, x->at_s, &x->device[i]);
}

static void print_means(struct buf *b, const char *name, const struct mean *v, size_t n, bool most)
{
    (void)buf_printf(b, "\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        double x = v[i].n == 0 ? NAN : most ? (double)v[i].most : (double)v[i].sum / v[i].n;

        (void)buf_addstr(b, i ? "," : "");
        (void)(v[i].n > 0 ? buf_printf(b, "%.4g", x) : buf_addstr(b, "null"));
    }
    (void)buf_addstr(b, "]");
}

static void print_device(const struct series *s, struct device *d, struct buf *b)
{
    end_run(d, s->step_s);
    (void)buf_printf(b, "{\"slot\":%d,\"runs\":[%s]", d->slot, buf_text(&d->runs));
    for (int k = 0; k < DEVICE_VALUES; k++)
        if (d->any[k]) {
            (void)buf_addstr(b, ",");
            print_means(b, device_values[k], d->v[k], s->n_buckets, false);
        }
    (void)buf_addstr(b, "}");
}

/* As JSON; NULL: null. */
static void add_name(struct buf *b, const char *name)
{
    json_auto_t *v = name ? json_string(name) : json_null();
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;

    (void)buf_addstr(b, text ? text : "null");
    free(text);
}

static void print_node(struct series *s, const char *node, struct buf *b)
{
    const char *comma = "";

    (void)buf_addstr(b, "{\"node\":");
    add_name(b, node);
    (void)buf_addstr(b, ",");
    if (s->host) {
        (void)buf_addstr(b, "\"host\":{");
        for (int i = 0; i < NODE_SERIES_HOST; i++) {
            (void)buf_printf(b, "%s\"%s\":{", i ? "," : "", host_values[i].name);
            print_means(b, "mean", s->of_host[i], s->n_buckets, false);
            (void)buf_addstr(b, ",");
            print_means(b, "most", s->of_host[i], s->n_buckets, true);
            (void)buf_addstr(b, "}");
        }
        (void)buf_addstr(b, "},");
    }
    (void)buf_addstr(b, "\"devices\":[");
    for (int i = 0; i < NODE_SERIES_DEVICES_MAX; i++)
        if (s->device[i]) {
            (void)buf_addstr(b, comma);
            print_device(s, s->device[i], b);
            comma = ",";
        }
    (void)buf_addstr(b, "]}");
}

static void clear(struct series *s)
{
    for (int i = 0; i < NODE_SERIES_DEVICES_MAX; i++) {
        for (int k = 0; s->device[i] && k < DEVICE_VALUES; k++)
            free(s->device[i]->v[k]);
        if (s->device[i])
            buf_clear(&s->device[i]->runs);
        free(s->device[i]);
        s->device[i] = NULL;
    }
    for (int i = 0; i < NODE_SERIES_HOST; i++) {
        free(s->of_host[i]);
        s->of_host[i] = NULL;
    }
}

/* now: what is not kept yet; NULL: nothing. 0 or -ENOMEM; a node of which nothing is kept has no devices. */
static int tell_node(const struct core *c, struct series *s, const char *node, const struct node_series_sample *now,
                     struct buf *b)
{
    for (int i = 0; s->host && i < NODE_SERIES_HOST; i++) {
        s->of_host[i] = calloc(s->n_buckets, sizeof(*s->of_host[i]));
        s->failed = s->failed || !s->of_host[i];
    }
    if (!s->failed)
        (void)node_series_read(c->cfg.series, node, s->from_s, s->to_s, s->step_s, add_sample, s);
    if (!s->failed && now)
        add_sample(s, now);
    if (!s->failed)
        print_node(s, node, b);
    clear(s);
    return s->failed || buf_failed(b) ? -ENOMEM : 0;
}

static json_int_t member(const struct call *call, const char *name)
{
    return json_integer_value(json_object_get(call->body, name));
}

/* On a reader's thread: call->body says of which nodes, and of which time. */
static void run_series(void *core, struct call *call)
{
    const json_t *nodes = json_object_get(call->body, "nodes"), *node;
    struct series *s = calloc(1, sizeof(*s));
    const char *next = json_string_value(json_object_get(call->body, "next"));
    struct buf b;
    size_t i;
    int r = s ? 0 : -ENOMEM;

    buf_init(&b, ANSWER_MAX);
    if (s) {
        s->from_s = member(call, "from");
        s->to_s = member(call, "to");
        s->step_s = (int)member(call, "step");
        s->width_s = member(call, "width");
        s->n_buckets = (size_t)member(call, "buckets");
        s->host = s->full = !json_object_get(call->body, "cluster");
        (void)buf_printf(&b, "{\"from\":%lld,\"to\":%lld,\"width_s\":%lld,\"nodes\":[", (long long)s->from_s,
                         (long long)s->to_s, (long long)s->width_s);
    }
    json_array_foreach (nodes, i, node) {
        (void)buf_addstr(&b, i ? "," : "");
        r = r == 0 ? tell_node(core, s, json_string_value(node),
                               (const struct node_series_sample *)(const void *)call->text, &b)
                   : r;
        if (http_gone(call->req))
            break;
    }
    (void)buf_addstr(&b, "],\"next_cursor\":");
    add_name(&b, next);
    (void)buf_addstr(&b, "}");
    free(s);
    if (r == 0 && !buf_failed(&b)) {
        call->page = buf_detach(&b);
        call->page_is_json = true;
        call->status = 200;
    } else {
        call_problem(call, 503, "no-memory", "the series cannot be read now; ask for less");
    }
    buf_clear(&b);
    call_deliver(call);
}

/* The time that the call asks for: the last hour where it does not say. False: it is answered. */
static bool read_range(const struct core *c, struct call *call)
{
    int64_t now_s = c->now.wall_us / 1000000, to = call_number(call, "to", now_s);
    int64_t from = call_number(call, "from", to - HOUR_S + NODE_SERIES_FINE_S),
            buckets = call_number(call, "buckets", BUCKETS_DEFAULT);
    int step =
        from >= now_s - (int64_t)NODE_SERIES_FINE * NODE_SERIES_FINE_S ? NODE_SERIES_FINE_S : NODE_SERIES_COARSE_S;
    int64_t width;

    if (!c->cfg.series) {
        call_problem(call, 404, "no-series", "this server keeps no series of nodes");
        return false;
    }
    if (from < 0 || from > INT64_MAX - NODE_SERIES_COARSE_S || from >= to ||
        to - from > (int64_t)NODE_SERIES_COARSE * NODE_SERIES_COARSE_S) {
        call_problem(call, 422, "query-invalid", "'from' is before 'to', by 30 days at most; both are Unix seconds");
        return false;
    }
    from -= from % step;
    width = ((to - from + buckets - 1) / buckets + step - 1) / step * step;
    call->body =
        json_pack("{s:I, s:I, s:i, s:I, s:I, s:[]}", "from", (json_int_t)from, "to", (json_int_t)to, "step", step,
                  "width", (json_int_t)width, "buckets", (json_int_t)((to - from + width - 1) / width), "nodes");
    if (!call->body)
        call_problem(call, 503, "no-memory", "out of memory");
    return call->body;
}

static void hand_to_reader(struct core *c, struct call *call)
{
    call->run = run_series;
    c->handed = true;
    readers_post(c->readers, call);
}

void measures_node(struct core *c, struct call *call)
{
    const struct node *n = cluster_node(&c->cluster, http_param(call->req, 0));
    struct node_series_sample *now;

    if (!n) {
        call_problem(call, 404, "unknown-node", "no node '%s'; `muster nodes` shows those there are",
                     http_param(call->req, 0));
        return;
    }
    if (!read_range(c, call))
        return;
    (void)json_array_append_new(json_object_get(call->body, "nodes"), json_string(n->name));
    if (n->contact == NODE_READY && (now = malloc(sizeof(*now)))) {
        sample_node(n, c->measured_tick * NODE_SERIES_FINE_S, now);
        call->text = (char *)now;
    }
    hand_to_reader(c, call);
}

void measures_cluster(struct core *c, struct call *call)
{
    const char *after = http_query(call->req, "cursor");
    size_t limit = (size_t)call_number(call, "limit", NODES_DEFAULT),
           at = after ? cluster_after(&c->cluster, after) : 0;
    size_t end = at + limit < c->cluster.n_nodes ? at + limit : c->cluster.n_nodes;

    if (!read_range(c, call))
        return;
    (void)json_object_set_new(call->body, "cluster", json_true());
    for (size_t i = at; i < end; i++)
        (void)json_array_append_new(json_object_get(call->body, "nodes"), json_string(c->cluster.nodes[i]->name));
    if (end < c->cluster.n_nodes && end > at)
        (void)json_object_set_new(call->body, "next", json_string(c->cluster.nodes[end - 1]->name));
    hand_to_reader(c, call);
}
