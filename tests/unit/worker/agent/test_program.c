/* The files through which a command and its agent speak, and what a hostile program makes of them. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/agent/program.h"

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/muster-program-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return io_remove_tree(dir, NULL);
}

static const char *path_of(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *text)
{
    assert_int_equal(io_publish_file(path_of(name), text, strlen(text), 0640, NULL), 0);
}

static char *get(const char *name)
{
    struct buf b;
    char *text;

    buf_init(&b, 4096);
    assert_int_equal(io_read_plain(path_of(name), &b, NULL), 0);
    text = strdup(buf_text(&b));
    buf_clear(&b);
    return text;
}

static void results_are_read_as_they_are_written_down(void **state)
{
    static const struct {
        const char *text;
        enum exit_said outcome;
        enum exit_cause cause;
        int64_t step;
        const char *message;
    } row[] = {
        {"{\"outcome\":\"done\",\"step\":300}", EXIT_SAID_DONE, EXIT_CAUSE_USER, 300, ""},
        {"{\"outcome\":\"stopped\",\"step\":7,\"more\":[1]}", EXIT_SAID_STOPPED, EXIT_CAUSE_USER, 7, ""},
        {"{\"outcome\":\"failed\",\"class\":\"node\",\"message\":\"x\"}", EXIT_SAID_FAILED, EXIT_CAUSE_NODE, -1, "x"},
        {"{\"outcome\":\"failed\",\"class\":\"system\"}", EXIT_SAID_FAILED, EXIT_CAUSE_INTERNAL, -1, ""},
        {"{\"outcome\":\"failed\",\"class\":\"aborted\"}", EXIT_SAID_FAILED, EXIT_CAUSE_USER, -1, ""},
        {"{\"outcome\":\"failed\",\"step\":-3,\"message\":7}", EXIT_SAID_FAILED, EXIT_CAUSE_USER, -1, ""},
    };
    static const char *const bad[] = {"", "{", "[]", "{}", "{\"outcome\":7}", "{\"outcome\":\"nothing\"}", "null"};
    struct program_result r;

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_int_equal(program_parse_result(row[i].text, strlen(row[i].text), &r), 0);
        assert_int_equal(r.outcome, row[i].outcome);
        assert_int_equal(r.cause, row[i].cause);
        assert_int_equal(r.step, row[i].step);
        assert_string_equal(r.message, row[i].message);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(program_parse_result(bad[i], strlen(bad[i]), &r), -EINVAL);
}

static int beat(const char *text, struct program_beat *ret)
{
    return program_parse_beat(text, strlen(text), ret);
}

static void beats_are_read_as_they_are_written_down(void **state)
{
    static const char *const bad[] = {
        "", "{}", "{\"at\":\"7\"}", "{\"at\":-1}", "{\"at\":1e300}", "{\"step\":7}", "{\"at\":1.5} x"};
    static const char padded[] = "{\"step\":9,\"at\":12.5,\"section\":\"eval\",\"for_s\":600}                       ";
    struct program_beat b;

    (void)state;
    assert_int_equal(beat(padded, &b), 0);
    assert_true(b.step == 9 && b.at_us == 12500000 && b.for_us == 600000000);
    assert_string_equal(b.section, "eval");
    assert_int_equal(beat("{\"at\":3}", &b), 0);
    assert_true(b.step == -1 && b.at_us == 3000000 && b.for_us == 0 && !b.section[0]);
    assert_int_equal(beat("{\"at\":3,\"section\":\"x\",\"for_s\":-1}", &b), 0);
    assert_true(b.for_us == 0 && !b.section[0]);
    assert_int_equal(beat("{\"at\":3,\"section\":\"x\",\"for_s\":1e99}", &b), 0);
    assert_true(b.for_us == (int64_t)(PROGRAM_FOR_S_MAX * 1e6));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(beat(bad[i], &b), -EINVAL);
}

static void what_a_rank_has_answered_is_its_newest_order_with_step_and_deed(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"seq\":0}",
                                      "{\"seq\":-1}",
                                      "{\"seq\":\"1\"}",
                                      "{\"seq\":1e300}",
                                      "{\"seq\":9223372036854775807}",
                                      "{\"seq\":1"};
    struct report_ack a;

    (void)state;
    put("rank-00003.ack", "{\"seq\":7,\"step\":0,\"did\":\"refused\"}");
    assert_int_equal(program_read_ack(dir, 3, &a), 0);
    assert_true(a.seq == 7 && a.step == 0 && a.did == REPORT_DID_REFUSE);
    put("rank-00003.ack", "{\"seq\":8,\"step\":-4,\"did\":\"sang\"}");
    assert_int_equal(program_read_ack(dir, 3, &a), 0);
    assert_true(a.seq == 8 && a.step == -1 && a.did == REPORT_DID_NOTHING);
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(program_parse_ack(bad[i], strlen(bad[i]), &a), -EINVAL);
    assert_int_equal(a.seq, 8);
}

static void the_number_of_orders_rises_whatever_stands_there(void **state)
{
    struct program_telling t = {.order = PROGRAM_SAVE, .reason = "a \"reason\"", .devices_now = 4};
    enum program_order order;
    uint64_t seq = 0;
    char *text;

    (void)state;
    for (uint64_t want = 1; want <= 3; want++) {
        t.order = want == 3 ? PROGRAM_STOP : PROGRAM_SAVE;
        t.deadline_us = want == 3 ? INT64_C(1700000000123456) : 0;
        t.devices_next = want == 3 ? 2 : 0;
        assert_int_equal(program_publish_order(dir, &t, NULL), 0);
        text = get("order.json");
        assert_int_equal(program_parse_order(text, strlen(text), &order, &seq), 0);
        assert_true(order == t.order && seq == want);
        free(text);
        if (want == 1)
            put("rank-00000.ack", "{\"seq\":1,\"step\":7,\"did\":\"saved\"}");
    }
    text = get("order.json");
    assert_string_equal(text, "{\"v\":1,\"seq\":3,\"order\":\"stop\",\"deadline\":\"2023-11-14T22:13:20.123Z\","
                              "\"reason\":\"a \\\"reason\\\"\",\"devices\":{\"now\":4,\"next\":2}}");
    free(text);
    put("order.json", "{\"seq\":9223372036854775807,\"order\":\"stop\"}"); /* no number may become the last one */
    assert_int_equal(program_publish_order(dir, &t, NULL), 0);
    text = get("order.json");
    assert_int_equal(program_parse_order(text, strlen(text), &order, &seq), 0);
    assert_int_equal(seq, 1);
    free(text);
    assert_int_equal(unlink(path_of("order.json")), 0);
    assert_int_equal(mkfifo(path_of("order.json"), 0600), 0);
    assert_int_equal(program_publish_order(dir, &t, NULL), 0); /* replaced, and nobody was waited for */
    text = get("order.json");
    assert_int_equal(program_parse_order(text, strlen(text), &order, &seq), 0);
    free(text);
}

