#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/finish.h"

#define S INT64_C(1000000)
#define NOW (100000 * S)

struct world {
    struct sched_node node;
    struct sched_tenant tenant;
    struct sched_job jobs[4];
    struct sched_place place;
    struct rates_profile profile;
    struct sched_input in;
    struct sched_plan plan;
    struct forecast forecasts[4];
};

static void world_init(struct world *w, int32_t devices)
{
    memset(w, 0, sizeof(*w));
    w->node.devices = devices;
    w->tenant = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    w->profile.points[0][0] = (struct rates_point){.count = 1, .rate_ups = 1000000};
    w->profile.n[0] = 1;
    w->in = (struct sched_input){
        .config = {.now_us = NOW, .round_us = 60 * S, .starve_us = 100000 * S, .hold_us = 120 * S, .spread = true},
        .nodes = &w->node,
        .n_nodes = 1,
        .tenants = &w->tenant,
        .n_tenants = 1,
        .jobs = w->jobs};
}

/* So much work, of a device's seconds. */
static struct sched_job *add(struct world *w, int32_t min, int32_t max, int64_t work_s)
{
    size_t at = w->in.n_jobs++;

    w->jobs[at] = (struct sched_job){.id = at + 1,
                                     .min = min,
                                     .max = max,
                                     .types = 1,
                                     .home = -1,
                                     .submit_us = NOW - (int64_t)(60 - at) * S,
                                     .waiting_us = NOW - (int64_t)(60 - at) * S,
                                     .weight_milli = 1000,
                                     .remaining_us = work_s < 0 ? -1 : work_s * S,
                                     .rho_milli = 1000,
                                     .profile = &w->profile};
    return &w->jobs[at];
}

static void hold_all(struct world *w, int64_t limit_s)
{
    struct sched_job *j = add(w, w->node.devices, w->node.devices, -1);

    w->place = (struct sched_place){.devices = w->node.devices};
    j->places = &w->place;
    j->n_places = 1;
    j->fixed = true;
    j->limit_us = limit_s * S;
}

static struct finish judge(struct world *w, size_t job, char text[FINISH_TEXT_MAX])
{
    struct merr err;
    struct finish f;

    if (sched_schedule(&w->in, &w->plan, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(forecast_all(&w->in, &w->plan, w->forecasts), 0);
    f = finish_of(&w->in, &w->plan, job, &w->forecasts[job]);
    finish_text(&f, NOW, text, FINISH_TEXT_MAX);
    sched_plan_clear(&w->plan);
    return f;
}

static void the_answer_is_what_start_and_speed_make_of_it(void **state)
{
    static const struct {
        int64_t work_s, limit_s, by_s, held_s; /* of the job; how long the devices are held before */
        enum finish_verdict verdict;
        const char *text;
    } v[] = {
        {14400, 0, 4000, 0, FINISH_LIKELY, "needs 60 min on 4 devices; it has its devices"},
        {-1, 3000, 4000, 0, FINISH_WILL, "needs at most 50 min on 4 devices; it has its devices"},
        {14400, 0, 3000, 0, FINISH_CANNOT, "needs 60 min on 4 devices, and would be 10 min late if it started now"},
        {14400, 0, 7200, 1800, FINISH_LIKELY, "needs 60 min on 4 devices; its start is expected in 30 min"},
        {14400, 0, 4500, 1800, FINISH_UNLIKELY,
         "needs 60 min on 4 devices; its start is expected in 30 min, which makes it 15 min late"},
        {-1, 0, 7200, 1800, FINISH_UNKNOWN,
         "needs a time that nobody knows (give it limits.time_s); its start is expected in 30 min"},
        {14400, 0, 7200, -1, FINISH_UNKNOWN, "needs 60 min on 4 devices; nobody knows when it starts"},
        {14400, 0, -5, 0, FINISH_CANNOT, "should have ended before now"},
        {-1, 9000, 7200, 0, FINISH_UNKNOWN, "needs at most 2.5 h on 4 devices; it has its devices"},
    };
    char text[FINISH_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        struct world w;
        struct sched_job *j;

        world_init(&w, 4);
        if (v[i].held_s != 0)
            hold_all(&w, v[i].held_s > 0 ? v[i].held_s : 0);
        j = add(&w, 4, 4, v[i].work_s);
        j->limit_us = v[i].limit_s * S;
        j->finish_us = NOW + v[i].by_s * S;
        assert_string_equal(finish_verdict_name(judge(&w, w.in.n_jobs - 1, text).verdict),
                            finish_verdict_name(v[i].verdict));
        assert_string_equal(text, v[i].text);
    }
}

/* It came last and goes first, and the others make it, too. */
static void a_job_that_must_begin_now_goes_before_those_that_have_time(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++) {
        struct world w;
        struct merr err;

        world_init(&w, 4);
        for (int i = 0; i < 4; i++)
            add(&w, 4, 4, 4000);
        w.in.config.mode = (enum sched_mode)mode;
        w.jobs[3].finish_us = NOW + 1100 * S;
        assert_int_equal(sched_schedule(&w.in, &w.plan, &err), 0);
        assert_int_equal(w.plan.verdicts[3].action, SCHED_START);
        sched_plan_clear(&w.plan);
        w.jobs[3].finish_us = NOW + 900 * S; /* it cannot make it: the oldest goes first */
        assert_int_equal(sched_schedule(&w.in, &w.plan, &err), 0);
        assert_int_equal(w.plan.verdicts[0].action, SCHED_START);
        sched_plan_clear(&w.plan);
    }
}

/* Nothing that was promised to others is taken for a wish. */
static void a_guarantee_and_a_job_that_starves_go_before_any_wish(void **state)
{
    (void)state;
    for (int mode = SCHED_FAST; mode <= SCHED_FULL; mode++)
        for (int starves = 0; starves < 2; starves++) {
            struct world w;
            struct merr err;

            world_init(&w, 4);
            add(&w, 4, 4, 4000);
            add(&w, 4, 4, 4000)->finish_us = NOW + 1100 * S;
            w.in.config.mode = (enum sched_mode)mode;
            w.tenant.quota = 4;
            if (starves)
                w.jobs[0].waiting_us = NOW - 200000 * S;
            else
                w.jobs[0].class_ = SCHED_GUARANTEED;
            assert_int_equal(sched_schedule(&w.in, &w.plan, &err), 0);
            assert_int_equal(w.plan.verdicts[0].action, SCHED_START);
            assert_int_equal(w.plan.verdicts[1].action, SCHED_WAIT);
            sched_plan_clear(&w.plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_is_what_start_and_speed_make_of_it),
        cmocka_unit_test(a_job_that_must_begin_now_goes_before_those_that_have_time),
        cmocka_unit_test(a_guarantee_and_a_job_that_starves_go_before_any_wish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
