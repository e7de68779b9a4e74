#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "scheduler/plan/schedule.h"
#include "tests/unit/scheduler/chunk_pipe.h"
#include "scheduler/sequence/workload.h"

static const struct schedule_times even = {.f = 1, .i = 1, .w = 1};

static const struct {
    enum schedule_kind kind;
    int chunks_max;
} kinds[] = {
    {SCHEDULE_1F1B, 4},
    {SCHEDULE_ZB_H1, 4},
    {SCHEDULE_GPIPE, 1},
    {SCHEDULE_FORWARD, 4},
};

/* The makespan of the literature with F = I = W = 1 a chunk, B = 2; 0: it says nothing of so few micro-batches. */
static int makespan(enum schedule_kind kind, int p, int v, int m)
{
    switch (kind) {
    case SCHEDULE_1F1B:
        return v == 1 || m >= p ? 3 * m * v + 3 * (p - 1) : 0;
    case SCHEDULE_ZB_H1:
        return m >= p ? 3 * m * v + p - 1 : 0;
    case SCHEDULE_GPIPE:
        return 3 * (m + p - 1);
    case SCHEDULE_FORWARD:
        return m >= p ? m * v + p - 1 : 0;
    }
    return 0;
}

static void check_schedule(enum schedule_kind kind, int p, int v, int m)
{
    int want = makespan(kind, p, v, m), busy = (kind == SCHEDULE_FORWARD ? 1 : 3) * m * v;
    struct schedule *s;
    double span;

    assert_int_equal(schedule_new(kind, p, v, m, &s, NULL), 0);
    assert_int_equal(schedule_check(s, NULL), 0);
    assert_int_equal(schedule_simulate(s, &even, 1, &span, NULL), 0);
    if (want > 0 ? span != want : span < busy || span > 3 * (m + p * v - 1))
        fail_msg("kind %d, %d ranks, %d chunks, %d micro-batches: span %g, want %d", kind, p, v, m, span, want);
    schedule_free(s);
}

/* With MUSTER_TEST_LONG all that the claim is made for; else rows and columns of it. */
static void every_schedule_is_whole_runs_on_channels_that_hold_nothing_and_idles_as_computed(void **state)
{
    bool all = getenv("MUSTER_TEST_LONG") != NULL;
    int most = all ? 64 : 16;

    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int p = 1; p <= 8; p++)
            for (int v = 1, v_max = kinds[k].chunks_max > 1 ? kinds[k].chunks_max + 4 * all : 1;
                 v <= (p > 1 ? v_max : 1); v++)
                for (int m = 1; m <= most; m++)
                    check_schedule(kinds[k].kind, p, v, m);
}

/* Times of stages that differ change when things are done, never whether. */
static void uneven_times_delay_but_never_hang(void **state)
{
    static const struct schedule_times times[] = {
        {.f = 1, .i = 1.15, .w = 0.95}, {.f = 1, .i = 0, .w = 3}, {.f = 0.1, .i = 5, .w = 0.1}};

    (void)state;
    for (size_t t = 0; t < COUNT(times); t++)
        for (size_t k = 0; k < 2; k++)
            for (int v = 1; v <= 3; v++) {
                double busy = 16 * v * (times[t].f + times[t].i + times[t].w), span;
                struct schedule *s;

                assert_int_equal(schedule_new(kinds[k].kind, 4, v, 16, &s, NULL), 0);
                assert_int_equal(schedule_simulate(s, &times[t], 1, &span, NULL), 0);
                assert_true(span > busy - 1e-9 && span < 2 * busy);
                schedule_free(s);
            }
}

/* Pipette 2024: with messages of time h a round trip is exposed once for each group of p micro-batches; the slowest
 * stage sets the pace. */
static void slow_stages_and_messages_take_the_time_that_is_known(void **state)
{
    static const struct {
        struct schedule_times t[2];
        int m;
        double want;
    } c[] = {
        {{{.f = 1, .i = 1, .w = 1}, {.f = 2, .i = 2, .w = 2}}, 4, 1 + 4 * 6 + 2}, /* fill, the slow stage, drain */
        {{{.f = 2, .i = 2, .w = 2}, {.f = 1, .i = 1, .w = 1}}, 4, 4 * 6 + 1},     /* it waits once */
        {{{.f = 1, .i = 1, .w = 1, .hop = 0.5}, {.f = 1, .i = 1, .w = 1}}, 1, 2 * 3 + 2 * 0.5},
        {{{.f = 1, .i = 1, .w = 1, .hop = 10}, {.f = 1, .i = 1, .w = 1}}, 4, 2 * (2 * 3 + 2 * 10) + 3},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(c); i++) {
        struct schedule *s;
        double span;

        assert_int_equal(schedule_new(SCHEDULE_1F1B, 2, 1, c[i].m, &s, NULL), 0);
        assert_int_equal(schedule_simulate(s, c[i].t, 2, &span, NULL), 0);
        if (fabs(span - c[i].want) > 1e-9)
            fail_msg("case %zu: span %g, want %g", i, span, c[i].want);
        schedule_free(s);
    }
}

