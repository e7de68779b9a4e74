/* bench dispatch - how fast the server starts jobs, and tells the nodes of a large one
 *
 * The server's own turns over a Redis and a disk of its own, driven by one thread, with the thread of folders beside
 * it; agents are requests without sockets, each with a long-poll that is asked again once it is answered. One job of
 * 1,024 ranks on 128 nodes: seconds from its submit until all nodes are told. And 7,600 jobs of one device wait when
 * 1,000 idle nodes of 8 devices come: starts a second until every node has been told of all of its jobs. Beside both:
 * writing as many assignments as text alone, and the seconds of a processor that the turns took, which say the same on
 * a machine that does other things meanwhile. And with 100,000 jobs and 1,000 nodes of 8 GPUs: the longest turn while
 * /metrics is printed.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "server/control/agents.h"
#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/jobs.h"
#include "server/control/places.h"
#include "server/control/scrapes.h"
#include "server/control/polls.h"
#include "server/control/turn.h"
#include "server/http/call.h"
#include "server/http/http_page.h"
#include "server/http/http_priv.h"
#include "server/store/redis.h"
#include "server/store/spool_disk.h"

#define SLOTS 8
#define AS_TEXT "writing the assignments as text"
#define SUBMITS 500 /* a turn */
#define DEADLINE_US (INT64_C(300) * 1000000)

struct agent {
    char name[16];
    struct http_req *poll; /* that waits; NULL: none */
    char version[24];
};

struct bench {
    char dir[PATH_MAX];
    struct redis *redis;
    struct store_backend backend;
    struct store *store;
    struct stats *stats;
    struct spool_disk *spool;
    struct core_cfg cfg;
    struct core *core;
    struct agent *agents;
    size_t n_agents, told_bytes;
    bool gpus;                    /* agents tell of some */
    int64_t turns_us, longest_us; /* of a processor, in turns, and in one */
};

static struct bench b;

static void die(const char *what, const char *why) __attribute__((noreturn));
static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench dispatch: %s: %s\n", what, why);
    redis_stop(b.redis);
    if (*b.dir)
        (void)io_remove_tree(b.dir, NULL);
    exit(1);
}

static void fatal(void *arg, const char *why)
{
    (void)arg;
    die("the server", why);
}

static int64_t thread_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static void report(const char *metric, double value, const char *unit, const char *name, double reference)
{
    (void)printf("{\"bench\": \"dispatch\", \"metric\": \"%s\", \"value\": %.5g, \"unit\": \"%s\", \"reference\": "
                 "\"%s\", \"ratio\": %.4g}\n",
                 metric, value, unit, name, value / reference);
    (void)fflush(stdout);
}

/* --- requests ----------------------------------------------------------------------------------------------- */

static struct http_req *request(const char *param)
{
    struct http_req *r = calloc(1, sizeof(*r));

    if (!r || pthread_mutex_init(&r->lock, NULL) != 0)
        die("memory", strerror(ENOMEM));
    atomic_store(&r->refs, 2);
    r->state = HTTP_HELD;
    r->params[0] = param;
    r->identity = (struct http_identity){.role = ROLE_ADMIN, .user = "ann", .token = "t1"};
    r->uri = strdup("/");
    return r;
}

static void run_submit(void *core, struct call *call)
{
    jobs_submit(core, call);
}

static void run_register(void *core, struct call *call)
{
    agents_register(core, call);
}

static void run_poll(void *core, struct call *call)
{
    polls_assignments(core, call);
}

static void run_scrape(void *core, struct call *call)
{
    scrapes_answer(core, call);
}

static struct call *submit(int devices, struct http_req **ret)
{
    char spec[256];
    struct faults faults = {.n = 0};
    struct call *call = call_new(*ret = request(NULL), run_submit);
    json_t *full;

