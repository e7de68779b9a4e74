/* Runs of real processes. This program is its own shim: started as "… shim …" it does what muster-agent does. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "worker/agent/proc.h"
#include "worker/agent/ranks.h"
#include "worker/agent/shim.h"

#define WAIT_US 20000000

static char self[PATH_MAX], dir[64], root[128];
static struct machine *machine;
static struct ranks *ranks;

static struct ranks *open_ranks(void)
{
    static char memory[128];
    struct machine_cfg cfg = {.root = root, .self = self, .train = "/bin/false", .threads = 1, .memory = memory};
    struct ranks *r;

    (void)snprintf(memory, sizeof(memory), "%s/memory", dir);
    assert_int_equal(machine_new(&cfg, &machine, NULL), 0);
    assert_int_equal(ranks_new(&(struct ranks_cfg){.machine = machine, .node = "n1", .slots = 8}, &r, NULL), 0);
    return r;
}

static void close_ranks(void)
{
    ranks_free(ranks);
    machine_free(machine);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/muster-ranks-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(root, sizeof(root), "%s/runs", dir);
    assert_int_equal(io_mkdirs(root, 0700, NULL), 0);
    ranks = open_ranks();
    return 0;
}

/* Processes whose environment names this test's folder. */
static int processes_left(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    struct buf env;
    int n = 0;

    buf_init(&env, 1 << 22);
    while ((e = readdir(proc))) {
        char path[300];
        bool ours = false;

        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%s/environ", e->d_name);
        buf_reset(&env);
        if (io_read_file(path, &env, NULL) < 0)
            continue;
        for (const char *p = buf_text(&env); p < buf_text(&env) + env.len; p += strlen(p) + 1)
            ours |= strncmp(p, "MUSTER_RUN_DIR=", 15) == 0 && strncmp(p + 15, root, strlen(root)) == 0;
        n += ours;
    }
    buf_clear(&env);
    (void)closedir(proc);
    return n;
}

static void tick_for(int64_t until_us)
{
    struct pollfd p = {.fd = machine_fd(machine), .events = POLLIN};
    int64_t deadline_us = ranks_deadline(ranks);

    (void)poll(&p, 1, clock_poll_ms(deadline_us < until_us ? deadline_us : until_us));
    (void)ranks_tick(ranks, clock_mono_us());
}

static const struct run *wait_ended(const char *job, uint64_t generation)
{
    const struct run *run = ranks_find(ranks, job, generation);
    int64_t until_us = clock_mono_us() + WAIT_US;

    assert_non_null(run);
    while (!ranks_run_ended(run)) {
        assert_true(clock_mono_us() < until_us);
        tick_for(until_us);
    }
    return run;
}

static void wait_running(const struct run *run)
{
    int64_t until_us = clock_mono_us() + WAIT_US;

    for (int i = 0; i < run->n; i++)
        while (run->ranks[i].state == RANK_STARTING) {
            assert_true(clock_mono_us() < until_us);
            tick_for(until_us);
        }
}

static void wait_file(const char *name)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    while (access(path, F_OK) < 0) {
        assert_true(clock_mono_us() < until_us);
        tick_for(clock_mono_us() + 20000);
    }
}

/* A shim that has told its rank's end is itself still about to leave. */
static void wait_processes_gone(void)
{
    int64_t until_us = clock_mono_us() + WAIT_US;

    while (processes_left() > 0) {
        assert_true(clock_mono_us() < until_us);
        (void)poll(NULL, 0, 5);
    }
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < ranks_count(ranks); i++) {
        const struct run *run = ranks_at(ranks, i);

        (void)ranks_order(ranks, run->job, run->generation, ASSIGNMENT_STOP, 0);
        wait_ended(run->job, run->generation);
    }
    close_ranks();
    ranks = NULL;
    wait_processes_gone();
    return io_remove_tree(dir, NULL);
}

/* An assignment of n ranks of a script; new. */
static json_t *assignment(const char *job, int generation, int n, int first_slot, const char *script)
{
    json_t *list = json_array(), *o;

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:i,s:s,s:i,s:s,s:s}", "rank", i, "node", "n1", "slot", first_slot + i,
                                              "class", "cpu", "address", "127.0.0.1"));
    o = json_pack("{s:s,s:i,s:s,s:i,s:s,s:i,s:o,s:i,s:{s:s,s:{s:i,s:i},s:{s:[s,s,s],s:{s:s}}}}", "job", job,
                  "generation", generation, "order", "run", "grace_s", 10, "dir", dir, "world", n, "ranks", list,
                  "master_port", 29517, "spec", "name", "t", "devices", "min", n, "max", n, "command", "argv",
                  "/bin/sh", "-c", script, "env", "EXTRA", "yes");
    assert_non_null(o);
    return o;
}

