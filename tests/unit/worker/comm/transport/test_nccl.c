/* Calls between GPUs: which way they go, and what ends them, with a library of our own in NCCL's place. */
#include "tests/unit/test.h"

#include "tests/unit/worker/fake_device.h"
#include "tests/unit/worker/test_comm_team.inc"
#include "worker/flight/flight_read.h"

#define BYTES ((size_t)1 << 20)

uint64_t fake_nccl_bytes(void); /* fake_nccl.c */
int fake_nccl_live(void);

struct way {
    bool shared, sliced, host; /* all ranks on one GPU; on slices of one; buffers of the host */
    bool by_nccl;
    const char *said;
};

static int reduce_once(struct team *t, struct comm_world *w)
{
    const struct way *way = t->arg;
    struct comm_group *g = team_all(w, "dp");
    float *x = malloc(BYTES);

    fake_device_host = way->host;
    for (size_t i = 0; i < BYTES / sizeof(*x); i++)
        x[i] = (float)(comm_rank(w) + 1);
    GOOD(comm_all_reduce(g, x, BYTES / sizeof(*x), COMM_F32, COMM_SUM, &err));
    NEED(x[0] == 6 && x[BYTES / sizeof(*x) - 1] == 6);
    free(x);
    NEED(strstr(comm_device_said(w), way->said));
    NEED(comm_device_used(w) == !(way->shared || way->sliced));
    NEED((fake_nccl_bytes() > 0) == way->by_nccl);
    return 0;
}

static void large_calls_go_by_nccl_when_each_rank_has_a_gpu_and_all_buffers_are_there(void **state)
{
    static const struct way way[] = {
        {.by_nccl = true, .said = "NCCL 2.19.3"},
        {.host = true, .said = "NCCL 2.19.3"},
        {.shared = true, .said = "ranks 0 and 1 share a GPU"},
        {.sliced = true, .said = "ranks 0 and 1 have slices of one GPU"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(way); i++) {
        struct team t;

        team_init(&t, 3, TEAM_SHM);
        t.device = &fake_device;
        t.device_shared = way[i].shared;
        fake_device_sliced = way[i].sliced;
        t.arg = &way[i];
        team_start(&t, reduce_once);
        fake_device_sliced = false;
        team_wait(&t, 20000000);
        for (int k = 0; k < t.n; k++)
            assert_int_equal(t.exit_code[k], 0);
        team_clear(&t);
    }
}

/* Rank 0's GPU fails with the n-th of what a sum asks of it: memory, then the fold, then looks whether all is done. */
static int sum_with_a_fault(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "dp");
    float *x = calloc(1, BYTES);
    struct merr err = {""};
    int r;

    fake_device_fail = comm_rank(w) == 0 ? *(const int *)t->arg : 0;
    r = comm_all_reduce(g, x, BYTES / sizeof(*x), COMM_F32, COMM_SUM, &err);
    fake_device_fail = 0;
    free(x);
    NEED(comm_rank(w) > 0 || (r == -EIO && strstr(err.text, "the fake GPU failed")));
    if (r == 0) /* rank 1 has its sum when rank 0's GPU fails at last */
        return 0;
    NEED(fake_nccl_live() == 0); /* nothing that was started runs on */
    NEED(comm_barrier(g, NULL) == r);
    return -r;
}

static void a_gpu_that_fails_in_a_sum_ends_what_its_communicator_does(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        struct team t;

        team_init(&t, 2, TEAM_SHM);
        t.device = &fake_device;
        t.arg = &n;
        team_start(&t, sum_with_a_fault);
        team_wait(&t, 30000000);
        assert_int_equal(t.exit_code[0], EIO);
        assert_int_not_equal(t.exit_code[1], 99);
        team_clear(&t);
    }
}

/* --- messages ----------------------------------------------------------------------------------- */

#define MESSAGES 6

static size_t message_bytes(int i)
{
    return i % 3 == 2 ? 1000 : BYTES / 4 + (size_t)i * 4096; /* some are not worth the way */
}

static char message_byte(int from, int tag, int round)
{
    return (char)(17 * from + 5 * tag + round + 1);
}

