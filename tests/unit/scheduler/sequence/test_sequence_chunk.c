#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/chunk.h"
#include "tests/unit/scheduler/chunk_pipe.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_those_of_the_golden_example),
        cmocka_unit_test(every_token_is_in_one_chunk_and_no_chunk_too_large),
        cmocka_unit_test(pipelines_have_the_published_bubbles),
        cmocka_unit_test(bad_chunks_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