static const struct run *start(const char *job, int generation, int n, const char *script)
{
    json_auto_t *o = assignment(job, generation, n, 0, script);
    struct merr err = {""};
    int r = ranks_start(ranks, o, &err);

    if (r)
        fail_msg("ranks_start gives %d: %s", r, err.text);
    return ranks_find(ranks, job, (uint64_t)generation);
}

static const char *log_of(const struct run *run, int rank)
{
    static struct buf text;
    char path[PATH_MAX];

    buf_clear(&text);
    buf_init(&text, 1 << 20);
    assert_int_equal(io_read_file(shim_path(path, sizeof(path), run->folder, rank, "log"), &text, NULL), 0);
    return buf_text(&text);
}

static void a_rank_is_told_its_place_and_its_end_is_kept(void **state)
{
    const struct run *run = start("j1", 1, 2,
                                  "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK "
                                  "$MASTER_ADDR:$MASTER_PORT $MUSTER_JOB $MUSTER_GENERATION $EXTRA "
                                  "$OMP_NUM_THREADS; "
                                  "pwd; exit $((RANK * 0))");
    char want[256];

    (void)state;
    wait_ended("j1", 1);
    assert_int_equal(run->ranks[1].exit.status, 0);
    assert_int_equal(run->first_bad, -1);
    (void)snprintf(want, sizeof(want), "1/2 1/2 0 127.0.0.1:29517 j1 1 yes 1\n%s\n", dir);
    assert_string_equal(log_of(run, 1), want);
}

static void exit_codes_and_signals_are_told_apart(void **state)
{
    static const struct {
        const char *script;
        int code, signal;
    } table[] = {
        {"exit 0", 0, 0},
        {"exit 65", 65, 0},
        {"kill -SEGV $$", 128 + SIGSEGV, SIGSEGV},
        {"kill -9 $$", 137, 9},
        {"exec /no/such/program", 127, 0},
        {"exit 255", 255, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct run *run = start("j1", (int)i + 1, 1, table[i].script);

        wait_ended("j1", i + 1);
        assert_int_equal(run->ranks[0].exit.status, table[i].code);
        assert_int_equal(run->ranks[0].exit.signal, table[i].signal);
        assert_int_equal(run->first_bad, table[i].code ? 0 : -1);
    }
}

/* Those of muster-train are among them. */
static void a_users_program_may_end_with_any_status(void **state)
{
    static const int status[] = {EXIT_USER, EXIT_INTERNAL, EXIT_NODE, EXIT_ABORTED, EXIT_DRAINED, 1};

    (void)state;
    for (size_t i = 0; i < COUNT(status); i++) {
        const struct run *run;
        char script[96];

        (void)snprintf(script, sizeof(script), "[ $RANK = 1 ] || exec sleep 1000; echo out of luck; exit %d",
                       status[i]);
        run = start("j1", (int)i + 1, 2, script);
        wait_ended("j1", i + 1); /* the other one is ended, too */
        assert_int_equal(run->ranks[1].exit.status, status[i]);
        assert_int_equal(run->ranks[1].exit.cause, EXIT_CAUSE_PROGRAM);
        assert_int_equal(run->first_bad, 1);
        assert_int_equal(json_array_size(run->ranks[1].log_tail), 1);
    }
}

static void what_a_rank_leaves_in_its_page_is_the_cause_of_its_end(void **state)
{
    static const struct {
        enum exit_cause told;
        const char *end;
        enum exit_cause cause;
    } row[] = {
        {EXIT_CAUSE_USER, "exit 9", EXIT_CAUSE_USER},       {EXIT_CAUSE_DRAINED, "exit 9", EXIT_CAUSE_ABORTED},
        {EXIT_CAUSE_ABORTED, "exit 9", EXIT_CAUSE_ABORTED}, {EXIT_CAUSE_DONE, "exit 0", EXIT_CAUSE_DONE},
        {EXIT_CAUSE_DONE, "exit 9", EXIT_CAUSE_PROGRAM},    {EXIT_CAUSE_NODE, "kill -9 $$", EXIT_CAUSE_PROGRAM},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        const struct run *run;
        char script[200];

        (void)snprintf(script, sizeof(script),
                       "printf '\\%o' | dd of=$MUSTER_RUN_DIR/rank-00000.flight bs=1 seek=20 conv=notrunc; %s",
                       row[i].told, row[i].end);
        run = start("j1", (int)i + 1, 1, script);
        wait_ended("j1", i + 1);
        assert_int_equal(run->ranks[0].exit.cause, row[i].cause);
        assert_int_equal(run->first_bad,
                         row[i].cause == EXIT_CAUSE_USER || row[i].cause == EXIT_CAUSE_PROGRAM ? 0 : -1);
    }
}

static void what_a_rank_leaves_behind_is_ended_before_its_end_is_told(void **state)
{
    const struct run *run = start("j1", 1, 1,
                                  "sleep 1000 & setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & "
                                  "(trap '' TERM HUP INT; sleep 1000) & echo begun");

    (void)state;
    wait_ended("j1", 1);
    assert_int_equal(run->ranks[0].exit.status, 0);
    assert_int_equal(processes_left(), 0);
    assert_string_equal(log_of(run, 0), "begun\n");
}

static void stop_is_sigterm_first(void **state)
{
    const struct run *run = start("j1", 1, 1,
                                  "trap 'echo saved; exit 7' TERM; touch ready; "
                                  "while :; do sleep 0.05; done");

    (void)state;
    wait_file("ready");
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 20), 0);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 20), 0); /* twice */
    wait_ended("j1", 1);
    assert_int_equal(run->ranks[0].exit.status, 7);
    assert_int_equal(run->first_bad, -1); /* it was asked to */
    assert_non_null(strstr(log_of(run, 0), "saved"));
}

