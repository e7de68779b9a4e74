#include "tests/unit/test.h"

#include <stdlib.h>

#include "base/philox.h"
#include "scheduler/cluster/sched_priv.h"

#define JOBS 3000

static uint32_t seed, draws;

static uint32_t draw(uint32_t below)
{
    uint32_t key[2] = {seed, 31}, ctr[4] = {draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

/* The plain twin: one comparison of all that counts. */
static int by_age(const void *a, const void *b)
{
    const struct sched_job *x = a, *y = b;
    const int64_t of[][2] = {
        {x->submit_us, y->submit_us},
        {x->min, y->min},
        {x->max, y->max},
        {x->remaining_us, y->remaining_us},
        {x->workers, y->workers},
        {x->types, y->types},
        {y->weight_milli, x->weight_milli},
        {(int64_t)x->id, (int64_t)y->id},
    };

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (of[i][0] != of[i][1])
            return of[i][0] < of[i][1] ? -1 : 1;
    return 0;
}

static int64_t draw_time(uint32_t kind)
{
    static const int64_t spans[] = {1, 5, 70000, INT64_C(1) << 40, INT64_MAX};
    uint64_t wide = (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);

    return (int64_t)(wide % (uint64_t)spans[kind]) * (kind == 4 && draw(2) ? -1 : 1);
}

static void jobs_stand_by_age_and_by_what_they_ask_for_where_they_came_at_once(void **state)
{
    static struct sched_job jobs[JOBS], twin[JOBS];
    static const size_t sizes[] = {0, 1, 2, 3, 40, JOBS};
    const struct sched_tenant tenant = {.borrow = -1, .weight_milli = 1000};
    struct sched_cache *cache = sched_cache_new();

    (void)state;
    assert_non_null(cache);
    for (seed = 1; seed <= 120; seed++) {
        size_t n = sizes[seed % 6];
        struct sched_input in = {.jobs = jobs, .n_jobs = n, .tenants = &tenant, .n_tenants = 1, .cache = cache};
        struct round r;

        for (size_t i = 0; i < n; i++)
            twin[i] = jobs[i] = (struct sched_job){.id = (i * 7919 + seed) % 100003 + 1,
                                                   .submit_us = draw_time(seed / 6 % 5),
                                                   .min = 1 + (int32_t)draw(2),
                                                   .max = 2 + (int32_t)draw(2),
                                                   .remaining_us = (int64_t)draw(3) - 1,
                                                   .workers = (int32_t)draw(2),
                                                   .types = 1 + draw(3),
                                                   .weight_milli = 1000 + draw(2)};
        qsort(twin, n, sizeof(*twin), by_age);
        for (int again = 0; again < 2; again++) { /* then as it stands by age already */
            assert_int_equal(sched_round_init(&r, &in), 0);
            for (size_t i = 0; i < n; i++) {
                if (r.jobs[i].job->id != twin[i].id || in.jobs[r.jobs[i].index].id != twin[i].id)
                    fail_msg("seed %u: job %llu stands at %zu, wanted %llu", seed,
                             (unsigned long long)r.jobs[i].job->id, i, (unsigned long long)twin[i].id);
                assert_int_equal(r.jobs[i].place_n, 0);
            }
            sched_round_clear(&r);
            in.jobs = twin;
        }
    }
    sched_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_stand_by_age_and_by_what_they_ask_for_where_they_came_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