static void an_order_that_nobody_has_answered_is_not_given_again(void **state)
{
    static const struct {
        const char *ack;
        enum program_order order;
        uint64_t want;
    } row[] = {{NULL, PROGRAM_SAVE, 1},
               {NULL, PROGRAM_SAVE, 1},
               {"{\"seq\":0,\"did\":\"saved\"}", PROGRAM_SAVE, 1},
               {"{\"seq\":1,\"did\":\"saved\"}", PROGRAM_SAVE, 2},
               {NULL, PROGRAM_SCALE, 3},
               {NULL, PROGRAM_SCALE, 3},
               {"{\"seq\":3,\"did\":\"stopping\"}", PROGRAM_SCALE, 4},
               {NULL, PROGRAM_ABORT, 5}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct program_telling t = {.order = row[i].order, .reason = "r", .devices_now = 2, .devices_next = 1};
        enum program_order order;
        uint64_t seq;
        char *text;

        if (row[i].ack)
            put("rank-00001.ack", row[i].ack);
        assert_int_equal(program_publish_order(dir, &t, NULL), 0);
        text = get("order.json");
        assert_int_equal(program_parse_order(text, strlen(text), &order, &seq), 0);
        assert_true(order == row[i].order && seq == row[i].want);
        free(text);
    }
}

static void the_version_is_told_before_ranks_begin(void **state)
{
    char *text;

    (void)state;
    assert_int_equal(program_publish_abi(dir, NULL), 0);
    text = get("abi.json");
    assert_string_equal(text, "{\"abi\":1,\"minor\":0,\"features\":[\"metrics\",\"orders\",\"beat\",\"result\"]}");
    free(text);
}

static void hear(int rank, bool launcher, struct exit_seen *ret)
{
    *ret = (struct exit_seen){.asked = false};
    program_hear(dir, rank, launcher ? 0 : 1, ret);
}

