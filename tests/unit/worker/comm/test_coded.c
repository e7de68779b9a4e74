/* Coded calls between real processes, over shared memory, over UCX and over both. */
#include "tests/unit/test.h"

#include "tests/unit/worker/coded_try.h"
#include "tests/unit/worker/test_comm_team.inc"

#include <math.h>

#include "base/bf16.h"
#include "base/hash.h"
#include "base/philox.h"
#include "worker/engine/comm/coded.h"

/* Value i of member's vector: normal, the same wherever it is asked for. */
static float value_of(int member, size_t i)
{
    const uint32_t key[2] = {17, (uint32_t)member}, at[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 0};
    uint32_t word[4];
    float pair[2];

    philox4x32(at, key, word);
    philox_normal2(word[0], word[1], pair);
    return pair[0];
}

static float rounded(float x)
{
    return bf16_to_float(bf16_from_float(x));
}

static void store(void *to, enum codec_type type, size_t i, float x)
{
    if (type == CODEC_F32)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = bf16_from_float(x);
}

static float load(const void *from, enum codec_type type, size_t i)
{
    return type == CODEC_F32 ? ((const float *)from)[i] : bf16_to_float(((const uint16_t *)from)[i]);
}

static void fill(void *to, enum codec_type type, int member, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store(to, type, i, value_of(member, i));
}

struct error {
    double off, all;
};

static void add_error(struct error *e, double got, double want)
{
    e->off += (got - want) * (got - want);
    e->all += want * want;
}

static double sum_of(int members, enum codec_type type, size_t i)
{
    double sum = 0;

    for (int m = 0; m < members; m++)
        sum += (double)(type == CODEC_F32 ? value_of(m, i) : rounded(value_of(m, i)));
    return sum;
}

/* Every member says what it has; all must have the same. */
static bool same_everywhere(struct comm_group *g, const void *what, size_t bytes)
{
    int64_t h[2];

    h[0] = (int64_t)(hash_xxh3(what, bytes) >> 1);
    h[1] = -h[0];
    return comm_all_reduce(g, h, 2, COMM_I64, COMM_MAX, NULL) == 0 && h[0] == -h[1];
}

/* --- sums to all -------------------------------------------------------------------------------------------------- */

struct sum_case {
    const char *codec;
    enum codec_type type;
    size_t count, slice;
    double nmse; /* at most, two codings */
};

static int reduce_case(struct comm_world *w, struct comm_group *g, const struct sum_case *c)
{
    struct coded how = {.codec = named(c->codec), .type = c->type, .slice = c->slice, .site = {.seed = 5, .step = 9}};
    size_t bytes = c->count * (c->type == CODEC_F32 ? 4 : 2);
    void *x = malloc(bytes + 1), *again = malloc(bytes + 1);
    uint64_t before = comm_bytes_sent(g);
    struct error e = {0, 1e-30};
    uint32_t flags = 0;

    fill(x, c->type, comm_rank(w), c->count);
    fill(again, c->type, comm_rank(w), c->count);
    GOOD(coded_all_reduce(g, &how, x, c->count, &flags, &err));
    before = comm_bytes_sent(g) - before;
    GOOD(coded_all_reduce(g, &how, again, c->count, &flags, &err));
    NEED(memcmp(x, again, bytes) == 0);
    NEED(flags == 0);
    NEED(same_everywhere(g, x, bytes));
    for (size_t i = 0; i < c->count; i++)
        add_error(&e, (double)load(x, c->type, i), sum_of(comm_size(w), c->type, i));
    if (e.off / e.all > c->nmse)
        (void)fprintf(stderr, "%s, %zu values: NMSE %g\n", c->codec, c->count, e.off / e.all);
    NEED(e.off / e.all <= c->nmse);
    if (comm_size(w) == 2 && c->slice == 0 && c->count % 256 == 0 && c->count > 0) /* a half each way, one slice */
        NEED(before == 2 * codec_size(how.codec, c->count / 2));
    free(x);
    free(again);
    return 0;
}