static void what_a_command_answers_to_a_stop_is_no_cause(void **state)
{
    static const struct {
        const char *answer;
        enum exit_cause cause;
        int status;
    } row[] = {
        {"exit 0", EXIT_CAUSE_DRAINED, 0},
        {"touch $MUSTER_RUN_DIR/" EXIT_FINISHED "; exit 0", EXIT_CAUSE_DONE, 0},
        {"ln -s /etc/passwd $MUSTER_RUN_DIR/" EXIT_FINISHED "; exit 0", EXIT_CAUSE_DRAINED, 0},
        {"exit 3", EXIT_CAUSE_ABORTED, 3},
        {"trap - TERM; kill $$", EXIT_CAUSE_ABORTED, 128 + SIGTERM},
        {"kill -SEGV $$", EXIT_CAUSE_ABORTED, 128 + SIGSEGV},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        const struct run *run;
        char script[200], ready[32];

        (void)snprintf(script, sizeof(script), "trap '%s' TERM; touch ready%zu; while :; do sleep 0.05; done",
                       row[i].answer, i);
        (void)snprintf(ready, sizeof(ready), "ready%zu", i);
        run = start("j1", (int)i + 1, 1, script);
        wait_file(ready);
        assert_int_equal(ranks_order(ranks, "j1", i + 1, ASSIGNMENT_DRAIN, 20), 0);
        wait_ended("j1", i + 1);
        assert_int_equal(run->ranks[0].exit.cause, row[i].cause);
        assert_int_equal(run->ranks[0].exit.status, row[i].status);
        assert_int_equal(run->first_bad, -1);
    }
}

/* Its job would be queued again and again. */
static void who_tells_itself_to_end_did_not_obey_an_order(void **state)
{
    static const struct {
        const char *script;
        enum exit_cause cause;
    } row[] = {
        {"trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done", EXIT_CAUSE_ABORTED},
        {"trap 'touch $MUSTER_RUN_DIR/" EXIT_FINISHED "; exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done",
         EXIT_CAUSE_DONE},
        {"trap 'exit 0' TERM; [ $RANK = 1 ] || while :; do sleep 0.05; done; sleep 0.2; exit 3", EXIT_CAUSE_DRAINED},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        const struct run *run = start("j1", (int)i + 1, i == 2 ? 2 : 1, row[i].script);

        wait_ended("j1", i + 1);
        assert_int_equal(run->ranks[0].exit.cause, row[i].cause);
        assert_int_equal(run->ranks[0].exit.status, 0);
    }
}