/* Everyone to everyone, received in the opposite order of sending; again on the ways that are there. */
static int crossing_messages(struct team *t, struct comm_world *w)
{
    const struct way *way = t->arg;
    struct comm_group *g = team_all(w, "pp");
    int me = comm_rank(w), n = comm_size(w);
    struct comm_request *req[2][TEAM_MAX][MESSAGES] = {{{NULL}}};
    char *buf[2][TEAM_MAX][MESSAGES] = {{{NULL}}};
    uint64_t sent = 0;

    fake_device_host = way->host;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < MESSAGES && i != me; k++) {
                buf[0][i][k] = malloc(message_bytes(k));
                buf[1][i][k] = memset(malloc(message_bytes(k)), message_byte(me, k, round), message_bytes(k));
                sent += message_bytes(k);
                GOOD(comm_isend(g, i, (uint32_t)k, buf[1][i][k], message_bytes(k), &req[1][i][k], &err));
            }
        }
        for (int i = n - 1; i >= 0; i--) {
            for (int k = MESSAGES - 1; k >= 0 && i != me; k--)
                GOOD(comm_irecv(g, i, (uint32_t)k, buf[0][i][k], message_bytes(k), &req[0][i][k], &err));
        }
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < MESSAGES && i != me; k++) {
                size_t last = message_bytes(k) - 1;

                GOOD(comm_wait(req[1][i][k], &err));
                GOOD(comm_wait(req[0][i][k], &err));
                NEED(buf[0][i][k][0] == message_byte(i, k, round) && buf[0][i][k][last] == buf[0][i][k][0]);
                free(buf[0][i][k]);
                free(buf[1][i][k]);
            }
        }
    }
    NEED(comm_bytes_sent(g) == sent);
    NEED((fake_nccl_bytes() > 0) == way->by_nccl);
    return 0;
}

static void large_messages_go_by_nccl_in_any_order_of_posting(void **state)
{
    static const struct way way[] = {{.by_nccl = true}, {.host = true}, {.shared = true}};

    (void)state;
    for (size_t i = 0; i < COUNT(way); i++) {
        struct team t;

        team_init(&t, 3, i == 0 ? TEAM_MIXED : TEAM_SHM);
        t.device = &fake_device;
        t.device_shared = way[i].shared;
        t.arg = &way[i];
        team_start(&t, crossing_messages);
        team_wait(&t, 20000000);
        for (int k = 0; k < t.n; k++)
            assert_int_equal(t.exit_code[k], 0);
        team_clear(&t);
    }
}

/* --- faults ------------------------------------------------------------------------------------- */

struct fault {
    const char *fake;  /* FAKE_NCCL */
    bool stuck;        /* the GPUs never end their work */
    int code;          /* of who notices; the other may be told first that it is gone */
    const char *words; /* with the code */
};

static int reduce_twice(struct team *t, struct comm_world *w)
{
    const struct fault *f = t->arg;
    struct comm_group *g = team_all(w, "dp");
    float *x = calloc(1, BYTES);
    struct merr err = {""};
    int r = 0;

    fake_device_stuck = f->stuck;
    for (int i = 0; i < 2 && r == 0; i++)
        r = comm_all_reduce(g, x, BYTES / sizeof(*x), COMM_F32, COMM_SUM, &err);
    free(x);
    if (r == -f->code ? !strstr(err.text, f->words) : r != -ECONNRESET) {
        (void)fprintf(stderr, "rank %d: %s\n", comm_rank(w), err.text);
        return 99;
    }
    NEED(comm_barrier(g, NULL) == r);                               /* the world stays failed */
    if (strncmp(f->fake, "wedge@1", 7) == 0 && comm_rank(w) == 1) { /* the GPU is given up, once, and that is said */
        NEED(fake_nccl_live() == 1 && fake_device_lost == 1);
        NEED(strstr(err.text, "NCCL's abort of 'dp' did not end in 700 ms"));
        return -r;
    }
    NEED(fake_nccl_live() == 0 && fake_device_lost == 0); /* and what ran on the GPU was ended */
    return -r;
}

