/* What a server that stands by answers, over real sockets: that it lives, that it does not lead, and who does. */
#include "server/control/standby.h"
#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEADER "http://127.0.0.1:7070"

static struct standby *standby;

static int start(void **state)
{
    struct merr err = {""};

    (void)state;
    if (standby_start(&(struct http_cfg){.bind = "127.0.0.1", .auth = NULL}, &standby, &err) < 0)
        print_message("%s\n", err.text);
    return standby ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    standby_stop(standby);
    standby = NULL;
    return 0;
}

/* All that is answered to a text until the connection ends. */
static const char *ask(const char *text)
{
    static char reply[8192];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)standby_port(standby)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 20};
    size_t len = 0;
    ssize_t n;

    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    while (len < sizeof(reply) - 1 && (n = recv(fd, reply + len, sizeof(reply) - 1 - len, 0)) > 0)
        len += (size_t)n;
    reply[len] = '\0';
    (void)close(fd);
    return reply;
}

#define HEAD(method, path, more) method " " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" more "\r\n"

static void assert_answer(const char *request, const char *status, const char *part)
{
    const char *reply = ask(request);

    if (strncmp(reply, "HTTP/1.1 ", 9) != 0 || strncmp(reply + 9, status, 3) != 0 || !strstr(reply, part))
        fail_msg("want %s with '%s', not\n%s", status, part, reply);
}

static void it_lives_and_is_not_ready_whether_or_not_a_leader_is_known(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        standby_set_leader(standby, known ? LEADER : "");
        assert_answer(HEAD("GET", "/healthz", ""), "200", "\"status\":\"ok\"");
        assert_answer(HEAD("GET", "/readyz", ""), "503", "urn:muster:problem:standby");
    }
}

static void all_else_is_sent_to_the_leader_as_it_was_asked(void **state)
{
    static const char *const request[] = {
        HEAD("GET", "/v1/jobs?state=running&name~=a%20b", ""),
        HEAD("GET", "/v1/jobs?state=running&name~=a%20b", "Authorization: Bearer nobody\r\n"),
        HEAD("PATCH", "/v1/jobs?state=running&name~=a%20b", "Content-Length: 0\r\n"),
        /* a body of which nothing comes: it is answered all the same */
        HEAD("POST", "/v1/jobs?state=running&name~=a%20b", "Expect: 100-continue\r\nContent-Length: 900000\r\n"),
    };

    (void)state;
    standby_set_leader(standby, LEADER);
    for (size_t i = 0; i < COUNT(request); i++)
        assert_answer(request[i], "307", "Location: " LEADER "/v1/jobs?state=running&name~=a%20b\r\n");
    standby_set_leader(standby, "https://other:7071");
    assert_answer(HEAD("GET", "/", ""), "307", "Location: https://other:7071/\r\n");
}

static void while_nobody_leads_one_is_told_to_come_again(void **state)
{
    (void)state;
    standby_set_leader(standby, LEADER);
    standby_set_leader(standby, "");
    assert_answer(HEAD("GET", "/v1/jobs", ""), "503", "urn:muster:problem:");
    assert_null(strstr(ask(HEAD("POST", "/v1/jobs", "Content-Length: 0\r\n")), "Location:"));
}

static atomic_bool asked;

static void *change_leaders(void *arg)
{
    char url[HTTP_ELSEWHERE_MAX];

    (void)arg;
    for (int i = 0; !atomic_load(&asked); i++) {
        (void)snprintf(url, sizeof(url), "http://%0*d:1", 1 + i % 200, 7);
        standby_set_leader(standby, url);
    }
    return NULL;
}

/* Each answer has one leader's address whole, whoever changes it meanwhile. */
static void an_address_is_never_half_of_one_and_half_of_another(void **state)
{
    pthread_t thread;

    (void)state;
    standby_set_leader(standby, "http://7:1");
    atomic_store(&asked, false);
    assert_int_equal(pthread_create(&thread, NULL, change_leaders, NULL), 0);
    for (int i = 0; i < 200; i++) {
        const char *reply = ask(HEAD("GET", "/v1/jobs", "")), *at = strstr(reply, "Location: http://");
        size_t zeros;

        if (!at)
            fail_msg("no address in\n%s", reply);
        at += strlen("Location: http://");
        zeros = strspn(at, "0");
        if (zeros > 199 || strncmp(at + zeros, "7:1/v1/jobs\r\n", 13) != 0)
            fail_msg("no whole address in\n%s", reply);
    }
    atomic_store(&asked, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void an_address_that_others_listen_on_or_reach_without_tls_is_refused(void **state)
{
    struct standby *second = NULL;
    struct merr err = {""};

    (void)state;
    assert_true(standby_start(&(struct http_cfg){.bind = "127.0.0.1", .port = standby_port(standby)}, &second, &err) <
                0);
    assert_null(second);
    assert_true(*err.text);
    assert_true(standby_start(&(struct http_cfg){.bind = "0.0.0.0"}, &second, &err) < 0);
    assert_null(second);
    standby_stop(NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_lives_and_is_not_ready_whether_or_not_a_leader_is_known),
        TEST(all_else_is_sent_to_the_leader_as_it_was_asked),
        TEST(while_nobody_leads_one_is_told_to_come_again),
        TEST(an_address_is_never_half_of_one_and_half_of_another),
        TEST(an_address_that_others_listen_on_or_reach_without_tls_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