/* Of `command: TEXT` the shell dies at once, while its program saves. */
static void after_a_stop_what_the_shell_leaves_has_the_grace(void **state)
{
    const struct run *run = start("j1", 1, 1,
                                  "sh -c 'trap \"while [ ! -e go ]; do sleep 0.01; done; touch "
                                  "$MUSTER_RUN_DIR/" EXIT_FINISHED "; echo saved; exit 0\" TERM; touch ready; "
                                  "while :; do sleep 0.05; done'; echo not reached");
    char path[128];
    pid_t shell;

    (void)state;
    wait_file("ready");
    wait_running(run);
    shell = machine_rank_pid(run->ranks[0].on_machine);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 20), 0);
    while (kill(shell, 0) == 0) /* reaped: the shell is gone */
        tick_for(clock_mono_us() + 20000);
    tick_for(clock_mono_us());
    assert_false(ranks_run_ended(run));
    (void)snprintf(path, sizeof(path), "%s/go", dir);
    assert_int_equal(io_publish_file(path, "", 0, 0600, NULL), 0);
    wait_ended("j1", 1);
    assert_non_null(strstr(log_of(run, 0), "saved\n"));
    assert_int_equal(run->ranks[0].exit.cause, EXIT_CAUSE_DONE);
    assert_int_equal(processes_left(), 0);
}

static void what_the_shell_leaves_is_killed_after_the_grace(void **state)
{
    const struct run *run = start("j1", 1, 1,
                                  "sh -c 'trap \"\" TERM; touch ready; while :; do sleep 0.05; done'; "
                                  "echo not reached");

    (void)state;
    wait_file("ready");
    wait_running(run);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 1), 0);
    wait_ended("j1", 1);
    assert_int_equal(run->ranks[0].exit.cause, EXIT_CAUSE_ABORTED);
    assert_int_equal(processes_left(), 0);
}

/* Of two ranks that are killed because a third failed, none is the cause, whatever their numbers. */
static void what_muster_kills_is_no_cause(void **state)
{
    const struct run *run;
    json_auto_t *o = assignment("j1", 1, 2, 0,
                                "if [ $RANK = 1 ]; then while [ ! -e up ]; do sleep 0.01; done; exit 3; fi; "
                                "trap '' TERM; touch up; while :; do sleep 0.05; done");

    (void)state;
    (void)json_object_set_new(o, "grace_s", json_integer(1));
    assert_int_equal(ranks_start(ranks, o, NULL), 0);
    run = wait_ended("j1", 1);
    assert_int_equal(run->first_bad, 1);
    assert_int_equal(run->ranks[0].exit.signal, SIGKILL);
    assert_int_equal(run->ranks[0].exit.cause, EXIT_CAUSE_ABORTED);
    assert_int_equal(run->ranks[1].exit.cause, EXIT_CAUSE_PROGRAM);
}

static void a_folder_that_cannot_be_entered_is_the_users_affair_and_named(void **state)
{
    json_auto_t *o = assignment("j1", 1, 1, 0, "true");
    const struct run *run;

    (void)state;
    (void)json_object_set_new(json_object_get(json_object_get(o, "spec"), "command"), "workdir",
                              json_string("/nowhere/at-all"));
    assert_int_equal(ranks_start(ranks, o, NULL), 0);
    run = wait_ended("j1", 1);
    assert_int_equal(run->ranks[0].exit.cause, EXIT_CAUSE_USER);
    assert_string_equal(run->ranks[0].exit.why, "cannot enter the folder '/nowhere/at-all': No such file or directory");
}

static void after_the_grace_comes_sigkill(void **state)
{
    const struct run *run = start("j1", 1, 1, "trap '' TERM; touch ready; while :; do sleep 0.05; done");
    int64_t begun_us;

    (void)state;
    wait_file("ready");
    begun_us = clock_mono_us();
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 1), 0);
    wait_ended("j1", 1);
    assert_in_range(clock_mono_us() - begun_us, 900000, 5000000);
    assert_int_equal(run->ranks[0].exit.signal, SIGKILL);
}

static void a_second_stop_may_shorten_the_grace(void **state)
{
    const struct run *run = start("j1", 1, 1, "trap '' TERM; touch ready; while :; do sleep 0.05; done");
    int64_t begun_us = clock_mono_us();

    (void)state;
    wait_file("ready");
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 600), 0);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 0), 0);
    wait_ended("j1", 1);
    assert_true(clock_mono_us() - begun_us < 10000000);
    assert_int_equal(run->ranks[0].exit.signal, SIGKILL);
}

static void when_one_fails_the_others_are_told_at_once(void **state)
{
    const struct run *run = start("j1", 1, 3,
                                  "if [ $RANK = 1 ]; then while [ ! -e go ]; do sleep 0.01; done; "
                                  "echo bad luck; exit 3; fi; touch up$RANK; exec sleep 1000");
    char path[128];
    int64_t spread_us;

    (void)state;
    wait_file("up0");
    wait_file("up2");
    wait_running(run);
    (void)snprintf(path, sizeof(path), "%s/go", dir);
    assert_int_equal(io_publish_file(path, "", 0, 0600, NULL), 0);
    wait_ended("j1", 1);
    assert_int_equal(run->first_bad, 1);
    assert_int_equal(run->ranks[0].exit.signal, SIGTERM);
    assert_int_equal(run->ranks[2].exit.signal, SIGTERM);
    spread_us = (run->ranks[0].exit.at_ms - run->ranks[1].exit.at_ms) * 1000;
    assert_true(spread_us < 1000000); /* some ms on an idle machine */
    assert_string_equal(json_string_value(json_array_get(run->ranks[1].log_tail, 0)), "bad luck");
}