    (void)snprintf(spec, sizeof(spec),
                   "{\"devices\": {\"min\": %d, \"max\": %d}, \"command\": {\"argv\": [\"python3\", \"train.py\", "
                   "\"--learning-rate\", \"0.001\"], \"env\": {\"NAME\": \"value\"}}}",
                   devices, devices);
    if (!call || spec_from_text(spec, strlen(spec), &call->spec, &faults) < 0)
        die("a submit", "the spec is refused");
    full = spec_to_json(call->spec);
    call->text = json_dumps(full, JSON_COMPACT);
    json_decref(full);
    return call;
}

static struct call *registration(const struct agent *a, struct http_req **ret)
{
    struct call *call = call_new(*ret = request(NULL), run_register);
    json_t *slots = json_array(), *gpus = json_array();

    for (int i = 0; i < SLOTS; i++)
        (void)json_array_append_new(slots, json_pack("{s:i, s:s, s:s, s:i, s:i}", "slot", i, "kind", "cpu", "class",
                                                     "cpu", "threads", 1, "memory_mib", 4096));
    for (int i = 0; b.gpus && i < SLOTS; i++)
        (void)json_array_append_new(gpus, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "slot", i, "utilization", 90,
                                                    "memory_used_mib", 70000, "power_w", 600, "temperature_c", 60,
                                                    "ecc_uncorrected", 0));
    call->body = json_pack("{s:o, s:s, s:s, s:s, s:s, s:o, s:[]}", "gpus", gpus, "node", a->name, "address", "10.0.0.1",
                           "boot_id", "b", "incarnation", a->name, "slots", slots, "runs");
    return call;
}

/* --- turns -------------------------------------------------------------------------------------------------- */

/* One turn with these calls. */
static void turn_now(struct call *list)
{
    int64_t began = thread_us(), took;

    if (!turn_take(b.core, list))
        die("a turn", "it was not durable");
    while (b.core->turn.later)
        turn_take(b.core, b.core->turn.later);
    took = thread_us() - began;
    b.turns_us += took;
    b.longest_us = took > b.longest_us ? took : b.longest_us;
}

/* The same; without calls once it is due, or when the thread of folders has one. */
static void turn(struct call *list)
{
    turn_now(list ? list : queue_take(&b.core->turn.queue, SIZE_MAX, turn_due_us(b.core)));
}

/* Take the answers to polls, and ask again. Returns the polls as calls of the next turn. */
static struct call *poll_again(void)
{
    struct call *list = NULL;

    for (size_t i = 0; i < b.n_agents; i++) {
        struct agent *a = &b.agents[i];
        json_t *answer;
        struct call *call;

        if (a->poll && a->poll->state == HTTP_HELD)
            continue;
        if (a->poll) {
            answer = a->poll->status == 200 ? json_loads(a->poll->out, 0, NULL) : NULL;
            if (!answer)
                die(a->name, a->poll->out ? a->poll->out : "no answer");
            (void)snprintf(a->version, sizeof(a->version), "%lld",
                           (long long)json_integer_value(json_object_get(answer, "version")));
            b.told_bytes += strlen(a->poll->out);
            json_decref(answer);
            http_req_unref(a->poll);
        }
        a->poll = request(a->name);
        a->poll->query =
            (struct http_fields){.v = {{"version", a->version}, {"wait", "60"}, {"incarnation", a->name}}, .n = 3};
        call = call_new(a->poll, run_poll);
        call->next = list;
        list = call;
    }
    return list;
}

static bool all_wait(void)
{
    for (size_t i = 0; i < b.n_agents; i++)
        if (!b.agents[i].poll || b.agents[i].poll->state != HTTP_HELD)
            return false;
    return true;
}

static size_t starting(void)
{
    return b.core->jobs.by_state[JOB_STARTING];
}

