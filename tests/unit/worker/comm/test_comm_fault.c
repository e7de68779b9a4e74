/* Ends of waits: dead, frozen, late and confused peers. */
#include "tests/unit/test.h"

#include <fcntl.h>

#include "tests/unit/worker/test_comm_team.inc"

#define BYTES ((size_t)4 << 20)

/* Reduce until it fails; the exit code tells how, and how long the last call took. */
static int reduce_until_it_fails(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "dp");
    float *x = malloc(BYTES);
    struct merr err;
    int r = 0;

    memset(x, 0, BYTES);
    for (int i = 0; i < 1000000 && r == 0; i++) {
        r = comm_all_reduce(g, x, BYTES / sizeof(*x), COMM_F32, COMM_SUM, &err);
        if (i == 0)
            team_come(t);
    }
    if (r == -ETIMEDOUT && !strstr(err.text, "rank 1"))
        r = -99;
    if (comm_barrier(g, NULL) != r && r != -99) /* the world stays failed */
        r = -98;
    free(x);
    return -r;
}

static int64_t after(struct team *t, int rank, int sig)
{
    team_await(t, t->n); /* into their loop */
    assert_int_equal(kill(t->pid[rank], sig), 0);
    return clock_mono_us();
}

static void a_killed_peer_ends_the_wait(enum team_way way)
{
    struct team t;
    int64_t from;

    team_init(&t, 4, way);
    team_start(&t, reduce_until_it_fails);
    from = after(&t, 1, SIGKILL);
    team_wait(&t, 10000000);
    assert_true(clock_mono_us() - from < 5000000);
    assert_int_equal(t.exit_code[1], 128 + SIGKILL);
    assert_int_equal(t.exit_code[0], ECONNRESET);
    assert_int_equal(t.exit_code[2], ECONNRESET);
    assert_int_equal(t.exit_code[3], ECONNRESET);
    team_clear(&t);
}

static void a_killed_peer_is_a_lost_connection_on_every_way(void **state)
{
    (void)state;
    a_killed_peer_ends_the_wait(TEAM_SHM);
    a_killed_peer_ends_the_wait(TEAM_UCX);
    a_killed_peer_ends_the_wait(TEAM_MIXED);
}

static int wait_for_one_that_does_not_come(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    char c;
    struct comm_request *req;

    team_come(t);
    if (comm_rank(w) == 1) {
        for (;;)
            (void)pause();
    }
    if (comm_irecv(g, 1, 5, &c, 1, &req, NULL) < 0)
        return 1;
    return -comm_wait(req, NULL);
}

/* From the kill or the order to the rank's end, beyond what closing takes. */
static void a_wait_ends_soon(enum team_way way, bool abort, int want)
{
    struct team t;
    int64_t from;

    team_init(&t, 2, way);
    team_start(&t, wait_for_one_that_does_not_come);
    team_await(&t, 2);
    (void)poll(NULL, 0, 100); /* so that the wait is an idle one; a shorter one passes as well */
    from = clock_mono_us();
    if (abort)
        flight_order_set(t.flight[0], FLIGHT_ABORT);
    else
        assert_int_equal(kill(t.pid[1], SIGKILL), 0);
    while (t.pid[0] && clock_mono_us() - from < 10000000) {
        (void)team_reap(&t);
        (void)poll(NULL, 0, 1);
    }
    assert_true(clock_mono_us() - from < 2000000); /* some slices of a sleep, of which the time allowed holds 300 */
    assert_int_equal(t.exit_code[0], want);
    if (t.pid[1])
        (void)kill(t.pid[1], SIGKILL);
    team_wait(&t, 1000000);
    team_clear(&t);
}

static void an_idle_wait_sees_a_killed_peer_and_an_abort_at_once(void **state)
{
    (void)state;
    a_wait_ends_soon(TEAM_SHM, false, ECONNRESET);
    a_wait_ends_soon(TEAM_SHM, true, ECANCELED);
    a_wait_ends_soon(TEAM_UCX, false, ECONNRESET);
    a_wait_ends_soon(TEAM_UCX, true, ECANCELED);
}

