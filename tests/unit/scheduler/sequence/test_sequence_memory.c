#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/chunk.h"
#include "scheduler/sequence/mimose.h"
#include "scheduler/sequence/plan.h"

/* Every allocation of the code under test goes through these: the countdown-th fails. */
static int countdown;
static int hit;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static int lost(void)
{
    if (countdown == 0 || --countdown > 0)
        return 0;
    hit = 1;
    return 1;
}

void *__wrap_malloc(size_t size)
{
    return lost() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return lost() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return lost() ? NULL : __real_realloc(p, size);
}

static void lose(int n)
{
    countdown = n;
    hit = 0;
}

static void each_policy_survives_each_lost_allocation(void **state)
{
    static const int64_t tokens[] = {900, 20, 3000, 44, 44, 1, 700, 2500, 13, 90};
    struct seq_config c = {.replicas = 2,
                           .ranks = 2,
                           .capacity = 2048,
                           .micro = 2,
                           .keep_chunks = 2,
                           .cost = {.lin_s = 1, .quad_s = 0.01, .half_tokens = 16, .forward_share = 1.0 / 3}};
    struct seq_batch b = {.tokens = tokens, .n = COUNT(tokens)};

    (void)state;
    for (int policy = 0; policy < SEQ_POLICIES; policy++) {
        int n = 0;

        c.policy = (enum seq_policy)policy;
        do {
            struct seq_plan p = {.n = 77};
            struct merr err;
            int rc;

            lose(++n);
            rc = seq_plan_make(&c, &b, &p, &err);
            countdown = 0;
            if (hit) {
                assert_int_equal(rc, -ENOMEM);
                assert_int_equal(p.n, 77);
                assert_non_null(strstr(err.text, "no memory"));
                continue;
            }
            assert_int_equal(rc, 0);
            assert_true(n > 4); /* some were lost before */
            lose(1);
            assert_int_equal(seq_plan_check(&p, &b, NULL), -ENOMEM);
            lose(0);
            assert_int_equal(seq_plan_check(&p, &b, NULL), 0);
            seq_plan_clear(&p);
        } while (hit);
    }
}

static void chunks_survive_each_lost_allocation(void **state)
{
    static const int64_t tokens[] = {9, 2, 30, 4, 4, 1};
    int n = 0;

    (void)state;
    do {
        struct chunks c = {.n = 77};
        int rc;

        lose(++n);
        rc = chunks_build(tokens, COUNT(tokens), 4, 1, &c, NULL);
        countdown = 0;
        assert_int_equal(rc, hit ? -ENOMEM : 0);
        assert_int_equal(c.n == 77, hit);
        if (rc == 0)
            chunks_clear(&c);
    } while (hit);
    assert_true(n > 2);
}

static void the_model_survives_each_lost_allocation(void **state)
{
    static const double bytes[] = {4, 4, 4, 4};
    int n = 0;

    (void)state;
    do {
        struct mimose *m = NULL;
        int rc;

        lose(++n);
        rc = mimose_new(4, 12, 0, &m, NULL);
        countdown = 0;
        assert_int_equal(rc, hit ? -ENOMEM : 0);
        assert_int_equal(m == NULL, hit);
        for (int64_t i = 1; m && i <= MIMOSE_SAMPLES_MIN; i++)
            assert_int_equal(mimose_sample(m, i, bytes, 16, NULL), 0);
        if (m) { /* without memory to keep smaller plans, all are dropped: made anew, still right */
            struct mimose_plan p;

            assert_int_equal(mimose_plan(m, 8, &p, NULL), 0);
            lose(1);
            mimose_overflow(m, 100);
            countdown = 0;
            assert_true(hit);
            hit = 0;
            assert_int_equal(mimose_plan(m, 8, &p, NULL), 0);
            assert_false(p.cached);
        }
        mimose_free(m);
    } while (hit);
    assert_true(n > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_policy_survives_each_lost_allocation),
        cmocka_unit_test(chunks_survive_each_lost_allocation),
        cmocka_unit_test(the_model_survives_each_lost_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
