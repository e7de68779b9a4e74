/* A guard and its rank, which is this program once more: what is told of its start and end, and that nothing of it
 * outlives whoever asked for it. */
#include "worker/helper/helper.h"

#include "tests/unit/test.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 60000

static struct helper helper;

/* --- the rank ---------------------------------------------------------------------------------------- */

/* Does what its order says, and writes what it is. */
static int be_rank(char **envp)
{
    char order[64] = "";

    if (read(HELPER_ORDER_FD, order, sizeof(order) - 1) < 0)
        return 99;
    (void)dprintf(STDOUT_FILENO, "%d %s %s\n", (int)getuid(), *envp ? *envp : "-", order);
    if (strcmp(order, "wait") == 0 || (strcmp(order, "leave") == 0 && fork() == 0))
        for (;;)
            (void)pause();
    return strtol(order, NULL, 10) & 0x7f;
}

/* --- the tests --------------------------------------------------------------------------------------- */

static int wire, output[2];

/* A guard that has got this packet with the first n descriptors of an order and an output. */
static pid_t guard(const struct helper_call *c, const char *order, int n)
{
    char control[CMSG_SPACE(2 * sizeof(int))] = "";
    struct iovec io = {.iov_base = (void *)c, .iov_len = sizeof(*c)};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    int wires[2], fds[2] = {memfd_create("order", MFD_CLOEXEC), -1};
    pid_t pid;

    assert_int_equal(pipe2(output, O_CLOEXEC), 0);
    fds[1] = output[1];
    assert_true(dprintf(fds[0], "%s", order) >= 0);
    (void)lseek(fds[0], 0, SEEK_SET);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires), 0);
    if (n > 0) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)n * sizeof(int))};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, (size_t)n * sizeof(int));
    }
    pid = fork();
    if (pid == 0) {
        (void)close(wires[0]);
        (void)close(output[0]);
        (void)close(output[1]);
        (void)close(fds[0]);
        guard_serve(&helper, wires[1]);
    }
    (void)close(wires[1]);
    wire = wires[0];
    assert_true(sendmsg(wire, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*c));
    (void)close(fds[0]);
    (void)close(output[1]);
    return pid;
}

/* The next thing told; kind 0: the guard has hung up. */
static struct helper_told told(void)
{
    struct helper_told t = {.kind = 0};
    struct pollfd p = {.fd = wire, .events = POLLIN};

    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    if (recv(wire, &t, sizeof(t), 0) <= 0)
        t.kind = 0;
    return t;
}

/* A line of the rank's output; "": there will be no more. */
static const char *line(void)
{
    static char text[256];
    struct pollfd p = {.fd = output[0], .events = POLLIN};
    size_t n = 0;

    for (char c; n < sizeof(text) - 1 && poll(&p, 1, WAIT_MS) == 1 && read(output[0], &c, 1) == 1 && c != '\n';)
        text[n++] = c;
    text[n] = '\0';
    return text;
}

static void end(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)close(wire);
    (void)close(output[0]);
}

static void signal_rank(int number)
{
    struct helper_call c = {.kind = HELPER_SIGNAL, .number = number};

    assert_int_equal(send(wire, &c, sizeof(c), MSG_NOSIGNAL), sizeof(c));
}

static const struct helper_call begin = {.kind = HELPER_START};

static void a_rank_gets_its_order_its_user_and_nothing_else_and_its_end_is_told(void **state)
{
    pid_t pid = guard(&begin, "42", 2);
    struct helper_told t = told();
    char want[64];

    (void)state;
    if (t.kind != HELPER_DONE)
        fail_msg("%s", t.text);
    (void)snprintf(want, sizeof(want), "%d - 42", (int)helper.job.uid);
    assert_string_equal(line(), want);
    t = told();
    assert_int_equal(t.kind, HELPER_ENDED);
    assert_true(WIFEXITED(t.number));
    assert_int_equal(WEXITSTATUS(t.number), 42);
    assert_int_equal(told().kind, 0);
    end(pid);
}