static void a_frozen_peer_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (enum team_way way = TEAM_SHM; way <= TEAM_UCX; way++) {
        struct team t;

        team_init(&t, 2, way);
        t.timeout_us = 1000000;
        team_start(&t, reduce_until_it_fails);
        (void)after(&t, 1, SIGSTOP);
        for (int64_t end = clock_mono_us() + 8000000; t.pid[0] && clock_mono_us() < end;) {
            (void)team_reap(&t);
            (void)poll(NULL, 0, 5);
        }
        assert_int_equal(t.pid[0], 0);
        assert_int_equal(t.exit_code[0], ETIMEDOUT);
        assert_int_equal(kill(t.pid[1], SIGKILL), 0);
        team_wait(&t, 1000000);
        team_clear(&t);
    }
}

static int swapped(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    struct merr err = {""};
    int me = comm_rank(w), r;
    float x[64] = {0};

    switch (*(const int *)t->arg) {
    case 0:
        r = me ? comm_barrier(g, &err) : comm_all_reduce(g, x, 64, COMM_F32, COMM_SUM, &err);
        break;
    case 1:
        r = comm_all_reduce(g, x, me ? 64 : 32, COMM_F32, COMM_SUM, &err);
        break;
    case 2:
        r = comm_all_reduce(g, x, me ? 32 : 64, me ? COMM_I64 : COMM_F32, COMM_SUM, &err);
        break;
    case 3:
        r = comm_all_reduce(g, x, 64, COMM_F32, me ? COMM_SUM : COMM_MAX, &err);
        break;
    case 4:
        r = me ? comm_barrier(g, &err) : comm_broadcast(g, x, 8, 0, &err);
        if (r == 0)
            r = me ? comm_broadcast(g, x, 8, 0, &err) : comm_barrier(g, &err);
        break;
    default:
        r = comm_broadcast(g, x, 64, me, &err);
        if (r == 0)
            r = comm_barrier(g, &err);
        break;
    }
    if (r != -EPROTO || !strstr(err.text, "'tp'"))
        (void)fprintf(stderr, "rank %d: case %d: %d: %s\n", me, *(const int *)t->arg, r, err.text);
    return -r;
}

static void calls_that_differ_are_named_on_both_sides(void **state)
{
    (void)state;
    for (enum team_way way = TEAM_SHM; way <= TEAM_UCX; way++) {
        for (int k = 0; k < 6; k++) {
            struct team t;

            team_init(&t, 2, way);
            t.timeout_us = 3000000;
            t.arg = &k;
            team_start(&t, swapped);
            team_wait(&t, 8000000);
            assert_int_equal(t.exit_code[0], EPROTO);
            assert_int_equal(t.exit_code[1], EPROTO);
            team_clear(&t);
        }
    }
}

static int meet_only(struct team *t, struct comm_world *w)
{
    (void)t;
    (void)w;
    return 0;
}

static void a_rank_of_another_generation_is_not_let_in(void **state)
{
    (void)state;
    for (enum team_way way = TEAM_SHM; way <= TEAM_UCX; way++) {
        struct team t;

        team_init(&t, 2, way);
        t.timeout_us = 1000000;
        t.generation[0] = 7;
        t.generation[1] = 6;
        team_start(&t, meet_only);
        team_wait(&t, 5000000);
        assert_int_equal(t.exit_code[0], ETIMEDOUT); /* the old one is no member */
        assert_int_equal(t.exit_code[1], EPROTO);    /* and is told that it is late */
        team_clear(&t);
    }
}

static void a_rank_that_never_comes_ends_the_rendezvous(void **state)
{
    struct team t;
    int node[2] = {0, 0};
    struct comm_cfg cfg = {.size = 2, .generation = 1, .node_of = node, .timeout_us = 200000};
    struct comm_world *w = NULL;
    struct merr err;

    (void)state;
    team_init(&t, 1, TEAM_SHM);
    cfg.rendezvous = t.folder;
    cfg.flight = t.flight[0];
    assert_int_equal(comm_world_open(&cfg, &w, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "rank 1"));
    flight_order_set(t.flight[0], FLIGHT_ABORT);
    cfg.timeout_us = 60000000;
    assert_int_equal(comm_world_open(&cfg, &w, &err), -ECANCELED);
    cfg.transport = "pigeon";
    assert_int_equal(comm_world_open(&cfg, &w, &err), -EINVAL);
    cfg.transport = NULL;
    cfg.rank = 2;
    assert_int_equal(comm_world_open(&cfg, &w, &err), -EINVAL);
    assert_null(w);
    team_clear(&t);
}

