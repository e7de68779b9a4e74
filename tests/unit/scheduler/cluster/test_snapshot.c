#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "base/word.h"
#include "scheduler/cluster/explain.h"
#include "scheduler/cluster/snapshot.h"

#define BYTES_MAX (1 << 20)

static const char *const types[] = {"cpu", "h200"};

static const char sample[] = "muster-snapshot 2\n"
                             "config muster fast 1000000000 60000000 1800000000 30000000 1 120000000 1\n"
                             "prices 0 0.5 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
                             "type cpu\ntype h200\n"
                             "tenant 0 -1 1000\n"
                             "node 0 4 0 0 0\nnode 1 2 0 0 2\n"
                             "profile\nrate 0 1 1000000\nrate 0 2 1900000\nrate 1 1 7000000\n"
                             "job 3 0 0 5 1 4 1 0 4 3 1 0 -1 1000 5000000 0 5 5 0 -1 1000 0 0:2\n"
                             "job 4 0 0 6 3 3 1 0 3 1 1 0 -1 4000 5000000 0 6 6 0 900000000 1000 0\n";

static void parse(const char *text, struct snapshot *ret)
{
    struct merr err;

    if (snapshot_parse(text, strlen(text), ret, &err) != 0)
        fail_msg("%s", err.text);
}

static void what_was_printed_is_read_back_and_gives_the_same_plan(void **state)
{
    struct snapshot s, again;
    struct sched_plan a, b;
    struct buf text, second, plan_a, plan_b;

    (void)state;
    buf_init(&text, BYTES_MAX);
    buf_init(&second, BYTES_MAX);
    buf_init(&plan_a, BYTES_MAX);
    buf_init(&plan_b, BYTES_MAX);
    parse(sample, &s);
    assert_int_equal(s.in.n_jobs, 2);
    assert_int_equal(s.in.n_nodes, 2);
    assert_string_equal(s.types[1], "h200");
    assert_int_equal(s.jobs[0].places[0].devices, 2);
    assert_int_equal(snapshot_print(&s.in, types, 2, &text), 0);
    assert_string_equal(buf_text(&text), sample);
    parse(buf_text(&text), &again);
    assert_int_equal(snapshot_print(&again.in, types, 2, &second), 0);
    assert_string_equal(buf_text(&text), buf_text(&second));
    assert_int_equal(sched_schedule(&s.in, &a, NULL), 0);
    assert_int_equal(sched_schedule(&again.in, &b, NULL), 0);
    assert_int_equal(sched_plan_print(&s.in, &a, &plan_a), 0);
    assert_int_equal(sched_plan_print(&again.in, &b, &plan_b), 0);
    assert_string_equal(buf_text(&plan_a), buf_text(&plan_b));
    sched_plan_clear(&a);
    sched_plan_clear(&b);
    buf_clear(&text);
    buf_clear(&second);
    buf_clear(&plan_a);
    buf_clear(&plan_b);
    snapshot_clear(&s);
    snapshot_clear(&again);
}

