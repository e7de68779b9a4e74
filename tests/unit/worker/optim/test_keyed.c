/* Codecs keyed by tensor: the same values however an arena is cut, and nothing but the tensors touched. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/worker/optim/far_memory.h"
#include "worker/engine/optim/keyed.h"

#define FIRST 5000 /* floats of the first tensor: a short last unit */
#define REST (4 * PARAM_BLOCK)
#define TIED PARAM_BLOCK
#define HEAD (REST + TIED)
#define ALL (HEAD + TIED)

static struct param tensors[] = {
    {.n = FIRST, .id = 0},
    {.n = PARAM_BLOCK, .at = 3 * PARAM_BLOCK, .id = 1},
    {.n = TIED, .at = REST, .id = 2},
};
static const struct params arena = {.v = tensors,
                                    .n = 3,
                                    .tensors = 3,
                                    .rest_n = REST,
                                    .tied_n = TIED,
                                    .grad_head_at = HEAD,
                                    .grad_n = ALL,
                                    .weight_n = HEAD};

static struct keyed *keyed_of(const char *word)
{
    struct keyed *k = NULL;

    assert_int_equal(keyed_new(word, 3, &arena, &k, NULL), 0);
    return k;
}

static void fill(float *x)
{
    for (size_t i = 0; i < ALL; i++)
        x[i] = sinf((float)(i % PARAM_BLOCK) * 0.37f); /* each unit the same */
}

static void a_word_must_say_how_gradients_and_weights_travel(void **state)
{
    static const char *const bad[] = {"none", "r8", "auto", ""};
    struct keyed *k = NULL;
    struct merr err;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_true(keyed_new(bad[i], 3, &arena, &k, &err) < 0);
        assert_null(k);
    }
    keyed_free(NULL);
    assert_false(keyed_broken_take(NULL));
}

static void no_cut_changes_a_bit(void **state)
{
    static const char *const words[] = {"sdp4bit", "g8"};
    static float whole[ALL], parts[ALL], decoded[ALL];

    (void)state;
    for (size_t w = 0; w < COUNT(words); w++) {
        struct keyed *k = keyed_of(words[w]);
        char *units = malloc(keyed_gradient_bytes(k, ALL));

        fill(whole);
        fill(parts);
        (void)keyed_code_leaf(k, 9, 2, whole, 0, ALL, units, NULL);
        for (size_t at = 0; at < ALL; at += 2 * PARAM_BLOCK) /* backwards, as gradients become complete */
            (void)keyed_code_leaf(k, 9, 2, parts, ALL - 2 * PARAM_BLOCK - at, 2 * PARAM_BLOCK, NULL, NULL);
        assert_memory_equal(whole, parts, sizeof(whole));
        for (size_t at = 0; at < ALL; at += PARAM_BLOCK)
            assert_int_equal(
                keyed_decode_leaf(k, units + keyed_gradient_bytes(k, at), at, PARAM_BLOCK, decoded + at, NULL), 0);
        for (size_t i = FIRST; i < 3 * PARAM_BLOCK; i++) {
            assert_true(parts[i] == sinf((float)(i % PARAM_BLOCK) * 0.37f)); /* padding: left alone, and sent as 0 */
            whole[i] = 0;
        }
        assert_memory_equal(whole, decoded, sizeof(whole));
        free(units);
        keyed_free(k);
    }
}

/* Whether unit i of x after coding with step and leaf is what unit j of y is. */
static bool same(uint64_t step, int leaf, size_t i, size_t j)
{
    static float x[ALL], y[ALL];
    struct keyed *k = keyed_of("sdp4bit");

    fill(x);
    fill(y);
    (void)keyed_code_leaf(k, 1, 1, x, 0, ALL, NULL, NULL);
    (void)keyed_code_leaf(k, step, leaf, y, 0, ALL, NULL, NULL);
    keyed_free(k);
    return memcmp(x + i * PARAM_BLOCK, y + j * PARAM_BLOCK, PARAM_BLOCK * sizeof(*x)) == 0;
}

static void rounding_depends_on_tensor_place_step_and_leaf(void **state)
{
    (void)state;
    assert_true(same(1, 1, 0, 0));
    assert_false(same(1, 1, 0, 1)); /* place */
    assert_false(same(1, 1, 0, 3)); /* tensor */
    assert_false(same(1, 1, 4, 5)); /* both parts of a tied tensor's gradient */
    assert_false(same(2, 1, 0, 0));
    assert_false(same(1, 2, 0, 0));
}

static void the_heads_part_is_the_same_on_a_stage_of_its_own(void **state)
{
    static struct param last[] = {{.n = TIED, .id = 2, .copy = true}};
    static const struct params stage = {.v = last, .n = 1, .tensors = 3, .tied_n = TIED, .grad_n = TIED};
    static float one[ALL], other[ALL];
    struct keyed *k = keyed_of("sdp4bit"), *s;

    (void)state;
    assert_int_equal(keyed_new("sdp4bit", 3, &stage, &s, NULL), 0);
    fill(one);
    fill(other);
    (void)keyed_code_leaf(k, 1, 1, one, 0, ALL, NULL, NULL);
    (void)keyed_code_leaf(s, 1, 1, other, 0, TIED, NULL, NULL);
    assert_memory_equal(one + HEAD, other, TIED * sizeof(*one));
    keyed_free(k);
    keyed_free(s);
}

