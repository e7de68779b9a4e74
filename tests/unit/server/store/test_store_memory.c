/* What goes wrong in a store in memory when a hook says so, and that it does as Redis does with random commands. */
#include "tests/unit/server/store/homes.h"

#include <errno.h>
#include <jansson.h>

#include "server/store/job_store.h"

#define DONE(call) assert_int_equal((call), 0)
#define RUNS 12
#define BATCHES 40
#define KEYS 3

/* --- faults ------------------------------------------------------------------------------------------ */

struct script { /* what happens at the next calls */
    struct home *home;
    enum store_fault next[8];
    size_t at, n;
    enum store_moment seen[16];
    size_t n_seen;
    _Atomic int stop;
    size_t stop_at; /* a call at which the server dies, from 1; 0: none */
};

static enum store_fault act(void *arg, enum store_moment at)
{
    struct script *s = arg;

    if (s->n_seen < COUNT(s->seen))
        s->seen[s->n_seen++] = at;
    if (s->stop_at != 0 && s->n_seen == s->stop_at)
        s->stop = 1;
    return s->at < s->n ? s->next[s->at++] : STORE_FINE;
}

static void let_pass(void *arg, int64_t us)
{
    fake_clock_pass(&((struct script *)arg)->home->clock, us);
}

static void play(struct home *h, struct script *s)
{
    s->home = h;
    store_memory_set_hooks(h->memory, &(struct store_memory_hooks){.fault = act, .wait = let_pass, .arg = s});
}

static void a_commit_is_applied_once_whatever_happens_on_its_way(void **state)
{
    static const struct {
        enum store_fault fault[4];
        size_t n;
        int64_t at_least_us;
    } edge[] = {
        {{STORE_FINE}, 1, 0},
        {{STORE_LOST}, 1, 0},
        {{STORE_UNANSWERED}, 1, 0},
        {{STORE_REFUSED}, 1, 200000},
        {{STORE_LOST, STORE_LOST}, 2, 1000000},                   /* the second: nobody answers for a second */
        {{STORE_UNANSWERED, STORE_FINE, STORE_UNANSWERED}, 3, 0}, /* twice unanswered */
        {{STORE_UNANSWERED, STORE_LOST, STORE_LOST, STORE_FINE}, 4, 2000000},
    };
    struct home *h = *state;

    for (size_t i = 0; i < COUNT(edge); i++) {
        struct script s = {.n = edge[i].n};
        int64_t before_us = h->clock.mono_us;

        memcpy(s.next, edge[i].fault, sizeof(edge[i].fault));
        play(h, &s);
        store_add_device_us(h->store[0], "p", 1);
        DONE(home_commit(h->store[0]));
        assert_int_equal(s.at, edge[i].n);
        assert_int_equal(store_read_device_us(h->store[0], "p"), i + 1);
        assert_true(h->clock.mono_us - before_us >= edge[i].at_least_us);
    }
}

static void a_server_that_dies_leaves_all_of_a_batch_or_nothing(void **state)
{
    struct home *h = *state;

    for (int applied = 0; applied < 2; applied++) {
        struct script s = {.next = {applied ? STORE_UNANSWERED : STORE_LOST}, .n = 1, .stop_at = 1};
        struct store *next;

        play(h, &s);
        store_put(h->store[applied], STORE_NODES, "n1", applied ? "yes" : "no");
        store_add_device_us(h->store[applied], "p", 1);
        assert_int_equal(store_commit(h->store[applied], &s.stop, NULL), -ECANCELED);
        play(h, &(struct script){.n = 0});
        next = home_open(h, true);
        assert_non_null(next);
        assert_int_equal(store_read_device_us(next, "p"), applied);
    }
}

