#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/agent/listener.h"

#define HEAD "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

static char root[64];

static void put(const char *name, const char *text, size_t len)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    *strrchr(path, '/') = '\0';
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    path[strlen(path)] = '/';
    assert_int_equal(io_publish_file(path, text, len, 0600, NULL), 0);
}

static void hold(const char *pid, const char *environment, size_t len, const char *what)
{
    char name[64], path[256];

    (void)snprintf(name, sizeof(name), "%s/environ", pid);
    put(name, environment, len);
    (void)snprintf(path, sizeof(path), "%s/%s/fd", root, pid);
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/fd/3", root, pid);
    assert_int_equal(symlink(what, path), 0);
}

#define ENVIRONMENT(text) text, sizeof(text)

static int set_up(void **state)
{
    static const char v4[] =
        HEAD "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 x 100 0\n"
             "   1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1 x 100 0\n"
             "   2: 0200000A:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 13 1 x 100 0\n"
             "   3: 0100007F:1F93 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 14 1 x 100 0\n"
             "   4: 0100007F:1F94 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 15 1 x 100 0\n"
             "   5: 0100007F:1F95 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 16 1 x 100 0\n"
             "garbage\n";
    static const char v6[] =
        HEAD "   0: 00000000000000000000000000000000:1F94 00000000000000000000000000000000:0000 0A 00000000:00000000 "
             "00:00000000 00000000     0        0 21 1 x 100 0\n"
             "   1: 00000000000000000000000001000000:1F96 00000000000000000000000000000000:0000 0A 00000000:00000000 "
             "00:00000000 00000000     0        0 22 1 x 100 0\n"
             "   2: 0000000000000000FFFF00000100007F:1F97 00000000000000000000000000000000:0000 0A 00000000:00000000 "
             "00:00000000 00000000     0        0 23 1 x 100 0\n";

    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/test_listener.XXXXXX");
    assert_non_null(mkdtemp(root));
    put("self/net/tcp", v4, sizeof(v4) - 1);
    put("self/net/tcp6", v6, sizeof(v6) - 1);
    hold("101", ENVIRONMENT("A=1\0MUSTER_JOB=j17\0B=2"), "socket:[11]");
    hold("102", ENVIRONMENT("MUSTER_JOB=j17"), "socket:[12]");
    hold("103", ENVIRONMENT("MUSTER_JOB=j17"), "socket:[15]");
    hold("104", ENVIRONMENT("MUSTER_JOB=j1"), "socket:[16]");
    hold("105", ENVIRONMENT("MUSTER_JOB=j17"), "socket:[23]");
    hold("106", ENVIRONMENT("XMUSTER_JOB=j17\0C=MUSTER_JOB=j17"), "socket:[21]");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return io_remove_tree(root, NULL);
}

static void a_port_is_the_jobs_when_all_that_listen_there_are_its_programs(void **state)
{
    static const struct {
        int port;
        const char *job;
        int result;
    } table[] = {
        {0x1F90, "j17", 0},             /* on 127.0.0.1 */
        {0x1F91, "j17", 0},             /* on all addresses */
        {0x1F92, "j17", -ECONNREFUSED}, /* on another address alone */
        {0x1F93, "j17", -ECONNREFUSED}, /* a connection, which listens for none */
        {0x1F94, "j17", -EACCES}, /* the job's, and somebody else's beside it, whose variables only look like it */
        {0x1F95, "j17", -EACCES}, /* another job's, the beginning of whose name it is */
        {0x1F95, "j1", 0},
        {0x1F90, "j1", -EACCES},
        {0x1F96, "j17", -ECONNREFUSED}, /* ::1 is not 127.0.0.1 */
        {0x1F97, "j17", 0},             /* 127.0.0.1, as IPv6 writes it */
        {80, "j17", -ECONNREFUSED},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct merr err = {""};

        assert_int_equal(listener_find(root, table[i].port, table[i].job, &err), table[i].result);
        assert_true(table[i].result == 0 || strstr(err.text, "port"));
    }
}

static void a_socket_that_no_process_shown_holds_is_nobodys(void **state)
{
    char path[128];
    struct merr err;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/101", root);
    assert_int_equal(io_remove_tree(path, NULL), 0);
    assert_int_equal(listener_find(root, 0x1F90, "j17", &err), -EACCES);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_port_is_the_jobs_when_all_that_listen_there_are_its_programs, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_socket_that_no_process_shown_holds_is_nobodys, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
