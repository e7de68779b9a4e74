#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sim/sim.h"

#define HEAD                                                                                                           \
    "id,submit_s,job_type,min_devices,max_devices,virtual_workers,total_steps,weight,tenant,classes,hetero_ok\n"
#define S INT64_C(1000000)

/* One node type "v100", nodes of four, a kind of job "lin" that makes one step a second on each device. */
static void make_setup(struct sim_setup *s, size_t nodes)
{
    sim_setup_init(s);
    (void)snprintf(s->types[0], SIM_NAME_MAX, "v100");
    s->n_types = 1;
    s->n_nodes = nodes;
    s->nodes = calloc(nodes, sizeof(*s->nodes));
    for (size_t i = 0; i < nodes; i++)
        s->nodes[i] = (struct sched_node){.devices = 4, .leaf = (uint32_t)(i / 4)};
    s->n_tenants = s->n_profiles = 1;
    s->tenant_names = calloc(1, SIM_NAME_MAX);
    s->profile_names = calloc(1, SIM_NAME_MAX);
    s->tenants = calloc(1, sizeof(*s->tenants));
    s->tenant_class = calloc(1, sizeof(*s->tenant_class));
    s->profiles = calloc(1, sizeof(*s->profiles));
    (void)snprintf(s->tenant_names[0], SIM_NAME_MAX, "default");
    (void)snprintf(s->profile_names[0], SIM_NAME_MAX, "lin");
    s->tenants[0] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    s->profiles[0].n[0] = 1;
    s->profiles[0].points[0][0] = (struct rates_point){1, 1000000};
}

static struct sim_result run(struct sim_setup *s, const char *lines)
{
    struct sim_trace t;
    struct sim_result r;
    struct merr err = {""};
    char text[8192];

    (void)snprintf(text, sizeof(text), "%s%s", HEAD, lines);
    if (sim_trace_parse(s, text, strlen(text), &t, &err) < 0 || sim_run(s, &t, &r, &err) < 0)
        fail_msg("%s", err.text);
    sim_trace_clear(&t);
    return r;
}

