/* What a rank's matrix products reach: products that fail leave nothing behind. */
#include "worker/engine/train/peak.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>

static int left, calls, fails_at; /* memory that is held; products so far, and the one that fails; 0: none */
static bool sync_fails;

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
    (void)s;
    (void)g;
    return ++calls == fails_at ? merr_set(err, -EIO, "the product fails") : 0;
}

static int fake_sync(struct kern_stream *s, struct merr *err)
{
    (void)s;
    return sync_fails ? merr_set(err, -EIO, "the device fails") : 0;
}

static const struct kern_ops fake = {
    .mem_alloc = fake_alloc, .mem_free = fake_free, .gemm = fake_gemm, .stream_sync = fake_sync};

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_that_fails_is_told_and_gives_its_memory_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
