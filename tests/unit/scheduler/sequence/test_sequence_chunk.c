#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/chunk.h"
#include "scheduler/sequence/workload.h"

static void chunks_are_those_of_the_golden_example(void **state)
{
    static const int64_t tokens[] = {3, 3, 2, 5, 1, 7, 20, 4, 6, 8};
    static const struct {
        size_t n;
        int64_t sequence, tokens, part[2];
    } want[] = {
        {1, 6, 8, {8, 0}},  {1, 6, 8, {8, 0}},  {1, 6, 4, {4, 0}},  {1, -1, 8, {8, 0}},
        {2, -1, 8, {7, 1}}, {2, -1, 8, {6, 2}}, {2, -1, 8, {5, 3}}, {2, -1, 7, {4, 3}},
    };
    struct chunks c;

    (void)state;
    assert_int_equal(chunks_build(tokens, COUNT(tokens), 8, 1, &c, NULL), 0);
    assert_int_equal(c.n, COUNT(want));
    for (size_t k = 0; k < c.n; k++) {
        assert_int_equal(c.v[k].n, want[k].n);
        assert_int_equal(c.v[k].sequence, want[k].sequence);
        assert_int_equal(c.v[k].tokens, want[k].tokens);
        for (size_t x = 0; x < c.v[k].n; x++)
            assert_int_equal(c.pieces[c.v[k].first + x].tokens, want[k].part[x]);
    }
    assert_int_equal(c.v[2].index, 2);
    assert_int_equal(c.v[2].of, 3);
    assert_int_equal(c.pieces[2].start, 16);
    chunks_clear(&c);
}

static void every_token_is_in_one_chunk_and_no_chunk_too_large(void **state)
{
    static const uint64_t seed = 31;
    unsigned long runs = getenv("MUSTER_TEST_LONG") ? 100000 : 2000;
    uint64_t s = seed;

    (void)state;
    print_message("seed %llu, %lu instances\n", (unsigned long long)seed, runs);
    for (unsigned long i = 0; i < runs; i++) {
        int64_t tokens[100], done[100] = {0}, round = 1 + (int64_t)(seq_random(&s) % 16);
        int64_t z = round * (1 + (int64_t)(seq_random(&s) % 400)), sum = 0;
        size_t n = 1 + seq_random(&s) % COUNT(tokens), dependent = 0;
        struct chunks c;

        for (size_t k = 0; k < n; k++) {
            tokens[k] = 1 + (int64_t)(exp(9 * seq_random_unit(&s)));
            sum += tokens[k] <= z ? (tokens[k] + round - 1) / round * round : 0;
        }
        assert_int_equal(chunks_build(tokens, n, z, round, &c, NULL), 0);
        for (size_t k = 0; k < c.n; k++) {
            int64_t held = 0;

            for (size_t x = c.v[k].first; x < c.v[k].first + c.v[k].n; x++) {
                const struct chunk_piece *p = &c.pieces[x];

                assert_int_equal(p->start, done[p->seq]);
                done[p->seq] += p->tokens;
                held += (p->tokens + round - 1) / round * round;
            }
            assert_true(held <= z);
            if (c.v[k].sequence >= 0) {
                assert_int_equal(c.v[k].n, 1);
                assert_true(tokens[c.v[k].sequence] > z);
                dependent++;
            }
        }
        for (size_t k = 0; k < n; k++)
            assert_int_equal(done[k], tokens[k]);
        /* First fit decreasing: at most 11/9 of the best and a little, and the best is at least the sum. */
        assert_true((double)(c.n - dependent) <= 2.0 * ceil((double)sum / (double)z) + 1);
        chunks_clear(&c);
    }
}