static void starting_twice_starts_once(void **state)
{
    const struct run *run = start("j1", 1, 1, "echo once; exec sleep 1000");

    (void)state;
    wait_running(run);
    assert_ptr_equal(start("j1", 1, 1, "echo twice"), run);
    assert_int_equal(ranks_count(ranks), 1);
    assert_int_equal(run->ranks[0].state, RANK_RUNNING);
}

static void a_taken_slot_is_waited_for(void **state)
{
    const struct run *run = start("j1", 1, 1, "exec sleep 1000");
    json_auto_t *o = assignment("j2", 1, 1, 0, "true");

    (void)state;
    wait_running(run);
    assert_int_equal(ranks_start(ranks, o, NULL), -EAGAIN);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 5), 0);
    wait_ended("j1", 1);
    assert_int_equal(ranks_start(ranks, o, NULL), 0);
    wait_ended("j2", 1);
}

static json_t *source_assignment(int generation, int rank, const char *node, const char *script)
{
    json_t *o = assignment("j1", generation, 1, 0, script);

    (void)json_object_set_new(json_array_get(json_object_get(o, "ranks"), 0), "node", json_string("n2"));
    (void)json_object_set_new(o, "givers",
                              json_pack("[{s:i,s:s,s:s}]", "rank", rank, "node", node, "address", "127.0.0.1"));
    return o;
}

static void a_source_node_runs_where_the_job_has_no_rank_and_takes_no_slot(void **state)
{
    const struct run *other = start("j2", 1, 8, "exec sleep 1000"), *run;
    json_auto_t *o = source_assignment(2, 1, "n1", "echo $RANK of $WORLD_SIZE");
    json_auto_t *elsewhere = source_assignment(3, 1, "n3", "true"), *odd = source_assignment(3, 2, "n1", "true");

    (void)state;
    wait_running(other);
    assert_int_equal(ranks_start(ranks, o, NULL), 0);
    run = wait_ended("j1", 2);
    assert_int_equal(run->n, 1);
    assert_int_equal(run->nodes, 2); /* its keys are carried between them */
    assert_int_equal(run->ranks[0].slot, -1);
    assert_string_equal(log_of(run, 1), "1 of 1\n");
    assert_int_equal(ranks_start(ranks, elsewhere, NULL), -EINVAL);
    assert_int_equal(ranks_start(ranks, odd, NULL), -EINVAL);
}

static void a_source_node_that_is_done_gives_the_memory_back_unless_the_job_is_here_again(void **state)
{
    json_auto_t *two = source_assignment(2, 1, "n1", "exit 75"), *four = source_assignment(4, 1, "n1", "true");
    json_auto_t *six = source_assignment(6, 1, "n1", "true");
    char memory[192];

    (void)state;
    (void)snprintf(memory, sizeof(memory), "%s/memory/j1", dir);
    assert_int_equal(io_mkdirs(memory, 0700, NULL), 0);
    assert_int_equal(ranks_start(ranks, two, NULL), 0);
    wait_ended("j1", 2);
    assert_int_equal(ranks_forget(ranks, "j1", 2, NULL), 0);
    assert_int_equal(access(memory, F_OK), 0); /* nobody took what there is */
    assert_int_equal(ranks_start(ranks, four, NULL), 0);
    wait_ended("j1", 4);
    wait_running(start("j1", 5, 1, "exec sleep 1000"));
    assert_int_equal(ranks_forget(ranks, "j1", 4, NULL), 0);
    assert_int_equal(access(memory, F_OK), 0);
    assert_int_equal(ranks_order(ranks, "j1", 5, ASSIGNMENT_STOP, 5), 0);
    wait_ended("j1", 5);
    assert_int_equal(ranks_forget(ranks, "j1", 5, NULL), 0);
    assert_int_equal(ranks_start(ranks, six, NULL), 0);
    wait_ended("j1", 6);
    assert_int_equal(ranks_forget(ranks, "j1", 6, NULL), 0);
    assert_int_equal(access(memory, F_OK), -1);
}