static void start_server(void)
{
    char path[PATH_MAX + 16];
    struct merr err = {""};

    if (io_remove_tree(b.dir, NULL) < 0 || io_mkdirs(b.dir, 0700, NULL) < 0)
        die(b.dir, "cannot be made anew");
    (void)snprintf(path, sizeof(path), "%s/redis", b.dir);
    if (redis_start(path, NULL, 0, &b.redis, &err) < 0)
        die("Redis", err.text);
    b.backend = redis_backend(b.redis);
    b.cfg = (struct core_cfg){.jobs_dir = b.dir,
                              .unknown_after_s = 3000,
                              .lost_after_s = 12000,
                              .keep_ended = 1000,
                              .keep_ended_bytes = INT64_MAX,
                              .audit_bytes = INT64_MAX,
                              .audit_keep_s = 90 * 86400,
                              .sched = {.policy = SCHED_POLICY_MUSTER,
                                        .round_us = 60000000,
                                        .hold_us = 120000000,
                                        .grace_us = 120000000,
                                        .starve_us = INT64_C(1800000000),
                                        .las_us = INT64_C(14400000000)},
                              .run_key = "key",
                              .clock = clock_real(),
                              .fatal = fatal};
    b.stats = stats_new();
    (void)snprintf(path, sizeof(path), "%s/spool", b.dir);
    if (store_open(&b.backend, &(struct store_cfg){.force = true, .lease_s = STORE_LEASE_S}, &b.store, &err) < 0 ||
        spool_disk_open(&(struct spool_disk_cfg){.jobs = b.dir}, &b.spool, &b.cfg.spool, &err) < 0 ||
        turn_new(&b.cfg, b.store, b.stats, &b.core, &err) < 0)
        die("the server", err.text);
    places_free(b.core->places);
    if (places_start(b.core, true, &b.core->places, &err) < 0)
        die("the server", err.text);
}

static void stop_server(void)
{
    files_stop(b.core->files);
    turn_close(b.core);
    for (size_t i = 0; i < b.n_agents; i++)
        if (b.agents[i].poll)
            http_req_unref(b.agents[i].poll);
    turn_free(b.core);
    store_close(b.store);
    redis_stop(b.redis);
    b.redis = NULL;
    spool_disk_close(b.spool);
    stats_free(b.stats);
    free(b.agents);
    b.agents = NULL;
    b.n_agents = 0;
}

static void add_agents(size_t n)
{
    b.agents = calloc(n, sizeof(*b.agents));
    if (!b.agents)
        die("memory", strerror(ENOMEM));
    for (size_t i = 0; i < n; i++)
        (void)snprintf(b.agents[i].name, sizeof(b.agents[i].name), "n%05zu", i);
    b.n_agents = n;
}

/* All nodes join, in one turn. */
static void join(void)
{
    struct http_req **reqs = calloc(b.n_agents, sizeof(struct http_req *));
    struct call *list = NULL;

    for (size_t i = b.n_agents; i-- > 0;) {
        struct call *call = registration(&b.agents[i], &reqs[i]);

        call->next = list;
        list = call;
    }
    turn(list);
    for (size_t i = 0; i < b.n_agents; i++) {
        if (reqs[i]->status != 200)
            die("an agent", reqs[i]->out);
        http_req_unref(reqs[i]);
    }
    free(reqs);
}

/* Seconds to write as many assignments as text as were told. */
static double reference_s(size_t bytes)
{
    json_t *o = json_pack("{s:s, s:i, s:s, s:s, s:i}", "node", "n00001", "slot", 3, "class", "cpu", "address",
                          "10.0.0.1", "rank", 7);
    int64_t began = clock_mono_us();
    size_t done = 0;

    while (done < bytes) {
        char *text = json_dumps(o, JSON_COMPACT);

        done += strlen(text);
        free(text);
    }
    json_decref(o);
    return (double)(clock_mono_us() - began) / 1e6 + 1e-6;
}

/* --- what is measured --------------------------------------------------------------------------------------- */

static void submit_all(int jobs)
{
    for (int i = 0; i < jobs; i += SUBMITS) {
        struct http_req *req[SUBMITS];
        struct call *list = NULL;

        for (int k = 0; k < SUBMITS && i + k < jobs; k++) {
            struct call *call = submit(1, &req[k]);

            call->next = list;
            list = call;
        }
        turn(list);
        for (int k = 0; k < SUBMITS && i + k < jobs; k++) {
            if (req[k]->status != 201)
                die("a submit", req[k]->out);
            http_req_unref(req[k]);
        }
    }
}