static int reduce_all(struct team *t, struct comm_world *w)
{
    static const struct sum_case cases[] = {
        {"r8", CODEC_F32, 65536, 0, 9e-5},
        {"r8", CODEC_F32, 65536, 2048, 9e-5},
        {"r8", CODEC_BF16, 40000, 4096, 1.3e-4},
        {"r6", CODEC_F32, 40001, 0, 1.6e-3},
        {"t8", CODEC_F32, 65536, 8192, 1.5e-3},
        {"t8-paper", CODEC_F32, 3000, 0, 1.5e-3},
        {"hs8", CODEC_F32, 65536, 4096, 1.8e-4},
        {"g4", CODEC_F32, 10000, 2048, 3e-2},
        {"r8", CODEC_F32, 129, 0, 1.5e-4},
        {"r8", CODEC_F32, 1, 0, 9e-5},
        {"r8", CODEC_F32, 0, 0, 0},
    };
    struct comm_group *g = team_all(w, "tp");

    (void)t;
    NEED(g);
    for (size_t i = 0; i < COUNT(cases); i++) {
        int r = reduce_case(w, g, &cases[i]);

        if (r != 0)
            return r;
    }
    return 0;
}

static void sums_to_all_are_the_same_on_all_and_near_the_exact_ones(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, reduce_all, NULL);
    team_run(2, TEAM_UCX, 0, reduce_all, NULL);
    team_run(5, TEAM_SHM, 0, reduce_all, NULL);
    team_run(3, TEAM_MIXED, 0, reduce_all, NULL);
}

/* --- sums to their owners ----------------------------------------------------------------------------------------- */

/* Shares of unequal length, one of them empty from four members on. */
static void cut_unevenly(size_t *cut, int n)
{
    cut[0] = 0;
    for (int i = 0; i < n; i++)
        cut[i + 1] = cut[i] + (n > 3 && i == 1 ? 0 : 1024 * (size_t)(3 + 7 * i));
}

static int scatter(struct team *t, struct comm_world *w)
{
    const size_t slices[] = {0, 2048};
    struct comm_group *g = team_all(w, "dp");
    int n = comm_size(w), me = comm_rank(w);
    double worst = *(const double *)t->arg;
    size_t cut[TEAM_MAX + 1], mine;
    float *in, *out;

    NEED(g);
    cut_unevenly(cut, n);
    mine = cut[me + 1] - cut[me];
    in = malloc(cut[n] * sizeof(*in));
    out = malloc((mine + 1) * sizeof(*out));
    for (size_t k = 0; k < COUNT(slices); k++) {
        struct coded how = {.codec = named("hs8"), .far = named("hs4"), .slice = slices[k], .site = {.seed = 3}};
        struct error e = {0, 1e-30};
        uint32_t flags = 0;
        uint64_t before = comm_bytes_sent(g);

        fill(in, CODEC_F32, me, cut[n]);
        GOOD(coded_reduce_scatter(g, &how, in, cut, out, &flags, &err));
        before = comm_bytes_sent(g) - before;
        NEED(before < cut[n] * 4 * (size_t)n / 3);
        for (size_t i = 0; i < mine; i++)
            add_error(&e, (double)out[i], sum_of(n, CODEC_F32, cut[me] + i));
        if (e.off / e.all > worst)
            (void)fprintf(stderr, "rank %d of %d: NMSE %g\n", me, n, e.off / e.all);
        NEED(e.off / e.all <= worst && flags == 0);
        GOOD(coded_reduce_scatter(g, &how, in, cut, in + cut[me], &flags, &err)); /* in place, and the same bits */
        NEED(memcmp(out, in + cut[me], mine * sizeof(*out)) == 0);
    }
    free(in);
    free(out);
    return 0;
}

static void sums_to_owners_take_one_level_or_two(void **state)
{
    static const double one = 1e-4, two = 3.2e-2;

    (void)state;
    team_run(1, TEAM_SHM, 0, scatter, &one);
    team_run(3, TEAM_SHM, 0, scatter, &one);   /* one node: hs8 alone */
    team_run(2, TEAM_MIXED, 0, scatter, &two); /* a member a node: hs4 alone */
    team_run(4, TEAM_MIXED, 0, scatter, &two); /* two of two: hs8 inside, hs4 between */
    team_run(6, TEAM_MIXED, 0, scatter, &two);
    team_run(3, TEAM_MIXED, 0, scatter, &one); /* two and one: one level */
}