static void forgetting_takes_the_folder_and_only_of_ended_runs(void **state)
{
    const struct run *run = start("j1", 1, 1, "exec sleep 1000");
    char folder[PATH_MAX];

    (void)state;
    (void)snprintf(folder, sizeof(folder), "%s", run->folder);
    assert_int_equal(ranks_forget(ranks, "j1", 1, NULL), -EBUSY);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 5), 0);
    wait_ended("j1", 1);
    assert_int_equal(ranks_forget(ranks, "j1", 1, NULL), 0);
    assert_int_equal(ranks_forget(ranks, "j1", 1, NULL), 0);
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 5), -ENOENT);
}

static void what_cannot_be_started_is_a_rank_that_ended(void **state)
{
    json_auto_t *o = assignment("j1", 1, 2, 0, "true");
    const struct run *run;

    (void)state;
    json_object_set_new(json_object_get(o, "spec"), "comand", json_true());
    assert_int_equal(ranks_start(ranks, o, NULL), 0);
    run = ranks_find(ranks, "j1", 1);
    assert_true(ranks_run_ended(run));
    assert_int_equal(run->ranks[1].exit.cause, EXIT_CAUSE_NODE);
    assert_non_null(strstr(json_string_value(json_array_get(run->ranks[0].log_tail, 0)), "comand"));
}