static void bench_starts(int jobs, size_t nodes)
{
    int64_t began, deadline;
    double s, s_text;

    start_server();
    add_agents(nodes);
    submit_all(jobs);
    began = clock_mono_us();
    deadline = began + DEADLINE_US;
    b.told_bytes = 0;
    b.turns_us = 0;
    join();
    while (starting() < (size_t)jobs || !all_wait()) {
        if (clock_mono_us() > deadline)
            die("the jobs", "they did not all start");
        turn(poll_again());
    }
    s = (double)(clock_mono_us() - began) / 1e6;
    s_text = reference_s(b.told_bytes);
    report("starts_per_s", jobs / s, "1/s", AS_TEXT, jobs / s_text);
    report("starts_per_processor_s", jobs * 1e6 / (double)b.turns_us, "1/s", AS_TEXT, jobs / s_text);
    stop_server();
}

static int by_value(const void *a, const void *c)
{
    double x = *(const double *)a, y = *(const double *)c;

    return (x > y) - (x < y);
}

static void bench_gang(int ranks, int times)
{
    double *all = calloc(2 * (size_t)times, sizeof(*all)), *processor = all + times, reference = 0;

    for (int k = 0; k < times; k++) {
        struct http_req *req;
        int64_t began;

        start_server();
        add_agents((size_t)ranks / SLOTS);
        join();
        turn(poll_again());
        while (!all_wait())
            turn(poll_again());
        b.told_bytes = 0;
        b.turns_us = 0;
        began = clock_mono_us();
        turn(submit(ranks, &req));
        while (starting() < 1 || b.agents[0].poll->state == HTTP_HELD)
            turn(NULL);
        all[k] = (double)(clock_mono_us() - began) / 1e6;
        processor[k] = (double)b.turns_us / 1e6;
        for (size_t i = 0; i < b.n_agents; i++)
            if (b.agents[i].poll->state == HTTP_HELD)
                die(b.agents[i].name, "it was not told in the turn in which the job started");
        (void)poll_again();
        reference = reference_s(b.told_bytes);
        http_req_unref(req);
        stop_server();
    }
    qsort(all, (size_t)times, sizeof(*all), by_value);
    qsort(processor, (size_t)times, sizeof(*all), by_value);
    report("gang_told_s", all[times / 2], "s", AS_TEXT, reference);
    report("gang_told_processor_s", processor[times / 2], "s", AS_TEXT, reference);
    free(all);
}

static void bench_metrics(int jobs, size_t nodes)
{
    struct http_req *req = request(NULL);

    start_server();
    b.gpus = true;
    add_agents(nodes);
    submit_all(jobs);
    join();
    b.core->turn.next_tick_us = b.core->turn.next_round_us = INT64_MAX; /* what those take is not measured */
    turn_now(NULL);
    b.turns_us = b.longest_us = 0;
    turn_now(call_new(req, run_scrape));
    while (!req->page)
        turn_now(NULL);
    report("metrics_longest_turn_s", (double)b.longest_us / 1e6, "s", "all turns in which the page was printed",
           (double)b.turns_us / 1e6);
    http_req_unref(req);
    b.gpus = false;
    stop_server();
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;

    if (argc > 1 && !quick) {
        (void)fprintf(stderr, "usage: dispatch [--quick]\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    log_init("bench", LOG_LEVEL_ERROR);
    (void)snprintf(b.dir, sizeof(b.dir), "%s/muster-bench-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(b.dir))
        die(b.dir, strerror(errno));
    bench_gang(1024, quick ? 1 : 5);
    bench_starts(quick ? 2000 : 7600, quick ? 250 : 1000);
    bench_metrics(quick ? 1000 : 100000, quick ? 100 : 1000);
    (void)io_remove_tree(b.dir, NULL);
    return 0;
}
