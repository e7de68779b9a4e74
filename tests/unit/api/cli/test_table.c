/* The table of commands: each row can be typed as its example says, and no two are called the same. */
#include "tests/unit/test.h"

#include <string.h>

#include "api/cli/cli.h"

static void each_command_is_there_once_and_says_what_it_does(void **state)
{
    (void)state;
    assert_true(cli_commands.n > 60);
    for (size_t i = 0; i < cli_commands.n; i++) {
        const struct command *c = &cli_commands.v[i];

        if (!c->run || !*c->help || c->min > c->max || c->max > OPTIONS_ARGS_MAX || strlen(c->help) > 90 ||
            !strstr(c->example, c->name))
            fail_msg("%s", c->name);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(c->name, cli_commands.v[k].name);
    }
}

/* An option of a command must not stand in for one that all commands have, nor for another of its own. --state is the
 * one that does: of jobs where a command selects some, else the folder, which MUSTER_STATE names, too. */
static void no_option_of_a_command_is_another_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < cli_commands.n; i++) {
        const struct command *c = &cli_commands.v[i];

        for (size_t k = 0; c->options[k].name; k++) {
            const struct option_row *o = &c->options[k];

            if (!*o->help || k + 1 >= CLI_OPTIONS_MAX || (o->kind == OPTION_FLAG) != !o->value)
                fail_msg("%s --%s", c->name, o->name);
            for (size_t m = 0; m < k; m++)
                if (strcmp(o->name, c->options[m].name) == 0 || (o->letter && o->letter == c->options[m].letter))
                    fail_msg("%s --%s and --%s", c->name, o->name, c->options[m].name);
            for (const struct option_row *g = cli_common; g->name; g++)
                if ((strcmp(o->name, g->name) == 0 && strcmp(o->name, "state") != 0) ||
                    (o->letter && o->letter == g->letter))
                    fail_msg("%s --%s and --%s of all", c->name, o->name, g->name);
        }
    }
}

static void a_command_that_takes_a_program_says_so(void **state)
{
    static const struct {
        const char *args;
        bool takes;
    } table[] = {{"FILE | -- PROGRAM...", true}, {"JOB -- PROGRAM...", true}, {"JOB", false}, {"", false}};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        assert_int_equal(cli_takes_program(&(struct command){.args = table[i].args}), table[i].takes);
}

static void an_id_that_would_lead_elsewhere_is_no_path(void **state)
{
    static const struct {
        const char *id;
        int status;
    } table[] = {{"j1", 0},
                 {"j17.3", 0},
                 {"", CLI_NOT_FOUND},
                 {"..", CLI_NOT_FOUND},
                 {"../nodes", CLI_NOT_FOUND},
                 {"j1/x", CLI_NOT_FOUND},
                 {"j1?x", CLI_NOT_FOUND},
                 {"j 1", CLI_NOT_FOUND}};
    char path[256];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        int r = cli_job_path(table[i].id, "/logs", path);

        if (r != table[i].status)
            fail_msg("'%s': %d, %s", table[i].id, r, path);
        if (r == 0)
            assert_non_null(strstr(path, table[i].id));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_command_is_there_once_and_says_what_it_does),
        cmocka_unit_test(no_option_of_a_command_is_another_one),
        cmocka_unit_test(a_command_that_takes_a_program_says_so),
        cmocka_unit_test(an_id_that_would_lead_elsewhere_is_no_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