/* The same bytes on every host and with every compiler: any change of these is a change of decisions. */
static void plans_are_those_of_the_golden_vectors(void **state)
{
    static const struct {
        const char *policy, *mode, *plan;
    } row[] = {
        {"muster", "fast",
         "value 0 dual 0\n"
         "job 3 keep runs 0:2 -1:0 rate 1900000 est 2-0 0-0 at 0:2\n"
         "job 4 wait insufficient-devices -1:0 -1:0 rate 0 est 0-0 0-0 at\n"},
        {"muster", "full",
         "value 9393095 dual 9402392\n"
         "job 3 move runs 1:2 -1:0 rate 14000000 est 2-0 0-0 at 1:2\n"
         "job 4 start runs 0:3 -1:0 rate 2714286 est 1-0 0-0 at 0:3\n"
         "then 3\n"
         "then 4\n"},
        {"fifo", "fast",
         "value 0 dual 0\n"
         "job 3 keep runs 0:2 -1:0 rate 1900000 est 2-0 0-0 at 0:2\n"
         "job 4 wait insufficient-devices -1:0 -1:0 rate 0 est 0-0 0-0 at\n"},
        {"las", "full", /* the slow class is left */
         "value 0 dual 0\n"
         "job 3 move runs 1:2 -1:0 rate 14000000 est 2-0 0-0 at 1:2\n"
         "job 4 start runs 0:3 -1:0 rate 2714286 est 1-0 0-0 at 0:3\n"
         "then 3\n"
         "then 4\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct sched_plan plan;
        struct snapshot s;
        struct buf out;

        buf_init(&out, BYTES_MAX);
        parse(sample, &s);
        assert_true(word_index(row[i].policy, sched_policy_names) >= 0);
        s.in.config.policy = (enum sched_policy)word_index(row[i].policy, sched_policy_names);
        s.in.config.mode = strcmp(row[i].mode, "full") == 0 ? SCHED_FULL : SCHED_FAST;
        assert_int_equal(sched_schedule(&s.in, &plan, NULL), 0);
        assert_int_equal(sched_plan_print(&s.in, &plan, &out), 0);
        if (strcmp(buf_text(&out), row[i].plan) != 0)
            fail_msg("%s, %s:\n%s", row[i].policy, row[i].mode, buf_text(&out));
        sched_plan_clear(&plan);
        buf_clear(&out);
        snapshot_clear(&s);
    }
}

static void what_a_job_wishes_is_kept(void **state)
{
    static const char more[] = "limit 60000000\nwish 2000000000 1 2\n", *const bad[] = {"wish 1 2 0\n", "wish 1 0\n"};
    struct snapshot s;
    struct buf text, longer;

    (void)state;
    buf_init(&text, BYTES_MAX);
    buf_init(&longer, BYTES_MAX);
    assert_int_equal(buf_printf(&longer, "%s%s", sample, more), 0);
    parse(buf_text(&longer), &s);
    assert_int_equal(s.jobs[1].finish_us, 2000000000);
    assert_true(s.jobs[1].within);
    assert_int_equal(s.jobs[1].prefer, 2);
    assert_int_equal(snapshot_print(&s.in, types, 2, &text), 0);
    assert_string_equal(buf_text(&text), buf_text(&longer));
    snapshot_clear(&s);
    for (size_t i = 0; i < COUNT(bad); i++) {
        buf_clear(&longer);
        assert_int_equal(buf_printf(&longer, "%s%s", sample, bad[i]), 0);
        assert_int_equal(snapshot_parse(buf_text(&longer), strlen(buf_text(&longer)), &s, NULL), -EINVAL);
    }
    buf_clear(&text);
    buf_clear(&longer);
}

static void nodes_that_a_job_avoids_are_kept(void **state)
{
    static const char more[] = "avoid 1 0 1\n", *const bad[] = {"avoid 1 0 1\navoid 1 0\n", "avoid 0 x\n"};
    struct snapshot s;
    struct sched_plan plan;
    struct buf text, longer;

    (void)state;
    buf_init(&text, BYTES_MAX);
    buf_init(&longer, BYTES_MAX);
    assert_int_equal(buf_printf(&longer, "%s%s", sample, more), 0);
    parse(buf_text(&longer), &s);
    assert_int_equal(s.jobs[1].n_avoid, 2);
    assert_int_equal(s.jobs[1].n_barred, 1);
    assert_int_equal(s.jobs[1].avoid[1], 1);
    assert_int_equal(snapshot_print(&s.in, types, 2, &text), 0);
    assert_string_equal(buf_text(&text), buf_text(&longer));
    s.in.config.mode = SCHED_FULL; /* the golden plan starts job 4 on node 0, which is barred here */
    assert_int_equal(sched_schedule(&s.in, &plan, NULL), 0);
    assert_int_equal(plan.verdicts[1].action, SCHED_WAIT);
    sched_plan_clear(&plan);
    snapshot_clear(&s);
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct merr err;

        buf_reset(&longer);
        assert_int_equal(buf_printf(&longer, "%s%s", sample, bad[i]), 0);
        assert_int_equal(snapshot_parse(buf_text(&longer), longer.len, &s, &err), -EINVAL);
    }
    buf_clear(&text);
    buf_clear(&longer);
}