static int send_twice(struct team *t, struct comm_world *w)
{
    const struct fault *f = t->arg;
    struct comm_group *g = team_all(w, "pp");
    char *x = calloc(1, BYTES);
    struct merr err = {""};
    int r = 0;

    fake_device_stuck = f->stuck;
    for (int i = 0; i < 2 && r == 0; i++) {
        struct comm_request *req = NULL;

        r = comm_rank(w) == 0 ? comm_isend(g, 1, 7, x, BYTES, &req, &err) : comm_irecv(g, 0, 7, x, BYTES, &req, &err);
        r = r == 0 ? comm_wait(req, &err) : r;
    }
    free(x);
    if (r == -f->code ? !strstr(err.text, f->words) : r != -ECONNRESET) {
        (void)fprintf(stderr, "rank %d: %s\n", comm_rank(w), err.text);
        return 99;
    }
    NEED(comm_barrier(g, NULL) == r);
    NEED(fake_nccl_live() == 0);
    return -r;
}

static void run_fault(const struct fault *f, team_fn fn)
{
    struct team t;

    team_init(&t, 2, TEAM_SHM);
    t.device = &fake_device;
    t.timeout_us = f->code == ETIMEDOUT ? 700000 : 10000000;
    t.arg = f;
    assert_int_equal(setenv("FAKE_NCCL", f->fake, 1), 0);
    team_start(&t, fn);
    team_wait(&t, 20000000);
    assert_int_equal(unsetenv("FAKE_NCCL"), 0);
    assert_true(t.exit_code[0] != 99 && t.exit_code[1] != 99);
    assert_true(t.exit_code[0] == f->code || t.exit_code[1] == f->code);
    team_clear(&t);
}

