/* Coded calls of ranks with GPUs, by NCCL and as messages, beside the processor's: the same bits, bytes and flags. */
#include "tests/unit/test.h"

#include "tests/unit/worker/coded_try.h"
#include "tests/unit/worker/fake_device.h"
#include "tests/unit/worker/test_comm_team.inc"

#include <math.h>

#include "base/bf16.h"
#include "worker/engine/comm/coded.h"

uint64_t fake_nccl_bytes(void); /* fake_nccl.c */
int fake_nccl_live(void);

#define VALUES ((size_t)50000)             /* of a vector: of 64 KiB and more, with tails */
#define FAULT_VALUES (CODED_SLICE + 2048u) /* a slice that goes by NCCL, and one that does not */

/* What a call leaves in memory, which is filled the same each time. */
struct result {
    char *memory;
    size_t bytes;
    uint32_t flags;
    uint64_t sent;
};

static float value(int member, size_t i)
{
    return sinf((float)i * 0.37f + (float)member) * (1 + (float)(i % 7));
}

static void fill(struct result *x, enum codec_type type, int member, size_t n)
{
    x->bytes = n * (type == CODEC_F32 ? 4 : 2);
    x->memory = malloc(x->bytes);
    for (size_t i = 0; i < n; i++) {
        if (type == CODEC_F32)
            ((float *)(void *)x->memory)[i] = value(member, i);
        else
            ((uint16_t *)(void *)x->memory)[i] = bf16_from_float(value(member, i));
    }
}

/* Shares of unequal length, the last with a tail. */
static void cut_unevenly(size_t *cut, int n)
{
    for (int i = 0; i < n; i++)
        cut[i] = VALUES / (size_t)n / CODED_ALIGN * CODED_ALIGN * (size_t)i + (i > 0 ? CODED_ALIGN / 2 : 0);
    cut[n] = VALUES;
}

typedef int (*call_fn)(struct comm_world *w, struct comm_group *g, struct result *x);

static int sums_to_all(struct comm_world *w, struct comm_group *g, struct result *x)
{
    struct coded how = {.codec = named("r8"), .type = CODEC_BF16, .slice = 4096};

    fill(x, how.type, comm_rank(w), VALUES);
    GOOD(coded_all_reduce(g, &how, x->memory, VALUES, &x->flags, &err));
    return 0;
}

static int sums_to_owners(struct comm_world *w, struct comm_group *g, struct result *x)
{
    struct coded how = {.codec = named("hs8"), .far = named("hs4"), .slice = 4096, .site = {.seed = 3, .step = 8}};
    size_t cut[TEAM_MAX + 1];

    cut_unevenly(cut, comm_size(w));
    fill(x, how.type, comm_rank(w), VALUES);
    GOOD(coded_reduce_scatter(g, &how, x->memory, cut, x->memory + cut[comm_rank(w)] * 4, &x->flags, &err));
    return 0;
}

static int values_from_all(struct comm_world *w, struct comm_group *g, struct result *x)
{
    struct coded how = {.codec = named("t8"), .slice = 2048};
    size_t cut[TEAM_MAX + 1];

    cut_unevenly(cut, comm_size(w));
    fill(x, how.type, comm_rank(w), VALUES);
    if (comm_rank(w) == 1)
        ((float *)(void *)x->memory)[cut[1] + 5] = NAN;
    GOOD(coded_all_gather(g, &how, x->memory, cut, &x->flags, &err));
    NEED(x->flags == CODEC_NONFINITE);
    return 0;
}

static int differences(struct comm_world *w, struct comm_group *g, struct result *x)
{
    struct coded how = {.codec = named("qwd4"), .site = {.seed = 4}};
    size_t cut[TEAM_MAX + 1], mine;
    float *master;

    cut_unevenly(cut, comm_size(w));
    mine = cut[comm_rank(w) + 1] - cut[comm_rank(w)];
    fill(x, how.type, 0, VALUES);
    master = malloc(mine * sizeof(*master));
    for (size_t i = 0; i < mine; i++)
        master[i] = value(0, cut[comm_rank(w)] + i) + 1e-3f * value(9, i);
    GOOD(coded_gather_differences(g, &how, master, x->memory, cut, &x->flags, &err));
    free(master);
    return 0;
}

