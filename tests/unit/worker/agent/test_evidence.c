/* What is read of a rank's processes, page and log, whatever lies there. */
#include "worker/agent/evidence.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/protocol/evidence.h"
#include "base/clock.h"
#include "tests/unit/folder.h"
#include "worker/agent/machine_evidence.h"
#include "worker/flight/flight.h"

static struct evidence_of of_rank(int rank, pid_t pid)
{
    struct evidence_of of = {.rank = rank, .child = {.pid = pid}};

    (void)snprintf(of.folder, sizeof(of.folder), "%s", top);
    if (pid > 0)
        assert_int_equal(proc_start_time(pid, &of.child.start), 0);
    return of;
}

static json_t *gather(struct evidence_of of)
{
    int64_t began_us = clock_mono_us();
    json_t *seen = evidence_gather(&of, began_us + 1000000);

    assert_non_null(seen);
    return seen;
}

static void write_file(const char *name, size_t n)
{
    FILE *f = fopen(at(name), "we");

    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        (void)fputc(i % 64 == 63 ? '\n' : 'a' + (int)(i % 26), f);
    assert_int_equal(fclose(f), 0);
}

static void *wait_there(void *arg)
{
    char c;

    (void)read(*(int *)arg, &c, 1);
    return NULL;
}

static void a_process_is_told_with_its_threads_and_what_it_started(void **state)
{
    int way[2];
    pthread_t thread;
    const json_t *list, *mine;
    json_t *seen;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(way), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_there, &way[0]), 0);
    child = fork();
    if (child == 0) {
        (void)wait_there(&way[0]);
        _exit(0);
    }
    seen = gather(of_rank(0, getpid()));
    list = json_object_get(seen, "processes");
    mine = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(mine, "pid")), getpid());
    assert_int_equal(json_array_size(json_object_get(mine, "threads")), 1);
    assert_non_null(json_object_get(mine, "state"));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "pid")), child);
    assert_null(json_object_get(seen, "flight"));
    assert_null(json_object_get(seen, "log"));
    json_decref(seen);
    assert_int_equal(write(way[1], "xx", 2), 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    seen = gather((struct evidence_of){.rank = 0, .child = {.pid = child, .start = 1}});
    assert_null(json_object_get(seen, "processes")); /* it is gone, or somebody else has its number */
    json_decref(seen);
    (void)close(way[0]);
    (void)close(way[1]);
}

static void of_many_processes_the_first_sixteen_are_told(void **state)
{
    int way[2];
    pid_t child[EVIDENCE_PROCESSES + 4];
    json_t *seen;

    (void)state;
    assert_int_equal(pipe(way), 0);
    for (size_t i = 0; i < COUNT(child); i++) {
        child[i] = fork();
        if (child[i] == 0) {
            (void)wait_there(&way[0]);
            _exit(0);
        }
    }
    seen = gather(of_rank(0, getpid()));
    assert_int_equal(json_array_size(json_object_get(seen, "processes")), EVIDENCE_PROCESSES);
    json_decref(seen);
    (void)close(way[1]);
    for (size_t i = 0; i < COUNT(child); i++) {
        (void)kill(child[i], SIGKILL);
        assert_int_equal(waitpid(child[i], NULL, 0), child[i]);
    }
    (void)close(way[0]);
}

static void of_a_log_the_end_is_told_and_of_what_is_no_plain_file_nothing(void **state)
{
    json_t *seen;

    (void)state;
    write_file("rank-00001.log", 10000);
    seen = gather(of_rank(1, 0));
    assert_int_equal(json_string_length(json_object_get(seen, "log")), EVIDENCE_LOG_BYTES);
    json_decref(seen);
    assert_int_equal(mkfifo(at("rank-00002.log"), 0600), 0);
    assert_int_equal(symlink("/etc/hostname", at("rank-00003.log")), 0);
    for (int rank = 2; rank <= 3; rank++) {
        seen = gather(of_rank(rank, 0)); /* and at once: nobody opens the other end */
        assert_null(json_object_get(seen, "log"));
        json_decref(seen);
    }
}

static void the_calls_of_a_page_are_told_and_a_page_that_is_none_is_passed_over(void **state)
{
    struct flight_call call = {.group = "dp", .key = 7, .size = 4, .peer = -1, .op = 1, .seq = 41, .bytes = 64};
    struct flight *f;
    const json_t *op;
    json_t *seen;

    (void)state;
    assert_int_equal(flight_create(at("rank-00004.flight"), &f, NULL), 0);
    flight_phase_set(f, FLIGHT_REDUCE, 90);
    flight_enter(f, &call);
    seen = gather(of_rank(4, 0));
    op = json_array_get(json_object_get(json_object_get(seen, "flight"), "ops"), 0);
    assert_string_equal(json_string_value(json_object_get(op, "op")), "all_reduce");
    assert_string_equal(json_string_value(json_object_get(op, "group")), "dp");
    assert_int_equal(json_integer_value(json_object_get(op, "call")), 41);
    assert_int_equal(json_integer_value(json_object_get(op, "took_us")), -1); /* it is in it */
    json_decref(seen);
    flight_close(f);
    for (int bytes = 100; bytes >= 0; bytes -= 100) { /* its owner has cut it off */
        assert_int_equal(truncate(at("rank-00004.flight"), bytes), 0);
        seen = gather(of_rank(4, 0));
        assert_null(json_object_get(seen, "flight"));
        json_decref(seen);
    }
}

static void a_thread_of_its_own_gathers_for_all_ranks_and_says_when_it_is_over(void **state)
{
    struct machine_cfg cfg = {.root = top, .self = "/bin/true", .train = "/bin/true"};
    struct machine_evidence *e;
    struct machine_rank *ranks[2];
    struct machine *m;
    char *kernel = NULL;
    json_t *seen;

    (void)state;
    assert_true(machine_evidence_ready(NULL));
    assert_null(machine_evidence_end(NULL, NULL));
    assert_int_equal(machine_new(&cfg, &m, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_non_null(ranks[i] = machine_rank_new(m, top, i + 1));
    e = machine_evidence_begin(m, ranks, 2, false, 1000000);
    assert_non_null(e);
    seen = machine_evidence_end(e, &kernel);
    assert_int_equal(json_array_size(seen), 2);
    assert_non_null(json_object_get(json_array_get(seen, 0), "log"));
    json_decref(seen);
    free(kernel);
    for (int i = 0; i < 2; i++)
        machine_rank_free(ranks[i]);
    machine_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_told_with_its_threads_and_what_it_started),
        cmocka_unit_test(of_many_processes_the_first_sixteen_are_told),
        cmocka_unit_test(of_a_log_the_end_is_told_and_of_what_is_no_plain_file_nothing),
        cmocka_unit_test(the_calls_of_a_page_are_told_and_a_page_that_is_none_is_passed_over),
        cmocka_unit_test(a_thread_of_its_own_gathers_for_all_ranks_and_says_when_it_is_over),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