/* Activations of one rank's layers: p - r, (v (p + 1) - 1) / v ... in whole chunks, and what may be arriving. */
static void memory_is_what_the_schedule_promises(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 32; m++) {
            struct schedule *s;

            assert_int_equal(schedule_new(SCHEDULE_1F1B, p, 1, m, &s, NULL), 0);
            for (int r = 0; r < p; r++) {
                int most = schedule_slots(s, r, 0), depth = p - r < m ? p - r : m;

                assert_in_range(most, depth, depth + 1);
            }
            schedule_free(s);
            assert_int_equal(schedule_new(SCHEDULE_ZB_H1, p, 1, m, &s, NULL), 0);
            for (int r = 0; r < p; r++)
                assert_in_range(schedule_slots(s, r, 0), p < m ? p : m, (p < m ? p : m) + 1);
            schedule_free(s);
            assert_int_equal(schedule_new(SCHEDULE_GPIPE, p, 1, m, &s, NULL), 0);
            assert_int_equal(schedule_slots(s, 0, 0), m);
            schedule_free(s);
        }
    for (int p = 2; p <= 8; p++)
        for (int v = 2; v <= 4; v++) {
            struct schedule *s;
            int all = 0;

            assert_int_equal(schedule_new(SCHEDULE_1F1B, p, v, 4 * p, &s, NULL), 0);
            for (int c = 0; c < v; c++)
                all += schedule_slots(s, 0, c);
            /* each chunk's own peak, not all at one time: at most a round more than (v + 1) p - 1 */
            assert_in_range(all, (v + 1) * p - 1, (v + 2) * p + v);
            schedule_free(s);
        }
}