static void damaged_addresses_are_refused(void **state)
{
    static const char junk[100] = "junk";
    char path[128];
    int node[2] = {0, 0};
    struct comm_cfg cfg = {.size = 2, .generation = 1, .node_of = node, .timeout_us = 200000};
    struct comm_world *w = NULL;
    struct team t;

    (void)state;
    team_init(&t, 1, TEAM_SHM);
    cfg.rendezvous = t.folder;
    cfg.flight = t.flight[0];
    (void)snprintf(path, sizeof(path), "%s/shm-1", t.folder);
    for (size_t n = 0; n <= sizeof(junk); n += 50) {
        assert_int_equal(io_publish_file(path, junk, n, 0600, NULL), 0);
        assert_int_equal(comm_world_open(&cfg, &w, NULL), -EPROTO);
    }
    team_clear(&t);
}

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

static int open_and_close(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "x");
    float x[4] = {1, 1, 1, 1};

    (void)t;
    GOOD(comm_all_reduce(g, x, 4, COMM_F32, COMM_SUM, &err));
    return 0;
}

static int worlds_one_after_the_other(struct team *t, struct comm_world *w)
{
    int before = entries("/proc/self/fd"), me = comm_rank(w), node[2] = {0, 0}, r;

    for (uint64_t k = 0; k < 5; k++) {
        struct comm_cfg cfg = {.rank = me,
                               .size = 2,
                               .generation = 10 + k,
                               .node_of = node,
                               .timeout_us = 5000000,
                               .flight = t->flight[me],
                               .rendezvous = t->folder,
                               .transport = t->way == TEAM_UCX ? "ucx" : NULL};
        struct comm_world *inner;

        GOOD(comm_world_open(&cfg, &inner, &err));
        r = open_and_close(t, inner);
        comm_world_close(inner);
        NEED(r == 0);
    }
    NEED(entries("/proc/self/fd") == before);
    return 0;
}

static void nothing_is_left_behind(void **state)
{
    int before = entries("/dev/shm");
    struct team t;

    (void)state;
    team_init(&t, 2, TEAM_SHM);
    team_start(&t, worlds_one_after_the_other);
    team_wait(&t, 20000000);
    assert_int_equal(t.exit_code[0], 0);
    assert_int_equal(t.exit_code[1], 0);
    assert_int_equal(entries(t.folder), 2); /* . and .. */
    team_clear(&t);
    for (enum team_way way = TEAM_SHM; way <= TEAM_MIXED; way++) {
        team_init(&t, 3, way);
        team_start(&t, reduce_until_it_fails);
        team_await(&t, 3);
        for (int i = 0; i < 3; i++)
            assert_int_equal(kill(t.pid[i], SIGKILL), 0);
        team_wait(&t, 1000000);
        team_clear(&t);
    }
    assert_int_equal(entries("/dev/shm"), before);
}

static int leave_at_once(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "x");
    char c = 0;
    struct comm_request *req;

    (void)t;
    GOOD(comm_barrier(g, &err));
    if (comm_rank(w) == 1)
        return 0;
    if (comm_irecv(g, 1, 0, &c, 1, &req, NULL) < 0)
        return 1;
    return -comm_wait(req, NULL);
}

static void a_peer_that_left_in_good_order_ends_a_wait_for_it(void **state)
{
    (void)state;
    for (enum team_way way = TEAM_SHM; way <= TEAM_UCX; way++) {
        struct team t;

        team_init(&t, 2, way);
        t.timeout_us = 5000000;
        team_start(&t, leave_at_once);
        team_wait(&t, 8000000);
        assert_int_equal(t.exit_code[0], ECONNRESET);
        assert_int_equal(t.exit_code[1], 0);
        team_clear(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_is_a_lost_connection_on_every_way),
        cmocka_unit_test(an_idle_wait_sees_a_killed_peer_and_an_abort_at_once),
        cmocka_unit_test(a_frozen_peer_is_named_at_the_deadline),
        cmocka_unit_test(calls_that_differ_are_named_on_both_sides),
        cmocka_unit_test(a_rank_of_another_generation_is_not_let_in),
        cmocka_unit_test(a_rank_that_never_comes_ends_the_rendezvous),
        cmocka_unit_test(damaged_addresses_are_refused),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(a_peer_that_left_in_good_order_ends_a_wait_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
