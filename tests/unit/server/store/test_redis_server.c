#include "tests/unit/test.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "server/store/redis_server.h"

#define WAIT_US 60000000

struct scene {
    char folder[64];
    struct redis_server *server;
};

static int start(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    struct merr err = {""};

    *state = s;
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/muster-redis-XXXXXX");
    if (!mkdtemp(s->folder))
        return -1;
    (void)snprintf(s->folder + strlen(s->folder), sizeof(s->folder) - strlen(s->folder), "/made/by/it");
    if (redis_server_start(s->folder, &s->server, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int stop(void **state)
{
    struct scene *s = *state;

    redis_server_stop(s->server);
    s->folder[strlen("/tmp/muster-redis-XXXXXX")] = '\0';
    (void)io_remove_tree(s->folder, NULL);
    free(s);
    return 0;
}

/* One that answers, within WAIT_US. */
static redisContext *reach(const struct scene *s)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    char path[REDIS_SERVER_PATH_MAX];

    redis_server_socket(s->server, path);
    for (;;) {
        redisContext *c = redisConnectUnix(path);
        redisReply *reply = c && !c->err ? redisCommand(c, "PING") : NULL;
        bool good = reply && reply->type == REDIS_REPLY_STATUS;

        if (reply)
            freeReplyObject(reply);
        if (good)
            return c;
        if (c)
            redisFree(c);
        assert_true(clock_mono_us() < until_us);
        (void)poll(NULL, 0, 10);
    }
}

static pid_t pid_of(redisContext *c)
{
    redisReply *reply = redisCommand(c, "INFO server");
    const char *at;
    long pid;

    assert_non_null(reply);
    at = strstr(reply->str, "process_id:");
    assert_non_null(at);
    pid = strtol(at + strlen("process_id:"), NULL, 10);
    freeReplyObject(reply);
    assert_true(pid > 1);
    return (pid_t)pid;
}

static void say(redisContext *c, const char *command, const char *want)
{
    redisReply *reply = redisCommand(c, command);

    assert_non_null(reply);
    assert_string_equal(reply->str, want);
    freeReplyObject(reply);
}

static void one_that_is_killed_is_started_again_and_has_all_that_it_acknowledged(void **state)
{
    struct scene *s = *state;
    redisContext *c = reach(s);
    pid_t pid = pid_of(c);

    assert_string_equal(redis_server_dir(s->server), s->folder);
    say(c, "SET k v", "OK");
    assert_int_equal(kill(pid, SIGKILL), 0);
    redisFree(c);
    c = reach(s);
    say(c, "GET k", "v");
    assert_true(pid_of(c) != pid);
    redisFree(c);
}

static void when_it_is_stopped_its_process_is_gone(void **state)
{
    struct scene *s = *state;
    redisContext *c = reach(s);
    pid_t pid = pid_of(c);

    redisFree(c);
    redis_server_stop(s->server);
    s->server = NULL;
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void a_folder_that_cannot_be_made_is_named(void **state)
{
    struct redis_server *server = NULL;
    struct merr err = {""};

    (void)state;
    assert_true(redis_server_start("/dev/null/redis", &server, &err) < 0);
    assert_null(server);
    assert_non_null(strstr(err.text, "/dev/null"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_is_killed_is_started_again_and_has_all_that_it_acknowledged, start,
                                        stop),
        cmocka_unit_test_setup_teardown(when_it_is_stopped_its_process_is_gone, start, stop),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_named),
    };

    (void)signal(SIGPIPE, SIG_IGN); /* as musterd does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
