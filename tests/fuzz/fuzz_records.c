/* Any bytes as what the store holds: the server starts on it, serves what can be read, and takes its turns.
 *
 * The input is records with a NUL between them; the first byte of each says where it lies (put() below). A job 1 beside
 * them can be read, and must be there.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/control/change.h"
#include "server/control/files.h"
#include "server/control/load.h"
#include "server/control/quarantine.h"
#include "server/control/readers.h"
#include "server/control/records.h"
#include "server/control/turn.h"
#include "server/store/history_read.h"
#include "server/store/job_store.h"
#include "tests/memory/spool_memory.h"
#include "tests/memory/store_memory.h"
#include "server/store/store_priv.h"
#include "tests/unit/fake_clock.h"

#define SECOND INT64_C(1000000)
#define GOOD "{\"command\": {\"argv\": [\"x\"]}}"
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fatal(void *arg, const char *why)
{
    (void)arg;
    (void)fprintf(stderr, "the server ends: %s\n", why);
    abort();
}

static void commit(struct store *s)
{
    _Atomic int stop = 0;

    MUST(store_commit(s, &stop, NULL) == 0);
}

static void put_good(struct store *s)
{
    struct faults faults = {.n = 0};
    struct job_spec *spec = NULL;
    struct job job;
    json_t *record;
    char *text;

    MUST(spec_from_text(GOOD, strlen(GOOD), &spec, &faults) == 0);
    job_init(&job, 1, spec, "ann", 1700000000 * SECOND);
    job.version = 1;
    record = job_record(&job);
    text = json_dumps(record, JSON_COMPACT);
    job_store_put(s, 1, 0, 1, text, GOOD);
    store_add(s, "SADD", "muster:jobs:active", "2", NULL);
    store_add(s, "HSET", "muster:job:2", "spec", GOOD, "v", "1", "rec", text, NULL); /* of another job */
    job_store_put_counters(s, 4, 100);
    free(text);
    json_decref(record);
    job_clear(&job);
    spec_free(spec);
}

static void put(struct store *s, char where, const char *text)
{
    static const char *const field[][2] = {{"muster:job:2", "rec"},      {"muster:job:2", "spec"},
                                           {"muster:job:2", "v"},        {"muster:nodes", "n1"},
                                           {"muster:projects", "prod"},  {"muster:tokens", "f00"},
                                           {"muster:links", "n1/n2"},    {"muster:speeds", "cpu"},
                                           {"muster:aside", "job:j3"},   {"muster:aside:texts", "node:n9"},
                                           {"muster:meta", "next_job"},  {"muster:meta", "next_event"},
                                           {"muster:jobs:catalog", "3"}, {"muster:job:3", "rec"}};
    size_t i = (unsigned char)where % (sizeof(field) / sizeof(field[0]) + 4);

    if (i < sizeof(field) / sizeof(field[0]))
        store_add(s, "HSET", field[i][0], field[i][1], text, NULL);
    else if (i == sizeof(field) / sizeof(field[0]))
        store_add(s, "RPUSH", "muster:job:2:events", text, NULL);
    else if (i == sizeof(field) / sizeof(field[0]) + 1)
        store_add(s, "RPUSH", "muster:job:2:notes", text, NULL);
    else if (i == sizeof(field) / sizeof(field[0]) + 2)
        store_add(s, "ZADD", "muster:removed", "1700000000", text, NULL);
    else
        store_add(s, "ZADD", "muster:jobs:ended", "3", "3", NULL);
}

static void put_input(struct store *s, const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1);

    MUST(copy);
    memcpy(copy, data, size);
    copy[size] = '\0';
    for (size_t at = 0; at < size; at += strlen(copy + at) + 1)
        if (copy[at])
            put(s, copy[at], copy + at + 1);
    free(copy);
}

