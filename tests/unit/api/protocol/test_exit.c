#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "api/protocol/exit.h"

static void a_status_of_a_users_program_is_no_cause(void **state)
{
    static const int own[] = {EXIT_USER, EXIT_INTERNAL, EXIT_NODE, EXIT_ABORTED, EXIT_DRAINED, 1, 126, 127, 255};

    (void)state;
    for (size_t i = 0; i < COUNT(own); i++)
        for (int told = 0; told < 2; told++) {
            struct rank_exit e = {.status = own[i], .cause = told ? EXIT_CAUSE_PROGRAM : EXIT_CAUSE_UNTOLD};

            e = exit_settle(e, JOB_COMMAND);
            assert_int_equal(e.cause, EXIT_CAUSE_PROGRAM);
            assert_false(exit_done(&e) || exit_well(&e));
            if (!told)
                continue;
            e = exit_settle(e, JOB_TRAIN); /* nor in a training job, where its writer says that there is none */
            assert_int_equal(e.cause, EXIT_CAUSE_PROGRAM);
            assert_false(exit_done(&e) || exit_well(&e));
        }
}

static void what_protocol_1_meant_by_a_trainers_status_is_its_cause(void **state)
{
    static const struct {
        int status, signal;
        enum exit_cause cause;
    } row[] = {
        {0, 0, EXIT_CAUSE_DONE},    {65, 0, EXIT_CAUSE_USER},     {70, 0, EXIT_CAUSE_INTERNAL},
        {74, 0, EXIT_CAUSE_NODE},   {75, 0, EXIT_CAUSE_ABORTED},  {76, 0, EXIT_CAUSE_DRAINED},
        {1, 0, EXIT_CAUSE_PROGRAM}, {137, 9, EXIT_CAUSE_PROGRAM}, {0, 9, EXIT_CAUSE_PROGRAM},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rank_exit e =
            exit_settle((struct rank_exit){.status = row[i].status, .signal = row[i].signal}, JOB_TRAIN);

        assert_int_equal(e.cause, row[i].cause);
        assert_int_equal(exit_done(&e), row[i].status == 0 && row[i].signal == 0);
        assert_int_equal(exit_well(&e), exit_done(&e) || row[i].status == 76);
        if (e.cause != EXIT_CAUSE_PROGRAM)
            assert_int_equal(exit_status(e.cause), row[i].status);
    }
}

static void a_cause_that_cannot_be_is_the_programs_own_affair(void **state)
{
    static const struct rank_exit row[] = {
        {.status = 66, .cause = EXIT_CAUSE_DONE}, /* something ended it on its way out */
        {.status = 139, .signal = 11, .cause = EXIT_CAUSE_USER},
        {.status = 139, .signal = 11, .cause = EXIT_CAUSE_DRAINED},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rank_exit e = exit_settle(row[i], JOB_TRAIN);

        assert_int_equal(e.cause, EXIT_CAUSE_PROGRAM);
        assert_false(exit_well(&e));
    }
}