static int far_bytes(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "dp");
    struct coded how = {.codec = named("hs8"), .far = named("hs4")};
    const size_t cut[] = {0, 2048, 4096, 6144, 8192};
    float *in = calloc(8192, sizeof(*in)), out[2048];
    uint32_t flags = 0;

    (void)t;
    GOOD(coded_reduce_scatter(g, &how, in, cut, out, &flags, &err));
    /* to the node-mate a block for each node, to the other node one block */
    NEED(comm_bytes_sent(g) == 2 * codec_size(how.codec, 2048) + codec_size(how.far, 2048));
    for (int i = 0; i < 2048; i++)
        NEED(out[i] == 0);
    free(in);
    return 0;
}

static void bytes_of_two_levels_are_what_the_formula_says(void **state)
{
    (void)state;
    team_run(4, TEAM_MIXED, 0, far_bytes, NULL);
}

/* --- gathering ---------------------------------------------------------------------------------------------------- */

static int gathers(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    int n = comm_size(w), me = comm_rank(w);
    struct coded how = {.codec = named("r8"), .type = CODEC_BF16, .slice = 4096};
    size_t cut[TEAM_MAX + 1];
    struct error e = {0, 1e-30};
    uint16_t *x;
    uint32_t flags = 0;

    (void)t;
    cut_unevenly(cut, n);
    x = malloc(cut[n] * sizeof(*x));
    fill(x, CODEC_BF16, me, cut[n]);
    GOOD(coded_all_gather(g, &how, x, cut, &flags, &err));
    NEED(same_everywhere(g, x, cut[n] * sizeof(*x)));
    for (int m = 0; m < n; m++) {
        for (size_t i = cut[m]; i < cut[m + 1]; i++)
            add_error(&e, (double)load(x, CODEC_BF16, i), (double)rounded(value_of(m, i)));
    }
    NEED(e.off / e.all < 7e-5);
    free(x);
    return 0;
}

static void everyone_gathers_the_same_values(void **state)
{
    (void)state;
    team_run(4, TEAM_SHM, 0, gathers, NULL);
    team_run(2, TEAM_UCX, 0, gathers, NULL);
    team_run(4, TEAM_MIXED, 0, gathers, NULL);
}

#define LOOP_VALUES 8192u
#define LOOP_STEPS 300

/* Root mean square of the replica's distance from the master, in steps, after many steps of a random walk. open: the
 * difference is taken to the master's last value, as one must not. */
static int walk(struct comm_world *w, bool open, double *ret)
{
    struct comm_group *g = team_all(w, open ? "open" : "closed");
    size_t cut[TEAM_MAX + 1], mine, all = LOOP_VALUES * (size_t)comm_size(w);
    float *replica = calloc(all, sizeof(float)), *base = calloc(all, sizeof(float)), *was = calloc(all, sizeof(float));
    float *master = calloc(LOOP_VALUES, sizeof(float));
    int me = comm_rank(w);
    uint32_t flags = 0;
    double off = 0, moved = 0;

    for (int i = 0; i <= comm_size(w); i++)
        cut[i] = LOOP_VALUES * (size_t)i;
    mine = LOOP_VALUES;
    for (uint32_t s = 0; s < LOOP_STEPS; s++) {
        struct coded how = {.codec = named("qwd4"), .site = {.seed = 1, .step = s}};

        if (open) { /* what the others add is the coded step, whatever became of the steps before */
            memcpy(base, replica, all * sizeof(float));
            memcpy(replica + cut[me], master, mine * sizeof(float));
        }
        for (size_t i = 0; i < mine; i++)
            master[i] += 1e-4f * value_of(me + 10, s * (size_t)mine + i);
        memcpy(was, replica, all * sizeof(float));
        GOOD(coded_gather_differences(g, &how, master, replica, cut, &flags, &err));
        for (size_t i = 0; i < all && open; i++)
            replica[i] = base[i] + (replica[i] - was[i]);
    }
    for (size_t i = 0; i < mine; i++) {
        double d = (double)(replica[cut[me] + i] - master[i]), step = 1e-4 * (double)value_of(me + 10, i);

        off += d * d;
        moved += step * step;
    }
    NEED(open || same_everywhere(g, replica, all * sizeof(float)));
    *ret = sqrt(off / moved);
    free(replica);
    free(base);
    free(was);
    free(master);
    return 0;
}

