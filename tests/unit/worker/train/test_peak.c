/* What a rank's matrix products reach: products that fail leave nothing behind. */
#include "worker/engine/train/peak.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static int left, calls, fails_at; /* memory that is held; products so far, and the one that fails; 0: none */
static bool sync_fails, slow, types_alike = true;
static int zeros, alike; /* numbers of the products' input */

static int fake_alloc(struct kern_stream *s, size_t bytes, void **ret, struct merr *err)
{
    (void)s;
    (void)err;
    *ret = calloc(1, bytes);
    left++;
    return *ret ? 0 : -ENOMEM;
}

static void fake_free(struct kern_stream *s, void *p)
{
    (void)s;
    free(p);
    left--;
}

static int fake_gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    const uint16_t *a = g->a, *b = g->b;

    (void)s;
    types_alike &= g->c_type == g->type;
    for (int i = 1; i < g->m; i++) {
        zeros += (a[i] & 0x7fff) == 0 || (b[i] & 0x7fff) == 0;
        alike += a[i] == a[i - 1];
    }
    if (slow)
        (void)poll(NULL, 0, calls % 4 == 3 ? 1 : 3); /* a few are fast */
    return ++calls == fails_at ? merr_set(err, -EIO, "the product fails") : 0;
}

static int fake_sync(struct kern_stream *s, struct merr *err)
{
    (void)s;
    return sync_fails ? merr_set(err, -EIO, "the device fails") : 0;
}

static int fake_copy(struct kern_stream *s, void *dst, const void *src, size_t bytes, struct merr *err)
{
    (void)s;
    (void)err;
    (void)memcpy(dst, src, bytes);
    return 0;
}

static const struct kern_ops fake = {
    .copy = fake_copy, .mem_alloc = fake_alloc, .mem_free = fake_free, .gemm = fake_gemm, .stream_sync = fake_sync};

static void a_product_that_fails_is_told_and_gives_its_memory_back(void **state)
{
    static struct job_spec spec;
    struct rank rank = {.k = &fake, .spec = &spec, .run = {.world = 1, .threads = 1}};
    double flops = -1;
    struct merr err;

    (void)state;
    for (fails_at = 1; fails_at <= 3; fails_at++) {
        calls = 0;
        assert_int_equal(peak_measure(&rank, &flops, &err), -EIO);
        assert_int_equal(left, 0);
    }
    fails_at = 0;
    sync_fails = true;
    assert_int_equal(peak_measure(&rank, &flops, &err), -EIO);
    assert_int_equal(left, 0);
    assert_true(flops == -1);
}

/* Zeros are multiplied faster than numbers, a cool GPU works faster than one under load. */
static void a_gpus_rate_is_that_of_the_middle_one_of_products_of_noise(void **state)
{
    static const struct device_ops device;
    static struct job_spec spec = {.train.precision = PRECISION_BF16};
    struct kern_ops gpu = fake;
    struct rank rank = {.k = &gpu, .spec = &spec, .run = {.world = 1, .threads = 1}};
    double flops = 0;
    struct merr err;

    (void)state;
    gpu.device = &device;
    slow = true;
    sync_fails = false;
    calls = zeros = alike = 0;
    assert_int_equal(peak_time(&rank, &flops, &err), 0);
    assert_int_equal(left, 0);
    assert_true(calls > 3 && types_alike);
    assert_int_equal(zeros, 0);
    assert_true(alike < 16 * calls);
    assert_true(flops > 0 && flops < 2.0 * 256 * 256 * 256 / 2.5e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_that_fails_is_told_and_gives_its_memory_back),
        cmocka_unit_test(a_gpus_rate_is_that_of_the_middle_one_of_products_of_noise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