static void reads_are_asked_again_for_half_a_minute(void **state)
{
    struct home *h = *state;
    struct script lost = {.next = {STORE_LOST, STORE_FINE, STORE_UNANSWERED}, .n = 3};
    struct script away = {.next = {STORE_LOST, STORE_LOST}, .n = 2};
    int64_t before_us = h->clock.mono_us;
    struct store_rows rows = {0};

    store_put(h->store[0], STORE_NODES, "n1", "x");
    DONE(home_commit(h->store[0]));
    play(h, &lost);
    DONE(store_read_rows(h->store[0], STORE_NODES, &rows, NULL));
    assert_int_equal(rows.n, 1);
    store_rows_clear(&rows);
    play(h, &away);
    assert_int_equal(store_read_rows(h->store[0], STORE_NODES, &rows, NULL), -EIO);
    assert_false(store_up(h->store[0]));
    assert_in_range(h->clock.mono_us - before_us, 30000000, 31000000);
    DONE(store_read_rows(h->store[0], STORE_NODES, &rows, NULL)); /* and works again */
    store_rows_clear(&rows);
    assert_true(store_up(h->store[0]));
}

static void a_lease_that_nobody_renews_ends(void **state)
{
    struct home *h = *state;
    int64_t before_us = h->clock.mono_us;
    struct store *next = home_open(h, false);

    assert_non_null(next);
    assert_in_range(h->clock.mono_us - before_us, STORE_LEASE_S * 1000000, STORE_LEASE_S * 1000000 + 500000);
    assert_int_equal(home_commit(h->store[0]), 0); /* an empty batch */
    store_put(h->store[0], STORE_NODES, "n1", "x");
    assert_int_equal(home_commit(h->store[0]), -ESTALE);
}

static void renew(void *arg, int64_t us)
{
    struct home *h = arg;

    fake_clock_pass(&h->clock, us);
    store_renew(h->store[0]);
    DONE(home_commit(h->store[0]));
}

static void a_lease_that_is_renewed_stays(void **state)
{
    struct home *h = *state;

    store_memory_set_hooks(h->memory, &(struct store_memory_hooks){.wait = renew, .arg = h});
    fake_clock_pass(&h->clock, 1000000);
    assert_null(home_open(h, false));
    store_put(h->store[0], STORE_NODES, "n1", "x");
    DONE(home_commit(h->store[0]));
}

static void what_has_a_time_to_live_ends(void **state)
{
    struct home *h = *state;
    struct store *s = h->store[0];
    struct store_rows rows;
    uint64_t job, hash;

    job_store_put_submit(s, "ada:k", 1, 2);
    store_put_removed(s, "n1 x", 5, 3600, 9);
    DONE(home_commit(s));
    fake_clock_pass(&h->clock, INT64_C(3599999999));
    DONE(store_read_removed(s, &rows, NULL));
    assert_int_equal(rows.n, 1);
    store_rows_clear(&rows);
    fake_clock_pass(&h->clock, 1);
    DONE(store_read_removed(s, &rows, NULL));
    assert_int_equal(rows.n, 0);
    store_rows_clear(&rows);
    DONE(job_store_find_submit(s, "ada:k", &job, &hash, NULL));
    fake_clock_pass(&h->clock, JOB_STORE_SUBMIT_S * INT64_C(1000000));
    assert_int_equal(job_store_find_submit(s, "ada:k", &job, &hash, NULL), -ENOENT);
}

/* --- against Redis ----------------------------------------------------------------------------------- */

static uint64_t rng;

static uint64_t rnd(uint64_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (rng >> 11) % n;
}

struct pair { /* the same in both */
    struct home *redis, *memory;
    uint64_t event;
    uint64_t version[KEYS];
};

static void add_both(struct pair *p, int argc, const char *const *argv)
{
    store_addv(p->redis->store[0], argc, argv, NULL);
    store_addv(p->memory->store[0], argc, argv, NULL);
}

