#include "api/cli/names.h"

#include "api/cli/cli.h"
#include "tests/unit/test.h"

#include <string.h>

static void an_id_is_known_by_its_form(void **state)
{
    static const struct {
        const char *text;
        bool id;
    } rows[] = {
        {"j17", true}, {"17", true},    {"j17.3", true},  {"17.0-9", true}, {"j", false},    {"", false},
        {"my", false}, {"j17a", false}, {"job-1", false}, {"1st", false},   {"j-17", false}, {".3", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (names_is_job_id(rows[i].text) != rows[i].id)
            fail_msg("'%s' is %s id", rows[i].text, rows[i].id ? "no" : "an");
}

static void the_table_says_which_arguments_are_jobs(void **state)
{
    static const struct {
        const char *args;
        int arg;
        bool job, folder;
    } rows[] = {
        {"JOB", 0, true, false},          {"[JOB]", 0, true, false},
        {"JOB...", 5, true, false},       {"[JOB...]", 0, true, false},
        {"[JOB...]", 9, true, false},     {"JOB N", 0, true, false},
        {"JOB N", 1, false, false},       {"JOB [N]", 1, false, false},
        {"JOB|DIR OUT", 0, true, true},   {"JOB|DIR", 0, true, true},
        {"JOB|DIR OUT", 1, false, false}, {"NODE", 0, false, false},
        {"FILE", 0, false, false},        {"", 0, false, false},
        {"JOBS", 0, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct command cmd = {.args = rows[i].args};
        bool folder;

        if (names_wants_job(&cmd, rows[i].arg, &folder) != rows[i].job || folder != rows[i].folder)
            fail_msg("argument %d of '%s'", rows[i].arg, rows[i].args);
    }
}

static void the_newest_job_of_exactly_the_name_is_chosen(void **state)
{
    json_auto_t *jobs = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s}]", "id", "j9", "name", "mine-2", "id", "j8",
                                  "name", "mine", "id", "j3", "name", "mine", "id", "j2");
    size_t n;

    (void)state;
    assert_string_equal(cli_str(names_choose(jobs, "mine", &n), "id"), "j8");
    assert_int_equal(n, 2);
    assert_string_equal(cli_str(names_choose(jobs, "mine-2", &n), "id"), "j9");
    assert_int_equal(n, 1);
    assert_null(names_choose(jobs, "min", &n));
    assert_int_equal(n, 0);
    assert_null(names_choose(NULL, "mine", &n));
}

static void what_a_server_knows_is_told_by_the_command(void **state)
{
    static const struct {
        const char *name, *args, *kind;
    } rows[] = {
        {"show", "JOB", "jobs"},
        {"sample", "JOB|DIR", "jobs"},
        {"drain", "NODE", "nodes"},
        {"project set", "NAME", "projects"},
        {"token revoke", "TOKEN", "tokens"},
        {"submit", "FILE | -- PROGRAM...", NULL},
        {"project list", "", NULL},
        {"secret set", "NAME", NULL},
        {"token create", "USER", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct command cmd = {.name = rows[i].name, .args = rows[i].args};
        const char *kind = names_kind(&cmd);

        if (!kind != !rows[i].kind || (kind && strcmp(kind, rows[i].kind) != 0))
            fail_msg("'%s' has %s", rows[i].name, kind ? kind : "nothing");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_known_by_its_form),
        cmocka_unit_test(the_table_says_which_arguments_are_jobs),
        cmocka_unit_test(the_newest_job_of_exactly_the_name_is_chosen),
        cmocka_unit_test(what_a_server_knows_is_told_by_the_command),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