static void a_cause_has_a_name_and_another_name_is_refused(void **state)
{
    struct rank_exit e = {.status = 77};
    struct merr err = {""};
    json_t *o;

    (void)state;
    for (int c = EXIT_CAUSE_UNTOLD + 1; c < EXIT_CAUSES; c++)
        assert_non_null(exit_cause_names[c]);
    o = json_pack("{s:i, s:i, s:s}", "exit_code", 0, "signal", 0, "cause", "76");
    assert_int_equal(exit_read(o, &e, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'cause' wants one of program, done, drained"));
    assert_int_equal(e.status, 77);
    json_decref(o);
    o = json_pack("{s:i, s:i, s:s, s:I}", "exit_code", 74, "signal", 0, "at", "2026-11-22T16:00:00.123Z", "at_ms",
                  (json_int_t)1795363200123);
    assert_int_equal(exit_read(o, &e, &err), 0); /* as protocol 1 wrote it */
    assert_int_equal(e.cause, EXIT_CAUSE_UNTOLD);
    assert_int_equal(e.at_ms, 1795363200123);
    json_decref(o);
}

/* A shell's 128 + n is signal n: what `argv: [python3, …]` and `command: python3 …` die of is the same to all. */
static void the_same_signal_is_the_same_fault_of_a_program_and_of_a_shell(void **state)
{
    static const struct {
        int signal;
        enum exit_cause fault;
    } row[] = {
        {SIGSEGV, EXIT_CAUSE_USER},     {SIGABRT, EXIT_CAUSE_USER},    {SIGBUS, EXIT_CAUSE_USER},
        {SIGFPE, EXIT_CAUSE_USER},      {SIGILL, EXIT_CAUSE_USER},     {SIGSYS, EXIT_CAUSE_USER},
        {SIGPIPE, EXIT_CAUSE_USER},     {SIGXCPU, EXIT_CAUSE_USER},    {SIGKILL, EXIT_CAUSE_INTERNAL},
        {SIGTERM, EXIT_CAUSE_INTERNAL}, {SIGINT, EXIT_CAUSE_INTERNAL}, {SIGHUP, EXIT_CAUSE_INTERNAL},
        {SIGQUIT, EXIT_CAUSE_INTERNAL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++)
        for (int shell = 0; shell < 2; shell++) {
            struct rank_exit e = {.status = 128 + row[i].signal, .signal = shell ? 0 : row[i].signal};
            char words[EXIT_WHY_MAX], want[64];

            exit_judge(&e, &(struct exit_seen){.told = EXIT_CAUSE_UNTOLD});
            e = exit_settle(e, JOB_COMMAND);
            assert_int_equal(e.cause, EXIT_CAUSE_PROGRAM);
            assert_int_equal(e.signal, row[i].signal);
            assert_int_equal(exit_fault(&e, JOB_COMMAND), row[i].fault);
            exit_describe(&e, JOB_COMMAND, words, sizeof(words));
            (void)snprintf(want, sizeof(want), "ended by signal %d (%s)", e.signal, strsignal(e.signal));
            assert_string_equal(words, want);
        }
}

static void what_a_program_does_that_was_told_to_end_is_an_answer_and_no_cause(void **state)
{
    static const struct {
        struct exit_seen seen;
        int status, signal;
        enum exit_cause cause;
    } row[] = {
        {{.asked = false}, 0, 0, EXIT_CAUSE_PROGRAM}, /* by itself: it is done */
        {{.finished = true}, 3, 0, EXIT_CAUSE_PROGRAM},
        {{.asked = true}, 0, 0, EXIT_CAUSE_DRAINED},
        {{.asked = true}, 3, 0, EXIT_CAUSE_ABORTED},
        {{.asked = true}, 143, SIGTERM, EXIT_CAUSE_ABORTED},
        {{.asked = true}, 139, SIGSEGV, EXIT_CAUSE_ABORTED},
        {{.asked = true, .killed = true}, 137, SIGKILL, EXIT_CAUSE_ABORTED},
        {{.asked = true, .finished = true}, 0, 0, EXIT_CAUSE_DONE},
        {{.asked = true, .finished = true}, 143, SIGTERM, EXIT_CAUSE_DONE}, /* the shell around it */
        {{.asked = true, .finished = true}, 143, 0, EXIT_CAUSE_DONE},
        {{.asked = true, .finished = true}, 1, 0, EXIT_CAUSE_ABORTED},
        {{.asked = true, .finished = true, .killed = true}, 137, SIGKILL, EXIT_CAUSE_ABORTED},
        {{.killed = true}, 137, SIGKILL, EXIT_CAUSE_ABORTED}, /* Muster's own kill is never a cause */
        {{.killed = true}, 3, 0, EXIT_CAUSE_PROGRAM},         /* it was faster */
        {{.out_of_memory = true}, 137, SIGKILL, EXIT_CAUSE_MEMORY},
        {{.out_of_memory = true}, 137, 0, EXIT_CAUSE_MEMORY},
        {{.told = EXIT_CAUSE_NUMBERS}, 65, 0, EXIT_CAUSE_NUMBERS},
        {{.out_of_memory = true}, 1, 0, EXIT_CAUSE_PROGRAM},
        {{.told = EXIT_CAUSE_DRAINED, .asked = true}, 76, 0, EXIT_CAUSE_DRAINED}, /* muster-train says more */
        {{.told = EXIT_CAUSE_USER}, 65, 0, EXIT_CAUSE_USER},
        {{.told = EXIT_CAUSE_USER}, 139, SIGSEGV, EXIT_CAUSE_PROGRAM},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rank_exit e = {.status = row[i].status, .signal = row[i].signal};

        exit_judge(&e, &row[i].seen);
        e = exit_settle(e, JOB_COMMAND);
        if (e.cause != row[i].cause)
            fail_msg("row %zu: %s", i, exit_cause_names[e.cause]);
        assert_int_equal(exit_done(&e), e.cause == EXIT_CAUSE_DONE || (i == 0 && e.cause == EXIT_CAUSE_PROGRAM));
        if (e.cause == EXIT_CAUSE_ABORTED)
            assert_true(e.why[0] != '\0');
    }
}

/* The table of orders in docs/programs.md. */
static void what_a_command_says_of_its_end_goes_before_its_status(void **state)
{
    static const struct {
        struct exit_seen seen;
        int status, signal;
        enum exit_cause cause;
        int shown; /* status after it was judged; -1: as before */
    } row[] = {
        {{.said = EXIT_SAID_DONE}, 0, 0, EXIT_CAUSE_PROGRAM, -1},
        {{.said = EXIT_SAID_DONE}, 1, 0, EXIT_CAUSE_PROGRAM, -1},
        /* told to end: a launcher's 1, its SIGTERM and the program's own 76 are one */
        {{.asked = true, .said = EXIT_SAID_STOPPED}, 76, 0, EXIT_CAUSE_DRAINED, 76},
        {{.asked = true, .said = EXIT_SAID_STOPPED}, 1, 0, EXIT_CAUSE_DRAINED, 76},
        {{.asked = true, .said = EXIT_SAID_STOPPED}, 143, SIGTERM, EXIT_CAUSE_DRAINED, 76},
        {{.asked = true, .said = EXIT_SAID_STOPPED}, 139, SIGSEGV, EXIT_CAUSE_ABORTED, -1},
        {{.asked = true, .killed = true, .said = EXIT_SAID_STOPPED}, 137, SIGKILL, EXIT_CAUSE_ABORTED, -1},
        {{.asked = true, .said = EXIT_SAID_HEARD}, 76, 0, EXIT_CAUSE_DRAINED, -1},
        {{.asked = true}, 76, 0, EXIT_CAUSE_ABORTED, -1}, /* without a word of it: as ever */
        {{.asked = true, .said = EXIT_SAID_HEARD}, 74, 0, EXIT_CAUSE_ABORTED, -1},
        {{.asked = true, .said = EXIT_SAID_DONE}, 0, 0, EXIT_CAUSE_DONE, 0},
        {{.asked = true, .said = EXIT_SAID_DONE}, 143, SIGTERM, EXIT_CAUSE_DONE, 0},
        {{.asked = true, .said = EXIT_SAID_FAILED, .said_cause = EXIT_CAUSE_NODE}, 1, 0, EXIT_CAUSE_ABORTED, -1},
        /* by itself, with an acknowledgement or a result: statuses mean what those of muster-train do */
        {{.said = EXIT_SAID_HEARD}, 65, 0, EXIT_CAUSE_USER, -1},
        {{.said = EXIT_SAID_HEARD}, 70, 0, EXIT_CAUSE_INTERNAL, -1},
        {{.said = EXIT_SAID_HEARD}, 74, 0, EXIT_CAUSE_NODE, -1},
        {{.said = EXIT_SAID_HEARD}, 75, 0, EXIT_CAUSE_ABORTED, -1},
        {{.said = EXIT_SAID_HEARD}, 76, 0, EXIT_CAUSE_USER, -1},
        {{.said = EXIT_SAID_STOPPED}, 76, 0, EXIT_CAUSE_USER, -1},
        {{.said = EXIT_SAID_STOPPED}, 1, 0, EXIT_CAUSE_USER, -1},
        {{.said = EXIT_SAID_HEARD}, 3, 0, EXIT_CAUSE_PROGRAM, -1},
        {{.said = EXIT_SAID_HEARD}, 139, SIGSEGV, EXIT_CAUSE_PROGRAM, -1},
        {{.said = EXIT_SAID_FAILED, .said_cause = EXIT_CAUSE_USER}, 1, 0, EXIT_CAUSE_USER, -1},
        {{.said = EXIT_SAID_FAILED, .said_cause = EXIT_CAUSE_INTERNAL}, 1, 0, EXIT_CAUSE_INTERNAL, -1},
        {{.said = EXIT_SAID_FAILED, .said_cause = EXIT_CAUSE_NODE}, 0, 0, EXIT_CAUSE_NODE, -1},
        {{.said = EXIT_SAID_FAILED, .said_cause = EXIT_CAUSE_NODE, .out_of_memory = true},
         137,
         SIGKILL,
         EXIT_CAUSE_MEMORY,
         -1},
        /* the same statuses of a program that knows nothing of this are its own affair */
        {{0}, 65, 0, EXIT_CAUSE_PROGRAM, -1},
        {{0}, 76, 0, EXIT_CAUSE_PROGRAM, -1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rank_exit e = {.status = row[i].status, .signal = row[i].signal};

        exit_judge(&e, &row[i].seen);
        e = exit_settle(e, JOB_COMMAND);
        if (e.cause != row[i].cause || e.status != (row[i].shown < 0 ? row[i].status : row[i].shown))
            fail_msg("row %zu: %s, %d", i, exit_cause_names[e.cause], e.status);
    }
}

static void the_words_of_a_command_that_failed_are_told(void **state)
{
    struct exit_seen seen = {.said = EXIT_SAID_FAILED, .said_cause = EXIT_CAUSE_NODE, .said_why = "disk on fire"};
    struct rank_exit e = {.status = 1};

    (void)state;
    exit_judge(&e, &seen);
    assert_string_equal(e.why, "disk on fire");
    assert_int_equal(exit_fault(&e, JOB_COMMAND), EXIT_CAUSE_NODE);
    seen.asked = true;
    exit_judge(&e, &seen);
    assert_string_equal(e.why, "it was told to end, and ended with exit code 1: disk on fire");
    e = (struct rank_exit){.status = 76};
    exit_judge(&e, &(struct exit_seen){.said = EXIT_SAID_STOPPED});
    assert_string_equal(e.why, "it stopped itself: nothing had asked it to (exit code 76)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_of_a_users_program_is_no_cause),
        cmocka_unit_test(what_protocol_1_meant_by_a_trainers_status_is_its_cause),
        cmocka_unit_test(a_cause_that_cannot_be_is_the_programs_own_affair),
        cmocka_unit_test(a_cause_has_a_name_and_another_name_is_refused),
        cmocka_unit_test(the_same_signal_is_the_same_fault_of_a_program_and_of_a_shell),
        cmocka_unit_test(what_a_program_does_that_was_told_to_end_is_an_answer_and_no_cause),
        cmocka_unit_test(what_a_command_says_of_its_end_goes_before_its_status),
        cmocka_unit_test(the_words_of_a_command_that_failed_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
