#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "worker/engine/train/fit.h"

#define GIB (UINT64_C(1) << 30)

static void what_does_not_fit_is_said_with_what_would_help(void **state)
{
    static const struct {
        struct fit need;
        int ranks;
        struct capacity have;
        int code;
        const char *words[3];
    } t[] = {
        {{GIB, GIB, 2 * GIB, GIB, GIB, 0}, 1, {5 * GIB, 8 * GIB}, 0, {""}},
        {{GIB, GIB, 2 * GIB, GIB + 1, GIB + 1, 0},
         1,
         {5 * GIB, 8 * GIB},
         -ENOMEM,
         {"0.00 GiB too little", "5.00 GiB free", "more tp"}},
        {{GIB, GIB, GIB, 3 * GIB, 3 * GIB, 0},
         1,
         {5 * GIB, 8 * GIB},
         -ENOMEM,
         {"1.00 GiB too little", "activations 3.00", "free; a smaller train.batch.micro"}},
        {{GIB, GIB, GIB, 3 * GIB, 2 * GIB, 0},
         1,
         {5 * GIB, 8 * GIB},
         -ENOMEM,
         {"1.00 GiB too little", "recompute 'full', which would be enough"}},
        {{GIB, GIB, 3 * GIB, GIB, GIB / 2, 0},
         2,
         {11 * GIB, 16 * GIB},
         -ENOMEM,
         {"1.00 GiB too little", "recompute 'full', which would be enough"}},
        {{GIB, GIB, GIB, 3 * GIB, 2 * GIB, 0},
         1,
         {4 * GIB, 8 * GIB},
         -ENOMEM,
         {"2.00 GiB too little", "recompute 'full' and a smaller"}},
        {{GIB, 3 * GIB, GIB, GIB, GIB, 0},
         2,
         {5 * GIB, 8 * GIB},
         -EINVAL,
         {"4.00 GiB too little", "2 ranks", "virtual_workers"}},
        {{GIB, GIB, 2 * GIB, GIB, GIB, 0}, 3, {15 * GIB, 16 * GIB}, 0, {""}},
        {{GIB, GIB, GIB, GIB, GIB, GIB + 1}, 1, {5 * GIB, 8 * GIB}, -ENOMEM, {"0.00 GiB too little", "rest 1.00"}},
        {{9 * GIB, 0, 0, 0, 0, 0}, 4, {0, 0}, 0, {""}}, /* nobody knows what there is */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct merr err = {""};

        assert_int_equal(fit_check(&t[i].need, t[i].ranks, &t[i].have, "this node", &err), t[i].code);
        for (size_t k = 0; k < 3 && t[i].words[k]; k++)
            if (!strstr(err.text, t[i].words[k]))
                fail_msg("'%s' does not say '%s'", err.text, t[i].words[k]);
    }
}

static void a_gpu_is_named_where_it_is_the_one_that_is_too_small(void **state)
{
    struct fit need = {.weights = GIB, .rest = FIT_GPU_BYTES};
    struct capacity have = {.free = GIB, .total = 2 * GIB};
    struct merr err = {""};

    (void)state;
    assert_int_equal(fit_check(&need, 1, &have, "its GPU", &err), -ENOMEM);
    assert_non_null(strstr(err.text, "0.12 GiB too little"));
    assert_non_null(strstr(err.text, "and its GPU has 1.00 GiB free"));
}

/* GPT-2 124M in bf16, 32768 tokens at once, whose sums of 3072 outputs wait for their bias in f32: 384 MiB and half of
 * it again; and eight replicas. */
static void a_gpus_workspace_and_libraries_are_counted(void **state)
{
    uint64_t rest = fit_gpu_rest(32768 * 3072, 1 + 2 * 7);

    (void)state;
    assert_int_equal(rest >> 20, 128 + 192 + 576 + 15 * 64);
}

static void a_gpu_makes_logits_of_as_many_tokens_as_its_memory_has_room_for(void **state)
{
    const uint64_t h200 = 141 * GIB, a10 = 22 * GIB;

    (void)state;
    assert_int_equal(fit_head_rows(h200, 50304), 8192);
    assert_int_equal(fit_head_rows(h200, 128256), 4096);
    assert_int_equal(fit_head_rows(a10, 50304), 1024);
    assert_int_equal(fit_head_rows(a10, 128256), 512);
    assert_int_equal(fit_head_rows(0, 1 << 30), 512); /* never fewer than on processors */
    assert_int_equal(fit_head_rows(h200, 1), 65536);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_said_with_what_would_help),
        cmocka_unit_test(a_gpu_is_named_where_it_is_the_one_that_is_too_small),
        cmocka_unit_test(a_gpus_workspace_and_libraries_are_counted),
        cmocka_unit_test(a_gpu_makes_logits_of_as_many_tokens_as_its_memory_has_room_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