static void whatever_goes_wrong_with_a_message_between_gpus_ends_the_wait_for_it(void **state)
{
    static const struct fault fault[] = {
        {"hang@1:0", false, ETIMEDOUT, "did not answer rank"},
        {"hang@1:2", false, ETIMEDOUT, "did not answer rank"},
        {"fail@1:1", false, EIO, "NCCL could not work in 'pp': remote process exited"},
        {"refuse@0:2", false, EIO, "NCCL could not start in 'pp': invalid usage"},
        {"", true, ETIMEDOUT, "did not answer rank"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(fault); i++)
        run_fault(&fault[i], send_twice);
}

static void whatever_goes_wrong_between_gpus_ends_the_call_with_words_and_no_communicator(void **state)
{
    static const struct fault fault[] = {
        {"hang@1:0", false, ETIMEDOUT, "did not connect GPUs for 700 ms"},
        {"hang@1:2", false, ETIMEDOUT, "did not start for 700 ms"},
        {"fail@1:3", false, EIO, "NCCL could not start in 'dp': remote process exited"},
        {"refuse@1:2", false, EIO, "NCCL could not start in 'dp': invalid usage"},
        {"", true, ETIMEDOUT, "did not work for 700 ms"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(fault); i++)
        run_fault(&fault[i], reduce_twice);
}

static void an_abort_that_never_ends_is_left_to_itself_and_the_gpu_given_up(void **state)
{
    static const struct fault fault[] = {
        {"wedge@1:0", false, ETIMEDOUT, "700 ms"},
        {"wedge@1:2", false, ETIMEDOUT, "700 ms"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(fault); i++)
        run_fault(&fault[i], reduce_twice);
}

static int reduce_or_die(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "dp");
    float *x = calloc(1, BYTES);
    int r = 0;

    (void)t;
    fake_device_stuck = comm_rank(w) == 1;
    for (int i = 0; i < 2 && r == 0; i++)
        r = comm_all_reduce(g, x, BYTES / sizeof(*x), COMM_F32, COMM_SUM, NULL);
    free(x);
    return -r;
}

static bool inside_a_reduction(const struct flight *f)
{
    struct flight_op op;

    return flight_read_ops(f, &op, 1) == 1 && op.op == COMM_CALL_ALL_REDUCE && !op.leave_us;
}

static void an_abort_order_and_a_dead_rank_end_a_wait_for_gpus(void **state)
{
    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        struct team t;
        int64_t from = clock_mono_us();

        team_init(&t, 3, TEAM_SHM);
        t.device = &fake_device;
        team_start(&t, reduce_or_die);
        while (!inside_a_reduction(t.flight[1]) && clock_mono_us() - from < 10000000)
            (void)poll(NULL, 0, 1);
        from = clock_mono_us();
        if (killed)
            assert_int_equal(kill(t.pid[2], SIGKILL), 0);
        else
            flight_order_set(t.flight[1], FLIGHT_ABORT);
        team_wait(&t, 5000000);
        assert_true(clock_mono_us() - from < 3000000);
        assert_int_equal(t.exit_code[1], killed ? ECONNRESET : ECANCELED);
        team_clear(&t);
    }
}

/* --- meeting ------------------------------------------------------------------------------------ */

/* A GPU has hardware queues for one of the two ways that three ranks take. */
static int too_many_ways(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    int me = comm_rank(w), r = 0;
    struct comm_request *req[2];
    char *buf = calloc(2, BYTES);
    struct merr err = {""};

    (void)t;
    for (int i = 0; i < 2 && r == 0; i++)
        r = me == 0  ? comm_isend(g, 1 + i, 0, buf + i * BYTES, BYTES, &req[i], &err)
            : i == 0 ? comm_irecv(g, 0, 0, buf, BYTES, &req[i], &err)
                     : 0;
    for (int i = 0; i < (me == 0 ? 2 : 1) && r == 0; i++)
        r = comm_wait(req[i], &err);
    free(buf);
    NEED(me != 0 || (r == -ENOTSUP && strstr(err.text, "hardware queues, of which 1 are left") != NULL));
    return 0;
}

static void more_ways_than_a_gpu_has_queues_are_refused_with_words(void **state)
{
    struct team t;

    (void)state;
    assert_int_equal(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "5", 1), 0);
    team_init(&t, 3, TEAM_SHM);
    t.device = &fake_device;
    t.timeout_us = 5000000;
    team_start(&t, too_many_ways);
    team_wait(&t, 20000000);
    assert_int_equal(unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"), 0);
    for (int k = 0; k < t.n; k++)
        assert_int_equal(t.exit_code[k], 0);
    team_clear(&t);
}

static int nothing(struct team *t, struct comm_world *w)
{
    (void)t;
    (void)w;
    return 0;
}

static void a_world_that_needs_nccl_does_not_open_without(void **state)
{
    static const struct {
        const char *fake;
        bool shared;
        int want;
    } need[] = {{"", false, 0}, {"", true, ENODEV}, {"old", false, EIO}};

    (void)state;
    for (size_t i = 0; i < COUNT(need); i++) {
        struct team t;

        team_init(&t, 2, TEAM_SHM);
        t.device = &fake_device;
        t.device_needed = true;
        t.device_shared = need[i].shared;
        t.timeout_us = 5000000;
        assert_int_equal(setenv("FAKE_NCCL", need[i].fake, 1), 0);
        team_start(&t, nothing);
        team_wait(&t, 20000000);
        assert_int_equal(unsetenv("FAKE_NCCL"), 0);
        assert_int_equal(t.exit_code[0], need[i].want);
        assert_int_equal(t.exit_code[1], need[i].want);
        team_clear(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_fails_in_a_sum_ends_what_its_communicator_does),
        cmocka_unit_test(large_calls_go_by_nccl_when_each_rank_has_a_gpu_and_all_buffers_are_there),
        cmocka_unit_test(large_messages_go_by_nccl_in_any_order_of_posting),
        cmocka_unit_test(whatever_goes_wrong_with_a_message_between_gpus_ends_the_wait_for_it),
        cmocka_unit_test(whatever_goes_wrong_between_gpus_ends_the_call_with_words_and_no_communicator),
        cmocka_unit_test(an_abort_that_never_ends_is_left_to_itself_and_the_gpu_given_up),
        cmocka_unit_test(an_abort_order_and_a_dead_rank_end_a_wait_for_gpus),
        cmocka_unit_test(more_ways_than_a_gpu_has_queues_are_refused_with_words),
        cmocka_unit_test(a_world_that_needs_nccl_does_not_open_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
