/* Who a rank may be, and what is left of root once a process has become that. */
#include "worker/helper/helper.h"

#include "tests/unit/test.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The agent is an account of nobody's; jobs without an account of their own run as daemon, which every system has. */
static struct helper accounts(void)
{
    const struct passwd *daemon = getpwnam("daemon");
    struct helper h = {.agent = {.name = "agent", .uid = 1234567, .gid = 1234567}, .job = {.name = "daemon"}};

    assert_non_null(daemon);
    h.job.uid = daemon->pw_uid;
    h.job.gid = daemon->pw_gid;
    return h;
}

static void ranks_are_neither_root_nor_the_agent_nor_an_account_of_the_system(void **state)
{
    static const struct {
        const char *name, *words; /* NULL: it may be */
    } cases[] = {
        {"", NULL},
        {"daemon", NULL},
        {"root", "root's"},
        {"bin", "a system's account"},
        {"nobody", "a system's account"},
        {"no-such-user-here", "there is no user"},
    };
    struct helper h = accounts();

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct helper_user u = {.uid = 77};
        char text[200] = "";

        if (!cases[i].words) {
            assert_true(user_find(&h, cases[i].name, &u, text));
            assert_string_equal(u.name, "daemon");
            assert_int_equal(u.uid, h.job.uid);
            continue;
        }
        assert_false(user_find(&h, cases[i].name, &u, text));
        assert_non_null(strstr(text, cases[i].words));
        assert_int_equal(u.uid, 77);
    }
}

static void an_account_that_shares_a_number_with_the_agent_is_refused(void **state)
{
    struct helper h = accounts();
    struct helper_user u;
    char text[200] = "";

    (void)state;
    h.agent.gid = h.job.gid;
    assert_false(user_find(&h, "", &u, text));
    assert_non_null(strstr(text, "Muster's own account"));
    h = accounts();
    h.agent.uid = h.job.uid;
    assert_false(user_find(&h, "daemon", &u, text));
}

/* A number of a line of /proc/self/status. */
static unsigned long long status_of(const char *name, int base)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long value = 12345;

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            value = strtoull(line + strlen(name) + 1, NULL, base);
    if (f)
        (void)fclose(f);
    return value;
}

/* In a process of its own: what went wrong, 0 when all is as it should be. */
static int become_and_look(const struct helper *h)
{
    gid_t groups[64];
    int n;

    if (!user_become(h, &h->job))
        return 1;
    if (getuid() != h->job.uid || geteuid() != h->job.uid || getgid() != h->job.gid || getegid() != h->job.gid)
        return 2;
    if (setuid(0) == 0 || setgroups(1, (gid_t[]){0}) == 0)
        return 3;
    if (status_of("CapPrm", 16) || status_of("CapEff", 16) || status_of("CapBnd", 16) || status_of("CapAmb", 16))
        return 4;
    if (status_of("NoNewPrivs", 10) != 1)
        return 5;
    n = getgroups(64, groups);
    for (int i = 0; i < n; i++)
        if (groups[i] == 0)
            return 6;
    return n < 0 ? 7 : 0;
}

static void who_has_become_a_user_has_no_right_left_and_gets_none_back(void **state)
{
    struct helper h = accounts();
    int status;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        print_message("becoming another user takes root\n");
        skip();
    }
    pid = fork();
    if (pid == 0)
        _exit(become_and_look(&h));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int keep_and_look(void)
{
    uint64_t wanted = 1 << 5 | 1 << 7; /* CAP_KILL, CAP_SETUID */

    if (!user_keep_capabilities(wanted, 1 << 5))
        return 1;
    if (status_of("CapEff", 16) != wanted || status_of("CapPrm", 16) != wanted)
        return 2;
    return status_of("CapBnd", 16) != 1 << 5 ? 3 : status_of("NoNewPrivs", 10) != 1 ? 4 : 0;
}

static void of_capabilities_those_named_are_kept_and_no_others(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        print_message("dropping capabilities takes root\n");
        skip();
    }
    pid = fork();
    if (pid == 0)
        _exit(keep_and_look());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_neither_root_nor_the_agent_nor_an_account_of_the_system),
        cmocka_unit_test(an_account_that_shares_a_number_with_the_agent_is_refused),
        cmocka_unit_test(who_has_become_a_user_has_no_right_left_and_gets_none_back),
        cmocka_unit_test(of_capabilities_those_named_are_kept_and_no_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
