/* Calls between GPUs: which way they go, and what ends them, with a library of our own in NCCL's place. */
#include "tests/unit/test.h"

#include "tests/unit/worker/fake_device.h"
#include "tests/unit/worker/test_comm_team.inc"

#define BYTES ((size_t)1 << 20)

uint64_t fake_nccl_bytes(void); /* fake_nccl.c */
int fake_nccl_live(void);

struct way {
    bool shared, host; /* all ranks on one GPU; buffers of the host */
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
    NEED(comm_device_used(w) == !way->shared);
    NEED((fake_nccl_bytes() > 0) == way->by_nccl);
    return 0;
}

static void large_calls_go_by_nccl_when_each_rank_has_a_gpu_and_all_buffers_are_there(void **state)
{
    static const struct way way[] = {
        {.by_nccl = true, .said = "NCCL 2.19.3"},
        {.host = true, .said = "NCCL 2.19.3"},
        {.shared = true, .said = "ranks 0 and 1 share a GPU"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(way); i++) {
        struct team t;

        team_init(&t, 3, TEAM_SHM);
        t.device = &fake_device;
        t.device_shared = way[i].shared;
        t.arg = &way[i];
        team_start(&t, reduce_once);
        team_wait(&t, 20000000);
        for (int k = 0; k < t.n; k++)
            assert_int_equal(t.exit_code[k], 0);
        team_clear(&t);
    }
}

/* --- faults ------------------------------------------------------------------------------------- */

struct fault {
    const char *fake;        /* FAKE_NCCL */
    bool stuck;              /* the GPUs never end their work */
    int code;                /* of who notices; the other may be told first that it is gone */
    const char *words;       /* with the code */
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
    NEED(comm_barrier(g, NULL) == r); /* the world stays failed */
    NEED(fake_nccl_live() == 0);      /* and what ran on the GPU was ended */
    return -r;
}

static void whatever_goes_wrong_between_gpus_ends_the_call_with_words_and_no_communicator(void **state)
{
    static const struct fault fault[] = {
        {"hang@1:0", false, ETIMEDOUT, "did not connect GPUs for 1500 ms"},
        {"hang@1:2", false, ETIMEDOUT, "did not start for 1500 ms"},
        {"fail@1:3", false, EIO, "NCCL could not start in 'dp': remote process exited"},
        {"refuse@1:2", false, EIO, "NCCL could not start in 'dp': invalid usage"},
        {"", true, ETIMEDOUT, "did not work for 1500 ms"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(fault); i++) {
        struct team t;

        team_init(&t, 2, TEAM_SHM);
        t.device = &fake_device;
        t.timeout_us = 1500000;
        t.arg = &fault[i];
        assert_int_equal(setenv("FAKE_NCCL", fault[i].fake, 1), 0);
        team_start(&t, reduce_twice);
        team_wait(&t, 20000000);
        assert_int_equal(unsetenv("FAKE_NCCL"), 0);
        assert_true(t.exit_code[0] != 99 && t.exit_code[1] != 99);
        assert_true(t.exit_code[0] == fault[i].code || t.exit_code[1] == fault[i].code);
        team_clear(&t);
    }
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

    return flight_read(f, &op, 1) == 1 && op.op == COMM_CALL_ALL_REDUCE && !op.leave_us;
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
        cmocka_unit_test(large_calls_go_by_nccl_when_each_rank_has_a_gpu_and_all_buffers_are_there),
        cmocka_unit_test(whatever_goes_wrong_between_gpus_ends_the_call_with_words_and_no_communicator),
        cmocka_unit_test(an_abort_order_and_a_dead_rank_end_a_wait_for_gpus),
        cmocka_unit_test(a_world_that_needs_nccl_does_not_open_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
