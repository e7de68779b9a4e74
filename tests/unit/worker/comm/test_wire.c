/* How a group's floats travel, raw or coded, between real processes. */
#include "tests/unit/test.h"

#include "tests/unit/worker/test_comm_team.inc"

#include <math.h>

#include "worker/engine/comm/wire.h"

#define N 8192u

static struct wire *wire_of(struct comm_world *w, const char *codec)
{
    struct wire_cfg cfg = {.group = w ? team_all(w, codec) : NULL, .codec = codec, .seed = 3};
    struct wire *ret = NULL;

    return wire_new(&cfg, &ret, NULL) == 0 ? ret : NULL;
}

static void without_a_group_no_codec_is_at_work(void **state)
{
    struct wire_cfg cfg = {.codec = "r8"};
    struct wire *w;

    (void)state;
    w = wire_of(NULL, "sdp4bit"); /* alone: nothing to code */
    assert_non_null(w);
    assert_false(wire_coded(w));
    wire_free(w);
    assert_int_equal(wire_new(&cfg, &w, NULL), 0);
    wire_free(w);
    wire_free(NULL);
    assert_false(wire_coded(NULL));
    assert_false(wire_broken_take(NULL));
}

static void alone_nothing_moves(void **state)
{
    float x[2] = {1, 2}, y[2] = {0};
    struct wire *w = wire_of(NULL, "r8");

    (void)state;
    assert_int_equal(wire_all_reduce(NULL, x, 2, NULL), 0);
    assert_int_equal(wire_all_reduce(w, x, 2, NULL), 0);
    assert_true(x[0] == 1 && x[1] == 2);
    assert_int_equal(wire_reduce_scatter(w, x, y, 2, NULL), 0);
    assert_true(y[1] == 2);
    assert_int_equal(wire_all_gather(w, x, 1, sizeof(x[0]), y, NULL), 0);
    assert_true(y[0] == 1 && y[1] == 2);
    wire_free(w);
}

static int travels(struct team *t, struct comm_world *w)
{
    static const char *const words[] = {"none", "r8", "t8"};
    float *x = malloc(N * sizeof(*x)), *y = malloc(2 * N * sizeof(*y));

    (void)t;
    NEED(!wire_of(w, "zip"));
    for (size_t k = 0; k < COUNT(words); k++) {
        struct wire *v = wire_of(w, words[k]);
        int me = comm_rank(w);
        double within = k == 0 ? 0 : k == 1 ? 0.1 : 0.4; /* t8: FP8 and no random signs */

        NEED(v && wire_coded(v) == (k > 0));
        for (size_t i = 0; i < N; i++)
            x[i] = sinf((float)i) + (float)me;
        GOOD(wire_all_reduce(v, x, N, &err));
        for (size_t i = 0; i < N; i++)
            NEED(fabs((double)x[i] - (2 * (double)sinf((float)i) + 1)) <= within + 1e-6);
        for (size_t i = 0; i < N; i++)
            x[i] = (float)me + 1;
        GOOD(wire_all_gather(v, x, N, sizeof(*x), y, &err));
        NEED(fabs((double)y[5] - 1) <= within && fabs((double)y[N + 5] - 2) <= within);
        GOOD(wire_reduce_scatter(v, y, x, N, &err));
        NEED(fabs((double)x[7] - 2 * (me + 1)) <= 2 * within);
        NEED(!wire_broken_take(v));
        wire_free(v);
    }
    free(x);
    free(y);
    return 0;
}

static void sums_and_pieces_arrive_raw_or_coded(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, travels, NULL);
    team_run(2, TEAM_UCX, 0, travels, NULL);
}

static int breaks(struct team *t, struct comm_world *w)
{
    struct wire *v = wire_of(w, "r8");
    float x[512] = {0};

    (void)t;
    x[3] = comm_rank(w) ? INFINITY : 1;
    GOOD(wire_all_reduce(v, x, 512, &err));
    NEED(isfinite(x[3]));
    NEED(wire_broken_take(v) && !wire_broken_take(v));
    wire_free(v);
    return 0;
}

static void what_is_not_finite_is_told_once(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, breaks, NULL);
}

static int tunes(struct team *t, struct comm_world *w)
{
    struct wire *v = wire_of(w, "auto"), *named = wire_of(w, "r8");
    struct wire_times times;
    float *x = calloc(4 * N, sizeof(*x));
    int64_t coded;

    (void)t;
    GOOD(wire_tune(named, WIRE_SUMS, x, 4 * N, &err)); /* a word that says it all stays */
    NEED(wire_coded(named));
    GOOD(wire_tune(v, WIRE_SUMS, x, 4 * N, &err));
    coded = wire_coded(v); /* all decide alike: the sum is 0 or 3 */
    GOOD(comm_all_reduce(team_all(w, "vote"), &coded, 1, COMM_I64, COMM_SUM, &err));
    NEED(coded == 0 || coded == 3);
    GOOD(wire_all_reduce(v, x, 4 * N, &err));
    wire_times_take(v, &times);
    NEED(times.spent_ms > 0 && times.predicted_ms > 0);
    wire_times_take(v, &times);
    NEED(times.spent_ms == 0 && times.predicted_ms == 0);
    wire_free(v);
    wire_free(named);
    free(x);
    return 0;
}

static void auto_decides_alike_on_all_ranks(void **state)
{
    (void)state;
    team_run(3, TEAM_SHM, 0, tunes, NULL);
    team_run(3, TEAM_UCX, 0, tunes, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_group_no_codec_is_at_work), cmocka_unit_test(alone_nothing_moves),
        cmocka_unit_test(sums_and_pieces_arrive_raw_or_coded), cmocka_unit_test(what_is_not_finite_is_told_once),
        cmocka_unit_test(auto_decides_alike_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