static void a_worked_example_prints_as_expected(void **state)
{
    static const struct {
        enum schedule_kind kind;
        int p, v, m;
        const char *want;
    } t[] = {
        {SCHEDULE_1F1B, 2, 1, 3,
         "r0: 0F0 0SF0 0F1 0SF1 0RB0 0B0 0F2 0SF2 0RB1 0B1 0RB2 0B2\n"
         "r1: 1RF0 1F0 1RF1 1B0 1SB0 1F1 1RF2 1B1 1SB1 1F2 1B2 1SB2\n"},
        {SCHEDULE_1F1B, 2, 2, 4, /* the messages left out */
         "r0: 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
         "r1: 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n"},
        {SCHEDULE_ZB_H1, 4, 1, 8,
         "r0: 0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0F6 0I3 0W3 0F7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7\n"
         "r1: 1F0 1F1 1F2 1I0 1F3 1I1 1W0 1F4 1I2 1W1 1F5 1I3 1W2 1F6 1I4 1W3 1F7 1I5 1W4 1I6 1W5 1I7 1W6 1W7\n"
         "r2: 2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2F5 2I4 2W2 2F6 2I5 2W3 2F7 2I6 2W4 2I7 2W5 2W6 2W7\n"
         "r3: 3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 3W5 3W6 3W7\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct schedule *s;
        struct buf b;

        assert_int_equal(schedule_new(t[i].kind, t[i].p, t[i].v, t[i].m, &s, NULL), 0);
        for (int r = 0; i > 0 && r < s->ranks; r++) {
            struct action_list *l = &s->rank[r];
            size_t n = 0;

            for (size_t k = 0; k < l->n; k++)
                if (l->v[k].op < ACT_SF)
                    l->v[n++] = l->v[k];
            l->n = n;
        }
        buf_init(&b, 4096);
        schedule_print(s, &b);
        assert_string_equal(buf_text(&b), t[i].want);
        buf_clear(&b);
        schedule_free(s);
    }
}

static void broken_lists_are_found(void **state)
{
    static const struct {
        int rank, action, code;
        enum act_op op;
        int micro;
    } t[] = {
        {1, 1, -EPROTO, ACT_B, 0},   /* backward before forward */
        {1, 1, -EPROTO, ACT_W, 0},   /* weights before input */
        {0, 5, -EPROTO, ACT_I, 0},   /* input without weights */
        {0, 0, -EPROTO, ACT_F, 1},   /* out of order */
        {0, 0, -EPROTO, ACT_F, 99},  /* no such micro-batch */
        {1, 0, -EDEADLK, ACT_RF, 1}, /* waits for a message nobody sends next */
        {0, 1, -EDEADLK, ACT_SB, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct schedule *s;
        struct action *a;
        double span;
        int code;

        assert_int_equal(schedule_new(SCHEDULE_1F1B, 2, 1, 3, &s, NULL), 0);
        a = &s->rank[t[i].rank].v[t[i].action];
        a->op = (uint8_t)t[i].op;
        a->micro = t[i].micro;
        code = schedule_check(s, NULL);
        if (code == 0)
            code = schedule_simulate(s, &even, 1, &span, NULL);
        assert_int_equal(code, t[i].code);
        schedule_free(s);
    }
}

static void sizes_out_of_range_are_refused(void **state)
{
    static const int t[][3] = {
        {0, 1, 1},
        {1, 1, 0},
        {-1, 1, 4},
        {SCHEDULE_RANKS_MAX + 1, 1, 1},
        {1, 1, SCHEDULE_MICROS_MAX + 1},
        {2, 0, 1},
        {2, SCHEDULE_CHUNKS_MAX + 1, 1},
        {1, 2, 4},
        {2, SCHEDULE_CHUNKS_MAX, SCHEDULE_MICROS_MAX},
    };
    struct schedule *s = NULL;

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        assert_int_equal(schedule_new(SCHEDULE_1F1B, t[i][0], t[i][1], t[i][2], &s, NULL), -EINVAL);
    assert_null(s);
}

/* --- sequences in pieces ------------------------------------------------------------------------------------- */

/* Sequences of 1 to 6 pieces and documents between them, from a seed; how many micro-batches. */
static int draw_pieces(uint64_t *seed, int32_t sequence[32], struct chunk_unit unit[32])
{
    int n = 0, all = 1 + (int)(seq_random(seed) % 32);

    for (int s = 0; n < all; s++) {
        int length = (int)(seq_random(seed) % 7);

        for (int i = 0; i < (length ? length : 1) && n < all; i++, n++) {
            sequence[n] = length ? s : -1;
            unit[n] = (struct chunk_unit){.forward_s = 1, .backward_s = 2, .group = sequence[n]};
        }
    }
    return n;
}

/* Slots and activations in use, counted from the list itself. */
static void count_in_use(const struct schedule *s, int rank, const bool *drop)
{
    bool slot[32] = {false}, body[32] = {false};
    int slots = schedule_slots(s, rank, 0), bodies = schedule_bodies(s, rank, drop);

    for (size_t i = 0; i < s->rank[rank].n; i++) {
        const struct action *a = &s->rank[rank].v[i];
        int at = a->micro % slots, held = 0;

        if (a->op == (rank > 0 ? ACT_RF : ACT_F)) {
            assert_false(slot[at]);
            slot[at] = true;
        }
        if (a->op == ACT_F || a->op == ACT_B)
            body[a->micro] = true;
        for (int m = 0; m < s->micros; m++)
            held += body[m];
        assert_in_range(held, 0, bodies);
        if (a->op == ACT_B || (a->op == ACT_F && drop[a->micro]))
            body[a->micro] = false;
        if (a->op == ACT_B)
            slot[at] = false;
    }
}

static void pieces_go_back_from_the_last_in_the_time_that_is_planned(void **state)
{
    uint64_t seed = 4711;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        int ranks = 1 + i % 6, micros;
        int32_t sequence[32];
        struct chunk_unit unit[32];
        struct schedule *s;
        double span, planned;
        bool drop[32];

        micros = draw_pieces(&seed, sequence, unit);
        assert_int_equal(schedule_new_pieces(ranks, micros, sequence, &s, NULL), 0);
        assert_int_equal(schedule_simulate(s, &even, 1, &span, NULL), 0);
        assert_int_equal(chunk_pipe(unit, (size_t)micros, ranks, 32, &planned, NULL), 0);
        if (span != planned)
            fail_msg("instance %d (seed 4711): %g, planned %g", i, span, planned);
        for (int k = 0; k + 1 < micros; k++)
            if (sequence[k] >= 0 && sequence[k] == sequence[k + 1])
                assert_int_equal(s->turn[k], s->turn[k + 1] + 1);
        for (int k = 0; k < micros; k++)
            drop[k] = sequence[k] >= 0 && k + 1 < micros && sequence[k + 1] == sequence[k];
        for (int r = 0; r < ranks; r++)
            count_in_use(s, r, drop);
        schedule_free(s);
    }
}

static void pieces_of_one_rank_follow_the_published_trace(void **state)
{
    static const int32_t sequence[] = {0, 0, 0, 0, -1};
    static const bool drop[] = {true, true, true, false, false};
    struct schedule *s;
    struct buf b;

    (void)state;
    buf_init(&b, 1024);
    assert_int_equal(schedule_new_pieces(1, COUNT(sequence), sequence, &s, NULL), 0);
    schedule_print(s, &b);
    assert_string_equal(buf_text(&b), "r0: 0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0 0F4 0B4\n");
    assert_int_equal(schedule_slots(s, 0, 0), 4);
    assert_int_equal(schedule_bodies(s, 0, drop), 1);
    schedule_free(s);
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_is_whole_runs_on_channels_that_hold_nothing_and_idles_as_computed),
        cmocka_unit_test(uneven_times_delay_but_never_hang),
        cmocka_unit_test(slow_stages_and_messages_take_the_time_that_is_known),
        cmocka_unit_test(memory_is_what_the_schedule_promises),
        cmocka_unit_test(a_worked_example_prints_as_expected),
        cmocka_unit_test(broken_lists_are_found),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(pieces_go_back_from_the_last_in_the_time_that_is_planned),
        cmocka_unit_test(pieces_of_one_rank_follow_the_published_trace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
