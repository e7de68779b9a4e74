/* What is measured before a way is chosen: links and codecs, of processors and of GPUs. */
#include "tests/unit/test.h"

#include "tests/unit/worker/coded_try.h"
#include "tests/unit/worker/fake_device.h"
#include "tests/unit/worker/test_comm_team.inc"

#include "worker/engine/comm/coded.h"
#include "worker/engine/comm/probe.h"
#include "worker/engine/comm/wire.h"

uint64_t fake_nccl_bytes(void); /* fake_nccl.c */
int fake_nccl_live(void);

#define N 16384u
#define SLOW_US 2000

/* Ranks with a GPU each, or all on one. */
static void run(int n, bool shared, const struct device_ops *device, int64_t timeout_us, team_fn fn, int want)
{
    struct team t;

    team_init(&t, n, TEAM_SHM);
    t.device = device;
    t.device_shared = shared;
    t.timeout_us = timeout_us;
    t.arg = &shared;
    team_start(&t, fn);
    team_wait(&t, 60000000);
    for (int i = 0; i < n; i++)
        assert_int_equal(t.exit_code[i], want);
    team_clear(&t);
}

/* --- codecs ------------------------------------------------------------------------------------------------------ */

static int times_of_a_slow_gpu(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    struct cost_codec here, there;
    float x;

    (void)t;
    fake_codec_us = SLOW_US;
    GOOD(probe_codec(g, named("r8"), NULL, &here, &err));
    NEED(fake_codec_calls == 0);
    NEED(here.start_us == 0 && here.encode_us > 0 && here.decode_us > 0 && here.reduce_us > 0);
    NEED(here.bytes > 1 && here.bytes < 1.1);
    GOOD(probe_codec(g, named("r8"), &x, &there, &err));
    NEED(fake_codec_calls > 0);
    NEED(there.start_us >= SLOW_US && there.bytes == here.bytes);
    NEED(there.encode_us > 0 && there.decode_us > 0 && there.reduce_us > 0);
    return 0;
}

static void a_codec_is_measured_where_the_values_lie(void **state)
{
    (void)state;
    run(2, false, &fake_device, 0, times_of_a_slow_gpu, 0);
    run(2, true, &fake_device, 0, times_of_a_slow_gpu, 0);
}

static int one_of_them_is_slow(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    struct cost_codec c;
    float x;

    (void)t;
    fake_device_host = comm_rank(w) == 1;
    fake_codec_us = comm_rank(w) == 2 ? SLOW_US : 0;
    GOOD(probe_codec(g, named("g8"), &x, &c, &err));
    NEED((fake_codec_calls > 0) == (comm_rank(w) != 1));
    NEED(c.start_us >= SLOW_US);
    return 0;
}

static void the_slowest_member_counts_wherever_the_others_code(void **state)
{
    (void)state;
    run(3, true, &fake_device, 0, one_of_them_is_slow, 0);
}

static int stuck_codec(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    struct cost_codec c = {.bytes = 7};
    struct merr err = {""};
    float x;
    int r;

    (void)t;
    fake_device_stuck = true;
    r = probe_codec(g, named("r8"), &x, &c, &err);
    NEED(r == -ETIMEDOUT && c.bytes == 7);
    NEED(strstr(err.text, "GPU 0 of rank ") && strstr(err.text, " of 'tp' for 300 ms"));
    NEED(comm_barrier(g, NULL) == r); /* the world stays failed */
    return 0;
}

static void a_gpu_that_never_ends_ends_the_measurement(void **state)
{
    (void)state;
    run(2, true, &fake_device, 300000, stuck_codec, 0);
}

static int each_call_fails(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    struct merr err = {""};
    struct cost_codec c;
    float x;
    int r;

    fake_device_fail = *(const int *)t->arg;
    r = probe_codec(g, named("r8"), &x, &c, &err);
    fake_device_fail = 0;
    NEED(r == 0 || (r == -EIO && strstr(err.text, "the fake GPU failed")));
    return -r;
}

static void each_call_of_the_gpu_may_fail_once(void **state)
{
    int n = 0, code;

    (void)state;
    do {
        struct team t;

        team_init(&t, 1, TEAM_SHM);
        n += n < 16 ? 1 : 40; /* those that make things ready; of the others some */
        t.device = &fake_device;
        t.arg = &n;
        team_start(&t, each_call_fails);
        team_wait(&t, 60000000);
        code = t.exit_code[0];
        assert_true(code == EIO || code == 0);
        team_clear(&t);
    } while (code == EIO);
    assert_true(n > 100);
}

/* --- links -------------------------------------------------------------------------------------------------------- */

static int links(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "dp");
    const bool shared = *(const bool *)t->arg;
    char *x = malloc(PROBE_MESSAGES_BYTES);
    struct cost_line line = {0};
    uint64_t before = fake_nccl_bytes();

    GOOD(probe_link(g, NULL, &line, &err));
    NEED(line.fixed_us > 0 && line.byte_us > 0);
    NEED(fake_nccl_bytes() == before);
    line = (struct cost_line){0};
    GOOD(probe_link(g, x, &line, &err));
    NEED(line.fixed_us > 0 && line.byte_us > 0);
    NEED((fake_nccl_bytes() > before) == !shared);
    before = fake_nccl_bytes();
    line = (struct cost_line){0};
    GOOD(probe_messages(g, x, &line, &err));
    NEED(line.fixed_us > 0 && line.byte_us > 0);
    NEED((fake_nccl_bytes() > before) == !shared);
    free(x);
    return 0;
}

static void blocks_and_messages_of_gpus_are_timed_on_the_way_they_will_go(void **state)
{
    (void)state;
    run(3, false, &fake_device, 0, links, 0);
    run(3, true, &fake_device, 0, links, 0);
}

/* --- auto -------------------------------------------------------------------------------------------------------- */

static int tune_all(struct team *t, struct comm_world *w)
{
    static const char *const name[] = {"tp", "dp", "pp"};
    float *x = calloc(WIRE_PIPE_FLOATS, sizeof(*x));
    const bool shared = *(const bool *)t->arg;

    fake_codec_us = 3000; /* no link is that slow */
    for (int use = WIRE_SUMS; use <= WIRE_PIPE; use++) {
        struct wire_cfg cfg = {.group = team_all(w, name[use]), .codec = "auto", .seed = 3};
        uint64_t before = fake_nccl_bytes();
        struct wire *v = NULL;

        GOOD(wire_new(&cfg, &v, &err));
        fake_codec_calls = 0;
        GOOD(wire_tune(v, (enum wire_use)use, x, N, &err));
        NEED(fake_codec_calls > 0 && (fake_nccl_bytes() > before) == !shared);
        NEED(!wire_coded(v) && strstr(wire_said(v), ": raw, "));
        wire_free(v);
    }
    free(x);
    return 0;
}

static void auto_travels_raw_where_the_gpus_codecs_are_slow(void **state)
{
    (void)state;
    run(2, false, &fake_device, 0, tune_all, 0);
    run(2, true, &fake_device, 0, tune_all, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_codec_is_measured_where_the_values_lie),
        cmocka_unit_test(the_slowest_member_counts_wherever_the_others_code),
        cmocka_unit_test(a_gpu_that_never_ends_ends_the_measurement),
        cmocka_unit_test(each_call_of_the_gpu_may_fail_once),
        cmocka_unit_test(blocks_and_messages_of_gpus_are_timed_on_the_way_they_will_go),
        cmocka_unit_test(auto_travels_raw_where_the_gpus_codecs_are_slow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
