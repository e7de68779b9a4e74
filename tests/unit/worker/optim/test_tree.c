#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/plan/layout.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/optim/tree.h"

#define N 5
#define LEAVES_MAX 17
#define DP_MAX 8

static float leaf_value(int leaf, int i)
{
    static const float mixed[] = {1e8f, -3.25f, 1e-6f, 0.1f, -1e8f, 7.0f, 1.0f / 3};

    return mixed[(leaf * 5 + i * 3) % 7] * (float)(leaf + 1);
}

/* The definition, without any cleverness. */
static float plain(int leaves, int lo, int size, int i)
{
    if (size == 1)
        return leaf_value(lo, i);
    if (lo + size / 2 >= leaves)
        return plain(leaves, lo, size / 2, i);
    return plain(leaves, lo, size / 2, i) + plain(leaves, lo + size / 2, size / 2, i);
}

static int root(int leaves)
{
    int size = 1;

    while (size < leaves)
        size *= 2;
    return size;
}

struct replica {
    struct tree t;
    float *pool[TREE_PARTIALS_MAX];
};

static void run_replica(struct replica *r, const struct kern_ops *k, struct kern_stream *s, int begin, int end)
{
    for (int i = 0; i < tree_buffers(begin, end); i++)
        r->pool[i] = calloc(N, sizeof(float));
    assert_int_equal(tree_init(&r->t, k, s, begin, end, r->pool, &(struct tree_span){0, N}, 1, NULL), 0);
    for (int leaf = begin; leaf < end; leaf++) {
        float *g, *last[TREE_PARTIALS_MAX];
        int n = 0;

        assert_int_equal(tree_leaf(&r->t, leaf, &g, NULL), 0);
        for (int i = 0; i < N; i++) {
            assert_true(g[i] == 0);
            g[i] += leaf_value(leaf, i);
        }
        for (int from = N - 1; leaf % 2 && from > 0; from -= 2) /* the end of a buffer before its beginning */
            assert_int_equal(tree_push_from(&r->t, from, NULL), 0);
        if (leaf == end - 1)
            n = tree_last(&r->t, last);
        assert_int_equal(tree_push(&r->t, NULL), 0);
        for (int i = 0; i < n; i++)
            assert_ptr_equal(last[i], r->pool[r->t.at[i]]);
        assert_true(n == 0 || n == r->t.nodes);
    }
}

static void free_replica(struct replica *r)
{
    for (int i = 0; i < r->t.buffers; i++)
        free(r->pool[i]);
    tree_clear(&r->t);
}

static void any_number_of_replicas_gives_the_bits_of_the_definition(void **state)
{
    const struct kern_ops *k = kern_plain();
    struct kern_cfg cfg = {.threads = 1};
    struct kern_stream *s;

    (void)state;
    assert_int_equal(k->stream_new(&cfg, &s, NULL), 0);
    for (int v = 1; v <= LEAVES_MAX; v++)
        for (int d = 1; d <= DP_MAX && d <= v; d++) {
            struct replica r[DP_MAX];
            struct tree_node node[LEAVES_MAX];
            float *value[LEAVES_MAX], *sum = NULL;
            int n = 0;

            for (int i = 0; i < d; i++) {
                int begin, end;

                plan_leaves(v, d, i, &begin, &end);
                run_replica(&r[i], k, s, begin, end);
                for (int p = 0; p < r[i].t.nodes; p++) {
                    node[n] = r[i].t.node[p];
                    value[n++] = r[i].pool[r[i].t.at[p]];
                }
            }
            assert_int_equal(tree_finish(k, s, v, node, value, n, N, &sum, NULL), 0);
            for (int i = 0; i < N; i++) {
                float want = plain(v, 0, root(v), i);

                assert_memory_equal(&sum[i], &want, sizeof(want));
            }
            for (int i = 0; i < d; i++)
                free_replica(&r[i]);
        }
    k->stream_free(s);
}

static void a_replica_keeps_few_buffers_however_many_leaves_it_has(void **state)
{
    (void)state;
    for (int v = 1; v <= 256; v++)
        for (int begin = 0; begin < v; begin += 1 + begin / 8) {
            int log = 0;

            while (1 << log < v)
                log++;
            assert_true(tree_buffers(begin, v) <= 2 * log + 1);
        }
    assert_int_equal(tree_buffers(0, 1), 1);
    assert_int_equal(tree_buffers(0, 8), 4);
}

static void a_leaf_that_is_missing_or_there_twice_is_found(void **state)
{
    static const struct {
        int leaves, n;
        struct tree_node node[4];
    } t[] = {
        {4, 1, {{0, 2}}},
        {4, 2, {{0, 2}, {3, 1}}},
        {4, 3, {{0, 2}, {0, 2}, {2, 2}}},
        {4, 3, {{0, 2}, {2, 2}, {2, 2}}},
        {4, 2, {{0, 4}, {2, 2}}},
        {4, 1, {{2, 2}}},
    };
    const struct kern_ops *k = kern_plain();
    float a[4] = {0};
    float *value[4] = {&a[0], &a[1], &a[2], &a[3]}, *sum = NULL;
    struct kern_cfg cfg = {.threads = 1};
    struct kern_stream *s;

    (void)state;
    assert_int_equal(k->stream_new(&cfg, &s, NULL), 0);
    for (size_t i = 0; i < COUNT(t); i++)
        assert_int_equal(tree_finish(k, s, t[i].leaves, t[i].node, value, t[i].n, 1, &sum, NULL), -EPROTO);
    assert_null(sum);
    k->stream_free(s);
}

static void doubles_are_summed_along_the_same_tree(void **state)
{
    (void)state;
    for (int v = 1; v <= LEAVES_MAX; v++) {
        double x[LEAVES_MAX], want[LEAVES_MAX];

        for (int i = 0; i < v; i++)
            x[i] = want[i] = (double)leaf_value(i, 0) * (1.0 / 3);
        for (int size = 1; size < root(v); size *= 2)
            for (int lo = 0; lo + size < v; lo += 2 * size)
                want[lo] = want[lo] + want[lo + size];
        assert_true(tree_sum(x, v) == want[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_replicas_gives_the_bits_of_the_definition),
        cmocka_unit_test(a_replica_keeps_few_buffers_however_many_leaves_it_has),
        cmocka_unit_test(a_leaf_that_is_missing_or_there_twice_is_found),
        cmocka_unit_test(doubles_are_summed_along_the_same_tree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