static void a_rank_speaks_for_itself_and_a_launcher_for_all_that_it_launched(void **state)
{
    struct exit_seen seen;

    (void)state;
    hear(0, true, &seen);
    assert_int_equal(seen.said, EXIT_SAID_NOTHING);
    put("rank-00001.result", "{\"outcome\":\"stopped\"}");
    hear(0, false, &seen);
    assert_int_equal(seen.said, EXIT_SAID_NOTHING);
    hear(0, true, &seen);
    assert_int_equal(seen.said, EXIT_SAID_STOPPED);
    put("rank-00000.ack", "{\"seq\":1,\"step\":7,\"did\":\"stopping\"}"); /* of all local ranks one has not stopped */
    hear(0, true, &seen);
    assert_int_equal(seen.said, EXIT_SAID_HEARD);
    put("rank-00000.result", "{\"outcome\":\"stopped\"}");
    hear(0, true, &seen);
    assert_int_equal(seen.said, EXIT_SAID_STOPPED);
    put("rank-00002.result", "{\"outcome\":\"failed\",\"class\":\"node\",\"message\":\"m\"}");
    hear(0, true, &seen);
    assert_true(seen.said == EXIT_SAID_FAILED && seen.said_cause == EXIT_CAUSE_NODE);
    assert_string_equal(seen.said_why, "rank 2: m");
    hear(0, false, &seen);
    assert_int_equal(seen.said, EXIT_SAID_STOPPED);
}

static void who_answers_an_order_before_its_signal_was_asked_too(void **state)
{
    struct program_telling t = {.order = PROGRAM_SAVE, .reason = "", .devices_now = 1};
    struct exit_seen seen;

    (void)state;
    put("rank-00000.result", "{\"outcome\":\"stopped\"}");
    assert_int_equal(program_publish_order(dir, &t, NULL), 0);
    hear(0, false, &seen);
    assert_false(seen.asked); /* to save, not to stop */
    t.order = PROGRAM_STOP;
    assert_int_equal(program_publish_order(dir, &t, NULL), 0);
    hear(0, false, &seen);
    assert_true(seen.asked);
    assert_int_equal(unlink(path_of("rank-00000.result")), 0);
    hear(0, false, &seen);
    assert_false(seen.asked); /* it has said nothing: it ended by itself */
}

static void what_is_no_plain_small_file_of_its_account_is_not_there(void **state)
{
    struct program_result r;
    struct program_beat b;
    struct report_ack ack;
    char *big = calloc(1, PROGRAM_FILE_MAX + 2);

    (void)state;
    memset(big, ' ', PROGRAM_FILE_MAX + 1);
    memcpy(big, "{\"outcome\":\"done\"}", 18);
    put("rank-00000.result", big);
    assert_int_equal(program_read_result(dir, 0, &r), -EMSGSIZE);
    big[PROGRAM_FILE_MAX] = '\0';
    put("rank-00000.result", big);
    assert_int_equal(program_read_result(dir, 0, &r), 0);
    free(big);
    assert_int_equal(truncate(path_of("rank-00000.result"), (off_t)1 << 40), 0);
    assert_int_equal(program_read_result(dir, 0, &r), -EMSGSIZE);
    assert_int_equal(mkfifo(path_of("rank-00000.beat"), 0600), 0);
    assert_int_equal(program_read_beat(dir, 0, &b), -EMEDIUMTYPE);
    assert_int_equal(symlink("/dev/zero", path_of("rank-00000.ack")), 0);
    assert_int_equal(program_read_ack(dir, 0, &ack), -ELOOP);
    assert_int_equal(mkdir(path_of("rank-00001.ack"), 0700), 0);
    assert_true(program_read_ack(dir, 1, &ack) < 0);
    put("rank-00001.beat", "{\"at\":1,\"st"); /* cut off */
    assert_int_equal(program_read_beat(dir, 1, &b), -EINVAL);
    put("rank-00002.result", "{\"outcome\":\"done\"}");
    if (chown(path_of("rank-00002.result"), 12345, (gid_t)-1) < 0)
        skip(); /* not root: nobody else's file can be made */
    assert_int_equal(program_read_result(dir, 2, &r), -EPERM);
    assert_int_equal(chmod(dir, 03770), 0); /* shared with a rank's account, as account.h has it */
    assert_int_equal(program_read_result(dir, 2, &r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_read_as_they_are_written_down),
        cmocka_unit_test(beats_are_read_as_they_are_written_down),
        cmocka_unit_test_setup_teardown(what_a_rank_has_answered_is_its_newest_order_with_step_and_deed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_number_of_orders_rises_whatever_stands_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_order_that_nobody_has_answered_is_not_given_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_version_is_told_before_ranks_begin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_speaks_for_itself_and_a_launcher_for_all_that_it_launched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_answers_an_order_before_its_signal_was_asked_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_plain_small_file_of_its_account_is_not_there, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