static void a_signal_reaches_the_rank_and_shows_in_its_end(void **state)
{
    pid_t pid = guard(&begin, "wait", 2);
    struct helper_told t;

    (void)state;
    assert_int_equal(told().kind, HELPER_DONE);
    assert_non_null(strstr(line(), "wait"));
    signal_rank(SIGUSR1);
    t = told();
    assert_int_equal(t.kind, HELPER_ENDED);
    assert_int_equal(t.number, SIGUSR1);
    end(pid);
}

static void what_a_rank_leaves_is_ended_with_it(void **state)
{
    pid_t pid = guard(&begin, "leave", 2);

    (void)state;
    assert_int_equal(told().kind, HELPER_DONE);
    assert_int_equal(told().kind, HELPER_ENDED);
    assert_non_null(strstr(line(), "leave"));
    (void)line();
    assert_string_equal(line(), ""); /* nobody holds the output any more */
    end(pid);
}

static void the_rank_ends_when_whoever_asked_for_it_hangs_up_or_sends_rubbish(void **state)
{
    (void)state;
    for (int rubbish = 0; rubbish < 2; rubbish++) {
        pid_t pid = guard(&begin, "wait", 2);

        assert_int_equal(told().kind, HELPER_DONE);
        assert_non_null(strstr(line(), "wait"));
        if (rubbish)
            assert_int_equal(send(wire, "rubbish", 7, MSG_NOSIGNAL), 7);
        else
            assert_int_equal(shutdown(wire, SHUT_RDWR), 0);
        assert_string_equal(line(), "");
        end(pid);
    }
}

static void users_that_no_rank_may_be_are_refused_in_words(void **state)
{
    static const char *const names[] = {"root", "nobody", "no-such-user-here"};

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct helper_call c = begin;
        struct helper_told t;
        pid_t pid;

        (void)snprintf(c.user, sizeof(c.user), "%s", names[i]);
        pid = guard(&c, "0", 2);
        t = told();
        assert_int_equal(t.kind, HELPER_FAILED);
        assert_non_null(strstr(t.text, names[i]));
        assert_int_equal(told().kind, 0);
        assert_string_equal(line(), "");
        end(pid);
    }
}

static void who_does_not_begin_with_a_start_is_hung_up_on(void **state)
{
    struct helper_call c = {.kind = HELPER_SIGNAL, .number = SIGTERM};
    pid_t pid = guard(&c, "0", 0);

    (void)state;
    assert_int_equal(told().kind, 0);
    end(pid);
    c = begin;
    memset(c.keep, 'x', 4); /* a place that is not below /dev/shm */
    pid = guard(&c, "0", 2);
    assert_int_equal(told().kind, 0);
    assert_string_equal(line(), "");
    end(pid);
}

static int start(void **state)
{
    const struct passwd *daemon = getpwnam("daemon");

    (void)state;
    helper = (struct helper){.agent = {.name = "agent", .uid = 1234567, .gid = 1234567},
                             .job = {.name = "daemon", .uid = daemon->pw_uid, .gid = daemon->pw_gid}};
    helper.program = fcntl(open("/proc/self/exe", O_PATH | O_CLOEXEC), F_DUPFD_CLOEXEC, 100);
    return helper.program < 0;
}

static void root_is_here(void **state)
{
    (void)state;
    print_message("a guard makes its rank another user, which takes root\n");
    skip();
}

int main(int argc, char **argv, char **envp)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_gets_its_order_its_user_and_nothing_else_and_its_end_is_told),
        cmocka_unit_test(a_signal_reaches_the_rank_and_shows_in_its_end),
        cmocka_unit_test(what_a_rank_leaves_is_ended_with_it),
        cmocka_unit_test(the_rank_ends_when_whoever_asked_for_it_hangs_up_or_sends_rubbish),
        cmocka_unit_test(users_that_no_rank_may_be_are_refused_in_words),
        cmocka_unit_test(who_does_not_begin_with_a_start_is_hung_up_on),
    };
    const struct CMUnitTest without[] = {cmocka_unit_test(root_is_here)};

    if (argc > 1 && strcmp(argv[1], "rank") == 0)
        return be_rank(envp);
    return geteuid() == 0 ? cmocka_run_group_tests(tests, start, NULL) : cmocka_run_group_tests(without, NULL, NULL);
}