static void turns(struct core *c, struct fake_clock *clock, int n)
{
    for (int i = 0; i < n; i++) {
        fake_clock_pass(clock, SECOND);
        MUST(turn_take(c, NULL));
    }
}

/* Whatever people ask for. */
static void read_all(struct core *c)
{
    struct store_rows rows = {0};
    json_t *all = NULL;
    uint64_t end;

    for (uint64_t id = 1; id <= 3; id++) {
        struct history_gap gap;
        struct job job;
        char *spec = NULL;

        if (records_read_job(c, id, &job, &spec, NULL) == 0) {
            job_clear(&job);
            free(spec);
        }
        if (history_read_job(c->store, id, 1, 100, false, &all, &end, &gap, NULL) == 0)
            json_decref(all);
    }
    MUST(history_read_all(c->store, 0, 100, &rows, &end, NULL) == 0);
    for (size_t i = 0; i < rows.n; i++)
        json_decref(history_parse(rows.v[i].text, rows.v[i].id));
    store_rows_clear(&rows);
}

static void retry_all(struct core *c)
{
    json_t *list = quarantine_list(c), *one;
    struct merr err = {""};
    size_t i;

    json_array_foreach (list, i, one) {
        const char *id = json_string_value(json_object_get(one, "id"));

        if (id)
            (void)load_again(c, id, &err);
    }
    json_decref(list);
    json_decref(quarantine_summary(c));
}

static void serve(struct core *c, struct fake_clock *clock)
{
    struct job_cause cause = {.kind = CAUSE_CANCEL, .actor = "user:ann", .text = "cancelled"};
    struct merr err = {""};
    struct entry *e;

    MUST(table_find(&c->jobs, 1));
    turns(c, clock, 3);
    read_all(c);
    retry_all(c);
    turns(c, clock, 2);
    e = table_find(&c->jobs, 2);
    if (e)
        (void)change_job(c, e, &cause, &err);
    turns(c, clock, 2);
    read_all(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_cfg store_cfg = {.force = true, .lease_s = STORE_LEASE_S};
    struct fake_clock clock;
    struct store_memory *memory = store_memory_new(fake_clock_init(&clock, 1000 * SECOND, 1700000000 * SECOND));
    struct core_cfg cfg = {.jobs_dir = "/jobs",
                           .run_key = "key",
                           .unknown_after_s = 30,
                           .lost_after_s = 120,
                           .keep_ended = 10,
                           .max_array = 1000,
                           .keep_ended_bytes = UINT64_MAX,
                           .audit_bytes = 1 << 20,
                           .audit_keep_s = 86400,
                           .user = {.jobs = 1000, .spec_bytes = 10 << 20, .streams = 8},
                           .sched = {.policy = SCHED_POLICY_MUSTER, .round_us = SECOND, .starve_us = 60 * SECOND},
                           .slow = {.ratio = 1.25, .after_us = SECOND, .retry_us = SECOND},
                           .clock = &clock.clock,
                           .fatal = fatal};
    struct store_backend backend;
    struct store_connection *connection;
    struct spool_memory *spool;
    struct stats *stats = stats_new();
    struct store *store;
    struct core *core;
    struct merr err = {""};

    log_init("fuzz", (enum log_level)(LOG_LEVEL_ERROR + 1));
    spool = spool_memory_new(&cfg.spool);
    connection = store_memory_connect(memory, &backend);
    MUST(memory && stats && spool && connection);
    MUST(store_open(&backend, &store_cfg, &store, &err) == 0);
    put_good(store);
    put_input(store, data, size);
    commit(store);
    if (turn_new(&cfg, store, stats, &core, &err) < 0)
        fatal(NULL, err.text);
    serve(core, &clock);
    files_stop(core->files);
    readers_stop(core->readers);
    turn_close(core);
    turn_free(core);
    store_close(store);
    store_connection_free(connection);
    stats_free(stats);
    store_memory_free(memory);
    spool_memory_free(spool);
    return 0;
}