static void assignments_that_make_no_sense_leave_nothing(void **state)
{
    static const struct {
        const char *key, *value;
    } table[] = {
        {"job", "\"../x\""}, {"job", "\"\""}, {"generation", "0"}, {"dir", "\"relative\""},
        {"ranks", "{}"},     {"ranks", "[]"}, {"world", "1"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = assignment("j1", 1, 2, 0, "true");
        struct merr err = {""};

        json_object_set_new(o, table[i].key, json_loads(table[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(ranks_start(ranks, o, &err), -EINVAL);
        assert_true(err.text[0] != '\0');
        assert_int_equal(ranks_count(ranks), 0);
    }
}

/* --- agents that come and go -------------------------------------------------------------------- */

/* Start a run in another process, which is then killed like an agent in a crash. */
static void start_and_die(int n, const char *script)
{
    pid_t agent = fork();

    assert_true(agent >= 0);
    if (agent == 0) {
        const struct run *run = start("j1", 1, n, script);

        wait_running(run);
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(agent, NULL, 0), agent);
}

static void a_new_agent_adopts_what_a_killed_one_left(void **state)
{
    const struct run *run;
    char path[128];

    (void)state;
    start_and_die(2, "echo alive; touch up$RANK; while [ ! -e go ]; do sleep 0.01; done; exit $((RANK * 5))");
    wait_file("up0");
    wait_file("up1");
    assert_int_equal(ranks_adopt(ranks, NULL), 0);
    run = ranks_find(ranks, "j1", 1);
    assert_non_null(run);
    assert_int_equal(run->ranks[0].state, RANK_RUNNING);
    assert_int_equal(kill(machine_rank_pid(run->ranks[1].on_machine), 0), 0);
    (void)snprintf(path, sizeof(path), "%s/go", dir);
    assert_int_equal(io_publish_file(path, "", 0, 0600, NULL), 0);
    wait_ended("j1", 1);
    assert_int_equal(run->ranks[1].exit.status, 5);
}

static void adopted_ranks_can_be_stopped(void **state)
{
    (void)state;
    start_and_die(2, "exec sleep 1000");
    assert_int_equal(ranks_adopt(ranks, NULL), 0);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 5), 0);
    assert_int_equal(wait_ended("j1", 1)->ranks[0].exit.signal, SIGTERM);
}

static void ends_while_no_agent_was_there_are_found(void **state)
{
    (void)state;
    start_and_die(1, "exit 9");
    wait_file("runs/j1-g1/rank-00000.exit");
    assert_int_equal(ranks_adopt(ranks, NULL), 0);
    assert_int_equal(wait_ended("j1", 1)->ranks[0].exit.status, 9);
}

static void a_lost_shim_takes_all_of_its_rank_along(void **state)
{
    const struct run *run = start("j1", 1, 1, "setsid sleep 1000 & touch up; exec sleep 1000");

    (void)state;
    wait_file("up");
    wait_running(run);
    assert_int_equal(kill(machine_rank_shim(run->ranks[0].on_machine), SIGKILL), 0);
    wait_ended("j1", 1);
    assert_int_equal(run->ranks[0].exit.cause, EXIT_CAUSE_NODE);
    assert_int_equal(run->ranks[0].exit.status, -1); /* its program has ended with none */
    assert_string_equal(run->ranks[0].exit.why, "the process that watches this rank was lost");
    assert_int_equal(processes_left(), 0);
}

static void a_shim_lost_while_no_agent_was_there_is_found_out(void **state)
{
    struct shim_pids pids;

    (void)state;
    start_and_die(1, "exec sleep 1000");
    assert_int_equal(shim_read_pids("/nowhere", 0, &pids, NULL), -ENOENT);
    (void)snprintf(root + strlen(root), sizeof(root) - strlen(root), "/j1-g1");
    assert_int_equal(shim_read_pids(root, 0, &pids, NULL), 0);
    *strrchr(root, '/') = '\0';
    assert_int_equal(proc_kill(pids.shim, SIGKILL), 0);
    assert_int_equal(ranks_adopt(ranks, NULL), 0);
    assert_int_equal(wait_ended("j1", 1)->ranks[0].exit.cause, EXIT_CAUSE_NODE);
}

static void a_reused_process_number_is_not_hit(void **state)
{
    struct proc_id stranger = {.pid = fork()};
    const struct run *run;
    char text[256], path[PATH_MAX];
    int n;

    (void)state;
    if (stranger.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void)pause();
    }
    assert_int_equal(proc_start_time(stranger.pid, &stranger.start), 0);
    start_and_die(1, "exit 0");
    wait_file("runs/j1-g1/rank-00000.exit");
    /* As if both numbers had been given to somebody else meanwhile, and no exit file had been written. */
    (void)snprintf(path, sizeof(path), "%s/j1-g1/rank-00000.exit", root);
    assert_int_equal(unlink(path), 0);
    n = snprintf(text, sizeof(text), "{\"shim\": %d, \"shim_start\": %llu, \"pid\": %d, \"pid_start\": %llu}",
                 (int)stranger.pid, (unsigned long long)stranger.start - 1, (int)stranger.pid,
                 (unsigned long long)stranger.start - 1);
    (void)snprintf(path, sizeof(path), "%s/j1-g1/rank-00000.pid", root);
    assert_int_equal(io_publish_file(path, text, (size_t)n, 0600, NULL), 0);
    assert_int_equal(ranks_adopt(ranks, NULL), 0);
    run = wait_ended("j1", 1);
    assert_int_equal(run->ranks[0].exit.cause, EXIT_CAUSE_NODE);
    assert_true(proc_alive(stranger));
    assert_int_equal(proc_kill(stranger, SIGKILL), 0);
    assert_int_equal(waitpid(stranger.pid, NULL, 0), stranger.pid);
    assert_int_equal(proc_kill(stranger, SIGKILL), -ESRCH);
}

static void ranks_of_an_earlier_boot_are_not_looked_for(void **state)
{
    char path[PATH_MAX];
    struct buf text;
    json_t *o;
    char *dump;

    (void)state;
    start_and_die(1, "exit 0");
    wait_file("runs/j1-g1/rank-00000.exit");
    (void)snprintf(path, sizeof(path), "%s/j1-g1/rank-00000.exit", root);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/j1-g1/assignment.json", root);
    buf_init(&text, 1 << 20);
    assert_int_equal(io_read_file(path, &text, NULL), 0);
    o = json_loads(buf_text(&text), 0, NULL);
    json_object_set_new(o, "boot_id", json_string("another"));
    dump = json_dumps(o, 0);
    assert_int_equal(io_publish_file(path, dump, strlen(dump), 0600, NULL), 0);
    free(dump);
    json_decref(o);
    buf_clear(&text);
    assert_int_equal(ranks_adopt(ranks, NULL), 0);
    assert_true(ranks_run_ended(ranks_find(ranks, "j1", 1)));
    assert_int_equal(ranks_find(ranks, "j1", 1)->ranks[0].exit.cause, EXIT_CAUSE_NODE);
}

static void a_folder_without_an_assignment_is_swept_away(void **state)
{
    char path[PATH_MAX];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/j7-g3/rendezvous", root);
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    assert_int_equal(ranks_adopt(ranks, NULL), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(access(path, F_OK), -1);
}

static void a_stopped_shim_does_not_save_its_rank(void **state)
{
    const struct run *run = start("j1", 1, 1, "trap '' TERM; touch ready; while :; do sleep 0.05; done");

    (void)state;
    wait_file("ready");
    wait_running(run);
    assert_int_equal(kill(machine_rank_shim(run->ranks[0].on_machine), SIGSTOP), 0);
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_STOP, 0), 0);
    wait_ended("j1", 1);
    assert_int_equal(processes_left(), 0);
}