/* One random command that writes. */
static void add_random(struct pair *p)
{
    static const char *const bound[] = {"-inf", "+inf", "0", "(0", "3", "(3", "-2", "(7"};
    static const char *const kind[] = {"h", "s", "z", "l", "t"};
    char key[5][8], name[8], other[8], number[24], text[24], rank[8];
    uint64_t k = rnd(KEYS);

    for (int i = 0; i < 5; i++)
        (void)snprintf(key[i], sizeof(key[i]), "%s%d", kind[i], (int)k);
    (void)snprintf(name, sizeof(name), "m%d", (int)rnd(9));
    (void)snprintf(other, sizeof(other), "m%d", (int)rnd(9));
    (void)snprintf(number, sizeof(number), "%d", (int)rnd(12) - 4);
    (void)snprintf(rank, sizeof(rank), "%d", (int)rnd(10) - 5);
    (void)snprintf(text, sizeof(text), "text %d", (int)rnd(1000));

    const struct {
        int argc;
        const char *argv[8];
    } all[] = {
        {6, {"HSET", key[0], name, text, other, "x"}},
        {3, {"HDEL", key[0], name}},
        {4, {"HDEL", key[0], name, other}},
        {4, {"HINCRBY", "counts", name, number}},
        {4, {"SADD", key[1], name, other}},
        {3, {"SREM", key[1], name}},
        {4, {"ZADD", key[2], number, name}},
        {4, {"ZADD", key[2], "2.5", other}},
        {3, {"ZREM", key[2], name}},
        {4, {"ZREMRANGEBYSCORE", key[2], bound[rnd(COUNT(bound))], bound[rnd(COUNT(bound))]}},
        {4, {"ZREMRANGEBYRANK", key[2], number, rank}},
        {4, {"RPUSH", key[3], text, name}},
        {4, {"RPUSH", key[3], text, name}},
        {4, {"LTRIM", key[3], number, rank}},
        {4, {"LTRIM", key[3], "-5", "-1"}},
        {3, {"SET", key[4], text}},
        {5, {"SET", key[4], text, "EX", "1000"}},
        {3, {"EXPIRE", key[rnd(5)], "1000"}},
        {2, {"DEL", key[rnd(5)]}},
    };
    size_t at = rnd(COUNT(all) + 2);

    if (at < COUNT(all)) {
        add_both(p, all[at].argc, all[at].argv);
    } else {
        char id[24];

        p->event += 1 + rnd(3);
        (void)snprintf(id, sizeof(id), "%llu-0", (unsigned long long)p->event);
        add_both(p, 10, (const char *const[]){"XADD", "events", "MAXLEN", "~", "1000", id, "e", text, "u", name});
    }
}

/* A job's new record behind its guard, which now and then is wrong. True: it is. */
static bool add_job(struct pair *p)
{
    uint64_t k = rnd(KEYS), before = p->version[k];
    bool wrong = rnd(8) == 0;

    if (wrong)
        before += 1;
    job_store_put(p->redis->store[0], k + 1, before, before + 1, "record", before ? NULL : "spec");
    job_store_put(p->memory->store[0], k + 1, before, before + 1, "record", before ? NULL : "spec");
    if (!wrong)
        p->version[k]++;
    return wrong;
}

static json_t *reply_json(const redisReply *r, bool any_order)
{
    json_t *all;

    if (r->type == REDIS_REPLY_INTEGER)
        return json_integer(r->integer);
    if (r->type != REDIS_REPLY_ARRAY)
        return r->str ? json_string(r->str) : json_null();
    all = any_order ? json_object() : json_array();
    for (size_t i = 0; i < r->elements; i++)
        if (any_order) /* HGETALL, SMEMBERS: what is named is not what it is worth in these tests */
            (void)json_object_set_new(all, r->element[i]->str, json_true());
        else
            (void)json_array_append_new(all, reply_json(r->element[i], false));
    return all;
}

/* The same question to both. */
static void compare_read(const struct pair *p, const char *command, bool any_order)
{
    redisReply *r[2] = {store_read(p->redis->store[0], NULL, command), store_read(p->memory->store[0], NULL, command)};
    json_t *is[2];

    assert_non_null(r[0]);
    assert_non_null(r[1]);
    for (int i = 0; i < 2; i++) {
        is[i] = reply_json(r[i], any_order);
        freeReplyObject(r[i]);
    }
    if (!json_equal(is[0], is[1]))
        fail_msg("'%s' gives %s in Redis and %s in memory", command, json_dumps(is[0], JSON_ENCODE_ANY),
                 json_dumps(is[1], JSON_ENCODE_ANY));
    json_decref(is[0]);
    json_decref(is[1]);
}