static void traces_keep_the_last_and_recompute_descending(void **state)
{
    static const struct {
        int n, keep;
        const char *trace;
    } t[] = {
        {4, 1, "F0* F1* F2* F3 B3 F2 B2 F1 B1 F0 B0"},
        {4, 2, "F0* F1* F2 F3 B3 B2 F1 B1 F0 B0"},
        {4, 4, "F0 F1 F2 F3 B3 B2 B1 B0"},
        {4, 9, "F0 F1 F2 F3 B3 B2 B1 B0"},
        {1, 1, "F0 B0"},
        {2, 1, "F0* F1 B1 F0 B0"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct chunk_action v[32];
        struct buf out;

        buf_init(&out, 1024);
        chunk_trace_print(v, chunk_trace(t[i].n, t[i].keep, v), &out);
        assert_string_equal(buf_text(&out), t[i].trace);
        buf_clear(&out);
    }
}

/* What a run would find: keys of all before in forward, gradients of all after in backward, activations there. */
static void traces_respect_the_dependencies(void **state)
{
    (void)state;
    for (int n = 1; n <= 12; n++)
        for (int keep = 1; keep <= n + 1; keep++) {
            struct chunk_action v[36];
            size_t count = chunk_trace(n, keep, v);
            int stored = 0, undone = n, held[12] = {0}, alive = 0, most = 0, forwards = 0;

            for (size_t k = 0; k < count; k++) {
                int i = v[k].index;

                if (v[k].step == CHUNK_BACKWARD) {
                    assert_true(held[i] && i == undone - 1);
                    held[i] = 0;
                    undone--;
                    alive--;
                    continue;
                }
                forwards++;
                assert_true(stored >= i && !held[i]);
                stored = v[k].step == CHUNK_FORWARD_AGAIN ? stored : stored + 1;
                assert_int_equal(v[k].step == CHUNK_FORWARD_AGAIN, stored == n && undone < n);
                if (v[k].step != CHUNK_FORWARD_DROP) {
                    held[i] = 1;
                    most = ++alive > most ? alive : most;
                }
            }
            assert_true(undone == 0 && stored == n);
            assert_true(most <= (keep < n ? keep : n)); /* memory follows keep · z */
            assert_int_equal(forwards, n + (n > keep ? n - keep : 0));
        }
}

static struct chunk_unit alone(double s)
{
    return (struct chunk_unit){.forward_s = s, .backward_s = 2 * s, .group = -1, .of = 1};
}

/* Four stages, sequences of 1, 1, 2 and 4 units, a backward of two forwards. */
static void pipelines_have_the_published_bubbles(void **state)
{
    struct chunk_unit equal[] = {alone(2), alone(2), alone(2), alone(2)};
    struct chunk_unit plain[] = {alone(4), alone(1), alone(2), alone(1)};
    struct chunk_unit chunks[] = {alone(2), alone(2), {2, 4, 0, 0, 2}, {2, 4, 0, 1, 2}};
    struct chunk_unit large[] = {alone(4), alone(4)};
    double t;

    (void)state;
    assert_int_equal(chunk_pipe(equal, 4, 4, 1, &t, NULL), 0);
    assert_true(t == 42); /* bubble 3/7 */
    assert_int_equal(chunk_pipe(plain, 4, 4, 1, &t, NULL), 0);
    assert_true(t == 56); /* 57.14 % */
    assert_int_equal(chunk_pipe(chunks, 4, 4, 2, &t, NULL), 0);
    assert_true(t == 46); /* 47.8 % */
    assert_int_equal(chunk_pipe(chunks, 4, 4, 1, &t, NULL), 0);
    assert_true(t > 46 && t <= 66); /* a second forward */
    assert_int_equal(chunk_pipe(large, 2, 4, 1, &t, NULL), 0);
    assert_true(t == 60); /* 60 % */
}

static void no_pipeline_beats_its_bound(void **state)
{
    static const uint64_t seed = 8;
    uint64_t s = seed;

    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 2000; i++) {
        struct chunk_unit u[40];
        int stages = 1 + (int)(seq_random(&s) % 6), keep = 1 + (int)(seq_random(&s) % 4), groups = 0;
        size_t n = 0, want = 1 + seq_random(&s) % 30;
        double t, sum = 0;

        while (n < want) {
            int of = 1 + (int)(seq_random(&s) % 6), group = of > 1 ? groups++ : -1;

            for (int k = 0; k < of; k++) {
                double f = 0.5 + seq_random_unit(&s);

                sum += 3 * f + (k < of - keep ? f : 0);
                u[n++] = (struct chunk_unit){f, 2 * f, group, k, of};
            }
        }
        assert_int_equal(chunk_pipe(u, n, stages, keep, &t, NULL), 0);
        assert_true(t >= chunk_pipe_bound(u, n, stages) * (1 - 1e-12) && t >= sum * (1 - 1e-12));
        if (stages == 1)
            assert_true(fabs(t / sum - 1) < 1e-12);
    }
}