static void one_job_takes_its_steps_by_its_rate_and_no_restart(void **state)
{
    for (int policy = 0; policy < SCHED_POLICY_MAX; policy++) {
        struct sim_setup s;
        struct sim_result r;

        (void)state;
        make_setup(&s, 1);
        s.policy = (enum sched_policy)policy;
        r = run(&s, "a,10,lin,2,2,0,600,1,,*,0\n");
        assert_int_equal(r.jobs[0].start_us, 10 * S);
        assert_int_equal(r.jobs[0].finish_us, 310 * S); /* 600 steps at two a second */
        assert_int_equal(r.jobs[0].restarts, 0);
        assert_int_equal(r.used_us, 600 * S);
        assert_int_equal(r.used_us + r.idle_us, r.capacity_us);
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
}

static void fifo_waits_for_the_first_and_backfill_does_not(void **state)
{
    /* a holds 3 of 4 devices for 400 s; b wants all; c wants one for 100 s and fits before b can start */
    static const char lines[] = "a,0,lin,3,3,0,1200,1,,*,0\nb,1,lin,4,4,0,400,1,,*,0\nc,2,lin,1,1,0,100,1,,*,0\n"
                                "d,3,lin,1,1,0,1000,1,,*,0\n";
    static const struct {
        enum sched_policy policy;
        int64_t b, c, d;
    } row[] = {
        {SCHED_POLICY_FIFO, 500, 600, 1500},     /* c and d behind b */
        {SCHED_POLICY_BACKFILL, 500, 102, 1500}, /* c beside a; d would delay b */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct sim_setup s;
        struct sim_result r;

        make_setup(&s, 1);
        s.policy = row[i].policy;
        r = run(&s, lines);
        assert_int_equal(r.jobs[1].finish_us, row[i].b * S);
        assert_int_equal(r.jobs[2].finish_us, row[i].c * S);
        assert_int_equal(r.jobs[3].finish_us, row[i].d * S);
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
}

static void the_oracle_stops_the_long_for_the_short_and_charges_the_restart(void **state)
{
    struct sim_setup s;
    struct sim_result r;

    (void)state;
    make_setup(&s, 1);
    s.policy = SCHED_POLICY_SRTF;
    r = run(&s, "a,0,lin,4,4,0,4000,1,,*,0\nb,50,lin,4,4,0,400,1,,*,0\n");
    assert_int_equal(r.jobs[1].start_us, 60 * S); /* at the tick */
    assert_int_equal(r.jobs[1].finish_us, 160 * S);
    assert_int_equal(r.jobs[0].restarts, 1);
    assert_int_equal(r.jobs[0].finish_us, (1000 + 100 + 30) * S);
    sim_result_clear(&r);
    sim_setup_clear(&s);
}

static void an_elastic_job_grows_when_its_neighbour_ends(void **state)
{
    struct sim_setup s;
    struct sim_result r;

    (void)state;
    make_setup(&s, 1);
    r = run(&s, "a,0,lin,2,2,0,600,1,,*,0\nb,0,lin,1,4,4,4000,1,,*,0\n");
    assert_int_equal(r.jobs[0].finish_us, 300 * S);
    assert_true(r.jobs[1].finish_us < 1400 * S); /* on two devices it would take 2,000 s */
    assert_in_range(r.jobs[1].restarts, 1, 2);
    sim_result_clear(&r);
    sim_setup_clear(&s);
}

/* When the only node fails first: the capacity is 0 from then on. */
static int64_t first_failure_us(struct sim_setup *s)
{
    struct sim_result r = run(s, "a,0,lin,4,4,0,100000,1,,*,0\n");
    int64_t at = -1;

    for (size_t i = 0; i < r.n_samples && at < 0; i++)
        at = r.samples[i].capacity == 0 ? r.samples[i].at_us : -1;
    assert_true(at > 0);
    sim_result_clear(&r);
    return at;
}

/* At one instant: what is done goes before the failure of its node, what comes is there for the same round, and at a
 * tick that round is a full one. */
static void events_of_one_instant_have_their_order(void **state)
{
    struct sim_setup s;
    struct sim_result r;
    char lines[256];
    int64_t at;

    (void)state;
    make_setup(&s, 1);
    s.mtbf_us = 3000 * S;
    s.repair_us = 900 * S;
    at = first_failure_us(&s);
    assert_true(at > 20 * S);
    (void)snprintf(lines, sizeof(lines), "a,%lld.%06lld,lin,1,1,0,20,1,,*,0\nb,%lld.%06lld,lin,1,1,0,5,1,,*,0\n",
                   (long long)(at / S - 20), (long long)(at % S), (long long)(at / S), (long long)(at % S));
    r = run(&s, lines);
    assert_int_equal(r.jobs[0].finish_us, at); /* done, and nothing of it lost */
    assert_int_equal(r.lost_steps_u, 0);
    assert_true(r.jobs[1].start_us >= at + 900 * S); /* came when the node was gone */
    sim_result_clear(&r);
    s.mtbf_us = 0;
    r = run(&s, "a,0,lin,4,4,0,400,1,,*,0\nb,100,lin,4,4,0,400,1,,*,0\nc,120,lin,4,4,0,4,1,,*,0\n");
    assert_int_equal(r.jobs[0].finish_us, 100 * S);
    assert_int_equal(r.jobs[1].start_us, 100 * S); /* a's end and b's coming are of one round */
    assert_int_equal(r.fast.n, 2);                 /* at 100 and 200 s; c comes at a tick */
    assert_int_equal(r.full.n, 4);
    sim_result_clear(&r);
    sim_setup_clear(&s);
}

/* n jobs that come within so long. */
static void random_trace(char *text, size_t size, int n, int within_s)
{
    size_t at = (size_t)snprintf(text, size, "%s", "");

    for (int i = 0; i < n; i++) {
        int min = 1 << (i * 7 % 4), max = min << (i % 3);

        at += (size_t)snprintf(text + at, size - at, "j%d,%d,lin,%d,%d,%d,%d,1,,*,0\n", i, i * 37 % n * within_s / n,
                               min, max, max, 500 + i * 613 % 9000);
    }
}

/* A rigid job holds its devices for its steps, and for a restart at each change but the first start; less only where
 * one change cut short the restart of the one before. */
static void every_change_is_charged_a_restart(void **state)
{
    char lines[8000];

    (void)state;
    random_trace(lines, sizeof(lines), 60, 2000);
    for (int policy = 0; policy < SCHED_POLICY_MAX; policy++) {
        struct sim_setup s;
        struct sim_result r;
        int64_t charged = 0, restarts = 0;

        make_setup(&s, 6);
        s.policy = (enum sched_policy)policy;
        r = run(&s, lines);
        for (size_t i = 0; i < r.n_jobs; i += 3) {                    /* every third of random_trace() is rigid */
            const struct sim_outcome *o = &r.jobs[i * 37 % r.n_jobs]; /* by arrival */
            int32_t min = 1 << (i * 7 % 4);
            int64_t over = o->attained_us - (500 + (int64_t)i * 613 % 9000) * S;

            if (over < 0 || over > o->restarts * min * s.restart_us + 2 * min * (o->restarts + 1))
                fail_msg("policy %d, job %zu: %d restarts of %d devices took %lld us", policy, i, o->restarts, min,
                         (long long)over);
            restarts += o->restarts * (int64_t)min;
            charged += over;
        }
        assert_true(charged >= restarts * s.restart_us * 9 / 10);
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
}

static void every_policy_ends_a_trace_with_failures_and_loses_no_device_time(void **state)
{
    char lines[8000];

    (void)state;
    random_trace(lines, sizeof(lines), 60, 2000);
    for (int policy = 0; policy < SCHED_POLICY_MAX; policy++) {
        struct sim_setup s;
        struct sim_result r, again;
        int64_t attained = 0;

        make_setup(&s, 6);
        s.policy = (enum sched_policy)policy;
        s.mtbf_us = 20000 * S;
        s.repair_us = 900 * S;
        r = run(&s, lines);
        again = run(&s, lines);
        for (size_t i = 0; i < r.n_jobs; i++)
            attained += r.jobs[i].attained_us;
        assert_int_equal(attained, r.used_us);
        assert_int_equal(r.used_us + r.idle_us, r.capacity_us);
        assert_memory_equal(r.jobs, again.jobs, r.n_jobs * sizeof(*r.jobs));
        assert_true(r.failures > 0);
        sim_result_clear(&r);
        sim_result_clear(&again);
        sim_setup_clear(&s);
    }
}

/* Nine tenths of what the cluster can do, and all at once. */
static void elastic_jobs_restart_less_than_three_times_each(void **state)
{
    static const int within_s[] = {14000, 2000};
    char lines[8000];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sim_setup s;
        struct sim_result r;

        random_trace(lines, sizeof(lines), 60, within_s[i]);
        make_setup(&s, 6);
        r = run(&s, lines);
        print_message("60 jobs within %d s: %zu restarts, %.0f s on average\n", within_s[i], r.restarts, r.jct_avg_s);
        if ((double)r.restarts > 3.0 * (double)r.n_jobs)
            fail_msg("%zu restarts of %zu jobs", r.restarts, r.n_jobs);
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
}

/* From seven times what the cluster can do to nine tenths of it, of one device to two nodes' eight: who has waited for
 * starve_us goes first, and gets its devices once who holds them may be changed again. */
static void everybody_starts_soon_after_the_time_when_it_goes_first(void **state)
{
    char lines[8000];

    (void)state;
    for (int within_s = 2000; within_s <= 14000; within_s += 4000) {
        struct sim_setup s;
        struct sim_result r;

        random_trace(lines, sizeof(lines), 60, within_s);
        make_setup(&s, 6);
        s.starve_us = 900 * S;
        r = run(&s, lines);
        for (size_t i = 0; i < r.n_jobs; i++) {
            int64_t waited = r.jobs[i].start_us - (int64_t)i * within_s / 60 * S;

            if (waited > s.starve_us + SIM_HOLD_US + s.round_us)
                fail_msg("60 jobs within %d s: one waited for %lld s", within_s, (long long)(waited / S));
        }
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
}

static void a_faulty_line_is_named_with_its_column(void **state)
{
    static const struct {
        const char *line, *says;
    } row[] = {
        {"a,0,lin,1,1,0,10,1,,*\n", "line 2: 10 columns"},
        {"a,x,lin,1,1,0,10,1,,*,0\n", "line 2: submit_s 'x'"},
        {"a,0,nil,1,1,0,10,1,,*,0\n", "line 2: job_type 'nil'"},
        {"a,0,lin,2,1,0,10,1,,*,0\n", "line 2: max_devices '1'"},
        {"a,0,lin,4,4,2,10,1,,*,0\n", "line 2: virtual_workers '2'"},
        {"a,0,lin,1,1,0,0,1,,*,0\n", "line 2: total_steps '0'"},
        {"a,0,lin,1,1,0,10,0,,*,0\n", "line 2: weight '0'"},
        {"a,0,lin,1,1,0,10,1,who,*,0\n", "line 2: tenant 'who'"},
        {"a,0,lin,1,1,0,10,1,,a100,0\n", "line 2: classes 'a100'"},
        {"a,0,lin,1,1,0,10,1,,*,2\n", "line 2: hetero_ok '2'"},
        {"#c\n\nb,0,lin,1,1,0,10,1,,v100|,0\n", "line 4: classes 'v100|'"},
    };
    struct sim_setup s;

    (void)state;
    make_setup(&s, 1);
    for (size_t i = 0; i < COUNT(row); i++) {
        struct sim_trace t;
        struct merr err;
        char text[512];

        (void)snprintf(text, sizeof(text), "%s%s", HEAD, row[i].line);
        assert_int_equal(sim_trace_parse(&s, text, strlen(text), &t, &err), -EINVAL);
        if (strncmp(err.text, row[i].says, strlen(row[i].says)) != 0)
            fail_msg("row %zu: %s", i, err.text);
    }
    sim_setup_clear(&s);
}

static void a_job_that_can_never_run_is_refused_by_name(void **state)
{
    struct sim_setup s;
    struct sim_trace t;
    struct sim_result r;
    struct merr err;
    static const char text[] = HEAD "big,0,lin,5,5,0,10,1,,*,0\n";

    (void)state;
    make_setup(&s, 1);
    assert_int_equal(sim_trace_parse(&s, text, strlen(text), &t, &err), 0);
    assert_int_equal(sim_run(&s, &t, &r, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'big' can never run"));
    sim_trace_clear(&t);
    sim_setup_clear(&s);
}

/* Two classes of one node each, of which one is five times as fast for the kind "lin". */
static void make_two_classes(struct sim_setup *s, int fast)
{
    make_setup(s, 2);
    (void)snprintf(s->types[1], SIM_NAME_MAX, "other");
    s->n_types = 2;
    s->nodes[1].type = 1;
    for (int t = 0; t < 2; t++) {
        s->profiles[0].n[t] = 1;
        s->profiles[0].points[t][0] = (struct rates_point){1, t == fast ? 5000000 : 1000000};
    }
}

static void as_a_server_the_first_job_of_a_kind_is_placed_without_its_rates_and_the_next_by_them(void **state)
{
    int64_t first[2], second[2];

    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        struct sim_setup s;
        struct sim_result r;

        make_two_classes(&s, fast);
        s.as_server = true;
        /* a and b learn both classes; then c comes alone */
        r = run(&s, "a,0,lin,4,4,0,400,1,,*,0\nb,0,lin,4,4,0,400,1,,*,0\nc,1000,lin,4,4,0,4000,1,,*,0\n");
        first[fast] = r.jobs[0].finish_us;
        second[fast] = r.jobs[2].finish_us;
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
    assert_true(first[0] == 20 * S && first[1] == 100 * S); /* it was not told which class is fast */
    assert_int_equal(second[0], 1200 * S);
    assert_int_equal(second[1], 1200 * S);
}

static void as_a_server_jobs_are_done_about_as_soon_as_with_all_known(void **state)
{
    double avg[2];

    (void)state;
    for (int as_server = 0; as_server < 2; as_server++) {
        char lines[8000];
        struct sim_setup s;
        struct sim_result r;
        size_t at = 0;

        make_two_classes(&s, 1);
        s.as_server = as_server;
        for (int i = 0; i < 80; i++)
            at += (size_t)snprintf(lines + at, sizeof(lines) - at, "j%d,%d,lin,1,%d,0,%d,1,,*,%d\n", i, i * 97,
                                   1 + i % 4, 400 + i * 37 % 3000, i % 2);
        r = run(&s, lines);
        avg[as_server] = r.jct_avg_s;
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
    assert_true(avg[1] < 1.1 * avg[0]);
}

static void jobs_that_come_at_once_fare_alike_in_whatever_order_they_are_listed(void **state)
{
    double avg[2];

    (void)state;
    for (int reversed = 0; reversed < 2; reversed++) {
        char lines[4000];
        struct sim_setup s;
        struct sim_result r;
        size_t at = 0;

        make_two_classes(&s, 1);
        for (int i = 0; i < 40; i++) {
            int n = reversed ? 39 - i : i;

            at += (size_t)snprintf(lines + at, sizeof(lines) - at, "j%d,0,lin,%d,4,0,%d,1,,*,0\n", n, 1 + n % 3,
                                   400 + n * 91 % 2000);
        }
        r = run(&s, lines);
        avg[reversed] = r.jct_avg_s;
        sim_result_clear(&r);
        sim_setup_clear(&s);
    }
    assert_true(fabs(avg[0] / avg[1] - 1) < 1e-9);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_job_takes_its_steps_by_its_rate_and_no_restart),
        cmocka_unit_test(fifo_waits_for_the_first_and_backfill_does_not),
        cmocka_unit_test(the_oracle_stops_the_long_for_the_short_and_charges_the_restart),
        cmocka_unit_test(an_elastic_job_grows_when_its_neighbour_ends),
        cmocka_unit_test(events_of_one_instant_have_their_order),
        cmocka_unit_test(every_change_is_charged_a_restart),
        cmocka_unit_test(every_policy_ends_a_trace_with_failures_and_loses_no_device_time),
        cmocka_unit_test(elastic_jobs_restart_less_than_three_times_each),
        cmocka_unit_test(everybody_starts_soon_after_the_time_when_it_goes_first),
        cmocka_unit_test(a_faulty_line_is_named_with_its_column),
        cmocka_unit_test(a_job_that_can_never_run_is_refused_by_name),
        cmocka_unit_test(as_a_server_the_first_job_of_a_kind_is_placed_without_its_rates_and_the_next_by_them),
        cmocka_unit_test(as_a_server_jobs_are_done_about_as_soon_as_with_all_known),
        cmocka_unit_test(jobs_that_come_at_once_fare_alike_in_whatever_order_they_are_listed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
