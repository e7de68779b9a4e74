/* libmuster as a program uses it: what it writes into the folder of the run, and what it reads there. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/program/muster.h"

#define WAIT_MS 20000

static char dir[64], job[128];

static const char *path_of(const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/muster-library-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(job, sizeof(job), "%s/job", dir);
    return mkdir(job, 0700);
}

static int tear_down(void **state)
{
    char command[128];
    pid_t child;

    (void)state;
    (void)snprintf(command, sizeof(command), "%s", dir);
    child = fork();
    if (child == 0) {
        (void)execlp("rm", "rm", "-rf", command, NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, NULL, 0) == child ? 0 : -1;
}

static muster *open_rank(int rank)
{
    struct muster_options o = {.size = sizeof(o), .rank = rank, .run_dir = dir, .job_dir = job};
    muster *m;

    assert_int_equal(muster_open(&o, &m), 0);
    assert_non_null(m);
    return m;
}

/* What a file has now; "": it is not there. */
static const char *text_of(const char *name)
{
    static char text[65536];
    int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        (void)close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static bool wait_text(const char *name, const char *part)
{
    for (int i = 0; i < WAIT_MS / 5; i++) {
        if (strstr(text_of(name), part))
            return true;
        (void)poll(NULL, 0, 5);
    }
    return false;
}

static void publish(const char *name, const char *text)
{
    char temp[256];
    int fd;

    (void)snprintf(temp, sizeof(temp), "%s/new", dir);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
    assert_int_equal(rename(temp, path_of(name)), 0);
}

static void outside_of_muster_all_calls_do_nothing(void **state)
{
    struct muster_order o = {.size = sizeof(o), .order = 77};
    muster *m = (muster *)1;

    (void)state;
    (void)unsetenv("MUSTER_RUN_DIR");
    assert_int_equal(muster_open(NULL, &m), 1);
    assert_null(m);
    assert_int_equal(muster_metrics(m, 1, (const char *[]){"a"}, (double[]){1}, 1), 0);
    assert_int_equal(muster_event(m, "no json", 7), 0);
    assert_int_equal(muster_artifact(m, "text", "k", 1, "x", 1), 0);
    assert_int_equal(muster_step(m, 1), 0);
    assert_int_equal(muster_section_begin(m, "eval", 1), 0);
    assert_int_equal(muster_section_end(m), 0);
    assert_int_equal(muster_order_get(m, &o), 0);
    assert_int_equal(o.order, MUSTER_NONE);
    assert_int_equal(muster_on_order(m, NULL, NULL), 0);
    assert_int_equal(muster_ack(m, 1, 1, "saved"), 0);
    assert_int_equal(muster_finish(m, "done", 1, NULL), 0);
    muster_close(m);
}

static void the_environment_says_where_and_who(void **state)
{
    muster *m;

    (void)state;
    (void)setenv("MUSTER_RUN_DIR", dir, 1);
    (void)setenv("MUSTER_JOB_DIR", job, 1);
    (void)setenv("RANK", "3", 1);
    assert_int_equal(muster_open(NULL, &m), 0);
    assert_int_equal(muster_ack(m, 7, 5, "refused"), 0);
    muster_close(m);
    assert_string_equal(text_of("rank-00003.ack"), "{\"seq\":7,\"step\":5,\"did\":\"refused\"}\n");
    (void)setenv("RANK", "x", 1);
    assert_int_equal(muster_open(NULL, &m), -EINVAL);
    assert_null(m);
    assert_non_null(strstr(muster_last_error(), "RANK"));
    (void)setenv("RANK", "0", 1);
    (void)setenv("MUSTER_RUN_DIR", "/nowhere", 1);
    assert_int_equal(muster_open(NULL, &m), 1);
    (void)unsetenv("MUSTER_RUN_DIR");
}

static void structs_of_older_and_newer_programs_are_taken(void **state)
{
    struct {
        struct muster_options o;
        uint64_t more;
    } newer = {.o = {.size = sizeof(newer), .rank = 0, .run_dir = dir}};
    struct muster_options small = {.size = 4};
    struct {
        struct muster_order o;
        uint64_t more;
    } order = {.o = {.size = sizeof(order)}, .more = 42};
    struct muster_order old = {.size = 16, .deadline_us = 42};
    muster *m;

    (void)state;
    assert_int_equal(muster_open(&small, &m), -EINVAL);
    newer.o.flags = 1;
    assert_int_equal(muster_open(&newer.o, &m), -EINVAL); /* what is asked for and not known is no silent success */
    newer.o.flags = 0;
    assert_int_equal(muster_open(&newer.o, &m), 0);
    assert_int_equal(muster_order_get(m, &order.o), 0);
    assert_true(order.o.size == sizeof(order) && order.more == 42);
    assert_int_equal(muster_order_get(m, &old), 0);
    assert_true(old.size == 16 && old.deadline_us == 42);
    old.size = 4;
    assert_int_equal(muster_order_get(m, &old), -EINVAL);
    muster_close(m);
}

static void a_process_has_one_handle(void **state)
{
    struct muster_options other = {.size = sizeof(other), .rank = 1, .run_dir = dir, .job_dir = job};
    muster *m = open_rank(0), *again = open_rank(0), *third;

    (void)state;
    assert_ptr_equal(m, again);
    assert_int_equal(muster_open(&other, &third), -EBUSY);
    muster_close(again);
    assert_int_equal(muster_metrics(m, 1, NULL, NULL, 0), 0);
    assert_true(text_of("metrics.jsonl")[0] == '{');
    muster_close(m);
    m = open_rank(1);
    muster_close(m);
}

static void metrics_are_lines_of_version_1_of_rank_0(void **state)
{
    static const char *const names[] = {"loss", "eval/top.1:a-b_c", "none", "big"};
    static const double values[] = {0.1, 2, NAN, -1.5e300};
    muster *m = open_rank(0);
    const char *text;
    double t;

    (void)state;
    (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is there, a comma would be the point */
    assert_int_equal(muster_metrics(m, 7, names, values, 4), 0);
    (void)setlocale(LC_ALL, "C");
    text = text_of("metrics.jsonl");
    assert_int_equal(sscanf(text, "{\"v\":1,\"step\":7,\"t\":%lf,", &t), 1);
    assert_true(fabs(t - (double)time(NULL)) < 100);
    assert_non_null(strstr(text, ",\"loss\":0.1,\"eval/top.1:a-b_c\":2,\"none\":null,\"big\":-1.5e+300}\n"));
    muster_close(m);
    m = open_rank(1);
    assert_int_equal(muster_metrics(m, 8, names, values, 4), 0);
    muster_close(m);
    assert_null(strstr(text_of("metrics.jsonl"), "\"step\":8"));
}

static void metrics_that_cannot_be_are_refused_in_words(void **state)
{
    static const char *const bad[] = {"", "a name", "ü", "step", "v", "t", NULL};
    const char *names[513];
    double values[513] = {0};
    char longest[130], many[200][100];
    muster *m = open_rank(0);

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(muster_metrics(m, 1, &bad[i], values, 1), -EINVAL);
    memset(longest, 'x', sizeof(longest));
    longest[129] = '\0';
    names[0] = longest;
    assert_int_equal(muster_metrics(m, 1, names, values, 1), -EINVAL);
    longest[128] = '\0';
    assert_int_equal(muster_metrics(m, 1, names, values, 1), 0);
    assert_int_equal(muster_metrics(m, -1, names, values, 1), -EINVAL);
    assert_int_equal(muster_metrics(m, 1, names, values, 513), -EINVAL);
    for (size_t i = 0; i < 200; i++) {
        (void)snprintf(many[i], sizeof(many[i]), "%099zu", i);
        names[i] = many[i];
    }
    assert_int_equal(muster_metrics(m, 1, names, values, 200), -EMSGSIZE);
    assert_non_null(strstr(muster_last_error(), "16384"));
    muster_close(m);
}

static void events_are_objects_with_a_type(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"type\":\"note\"} x",
                                      "{\"type\":7}",
                                      "{\"message\":\"m\"}",
                                      "{\"type\":\"a\" \"b\":1}",
                                      "{\"type\":\"note\",\"n\":01}",
                                      "{\"type\":\"note\",\"n\":NaN}",
                                      "{\"type\":\"\xff\"}",
                                      "{\"type\":\"a\nb\"}",
                                      "{\"type\":\"\\x\"}"};
    char deep[300] = "{\"type\":";
    char *big = calloc(1, 20000);
    muster *m = open_rank(2);

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(muster_event(m, bad[i], strlen(bad[i])), -EINVAL);
    memset(deep + 8, '[', 200);
    assert_int_equal(muster_event(m, deep, strlen(deep)), -EINVAL);
    memset(big, ' ', 19999);
    assert_int_equal(muster_event(m, big, 19999), -EMSGSIZE);
    free(big);
    assert_string_equal(text_of("events.jsonl"), "");
#define EVENT "{\"type\": \"note\",\n \"message\": \"\\u00e4 \\\" ü\", \"list\": [1, -2.5e-3, true, null, {}]}"
    assert_int_equal(muster_event(m, EVENT, strlen(EVENT)), 0);
    assert_int_equal(muster_event(m, "{\"rank\":9,\"type\":\"note\"}", 24), 0);
    assert_string_equal(text_of("events.jsonl"),
                        "{\"rank\":2,\"type\": \"note\",  \"message\": \"\\u00e4 \\\" ü\", \"list\": [1, -2.5e-3, "
                        "true, null, {}]}\n{\"rank\":9,\"type\":\"note\"}\n");
    muster_close(m);
}

static void artifacts_lie_in_the_jobs_folder_by_type_key_and_step(void **state)
{
    static const char *const bad[] = {"", "..", "a/../b", "/a", "a//b", "a/", ".hidden", "a b"};
    static char big[(1 << 20) + 1];
    muster *m = open_rank(1);

    (void)state;
    assert_int_equal(muster_artifact(m, "text", "samples/short", 7, "hello", 5), 0);
    assert_string_equal(text_of("job/artifacts/text/samples/short/7-r1.txt"), "hello");
    assert_string_equal(text_of("events.jsonl"), "{\"rank\":1,\"type\":\"artifact\",\"step\":7,\"path\":\"artifacts/"
                                                 "text/samples/short/7-r1.txt\"}\n");
    assert_int_equal(muster_artifact(m, "image", "p", 7, "\x89PNG\r\n\x1a\n...", 11), 0);
    assert_true(strlen(text_of("job/artifacts/image/p/7-r1.png")) > 0);
    assert_int_equal(muster_artifact(m, "image", "p", 7, "<svg onload=", 12), -EINVAL);
    assert_int_equal(muster_artifact(m, "html", "p", 7, "x", 1), -EINVAL);
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(muster_artifact(m, "text", bad[i], 7, "x", 1), -EINVAL);
    assert_int_equal(muster_artifact(m, "text", "k", 7, big, sizeof(big)), -EMSGSIZE);
    assert_int_equal(muster_artifact(m, "text", "k", 7, big, sizeof(big) - 1), 0);
    muster_close(m);
}

static void a_sign_of_life_is_the_programs_and_not_the_librarys(void **state)
{
    muster *m = open_rank(0);
    struct stat st;
    double at, later;

    (void)state;
    assert_int_equal(muster_metrics(m, 0, NULL, NULL, 0), 0);
    assert_int_equal(access(path_of("rank-00000.beat"), F_OK), -1); /* no step yet: it is not watched */
    assert_int_equal(muster_step(m, 41), 0);
    assert_int_equal(muster_step(m, 42), 0);
    assert_true(wait_text("rank-00000.beat", "{\"step\":42,\"at\":"));
    assert_int_equal(stat(path_of("rank-00000.beat"), &st), 0);
    assert_true(st.st_size == 256 && (st.st_mode & 0777) == 0640);
    assert_int_equal(sscanf(text_of("rank-00000.beat"), "{\"step\":42,\"at\":%lf}", &at), 1);
    /* the thread goes on, the time stands still; a section shows that it goes on */
    assert_int_equal(muster_section_begin(m, "eval", 600), 0);
    assert_int_equal(muster_section_begin(m, "save", 0.5), 0);
    assert_true(wait_text("rank-00000.beat", ",\"section\":\"save\",\"for_s\":1}"));
    assert_int_equal(sscanf(text_of("rank-00000.beat"), "{\"step\":42,\"at\":%lf,", &later), 1);
    assert_true(later >= at);
    assert_int_equal(muster_section_end(m), 0);
    assert_true(wait_text("rank-00000.beat", ",\"section\":\"eval\",\"for_s\":600}"));
    assert_int_equal(muster_section_end(m), 0);
    assert_int_equal(muster_section_end(m), -ENOENT);
    assert_int_equal(muster_section_begin(m, "a name", 1), -EINVAL);
    assert_int_equal(muster_section_begin(m, "x", 0), -EINVAL);
    assert_int_equal(muster_section_begin(m, "x", NAN), -EINVAL);
    for (int i = 0; i < 16; i++)
        assert_int_equal(muster_section_begin(m, "x", 1), 0);
    assert_int_equal(muster_section_begin(m, "x", 1), -EOVERFLOW);
    muster_close(m);
    assert_int_equal(access(path_of("rank-00000.beat"), F_OK), -1); /* who has closed is not watched */
}

static _Atomic unsigned calls;
static struct muster_order called_with;
static _Atomic(muster *) closes;

static void on_order(void *arg, const struct muster_order *order)
{
    assert_ptr_equal(arg, dir);
    called_with = *order;
    if (atomic_load(&closes))
        muster_close(closes);
    atomic_fetch_add(&calls, 1);
}

static void wait_calls(unsigned n)
{
    for (int i = 0; atomic_load(&calls) < n && i < WAIT_MS / 5; i++)
        (void)poll(NULL, 0, 5);
    assert_int_equal(atomic_load(&calls), n);
}

static void orders_come_as_a_value_and_as_a_call(void **state)
{
    struct muster_order o = {.size = sizeof(o)};
    muster *m = open_rank(0);

    (void)state;
    closes = NULL;
    atomic_store(&calls, 0);
    assert_int_equal(muster_on_order(m, on_order, dir), 0);
    assert_int_equal(muster_order_get(m, &o), 0);
    assert_true(o.order == MUSTER_NONE && o.seq == 0);
    publish("order.json", "{\"v\":1,\"seq\":1,\"order\":\"save\",\"deadline\":null,\"reason\":\"\\\"seq\\\":9\","
                          "\"devices\":{\"now\":4}}");
    wait_calls(1);
    assert_true(called_with.order == MUSTER_SAVE && called_with.seq == 1 && called_with.deadline_us == 0);
    publish("order.json", "{\"v\":1,\"seq\":2,\"order\":\"scale\",\"deadline\":\"2023-11-14T22:13:20.500Z\","
                          "\"reason\":\"\",\"more\":{\"order\":[\"stop\"]},\"devices\":{\"now\":4,\"next\":2}}");
    wait_calls(2);
    assert_int_equal(muster_order_get(m, &o), 0);
    assert_true(o.order == MUSTER_SCALE && o.seq == 2 && o.deadline_us == INT64_C(1700000000500000) &&
                o.devices_next == 2);
    publish("order.json", "{\"v\":1,\"seq\":3,\"order\":"); /* damaged: the last one stands */
    publish("order.json", "{\"v\":1,\"seq\":4,\"order\":\"something new\"}");
    wait_calls(3);
    assert_int_equal(called_with.order, MUSTER_NONE);
    assert_int_equal(muster_on_order(m, on_order, dir), 0); /* who asks anew hears the newest anew */
    wait_calls(4);
    closes = m; /* the thread's own last call: nobody waits for itself */
    publish("order.json", "{\"v\":1,\"seq\":5,\"order\":\"stop\"}");
    wait_calls(5);
    assert_int_equal(called_with.order, MUSTER_STOP);
    closes = NULL;
    assert_int_equal(muster_open(&(struct muster_options){.size = sizeof(struct muster_options), .run_dir = dir}, &m),
                     0);
    muster_close(m);
}

static void answers_and_ends_are_published_whole(void **state)
{
    muster *m = open_rank(0);
    char message[3000];

    (void)state;
    assert_int_equal(muster_ack(m, 3, 90, "saved"), 0);
    assert_string_equal(text_of("rank-00000.ack"), "{\"seq\":3,\"step\":90,\"did\":\"saved\"}\n");
    assert_int_equal(muster_ack(m, 3, 90, "done"), -EINVAL);
    assert_int_equal(muster_ack(m, 0, 90, "saved"), -EINVAL);
    assert_int_equal(muster_finish(m, "well", 1, NULL), -EINVAL);
    assert_int_equal(muster_finish(m, "failed/node", 7, "disk \"sda\"\n\xff gone"), 0);
    assert_string_equal(text_of("rank-00000.result"),
                        "{\"outcome\":\"failed\",\"step\":7,\"class\":\"node\",\"message\":"
                        "\"disk \\\"sda\\\"   gone\"}\n");
    memset(message, '"', sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    assert_int_equal(muster_finish(m, "stopped", 8, message), 0);
    assert_true(strlen(text_of("rank-00000.result")) < 4096);
    assert_int_equal(muster_step(m, 9), 0);
    muster_close(m);
    assert_int_equal(access(path_of("rank-00000.beat"), F_OK), -1);
}

static void a_child_of_fork_says_nothing(void **state)
{
    muster *m = open_rank(0);
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(muster_step(m, 1), 0);
    assert_int_equal(muster_section_begin(m, "x", 1), 0);
    child = fork();
    if (child == 0) {
        struct muster_options o = {.size = sizeof(o), .rank = 0, .run_dir = dir};
        muster *own;
        int bad = muster_metrics(m, 5, NULL, NULL, 0) != 0 || muster_event(m, "{\"type\":\"note\"}", 15) != 0 ||
                  muster_section_end(m) != 0 || muster_finish(m, "failed", 0, NULL) != 0 ||
                  muster_open(&o, &own) != 1 || own;

        muster_close(m);
        _exit(bad);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(text_of("metrics.jsonl"), "");
    assert_string_equal(text_of("events.jsonl"), "");
    assert_string_equal(text_of("rank-00000.result"), "");
    assert_true(wait_text("rank-00000.beat", "\"section\":\"x\""));
    assert_int_equal(muster_section_end(m), 0);
    muster_close(m);
}

/* The limit on the size of a file stands for a full disk: a part of the line is written, then nothing more. */
static void a_full_disk_drops_lines_and_is_told_once_a_minute(void **state)
{
    struct rlimit before, full;
    muster *m = open_rank(0);
    size_t had;

    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(muster_metrics(m, 1, NULL, NULL, 0), 0);
    had = strlen(text_of("metrics.jsonl"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full = before;
    full.rlim_cur = had + 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    assert_int_equal(muster_metrics(m, 2, NULL, NULL, 0), -ENOSPC);
    assert_int_equal(muster_metrics(m, 3, NULL, NULL, 0), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(strlen(text_of("metrics.jsonl")), had + 10);
    assert_int_equal(muster_metrics(m, 4, NULL, NULL, 0), 0); /* on a line of its own */
    assert_non_null(strstr(text_of("metrics.jsonl"), "\n{\"v\":1,\"step\":4,"));
    muster_close(m);
}

static void what_is_no_plain_file_holds_up_no_program(void **state)
{
    muster *m;

    (void)state;
    assert_int_equal(mkfifo(path_of("metrics.jsonl"), 0600), 0);
    assert_int_equal(mkfifo(path_of("order.json"), 0600), 0);
    assert_int_equal(mkfifo(path_of("rank-00000.beat"), 0600), 0);
    assert_int_equal(symlink("/dev/full", path_of("events.jsonl")), 0);
    m = open_rank(0);
    assert_int_equal(muster_step(m, 1), 0);
    assert_true(muster_metrics(m, 1, NULL, NULL, 0) < 0);
    assert_int_equal(muster_event(m, "{\"type\":\"note\"}", 15), -ELOOP);
    assert_int_equal(muster_finish(m, "done", 1, NULL), 0);
    muster_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outside_of_muster_all_calls_do_nothing),
        cmocka_unit_test_setup_teardown(the_environment_says_where_and_who, set_up, tear_down),
        cmocka_unit_test_setup_teardown(structs_of_older_and_newer_programs_are_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_process_has_one_handle, set_up, tear_down),
        cmocka_unit_test_setup_teardown(metrics_are_lines_of_version_1_of_rank_0, set_up, tear_down),
        cmocka_unit_test_setup_teardown(metrics_that_cannot_be_are_refused_in_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(events_are_objects_with_a_type, set_up, tear_down),
        cmocka_unit_test_setup_teardown(artifacts_lie_in_the_jobs_folder_by_type_key_and_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sign_of_life_is_the_programs_and_not_the_librarys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(orders_come_as_a_value_and_as_a_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers_and_ends_are_published_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_child_of_fork_says_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_drops_lines_and_is_told_once_a_minute, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_plain_file_holds_up_no_program, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