/* To the next member and from the one before: a large slice and a small one, and less than that. */
static int messages(struct comm_world *w, struct comm_group *g, struct result *x)
{
    static const size_t counts[] = {CODED_SLICE + 40000, 127, 1};
    struct coded how = {.codec = named("r8"), .site = {.seed = 6}};
    struct comm_request *in[COUNT(counts)], *out[COUNT(counts)];
    int n = comm_size(w), me = comm_rank(w);
    struct result from;
    size_t at = 0;

    fill(&from, how.type, me, CODED_SLICE + 50000);
    fill(x, how.type, 0, CODED_SLICE + 50000);
    for (size_t k = 0; k < COUNT(counts); at += counts[k++]) {
        GOOD(coded_irecv(g, &how, (me + n - 1) % n, 4, x->memory + at * 4, counts[k], &in[k], &x->flags, &err));
        GOOD(coded_isend(g, &how, (me + 1) % n, 4, from.memory + at * 4, counts[k], &out[k], &x->flags, &err));
    }
    memset(from.memory, 0xFF, from.bytes); /* it is ours again */
    for (size_t k = 0; k < COUNT(counts); k++) {
        GOOD(comm_wait(in[k], &err));
        GOOD(comm_wait(out[k], &err));
    }
    free(from.memory);
    return 0;
}

static const call_fn calls[] = {sums_to_all, sums_to_owners, values_from_all, differences, messages};

static int measured(struct comm_world *w, struct comm_group *g, call_fn call, struct result *ret)
{
    uint64_t before = comm_bytes_sent(g);
    int r;

    *ret = (struct result){.flags = 0};
    r = call(w, g, ret);
    ret->sent = comm_bytes_sent(g) - before;
    return r;
}

struct way {
    int n;
    enum team_way nodes;
    bool shared; /* all ranks on one GPU: no NCCL */
    bool mixed;  /* the buffers of every other rank are the host's */
};

static int compare(struct team *t, struct comm_world *w)
{
    const struct way *way = t->arg;
    struct comm_group *g = team_all(w, "dp");

    for (size_t i = 0; i < COUNT(calls); i++) {
        struct result by_host, by_gpu;
        uint64_t moved;

        if (calls[i] == messages && way->mixed && !way->shared)
            continue; /* both ends of a message lie on GPUs, or neither does */
        fake_device_host = true;
        NEED(measured(w, g, calls[i], &by_host) == 0);
        NEED(fake_codec_calls == 0);
        moved = fake_nccl_bytes();
        fake_device_host = way->mixed && comm_rank(w) % 2;
        NEED(measured(w, g, calls[i], &by_gpu) == 0);
        NEED((fake_codec_calls > 0) == !fake_device_host);
        NEED((fake_nccl_bytes() > moved) == (!way->shared && !way->mixed));
        NEED(by_gpu.flags == by_host.flags && by_gpu.sent == by_host.sent);
        NEED(memcmp(by_gpu.memory, by_host.memory, by_host.bytes) == 0);
        fake_codec_calls = 0;
        free(by_host.memory);
        free(by_gpu.memory);
    }
    return 0;
}