static void without_a_pipeline_the_largest_chunk_wins(void **state)
{
    static const int64_t sizes[] = {2048, 4096, 8192, 16384, 32768};
    static const struct seq_model model = {.hidden = 3584, .kv_hidden = 512, .layers = 28};
    int64_t tokens[64];
    struct chunk_choice best;
    struct seq_cost c;
    struct merr err;

    (void)state;
    seq_cost_reference(&c, &model);
    (void)seq_workload_draw(seq_workload_find("lmsys", NULL), 9, 262144, tokens, 64);
    assert_int_equal(chunk_choose(tokens, 64, &c, 1, 16384, sizes, COUNT(sizes), 8, &best, NULL), 0);
    assert_int_equal(best.z, 16384);
    assert_int_equal(best.keep, 1);
    assert_int_equal(chunk_choose(tokens, 64, &c, 4, 32768, sizes, COUNT(sizes), 16, &best, NULL), 0);
    assert_true(best.z * best.keep <= 32768 && best.z < 32768); /* the largest leaves bubbles */
    assert_int_equal(chunk_choose(tokens, 64, &c, 1, 1024, sizes, COUNT(sizes), 8, &best, &err), -ENOSPC);
    assert_int_equal(chunk_choose(tokens, 64, &c, 0, 1024, sizes, COUNT(sizes), 8, &best, &err), -EINVAL);
}

static void bad_chunks_are_refused(void **state)
{
    static const int64_t fine[] = {5}, empty[] = {5, 0}, huge[] = {(int64_t)1 << 31};
    struct chunks c;
    struct merr err;

    (void)state;
    assert_int_equal(chunks_build(fine, 1, 0, 1, &c, &err), -EINVAL);
    assert_int_equal(chunks_build(fine, 1, 6, 4, &c, &err), -EINVAL);
    assert_int_equal(chunks_build(empty, 2, 8, 1, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "sequence 1"));
    assert_int_equal(chunks_build(huge, 1, 1, 1, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "larger"));
}

static void peak_memory_follows_the_chunk(void **state)
{
    static const struct seq_line line = {.slope = 3e6, .base = 1e9};
    double near = chunk_peak_bytes(&line, 8192, 1, 32768, 57344.0 / 4), far;

    (void)state;
    far = chunk_peak_bytes(&line, 8192, 1, 262144, 57344.0 / 4);
    assert_true(far - near < 8e9 && far / near < 1.3); /* eight times the sequence */
    assert_true(chunk_peak_bytes(&line, 8192, 4, 32768, 0) == 1e9 + 4 * 8192 * 3e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_those_of_the_golden_example),
        cmocka_unit_test(every_token_is_in_one_chunk_and_no_chunk_too_large),
        cmocka_unit_test(traces_keep_the_last_and_recompute_descending),
        cmocka_unit_test(traces_respect_the_dependencies),
        cmocka_unit_test(pipelines_have_the_published_bubbles),
        cmocka_unit_test(no_pipeline_beats_its_bound),
        cmocka_unit_test(without_a_pipeline_the_largest_chunk_wins),
        cmocka_unit_test(bad_chunks_are_refused),
        cmocka_unit_test(peak_memory_follows_the_chunk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
