#include "tests/unit/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "worker/flight/flight_read.h"

static void enter(struct flight *f, uint32_t op, const char *group, uint64_t seq, uint64_t bytes)
{
    flight_enter(
        f, &(struct flight_call){
               .group = group, .key = strlen(group), .size = 4, .peer = -1, .op = op, .seq = seq, .bytes = bytes});
}

static void a_page_is_seen_by_its_watcher_and_outlives_the_rank(void **state)
{
    struct flight *rank, *watcher;
    struct flight_op op[4];
    struct stat st;
    int64_t since;

    (void)state;
    assert_int_equal(flight_create(at("a"), &rank, NULL), 0);
    assert_int_equal(stat(at("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(flight_open(at("a"), &watcher, NULL), 0);
    assert_int_equal(flight_read_phase(watcher, &since), FLIGHT_INIT);
    assert_true(since > 0 && since <= clock_mono_us());
    flight_phase_set(rank, FLIGHT_FORWARD, 17);
    enter(rank, 3, "tp", 5, 4096);
    flight_leave(rank);
    enter(rank, 4, "a name that is too long for its place", 6, 1);
    flight_close(rank);

    assert_int_equal(flight_read_step(watcher), 17);
    assert_int_equal(flight_read_phase(watcher, NULL), FLIGHT_FORWARD);
    assert_int_equal(flight_read_ops(watcher, op, 4), 2);
    assert_int_equal(op[0].op, 4);
    assert_int_equal(op[0].leave_us, 0);
    assert_int_equal(op[0].key, strlen("a name that is too long for its place"));
    assert_int_equal(op[1].op, 3);
    assert_int_equal(op[1].seq, 5);
    assert_int_equal(op[1].bytes, 4096);
    assert_int_equal(op[1].step, 17);
    assert_int_equal(op[1].key, 2);
    assert_int_equal(op[1].peer, -1);
    assert_true(op[1].leave_us >= op[1].enter_us && op[1].enter_us > 0);
    flight_close(watcher);
}

static void a_cause_outlives_the_rank_and_one_that_is_none_is_not_told(void **state)
{
    struct flight *rank, *watcher;
    IO_CLOSE_AUTO int fd = -1;
    uint32_t strange = 99;

    (void)state;
    assert_int_equal(flight_create(at("cause"), &rank, NULL), 0);
    assert_int_equal(flight_open(at("cause"), &watcher, NULL), 0);
    assert_int_equal(flight_read_cause(watcher), EXIT_CAUSE_UNTOLD);
    flight_cause_set(rank, EXIT_CAUSE_NODE);
    flight_close(rank);
    assert_int_equal(flight_read_cause(watcher), EXIT_CAUSE_NODE);
    fd = open(at("cause"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &strange, sizeof(strange), 20), sizeof(strange));
    assert_int_equal(flight_read_cause(watcher), EXIT_CAUSE_UNTOLD);
    flight_close(watcher);
}

static void a_page_is_made_once_and_foreign_files_are_refused(void **state)
{
    struct flight *f, *again = NULL;
    struct merr err;
    char zeros[100000] = {0};
    struct stat st;

    (void)state;
    assert_int_equal(flight_create(at("b"), &f, NULL), 0);
    assert_int_equal(flight_create(at("b"), &again, &err), -EEXIST);
    assert_null(again);
    flight_close(f);
    assert_int_equal(stat(at("b"), &st), 0);
    assert_true((size_t)st.st_size < sizeof(zeros));
    assert_int_equal(flight_open(at("none"), &again, &err), -ENOENT);
    assert_int_equal(io_write_file(at("c"), "short", 5, 0600, NULL), 0);
    assert_int_equal(flight_open(at("c"), &again, &err), -EPROTO);
    assert_int_equal(io_write_file(at("d"), zeros, (size_t)st.st_size, 0600, NULL), 0);
    assert_int_equal(flight_open(at("d"), &again, &err), -EPROTO);
    assert_non_null(strstr(err.text, "version"));
    assert_int_equal(flight_create(at("no/such/folder"), &again, &err), -ENOENT);
    assert_null(again);
    flight_close(NULL);
}

static void a_watcher_sees_what_the_rank_writes_and_outlives_a_page_that_is_cut_off(void **state)
{
    const struct flight_call call = {.group = "tp", .key = 7, .size = 2, .peer = -1, .op = 3, .seq = 5, .bytes = 4096};
    struct flight *rank, *watcher, *again;
    struct flight_group group[2];
    struct flight_op op[2];
    int64_t since;

    (void)state;
    assert_int_equal(flight_create(at("w"), &rank, NULL), 0);
    assert_int_equal(flight_watch(at("w"), &watcher, NULL), 0);
    flight_phase_set(rank, FLIGHT_BACKWARD, 300);
    flight_enter(rank, &call);
    assert_int_equal(flight_read_step(watcher), 300);
    assert_int_equal(flight_read_phase(watcher, &since), FLIGHT_BACKWARD);
    assert_int_equal(flight_read_ops(watcher, op, 2), 1);
    assert_int_equal(flight_read_groups(watcher, group, 2), 1);
    assert_int_equal(group[0].entered, 5);
    assert_int_equal(flight_read_sign(watcher), op[0].enter_us);
    flight_order_set(watcher, FLIGHT_SAVE);
    assert_int_equal(flight_order_get(rank), FLIGHT_SAVE);
    flight_saved(rank);
    flight_order_set(watcher, FLIGHT_SAVE); /* once more: the rank's answer was seen */
    assert_int_equal(flight_order_get(rank), FLIGHT_SAVE);
    flight_order_set(watcher, FLIGHT_DRAIN);
    flight_order_set(watcher, FLIGHT_HAND_OVER);
    assert_int_equal(flight_order_get(rank), FLIGHT_DRAIN);
    flight_cause_set(rank, EXIT_CAUSE_USER);
    assert_int_equal(flight_read_cause(watcher), EXIT_CAUSE_USER);

    assert_int_equal(truncate(at("w"), 0), 0);
    assert_int_equal(flight_read_step(watcher), 300); /* as far as it was known to be */
    assert_int_equal(flight_read_cause(watcher), EXIT_CAUSE_USER);
    flight_order_set(watcher, FLIGHT_ABORT);
    assert_int_equal(flight_read_phase(watcher, NULL), FLIGHT_BACKWARD);
    assert_int_equal(flight_watch(at("w"), &again, NULL), -EPROTO);
    assert_int_equal(unlink(at("w")), 0);
    assert_int_equal(mkfifo(at("w"), 0600), 0);
    assert_int_equal(flight_watch(at("w"), &again, NULL), -EMEDIUMTYPE);
    flight_close(watcher);
    flight_close(rank);
}

static void an_order_only_grows_and_only_save_is_taken_back(void **state)
{
    struct flight *f;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    assert_int_equal(flight_order_get(f), FLIGHT_GO);
    flight_order_set(f, FLIGHT_SAVE);
    assert_int_equal(flight_order_get(f), FLIGHT_SAVE);
    flight_saved(f);
    assert_int_equal(flight_order_get(f), FLIGHT_GO);
    flight_order_set(f, FLIGHT_HAND_OVER);
    flight_order_set(f, FLIGHT_MOVE);
    flight_order_set(f, FLIGHT_HAND_OVER);
    assert_int_equal(flight_order_get(f), FLIGHT_MOVE);
    flight_order_set(f, FLIGHT_DRAIN);
    flight_order_set(f, FLIGHT_HAND_OVER);
    flight_order_set(f, FLIGHT_SAVE);
    flight_saved(f);
    assert_int_equal(flight_order_get(f), FLIGHT_DRAIN);
    assert_false(flight_aborted(f));
    flight_order_set(f, FLIGHT_ABORT);
    flight_order_set(f, FLIGHT_GO);
    assert_true(flight_aborted(f));
    flight_close(f);
}

static void each_group_says_how_far_the_rank_is_in_it(void **state)
{
    struct flight_call message = {.group = "pp", .key = 7, .peer = 3, .op = 8, .seq = 1, .bytes = 64};
    struct flight_group g[FLIGHT_GROUPS + 1];
    struct flight *f;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    assert_int_equal(flight_read_groups(f, g, FLIGHT_GROUPS), 0);
    enter(f, 1, "tp", 41, 4096);
    flight_leave(f);
    enter(f, 3, "a name that is too long for its place", 9, 1 << 20);
    flight_leave(f);
    flight_enter(f, &message); /* is no call of all members */
    flight_leave(f);
    enter(f, 2, "tp", 42, 8);
    assert_int_equal(flight_read_groups(f, g, FLIGHT_GROUPS), 3);
    assert_string_equal(g[0].name, "tp");
    assert_int_equal(g[0].key, 2);
    assert_int_equal(g[0].size, 4);
    assert_int_equal(g[0].entered, 42);
    assert_int_equal(g[0].left, 41);
    assert_string_equal(flight_read_op_name(g[0].op), "reduce_scatter");
    assert_int_equal(g[0].bytes, 8);
    assert_string_equal(g[1].name, "a name that is ");
    assert_int_equal(g[1].left, 9);
    assert_int_equal(g[2].key, 7);
    assert_int_equal(g[2].size, 0);
    assert_int_equal(g[2].entered, 0);
    assert_int_equal(flight_read_groups(f, g, 2), 2);
    for (uint64_t key = 100; key < 100 + FLIGHT_GROUPS; key++) { /* more than there is room for: the ring has them */
        flight_enter(f, &(struct flight_call){.group = "many", .key = key, .size = 2, .peer = -1, .op = 1, .seq = 1});
        flight_leave(f);
    }
    assert_int_equal(flight_read_groups(f, g, FLIGHT_GROUPS + 1), FLIGHT_GROUPS);
    flight_close(f);
}

static void call(struct flight *f, uint32_t digest, bool ordered)
{
    flight_enter(f, &(struct flight_call){
                        .group = "tp", .key = 9, .size = 2, .peer = -1, .op = 1, .digest = digest, .ordered = ordered});
    flight_leave(f);
}

static void the_order_of_operations_is_told_by_steps_and_where_one_departs_from_the_last(void **state)
{
    struct flight_order_of o;
    struct flight_group g;
    struct flight *f;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    flight_role_set(f, 7);
    for (uint64_t step = 3; step < 6; step++) {
        flight_phase_set(f, FLIGHT_CHECKPOINT, step);
        call(f, 50, step == 4); /* between steps some are made now and then */
        flight_phase_set(f, FLIGHT_DATA, step);
        for (uint32_t i = 0; i < 3; i++) {
            flight_phase_set(f, i % 2 ? FLIGHT_BACKWARD : FLIGHT_FORWARD, step);
            call(f, step == 5 && i == 2 ? 99 : 10 + i, true);
            call(f, 1000, false);
            flight_read_order(f, &o);
            assert_int_equal(o.odd, step == 3 ? 0 : step == 5 && i == 2 ? 4 : 1);
        }
    }
    flight_phase_set(f, FLIGHT_EXIT, 6); /* it may be in the middle of a step */
    flight_read_order(f, &o);
    assert_int_equal(o.role, 7);
    assert_int_equal(o.span[0], 11);
    assert_int_equal(o.span[1], 10);
    assert_int_equal(o.ops[0], 3);
    assert_int_equal(o.ops[1], 0);
    assert_int_equal(o.n, 10);
    assert_int_equal(o.window[9], 99);
    assert_int_equal(o.window[8], 11);
    assert_int_equal(o.window[3], 50);
    assert_int_equal(flight_read_groups(f, &g, 1), 1);
    assert_int_equal(g.digest, 1000);
    for (uint32_t i = 0; i < 5000; i++) /* longer than a step is kept */
        call(f, i, true);
    flight_read_order(f, &o);
    assert_int_equal(o.n, OPS_WINDOW);
    assert_int_equal(o.window[0], 5000 - OPS_WINDOW);
    assert_int_equal(o.ops[0], 5003);
    flight_phase_set(f, FLIGHT_FORWARD, 6);
    call(f, 1, true);
    flight_read_order(f, &o);
    assert_int_equal(o.odd, 0);
    flight_close(f);
}

static void how_long_a_phase_may_take_is_told_by_its_history_or_by_the_rank(void **state)
{
    struct flight *f;
    int64_t allowed, usual;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    flight_phase_set(f, FLIGHT_FORWARD, 10);
    flight_phase_set(f, FLIGHT_DATA, 10);
    flight_phase_set(f, FLIGHT_FORWARD, 10);
    flight_phase_set(f, FLIGHT_DATA, 13);
    assert_int_equal(flight_read_usual(f, &allowed), 0); /* of its first steps nothing is learnt */
    assert_int_equal(allowed, 0);
    for (int64_t until = clock_mono_us() + 2000; clock_mono_us() < until;)
        ;
    flight_phase_set(f, FLIGHT_FORWARD, 13);
    assert_int_equal(flight_read_usual(f, &allowed), 0); /* for this phase there are the gaps */
    flight_phase_set(f, FLIGHT_DATA, 13);
    usual = flight_read_usual(f, &allowed);
    assert_true(usual >= 2000);
    flight_phase_set(f, FLIGHT_DATA, 13);
    assert_true(flight_read_usual(f, &allowed) <= usual && flight_read_usual(f, &allowed) >= usual - usual / 100);
    flight_allow(f, 90000000);
    (void)flight_read_usual(f, &allowed);
    assert_int_equal(allowed, 90000000);
    flight_phase_set(f, FLIGHT_CHECKPOINT, 13);
    assert_int_equal(flight_read_usual(f, &allowed), 0);
    assert_int_equal(allowed, 0);
    flight_close(f);
}

static void signs_of_life_and_the_gaps_between_them_are_told(void **state)
{
    struct flight *f;
    int64_t began = clock_mono_us(), sign;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    assert_int_equal(flight_read_gap(f), 0);
    assert_true(flight_read_sign(f) >= began);
    for (uint64_t step = 10; step < 16; step++) {
        flight_phase_set(f, FLIGHT_FORWARD, step);
        enter(f, 1, "dp", step, 8);
        flight_leave(f);
        if (step == 12)
            assert_int_equal(flight_read_gap(f), 0); /* of its first steps nothing is learnt */
    }
    assert_true(flight_read_gap(f) >= 0 && flight_read_gap(f) < clock_mono_us() - began);
    sign = flight_read_sign(f);
    assert_true(sign <= clock_mono_us());
    flight_moved(f);
    assert_true(flight_read_sign(f) >= sign);
    sign = flight_read_sign(f);
    enter(f, 1, "dp", 17, 8);
    assert_true(flight_read_sign(f) >= sign);
    flight_close(f);
}

static void the_ring_keeps_the_last_operations_newest_first(void **state)
{
    static struct flight_op op[FLIGHT_RING + 8];
    struct flight *f;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    assert_int_equal(flight_read_ops(f, op, 8), 0);
    for (uint64_t i = 0; i < 3 * FLIGHT_RING + 5; i++) {
        enter(f, (uint32_t)i, "dp", i, i);
        flight_leave(f);
    }
    assert_int_equal(flight_read_ops(f, op, (int)COUNT(op)), FLIGHT_RING);
    for (uint64_t i = 0; i < FLIGHT_RING; i++)
        assert_int_equal(op[i].seq, 3 * FLIGHT_RING + 4 - i);
    assert_int_equal(flight_read_ops(f, op, 1), 1);
    flight_close(f);
}

/* A writer in another process; whatever the reader gets must be whole. */
static void entries_read_while_they_are_written_are_whole(void **state)
{
    struct flight *f;
    struct flight_op op[FLIGHT_RING];
    int status, seen = 0;
    pid_t child;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    child = fork();
    if (child == 0) {
        for (uint64_t i = 1; !flight_aborted(f); i++) {
            enter(f, (uint32_t)i, "pp", i, i * 3);
            flight_leave(f);
        }
        _exit(0);
    }
    assert_true(child > 0);
    for (int64_t end = clock_mono_us() + 100000; clock_mono_us() < end;) {
        int n = flight_read_ops(f, op, FLIGHT_RING);

        for (int i = 0; i < n; i++) {
            assert_int_equal(op[i].bytes, op[i].seq * 3);
            assert_int_equal(op[i].op, (uint32_t)op[i].seq);
            assert_int_equal(op[i].key, 2);
            assert_true(i == 0 || op[i].seq < op[i - 1].seq);
        }
        seen += n;
    }
    flight_order_set(f, FLIGHT_ABORT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(seen > 0);
    flight_close(f);
}

static void time_in_calls_is_told_by_kind_of_group_and_once(void **state)
{
    static const char *const group[] = {"tp", "kv", "pp", "pair", "dp", "cp", "world"};
    static const enum flight_kind kind[] = {FLIGHT_TP, FLIGHT_TP, FLIGHT_PP,   FLIGHT_PP,
                                            FLIGHT_DP, FLIGHT_CP, FLIGHT_WORLD};
    uint32_t us[FLIGHT_KINDS];
    struct flight *f;

    (void)state;
    assert_int_equal(flight_private(&f, NULL), 0);
    for (size_t i = 0; i < COUNT(group); i++) {
        int64_t began;

        enter(f, 1, group[i], i + 1, 8);
        began = clock_mono_us();
        while (clock_mono_us() - began < 300)
            ;
        flight_leave(f);
        flight_calls_take(f, us);
        for (int k = 0; k < FLIGHT_KINDS; k++)
            assert_true(k == (int)kind[i] ? us[k] >= 300 : us[k] == 0);
    }
    flight_close(f);
}

static void the_last_steps_are_read_whole_while_later_ones_are_written(void **state)
{
    struct flight *f, *watcher;
    struct flight_step s = {.step = 5};
    uint64_t n = 0, seen = 0;
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(flight_create(at("steps"), &f, NULL), 0);
    assert_int_equal(flight_watch(at("steps"), &watcher, NULL), 0);
    assert_int_equal(flight_read_steps(watcher), 0);
    assert_false(flight_read_step_at(watcher, 0, &s));
    assert_int_equal(s.step, 5);
    child = fork();
    if (child == 0) {
        for (uint32_t i = 0; !flight_aborted(f); i++)
            flight_step_add(f, &(struct flight_step){.step = i, .wall_us = 3 * i, .busy_us = 2 * i, .kib = i + 1});
        _exit(0);
    }
    assert_true(child > 0);
    for (int64_t now, begun = clock_mono_us();
         now = clock_mono_us() - begun, now < 100000 || ((seen == 0 || n <= FLIGHT_STEPS) && now < 60000000);) {
        n = flight_read_steps(watcher);
        for (uint64_t i = n < 20 ? 0 : n - 20; i < n; i++) {
            if (!flight_read_step_at(watcher, i, &s))
                continue; /* it was replaced */
            assert_int_equal(s.step, i);
            assert_true(s.wall_us == 3 * s.step && s.busy_us == 2 * s.step && s.kib == s.step + 1);
            seen++;
        }
    }
    flight_order_set(f, FLIGHT_ABORT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(seen > 0);
    n = flight_read_steps(watcher);
    assert_true(n > FLIGHT_STEPS && flight_read_step_at(watcher, n - FLIGHT_STEPS, &s));
    assert_false(flight_read_step_at(watcher, n - FLIGHT_STEPS - 1, &s));
    assert_int_equal(truncate(at("steps"), 0), 0);
    assert_int_equal(flight_read_steps(watcher), n);
    flight_close(watcher);
    flight_close(f);
}

static void every_phase_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(flight_read_phase_name(FLIGHT_INIT), "init");
    assert_string_equal(flight_read_phase_name(FLIGHT_CHECKPOINT), "checkpoint");
    assert_string_equal(flight_read_phase_name(FLIGHT_EXIT), "exit");
    assert_string_equal(flight_read_phase_name((enum flight_phase)99), "unknown");
}

/* A parent that watches the page writes how long, and leaves the rest of it alone. */
static void how_long_a_rank_was_stopped_is_written_by_its_parent(void **state)
{
    char path[] = "/tmp/muster-flight-XXXXXX";
    struct flight *rank, *parent, *agent;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
    assert_int_equal(flight_create(path, &rank, NULL), 0);
    assert_int_equal(flight_watch(path, &parent, NULL), 0);
    assert_int_equal(flight_watch(path, &agent, NULL), 0);
    assert_int_equal(flight_read_stopped(agent), 0);
    flight_allow(rank, 5);
    flight_stopped_set(parent, 1234567);
    assert_int_equal(flight_read_stopped(agent), 1234567);
    assert_int_equal(flight_read_stopped(rank), 1234567);
    assert_int_equal(flight_order_get(rank), FLIGHT_GO);
    flight_stopped_set(rank, 7);
    assert_int_equal(flight_read_stopped(agent), 7);
    flight_close(agent);
    flight_close(parent);
    flight_close(rank);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_seen_by_its_watcher_and_outlives_the_rank),
        cmocka_unit_test(a_cause_outlives_the_rank_and_one_that_is_none_is_not_told),
        cmocka_unit_test(a_page_is_made_once_and_foreign_files_are_refused),
        cmocka_unit_test(a_watcher_sees_what_the_rank_writes_and_outlives_a_page_that_is_cut_off),
        cmocka_unit_test(an_order_only_grows_and_only_save_is_taken_back),
        cmocka_unit_test(each_group_says_how_far_the_rank_is_in_it),
        cmocka_unit_test(the_order_of_operations_is_told_by_steps_and_where_one_departs_from_the_last),
        cmocka_unit_test(how_long_a_phase_may_take_is_told_by_its_history_or_by_the_rank),
        cmocka_unit_test(signs_of_life_and_the_gaps_between_them_are_told),
        cmocka_unit_test(the_ring_keeps_the_last_operations_newest_first),
        cmocka_unit_test(entries_read_while_they_are_written_are_whole),
        cmocka_unit_test(time_in_calls_is_told_by_kind_of_group_and_once),
        cmocka_unit_test(the_last_steps_are_read_whole_while_later_ones_are_written),
        cmocka_unit_test(every_phase_has_a_name),
        cmocka_unit_test(how_long_a_rank_was_stopped_is_written_by_its_parent),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