static void another_node_changes_the_answer(void **state)
{
    struct explain_cause before, after;
    struct sched_plan plan;
    struct snapshot s;
    struct buf b;

    (void)state;
    buf_init(&b, BYTES_MAX);
    parse(sample, &s);
    assert_int_equal(sched_schedule(&s.in, &plan, NULL), 0);
    assert_int_equal(explain_job(&s.in, &plan, 1, &before), 0);
    assert_int_equal(before.wait.code, EXPLAIN_INSUFFICIENT);
    assert_int_equal(explain_print(&before, types, &b), 0);
    assert_non_null(strstr(buf_text(&b), "\"class\": \"cpu\", \"behind\": [\"j3\"]"));
    sched_plan_clear(&plan);
    assert_int_equal(snapshot_add_node(&s, (struct sched_node){.type = 0, .devices = 4}), 0);
    assert_int_equal(sched_schedule(&s.in, &plan, NULL), 0);
    assert_int_equal(explain_job(&s.in, &plan, 1, &after), 0);
    assert_int_equal(after.wait.code, EXPLAIN_ASSIGNED);
    sched_plan_clear(&plan);
    buf_clear(&b);
    snapshot_clear(&s);
}

static void each_bad_line_is_named(void **state)
{
    static const char *const bad[] = {"",
                                      "muster-snapshot 1\n",
                                      "muster-snapshot 2\nnonsense\n",
                                      "muster-snapshot 2\nnode 0 4 0 0\n",
                                      "muster-snapshot 2\nnode 0 4 0 0 0 0\n",
                                      "muster-snapshot 2\nnode 0 4 0 0 0 1500\n",
                                      "muster-snapshot 2\nnode 0 4 0 0 0 1000001 5\n",
                                      "muster-snapshot 2\nnode 0 4 0 0 0 1500 5 0\n",
                                      "muster-snapshot 2\nnode 16 4 0 0 0\n",
                                      "muster-snapshot 2\nnode 0 x 0 0 0\n",
                                      "muster-snapshot 2\nnode 0 99999999999999999999 0 0 0\n",
                                      "muster-snapshot 2\nrate 0 1 5\n",
                                      "muster-snapshot 2\nprofile\nrate 0 2 5\nrate 0 1 5\n",
                                      "muster-snapshot 2\nprices 0 nan 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
                                      "muster-snapshot 2\nconfig best fast 0 0 0 0 0 0 0\n",
                                      "muster-snapshot 2\njob 1 0 0 0 1 1 1 0 1 1 1 0 -1 1 0 0 0 0 0 -1 1000 0 0\n"};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct snapshot s;
        struct merr err = {""};

        if (snapshot_parse(bad[i], strlen(bad[i]), &s, &err) != -EINVAL || !strstr(err.text, "line "))
            fail_msg("row %zu: %s", i, err.text);
    }
}

/* Bytes of the sample changed at random are refused or make a snapshot that can be printed and planned. */
static void changed_snapshots_are_refused_or_planned(void **state)
{
    uint32_t key[2] = {77, 1};

    (void)state;
    for (uint32_t run = 0; run < 4000; run++) {
        uint32_t ctr[4] = {run, 0, 0, 0}, out[4];
        char text[sizeof(sample)];
        struct sched_plan plan;
        struct snapshot s;
        struct merr err;

        philox4x32(ctr, key, out);
        memcpy(text, sample, sizeof(text));
        text[18 + out[0] % (sizeof(text) - 19)] = "0123456789 -:\nx"[out[1] % 15];
        if (snapshot_parse(text, strlen(text), &s, &err) != 0)
            continue;
        if (sched_schedule(&s.in, &plan, &err) == 0)
            sched_plan_clear(&plan);
        snapshot_clear(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_printed_is_read_back_and_gives_the_same_plan),
        cmocka_unit_test(plans_are_those_of_the_golden_vectors),
        cmocka_unit_test(what_a_job_wishes_is_kept),
        cmocka_unit_test(nodes_that_a_job_avoids_are_kept),
        cmocka_unit_test(another_node_changes_the_answer),
        cmocka_unit_test(each_bad_line_is_named),
        cmocka_unit_test(changed_snapshots_are_refused_or_planned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