static int closed_loop(struct team *t, struct comm_world *w)
{
    double apart;
    int r = walk(w, false, &apart);

    (void)t;
    NEED(r == 0 && apart > 0.1 && apart < 0.25);
    return 0;
}

static int open_loop(struct team *t, struct comm_world *w)
{
    double apart;
    int r = walk(w, true, &apart);

    (void)t;
    if (r == 0 && apart < 2.5)
        (void)fprintf(stderr, "the open loop came to %g steps only\n", apart);
    NEED(r == 0 && apart > 2.5);
    return 0;
}

static void replicas_stay_within_a_quarter_of_a_step_of_their_masters(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, closed_loop, NULL);
}

static void differences_to_the_master_instead_drift_away(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, open_loop, NULL);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static int messages(struct team *t, struct comm_world *w)
{
    static const size_t counts[] = {1, 127, 2048, 70000};
    struct comm_group *g = team_all(w, "pp");
    struct coded how = {.codec = named("r8"), .slice = 16384};
    struct comm_request *q[2 * COUNT(counts)];
    float *in[COUNT(counts)], *out[COUNT(counts)];
    uint32_t flags = 0;
    int peer = !comm_rank(w);

    (void)t;
    for (size_t k = 0; k < COUNT(counts); k++) {
        in[k] = malloc(counts[k] * sizeof(float));
        out[k] = malloc(counts[k] * sizeof(float));
        fill(in[k], CODEC_F32, comm_rank(w) * 4 + (int)k, counts[k]);
        GOOD(coded_irecv(g, &how, peer, 4, out[k], counts[k], &q[2 * k], &flags, &err));
        GOOD(coded_isend(g, &how, peer, 4, in[k], counts[k], &q[2 * k + 1], &flags, &err));
        memset(in[k], 0xFF, counts[k] * sizeof(float)); /* it is ours again */
    }
    for (size_t k = 0; k < 2 * COUNT(counts); k++)
        GOOD(comm_wait(q[k], &err));
    for (size_t k = 0; k < COUNT(counts); k++) {
        struct error e = {0, 1e-30};

        for (size_t i = 0; i < counts[k]; i++)
            add_error(&e, (double)out[k][i], (double)value_of(peer * 4 + (int)k, i));
        NEED(e.off / e.all < 1e-4);
        free(in[k]);
        free(out[k]);
    }
    NEED(flags == 0);
    return 0;
}

static void messages_arrive_decoded(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, messages, NULL);
    team_run(2, TEAM_UCX, 0, messages, NULL);
}

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

static int nonfinite(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    struct coded how = {.codec = named("r8")};
    float x[1024];
    uint32_t flags = 0;

    (void)t;
    for (int i = 0; i < 1024; i++)
        x[i] = 1;
    if (comm_rank(w) == 1)
        x[700] = NAN;
    GOOD(coded_all_reduce(g, &how, x, 1024, &flags, &err));
    NEED(flags == CODEC_NONFINITE);
    for (int i = 0; i < 1024; i++)
        NEED(isfinite(x[i]));
    return 0;
}

static void numbers_that_are_not_finite_are_told_to_all(void **state)
{
    (void)state;
    team_run(3, TEAM_SHM, 0, nonfinite, NULL);
}