/* The order and the end are seen at once, the order first: SIGTERM is the lower number. */
static void what_ended_before_the_order_came_is_done(void **state)
{
    const struct run *run = start("j1", 1, 1, "touch ready; while [ ! -e go ]; do sleep 0.01; done");
    int64_t until_us = clock_mono_us() + WAIT_US;
    struct shim_pids pids;
    char path[128];

    (void)state;
    wait_file("ready");
    wait_running(run);
    assert_int_equal(shim_read_pids(run->folder, 0, &pids, NULL), 0);
    assert_int_equal(proc_kill(pids.shim, SIGSTOP), 0);
    (void)snprintf(path, sizeof(path), "%s/go", dir);
    assert_int_equal(io_publish_file(path, "", 0, 0600, NULL), 0);
    while (proc_alive(pids.rank)) {
        assert_true(clock_mono_us() < until_us);
        (void)poll(NULL, 0, 5);
    }
    assert_int_equal(ranks_order(ranks, "j1", 1, ASSIGNMENT_DRAIN, 20), 0);
    assert_int_equal(proc_kill(pids.shim, SIGCONT), 0);
    wait_ended("j1", 1);
    assert_int_equal(run->ranks[0].exit.cause, EXIT_CAUSE_PROGRAM);
    assert_int_equal(run->ranks[0].exit.status, 0);
}

/* Nothing was promised, so nothing can be missed: not after hours either. */
static void a_command_is_silent_only_once_it_has_shown_a_sign_of_life(void **state)
{
    const struct run *run = start("j1", 1, 1, "sleep 1000");
    struct report_run told;
    char path[PATH_MAX], text[128];

    (void)state;
    wait_running(run);
    assert_int_equal(ranks_run_look(run, &told), 0);
    assert_int_equal(told.ranks[0].stall.idle_us, 0);
    report_run_clear(&told);
    (void)snprintf(text, sizeof(text), "{\"step\":7,\"at\":%.3f,\"section\":\"eval\",\"for_s\":3}      \n",
                   (double)clock_mono_us() / 1e6 - 10.001);
    assert_int_equal(
        io_publish_file(shim_path(path, sizeof(path), run->folder, 0, "beat"), text, strlen(text), 0640, NULL), 0);
    assert_int_equal(ranks_run_report(run, &told), 0);
    assert_true(told.ranks[0].stall.beats && told.ranks[0].stall.idle_us >= 10000000);
    assert_int_equal(told.ranks[0].stall.allowed_us, 3000000);
    assert_string_equal(told.ranks[0].stall.section, "eval");
    assert_int_equal(told.ranks[0].step, 7);
    report_run_clear(&told);
    assert_int_equal(unlink(path), 0); /* it has closed */
    assert_int_equal(ranks_run_look(run, &told), 0);
    assert_int_equal(told.ranks[0].stall.idle_us, 0);
    report_run_clear(&told);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rank_is_told_its_place_and_its_end_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(exit_codes_and_signals_are_told_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_users_program_may_end_with_any_status, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_rank_leaves_in_its_page_is_the_cause_of_its_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_rank_leaves_behind_is_ended_before_its_end_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_is_sigterm_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_command_answers_to_a_stop_is_no_cause, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_tells_itself_to_end_did_not_obey_an_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(after_a_stop_what_the_shell_leaves_has_the_grace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_shell_leaves_is_killed_after_the_grace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_muster_kills_is_no_cause, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_entered_is_the_users_affair_and_named, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(after_the_grace_comes_sigkill, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_stop_may_shorten_the_grace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(when_one_fails_the_others_are_told_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(starting_twice_starts_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_taken_slot_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_source_node_runs_where_the_job_has_no_rank_and_takes_no_slot, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_source_node_that_is_done_gives_the_memory_back_unless_the_job_is_here_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(forgetting_takes_the_folder_and_only_of_ended_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_started_is_a_rank_that_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(assignments_that_make_no_sense_leave_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_agent_adopts_what_a_killed_one_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(adopted_ranks_can_be_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ends_while_no_agent_was_there_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_shim_takes_all_of_its_rank_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_shim_lost_while_no_agent_was_there_is_found_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reused_process_number_is_not_hit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_of_an_earlier_boot_are_not_looked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_without_an_assignment_is_swept_away, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stopped_shim_does_not_save_its_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_ended_before_the_order_came_is_done, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_command_is_silent_only_once_it_has_shown_a_sign_of_life, set_up, tear_down),
    };
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (argc > 1 && strcmp(argv[1], "shim") == 0)
        return shim_main(argc - 1, argv + 1);
    assert_true(n > 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
