/* How far the jobs of a round may go in a project with ceilings. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "server/control/ceilings.h"
#include "server/control/state.h"

static struct core *core_of(int max_running, int per_user)
{
    struct core *c = calloc(1, sizeof(*c));
    struct project p = project_new("capped");

    assert_non_null(c);
    p.max_running = max_running;
    p.max_devices_per_user = per_user;
    assert_int_equal(project_put_take(&c->cluster.projects, &p), 0);
    c->jobs.n = 8;
    return c;
}

static void core_free(struct core *c)
{
    free(c->cluster.projects.v);
    free(c);
}

static struct entry waits(const char *project, const char *user, int min)
{
    struct entry e = {.job = {.min = min}};

    (void)snprintf(e.job.project, sizeof(e.job.project), "%s", project);
    (void)snprintf(e.job.user, sizeof(e.job.user), "%s", user);
    return e;
}

static void without_ceilings_there_is_nothing_to_count(void **state)
{
    struct core *c = core_of(-1, -1);
    struct entry e = waits("capped", "ann", 4);
    struct ceilings *s;

    (void)state;
    assert_int_equal(ceilings_new(c, &s), 0);
    assert_null(s);
    ceilings_hold(s, &e.job, 4); /* and all take that */
    assert_true(ceilings_allow(s, &e));
    assert_int_equal(ceilings_take(s, &e.job, 9), 9);
    assert_int_equal(ceilings_grow(s, &e.job, 2, 9), 9);
    ceilings_free(s);
    core_free(c);
}

static void so_many_jobs_of_a_project_run(void **state)
{
    struct core *c = core_of(2, -1);
    struct entry a = waits("capped", "ann", 1), b = waits("capped", "bob", 1), other = waits("free", "ann", 1);
    struct ceilings *s;

    (void)state;
    assert_int_equal(ceilings_new(c, &s), 0);
    ceilings_hold(s, &a.job, 1);
    assert_true(ceilings_allow(s, &b));
    assert_int_equal(ceilings_take(s, &b.job, 100), 100);
    assert_false(ceilings_allow(s, &a));
    assert_int_equal(a.wait.code, EXPLAIN_MAX_RUNNING);
    assert_int_equal(a.wait.total, 2);
    assert_true(ceilings_allow(s, &other));
    ceilings_free(s);
    core_free(c);
}

static void a_user_has_so_many_devices_of_a_project(void **state)
{
    struct core *c = core_of(-1, 6);
    struct entry a = waits("capped", "ann", 2), big = waits("capped", "ann", 5), b = waits("capped", "bob", 6);
    struct ceilings *s;

    (void)state;
    assert_int_equal(ceilings_new(c, &s), 0);
    ceilings_hold(s, &a.job, 2);
    assert_false(ceilings_allow(s, &big)); /* 4 are left */
    assert_int_equal(big.wait.code, EXPLAIN_MAX_DEVICES);
    assert_true(big.wait.need == 5 && big.wait.total == 6);
    assert_int_equal(ceilings_take(s, &a.job, 3), 3);
    assert_int_equal(ceilings_grow(s, &a.job, 2, 9), 3); /* the last one */
    assert_int_equal(ceilings_grow(s, &a.job, 3, 9), 3);
    assert_int_equal(ceilings_grow(s, &a.job, 3, 2), 2); /* no growth at all */
    assert_int_equal(ceilings_take(s, &a.job, 4), 0);
    assert_true(ceilings_allow(s, &b)); /* another user has as many */
    assert_int_equal(ceilings_take(s, &b.job, 100), 6);
    ceilings_free(s);
    core_free(c);
}

/* None of them is lost in the table, however many they are. */
static void each_user_is_counted_alone(void **state)
{
    struct core *c = core_of(-1, 3);
    static struct entry e[64];
    struct ceilings *s;

    (void)state;
    c->jobs.n = COUNT(e);
    assert_int_equal(ceilings_new(c, &s), 0);
    for (size_t i = 0; i < COUNT(e); i++) {
        char user[16];

        (void)snprintf(user, sizeof(user), "u%zu", i);
        e[i] = waits("capped", user, 1);
        assert_int_equal(ceilings_take(s, &e[i].job, 2), 2);
    }
    for (size_t i = 0; i < COUNT(e); i++)
        assert_int_equal(ceilings_take(s, &e[i].job, 2), 1);
    ceilings_free(s);
    core_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_ceilings_there_is_nothing_to_count),
        cmocka_unit_test(so_many_jobs_of_a_project_run),
        cmocka_unit_test(a_user_has_so_many_devices_of_a_project),
        cmocka_unit_test(each_user_is_counted_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