static void coded_calls_have_the_processors_bits_bytes_and_flags_whichever_way_they_go(void **state)
{
    static const struct way way[] = {
        {.n = 2},
        {.n = 3},
        {.n = 4, .nodes = TEAM_MIXED},
        {.n = 2, .shared = true},
        {.n = 4, .nodes = TEAM_MIXED, .shared = true},
        {.n = 3, .mixed = true},
        {.n = 3, .shared = true, .mixed = true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(way); i++) {
        struct team t;

        team_init(&t, way[i].n, way[i].nodes);
        t.device = &fake_device;
        t.device_shared = way[i].shared;
        t.arg = &way[i];
        team_start(&t, compare);
        team_wait(&t, 30000000);
        for (int k = 0; k < t.n; k++)
            assert_int_equal(t.exit_code[k], 0);
        team_clear(&t);
    }
}

/* Each hop of a slice by NCCL: NCCL's queue waits for what is coded, coding waits for what has come. */
static int count_waits(struct team *t, struct comm_world *w)
{
    struct coded how = {.codec = named("r8"), .slice = 8192};
    struct comm_group *g = team_all(w, "tp");
    float *x = calloc(8192 * 6, sizeof(*x));
    uint32_t flags = 0;

    (void)t;
    GOOD(coded_all_reduce(g, &how, x, 8192 * 6, &flags, &err)); /* 3 slices of a half each, two hops */
    NEED(fake_device_follows == 3 * 2 * 2);
    free(x);
    return 0;
}

static void queues_wait_for_each_other_twice_a_hop(void **state)
{
    struct team t;

    (void)state;
    team_init(&t, 2, TEAM_SHM);
    t.device = &fake_device;
    team_start(&t, count_waits);
    team_wait(&t, 20000000);
    assert_int_equal(t.exit_code[0], 0);
    assert_int_equal(t.exit_code[1], 0);
    team_clear(&t);
}

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

static int damaged(struct team *t, struct comm_world *w)
{
    const bool sum = *(const bool *)t->arg;
    struct comm_group *g = team_all(w, "dp");
    struct coded how = {.codec = named("g8")};
    const size_t cut[] = {0, 1024, 2048};
    uint32_t flags = 0;
    float x[2048] = {0};
    struct merr why;
    int r;

    if (comm_rank(w) == 1)
        return send_damaged(w, g, how.codec, sum ? COMM_CALL_REDUCE_SCATTER : COMM_CALL_ALL_GATHER, 12, 99);
    r = sum ? coded_reduce_scatter(g, &how, x, cut, x, &flags, &why) : coded_all_gather(g, &how, x, cut, &flags, &why);
    NEED(r == -EIO);
    NEED(strstr(why.text, "'dp'") && strstr(why.text, "rank 1") && strstr(why.text, "codec g8"));
    NEED(strstr(why.text, "id 99"));
    return 0;
}

static void a_block_that_a_gpu_refuses_is_told_by_group_rank_and_codec(void **state)
{
    static const bool sum[] = {false, true};

    (void)state;
    for (size_t i = 0; i < COUNT(sum); i++) {
        struct team t;

        team_init(&t, 2, TEAM_SHM);
        t.device = &fake_device;
        t.device_shared = true;
        t.arg = &sum[i];
        team_start(&t, damaged);
        team_wait(&t, 20000000);
        assert_int_equal(t.exit_code[0], 0);
        assert_int_equal(t.exit_code[1], 0);
        team_clear(&t);
    }
}

/* Rank 1 sends a block that is none; rank 0's GPU is to decode it. */
static int bad_message(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    struct coded how = {.codec = named("r8")};
    size_t bytes = codec_size(how.codec, 4096);
    char *block = calloc(1, bytes);
    float *x = calloc(4096, sizeof(*x));
    struct comm_request *q;
    uint32_t flags = 0;
    struct merr why;

    (void)t;
    if (comm_rank(w) == 1) {
        GOOD(comm_isend(g, 0, 3, block, bytes, &q, &err));
        GOOD(comm_wait(q, &err));
    } else {
        GOOD(coded_irecv(g, &how, 1, 3, x, 4096, &q, &flags, &err));
        NEED(comm_wait(q, &why) == -EIO);
        NEED(strstr(why.text, "a message of rank 1 in 'pp' with tag 3 is not good, codec r8: "));
    }
    free(block);
    free(x);
    return 0;
}

static void a_message_that_a_gpu_cannot_decode_is_told_by_rank_group_and_tag(void **state)
{
    struct team t;

    (void)state;
    team_init(&t, 2, TEAM_SHM);
    t.device = &fake_device;
    team_start(&t, bad_message);
    team_wait(&t, 20000000);
    assert_int_equal(t.exit_code[0], 0);
    assert_int_equal(t.exit_code[1], 0);
    team_clear(&t);
}

struct fault {
    bool message; /* from rank 0 to 1, instead of a sum */
    bool shared, stuck;
    int fail;          /* which of rank 0's calls of the GPU */
    const char *words; /* of rank 0's error */
};

static int one_call(const struct fault *f, struct comm_world *w, struct comm_group *g, float *x, struct merr *err)
{
    struct coded how = {.codec = named("r8"), .slice = f->message ? 0 : 8192};
    struct comm_request *q;
    uint32_t flags = 0;
    int r;

    if (!f->message)
        return coded_all_reduce(g, &how, x, VALUES, &flags, err);
    r = comm_rank(w) == 0 ? coded_isend(g, &how, 1, 7, x, FAULT_VALUES, &q, &flags, err)
                          : coded_irecv(g, &how, 0, 7, x, FAULT_VALUES, &q, &flags, err);
    return r < 0 ? r : comm_wait(q, err);
}

static int call_with_a_fault(struct team *t, struct comm_world *w)
{
    const struct fault *f = t->arg;
    struct comm_group *g = team_all(w, "tp");
    float *x = calloc(FAULT_VALUES, sizeof(*x));
    struct merr err = {""};
    int r;

    fake_device_stuck = f->stuck;
    fake_device_fail = comm_rank(w) == 0 ? f->fail : 0;
    r = one_call(f, w, g, x, &err);
    if (r == 0)
        r = one_call(f, w, g, x, &err);
    fake_device_fail = 0;
    free(x);
    if (r < 0) {
        NEED(err.text[0] && fake_nccl_live() == 0);
        NEED(comm_rank(w) > 0 || r == -ECONNRESET || strstr(err.text, f->words));
        NEED(comm_barrier(g, NULL) == r); /* the world stays failed */
    }
    return -r;
}

static void run_fault(const struct fault *f, int exit_code[2])
{
    struct team t;

    team_init(&t, 2, TEAM_SHM);
    t.device = &fake_device;
    t.device_shared = f->shared;
    t.timeout_us = f->stuck ? 700000 : 10000000;
    t.arg = f;
    team_start(&t, call_with_a_fault);
    team_wait(&t, 20000000);
    memcpy(exit_code, t.exit_code, 2 * sizeof(int));
    team_clear(&t);
}

static void a_gpu_that_never_ends_its_work_ends_the_call(void **state)
{
    static const struct fault fault[] = {
        {.shared = true, .stuck = true, .words = "GPU 0 of rank 0 did not end coding in call 1 of 'tp' for 700 ms"},
        {.stuck = true, .words = "did not work for 700 ms"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(fault); i++) {
        int exit_code[2];

        run_fault(&fault[i], exit_code);
        assert_true(exit_code[0] == ETIMEDOUT || exit_code[1] == ETIMEDOUT);
        assert_true(exit_code[0] != 99 && exit_code[1] != 99);
    }
}

static void each_call_of_a_gpu_may_fail_once_and_ends_the_call_with_words(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        int exit_code[2], n = 0;

        do {
            struct fault f = {.shared = i % 2, .message = i / 2, .fail = ++n, .words = "the fake GPU failed"};

            run_fault(&f, exit_code);
            assert_true(exit_code[0] == EIO || exit_code[0] == 0);
            assert_true(exit_code[1] == 0 || exit_code[1] == ECONNRESET || exit_code[1] == ETIMEDOUT ||
                        exit_code[1] == EIO);
            n += n > 12 ? 16 : 0; /* the rest is more of the same */
        } while (exit_code[0] != 0);
        assert_true(n > (i / 2 ? 10 : 40));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coded_calls_have_the_processors_bits_bytes_and_flags_whichever_way_they_go),
        cmocka_unit_test(queues_wait_for_each_other_twice_a_hop),
        cmocka_unit_test(a_block_that_a_gpu_refuses_is_told_by_group_rank_and_codec),
        cmocka_unit_test(a_message_that_a_gpu_cannot_decode_is_told_by_rank_group_and_tag),
        cmocka_unit_test(a_gpu_that_never_ends_its_work_ends_the_call),
        cmocka_unit_test(each_call_of_a_gpu_may_fail_once_and_ends_the_call_with_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
