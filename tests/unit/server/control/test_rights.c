/* Who may see a job, act on it, and submit: by role, by whose it is, and by what one is in its project. */
#include "tests/unit/server/control/scene.h"

#include "server/control/rights.h"

static void begin(struct scene *s)
{
    struct project p = project_new("open"), closed = project_new("closed");

    assert_int_equal(project_put_take(&s->core->cluster.projects, &p), 0);
    assert_int_equal(project_set_role(&closed, "mia", PROJECT_MANAGER), 0);
    assert_int_equal(project_set_role(&closed, "max", PROJECT_MEMBER), 0);
    assert_int_equal(project_put_take(&s->core->cluster.projects, &closed), 0);
}

static void a_role_says_what_one_may_of_whose_job(void **state)
{
    struct scene *s = *state;
    static const struct {
        enum http_role role;
        const char *user, *project;
        bool sees, sees_event, owns, submits, manages; /* of a job of ann's in the project */
    } table[] = {
        {ROLE_ADMIN, "root", "closed", true, true, true, true, true},
        {ROLE_VIEWER, "eve", "closed", true, true, false, false, false},
        {ROLE_USER, "ann", "none", true, true, true, true, false},
        {ROLE_USER, "ann", "open", true, true, true, true, false},
        {ROLE_USER, "ann", "closed", true, true, true, false, false}, /* whose job it is sees it all the same */
        {ROLE_USER, "bob", "none", false, false, false, true, false},
        {ROLE_USER, "bob", "open", false, false, false, true, false},
        {ROLE_USER, "bob", "closed", false, false, false, false, false},
        {ROLE_USER, "max", "closed", false, false, false, true, false},
        {ROLE_USER, "mia", "closed", true, true, false, true, true},
        {ROLE_USER, "mia", "open", false, false, false, true, false},   /* which she does not manage */
        {ROLE_VIEWER, "mia", "closed", true, true, false, true, false}, /* a token that only looks manages nothing */
        {ROLE_NONE, "", "open", false, false, false, true, false},
    };

    begin(s);
    for (size_t i = 0; i < COUNT(table); i++) {
        struct http_identity who = {.role = table[i].role};
        const struct project *p = project_find(&s->core->cluster.projects, table[i].project);

        (void)snprintf(who.user, sizeof(who.user), "%s", table[i].user);
        if (rights_sees(s->core, &who, "ann", table[i].project) != table[i].sees ||
            rights_sees_event(&who, "ann", p) != table[i].sees_event || rights_owns(&who, "ann") != table[i].owns ||
            rights_submits(s->core, &who, table[i].project) != table[i].submits ||
            rights_manages(s->core, &who, table[i].project) != table[i].manages)
            fail_msg("row %zu", i);
    }
}

static void a_job_that_is_not_known_is_of_no_project(void **state)
{
    struct scene *s = *state;
    uint64_t job;

    begin(s);
    assert_null(rights_project_of(s->core, 0));
    assert_null(rights_project_of(s->core, 99));
    job = scene_submit(s, "project: open\ncommand: {argv: [x]}\n");
    assert_string_equal(rights_project_of(s->core, job)->name, "open");
    job = scene_submit(s, "project: other\ncommand: {argv: [x]}\n");
    assert_null(rights_project_of(s->core, job)); /* which nobody has set up */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_role_says_what_one_may_of_whose_job, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(a_job_that_is_not_known_is_of_no_project, scene_start, scene_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