static void compare(const struct pair *p)
{
    static const struct {
        const char *command;
        bool any_order;
    } ask[] = {
        {"HGETALL h%d", true},
        {"HMGET h%d m1 m2 m3 m4 never", false},
        {"HGET h%d m5", false},
        {"SMEMBERS s%d", true},
        {"ZRANGE z%d 0 -1 WITHSCORES", false},
        {"ZRANGE z%d 1 3", false},
        {"ZRANGE z%d -2 9", false},
        {"ZREVRANGEBYSCORE z%d (5 -inf LIMIT 0 3", false},
        {"ZREVRANGEBYSCORE z%d 3 (0 LIMIT 0 100", false},
        {"ZCARD z%d", false},
        {"LLEN l%d", false},
        {"LINDEX l%d 1", false},
        {"LRANGE l%d 0 -1", false},
        {"LRANGE l%d 1 2", false},
        {"GET t%d", false},
        {"HMGET muster:job:%d rec v spec", false},
    };
    char command[96];

    for (size_t i = 0; i < COUNT(ask); i++)
        for (int k = 0; k <= KEYS; k++) { /* the last one is never there */
            (void)snprintf(command, sizeof(command), ask[i].command, k);
            compare_read(p, command, ask[i].any_order);
        }
    compare_read(p, "HMGET counts m0 m1 m2 m3 m4 m5 m6 m7 m8", false);
    compare_read(p, "XRANGE events (0-0 + COUNT 1000", false);
    (void)snprintf(command, sizeof(command), "XRANGE events (%d-0 + COUNT %d", (int)rnd(p->event + 2),
                   1 + (int)rnd(20));
    compare_read(p, command, false);
    compare_read(p, "HMGET muster:meta epoch batch", false);
}

static void run(struct pair *p)
{
    for (int i = 0; i < BATCHES; i++) {
        json_t *before = store_memory_dump(p->memory->memory), *after;
        bool wrong = false;
        int r[2];

        for (uint64_t n = rnd(12); n > 0; n--)
            add_random(p);
        if (rnd(3) == 0)
            wrong = add_job(p);
        r[0] = home_commit(p->redis->store[0]);
        r[1] = home_commit(p->memory->store[0]);
        assert_int_equal(r[0], wrong ? -ESTALE : 0);
        assert_int_equal(r[1], r[0]);
        compare(p);
        after = store_memory_dump(p->memory->memory);
        assert_true(!wrong || json_equal(before, after)); /* what is refused leaves no trace */
        json_decref(before);
        json_decref(after);
        if (wrong) /* such a server is to end; another takes over */
            return;
    }
}

static void random_batches_give_what_they_give_in_redis(void **state)
{
    const char *given = getenv("MUSTER_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)clock_wall_us();

    (void)state;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < RUNS; i++) {
        void *redis, *memory;
        struct pair p = {0};

        rng = seed + (uint64_t)i + 1;
        rng += !rng;
        assert_int_equal(home_in_redis(&redis), 0);
        assert_int_equal(home_in_memory(&memory), 0);
        p.redis = redis;
        p.memory = memory;
        run(&p);
        (void)home_leave(&redis);
        (void)home_leave(&memory);
    }
}

#define IN_MEMORY(f) cmocka_unit_test_setup_teardown(f, home_in_memory, home_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_MEMORY(a_commit_is_applied_once_whatever_happens_on_its_way),
        IN_MEMORY(a_server_that_dies_leaves_all_of_a_batch_or_nothing),
        IN_MEMORY(reads_are_asked_again_for_half_a_minute),
        IN_MEMORY(a_lease_that_nobody_renews_ends),
        IN_MEMORY(a_lease_that_is_renewed_stays),
        IN_MEMORY(what_has_a_time_to_live_ends),
        cmocka_unit_test(random_batches_give_what_they_give_in_redis),
    };

    return cmocka_run_group_tests(tests, homes_start, homes_stop);
}