/* A walk of the masters: the distance of the weights stays a part of a step. */
static void weights_follow_their_masters(void **state)
{
    static float master[ALL], weights[ALL], other[ALL];
    struct keyed *k = keyed_of("sdp4bit");
    char *units = malloc(keyed_weight_bytes(k, HEAD));
    double apart = 0;

    (void)state;
    for (int step = 0; step < 30; step++) {
        for (size_t i = 0; i < HEAD; i++)
            master[i] += sinf((float)(i * 31 + (size_t)step * 7919)) * 1e-3f;
        (void)keyed_code_weights(k, (uint64_t)step, master, weights, 0, HEAD, units, NULL);
        assert_int_equal(keyed_move_weights(k, units, weights, 0, HEAD, NULL), 0);
        for (size_t at = 0; at < HEAD; at += PARAM_BLOCK)
            assert_int_equal(keyed_move_weights(k, units + keyed_weight_bytes(k, at), other, at, PARAM_BLOCK, NULL), 0);
        assert_memory_equal(weights, other, HEAD * sizeof(*weights));
    }
    for (size_t i = 0; i < FIRST; i++)
        apart += pow((double)weights[i] - (double)master[i], 2);
    assert_true(sqrt(apart / FIRST) < 0.3 * 1e-3 * 0.71); /* of the root mean square of a step */
    assert_true(weights[FIRST] == 0);                     /* padding */
    free(units);
    keyed_free(k);
}

static void a_unit_that_is_not_good_is_refused(void **state)
{
    static float x[ALL], y[PARAM_BLOCK];
    struct keyed *k = keyed_of("sdp4bit");
    size_t bytes = keyed_gradient_bytes(k, PARAM_BLOCK);
    char *units = malloc(bytes);
    struct merr err;

    (void)state;
    fill(x);
    (void)keyed_code_leaf(k, 1, 1, x, 0, PARAM_BLOCK, units, NULL);
    memset(units + PARAM_BLOCK / 2, 0xff, 4); /* the first scale becomes NaN */
    assert_int_equal(keyed_decode_leaf(k, units, 0, PARAM_BLOCK, y, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "scale"));
    (void)keyed_code_leaf(k, 1, 1, x, 0, PARAM_BLOCK, units, NULL);
    units[bytes - 1] ^= 1; /* the count */
    assert_int_equal(keyed_decode_leaf(k, units, 0, PARAM_BLOCK, y, &err), -EBADMSG);
    (void)keyed_code_weights(k, 1, x, y, 0, PARAM_BLOCK, units, NULL);
    memset(units, 0x88, PARAM_BLOCK / 2); /* a code that no encoder writes */
    assert_int_equal(keyed_move_weights(k, units, x, 0, PARAM_BLOCK, &err), -EBADMSG);
    free(units);
    keyed_free(k);
}

static void what_is_not_finite_is_told_once(void **state)
{
    static float x[ALL];
    struct keyed *k = keyed_of("g8");

    (void)state;
    fill(x);
    x[7] = NAN;
    (void)keyed_code_leaf(k, 1, 1, x, 0, ALL, NULL, NULL);
    assert_true(x[7] == 0);
    assert_true(keyed_broken_take(k));
    assert_false(keyed_broken_take(k));
    keyed_free(k);
}

/* Of a device, in several mebibytes: the bits of the processor's own memory. */
static void arenas_that_only_copies_reach_are_coded_all_the_same(void **state)
{
    enum { N = 300 * PARAM_BLOCK };
    struct param one = {.n = N - 100};
    const struct params large = {.v = &one, .n = 1, .tensors = 1, .rest_n = N, .grad_n = N, .weight_n = N};
    const struct kern_ops far = far_kernels();
    float *near_by[2] = {calloc(N, sizeof(float)), calloc(N, sizeof(float))}, *away[2] = {far_new(), far_new()};
    float *back = malloc(N * sizeof(float));
    struct keyed *k[2];
    char *units[2];

    (void)state;
    for (int i = 0; i < N; i++)
        near_by[0][i] = sinf((float)i * 0.37f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(keyed_new("sdp4bit", 3, &large, &k[i], NULL), 0);
        assert_int_equal(keyed_reach(k[i], i == 0 ? kern_plain() : &far, NULL, NULL), 0);
        units[i] = malloc(keyed_gradient_bytes(k[i], N) + keyed_weight_bytes(k[i], N));
    }
    assert_int_equal(far_copy(NULL, away[0], near_by[0], N * sizeof(float), NULL), 0);
    for (int i = 0; i < 2; i++) {
        float **x = i == 0 ? near_by : away;

        assert_int_equal(keyed_code_leaf(k[i], 5, 1, x[0], 0, N, units[i], NULL), 0);
        assert_int_equal(keyed_code_weights(k[i], 5, x[0], x[1], 0, N, units[i] + keyed_gradient_bytes(k[i], N), NULL),
                         0);
        assert_int_equal(keyed_move_weights(k[i], units[i] + keyed_gradient_bytes(k[i], N), x[1], 0, N, NULL), 0);
    }
    assert_memory_equal(units[0], units[1], keyed_gradient_bytes(k[0], N) + keyed_weight_bytes(k[0], N));
    for (int v = 0; v < 2; v++) {
        assert_int_equal(far_copy(NULL, back, away[v], N * sizeof(float), NULL), 0);
        assert_memory_equal(back, near_by[v], N * sizeof(float));
    }
    for (int i = 0; i < 2; i++) {
        free(units[i]);
        keyed_free(k[i]);
        free(near_by[i]);
    }
    free(back);
    far_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_must_say_how_gradients_and_weights_travel),
        cmocka_unit_test(no_cut_changes_a_bit),
        cmocka_unit_test(rounding_depends_on_tensor_place_step_and_leaf),
        cmocka_unit_test(the_heads_part_is_the_same_on_a_stage_of_its_own),
        cmocka_unit_test(weights_follow_their_masters),
        cmocka_unit_test(a_unit_that_is_not_good_is_refused),
        cmocka_unit_test(what_is_not_finite_is_told_once),
        cmocka_unit_test(arenas_that_only_copies_reach_are_coded_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