static int other_codec(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "tp");
    struct coded how = {.codec = named(comm_rank(w) ? "r8" : "g8")};
    float x[1024] = {0};
    uint32_t flags = 0;
    struct merr err;

    (void)t;
    NEED(coded_all_reduce(g, &how, x, 1024, &flags, &err) == -EPROTO);
    NEED(strstr(err.text, "'tp'") && strstr(err.text, "coded f32"));
    return 0;
}

static void members_with_different_codecs_are_told_so(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, other_codec, NULL);
    team_run(2, TEAM_UCX, 0, other_codec, NULL);
}

/* Rank 1 sends a block with a byte changed; which and to what, the case says. */
struct damage {
    size_t from_end; /* 1: the last byte */
    uint8_t byte;
    const char *word; /* in the error */
};

static int damaged(struct team *t, struct comm_world *w)
{
    const struct damage *d = t->arg;
    struct comm_group *g = team_all(w, "dp");
    struct coded how = {.codec = named("g8")};
    const size_t cut[] = {0, 1024, 2048};
    uint32_t flags = 0;
    float x[2048] = {0};
    struct merr why;

    if (comm_rank(w) == 1)
        return send_damaged(w, g, how.codec, COMM_CALL_ALL_GATHER, d->from_end, d->byte);
    NEED(coded_all_gather(g, &how, x, cut, &flags, &why) == -EIO);
    if (!strstr(why.text, d->word))
        (void)fprintf(stderr, "said '%s', not '%s'\n", why.text, d->word);
    NEED(strstr(why.text, "'dp'") && strstr(why.text, "rank 1") && strstr(why.text, "codec g8"));
    NEED(strstr(why.text, d->word));
    return 0;
}

static void blocks_that_no_encoder_writes_are_refused_by_group_rank_and_codec(void **state)
{
    static const struct damage cases[] = {
        {12, 99, "id 99"}, /* | flags 4 | id | version | 0 0 | count 8 | */
        {11, 7, "version 7"}, {8, 1, "holds"}, {16, 4, "flags"}, {17, 0x7F, NULL}, {16 + 32 + 1, 0x80, NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct damage d = cases[i];

        if (!d.word && d.byte == 0x7F) { /* the top byte of the last scale, 1.0 before: 0x7F80… is infinity */
            d.word = "scale";
        } else if (!d.word) {
            d.word = "code";
        }
        team_run(2, i % 2 ? TEAM_UCX : TEAM_SHM, 0, damaged, &d);
    }
}

static int wrong_count(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "pp");
    struct coded how = {.codec = named("r8")};
    struct comm_request *q;
    float x[4096] = {0};
    uint32_t flags = 0;
    struct merr why;
    int r;

    (void)t;
    if (comm_rank(w) == 0) {
        GOOD(coded_isend(g, &how, 1, 3, x, 4096, &q, &flags, &err));
        (void)comm_wait(q, NULL); /* the other end finds out */
        return 0;
    }
    r = coded_irecv(g, &how, 0, 3, x, 4000, &q, &flags, &why);
    if (r == 0)
        r = comm_wait(q, &why);
    NEED(r == -EPROTO && strstr(why.text, "'pp'") && strstr(why.text, "rank 0"));
    return 0;
}

static void a_message_of_another_count_is_refused(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, wrong_count, NULL);
    team_run(2, TEAM_UCX, 0, wrong_count, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_to_all_are_the_same_on_all_and_near_the_exact_ones),
        cmocka_unit_test(sums_to_owners_take_one_level_or_two),
        cmocka_unit_test(bytes_of_two_levels_are_what_the_formula_says),
        cmocka_unit_test(everyone_gathers_the_same_values),
        cmocka_unit_test(replicas_stay_within_a_quarter_of_a_step_of_their_masters),
        cmocka_unit_test(differences_to_the_master_instead_drift_away),
        cmocka_unit_test(messages_arrive_decoded),
        cmocka_unit_test(numbers_that_are_not_finite_are_told_to_all),
        cmocka_unit_test(members_with_different_codecs_are_told_so),
        cmocka_unit_test(blocks_that_no_encoder_writes_are_refused_by_group_rank_and_codec),
        cmocka_unit_test(a_message_of_another_count_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
