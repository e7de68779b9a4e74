/* Calls to a server of a few lines, which runs in a thread and answers by path. */
#include "api/client/calls.h"

#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"

#define SECOND_US INT64_C(1000000)
#define CALLS 8

struct server {
    int fd, port;
    pthread_t thread, peers[64];
    int n_peers, fds[64];
};

struct answer { /* what a call ended with */
    int times, status;
    char body[256], why[256];
    size_t data; /* bytes that came in pieces */
    size_t stop_after;
};

/* --- the server ------------------------------------------------------------------------------------------------ */

static void say(int fd, const char *status, const char *body)
{
    char text[1024];
    int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status, strlen(body), body);

    (void)send(fd, text, (size_t)n, MSG_NOSIGNAL);
}

static _Atomic int moves[2][2]; /* from port to port */

static int where_to(int fd)
{
    struct sockaddr_in at;
    socklen_t len = sizeof(at);
    int port = getsockname(fd, (struct sockaddr *)&at, &len) == 0 ? ntohs(at.sin_port) : 0;

    return moves[0][0] == port ? moves[0][1] : moves[1][0] == port ? moves[1][1] : 0;
}

static void answer(int fd, const char *head, const char *body)
{
    const char *path = strchr(head, ' ') + 1, *token = strstr(head, "Authorization: ");
    char text[256];
    int moves_to;

    if (strncmp(path, "/echo ", 6) == 0) {
        (void)snprintf(text, sizeof(text), "%.*s|%.*s|%s", (int)strcspn(head, " "), head,
                       token ? (int)strcspn(token, "\r") : 0, token ? token : "", body);
        say(fd, "200 OK", text);
    } else if (strncmp(path, "/moves ", 7) == 0 && (moves_to = where_to(fd)) != 0) {
        (void)snprintf(text, sizeof(text), "307 Moved\r\nLocation: http://127.0.0.1:%d/moves", moves_to);
        say(fd, text, "");
    } else if (strncmp(path, "/moves ", 7) == 0) {
        say(fd, "200 OK", token && strstr(token, "Bearer secret") ? body : "no token");
    } else if (strncmp(path, "/stream ", 8) == 0) {
        static const char pieces[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                     "4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n";

        (void)send(fd, pieces, strlen(pieces), MSG_NOSIGNAL);
    } else if (strncmp(path, "/large ", 7) == 0) {
        static const char large[] = "HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n";
        static char zeros[1 << 20];

        (void)send(fd, large, strlen(large), MSG_NOSIGNAL);
        while (send(fd, zeros, sizeof(zeros), MSG_NOSIGNAL) > 0)
            continue;
    } else if (strncmp(path, "/never ", 7) != 0) {
        say(fd, "404 Not Found", "no such path");
    }
}

/* One connection, until the client closes it. Bodies are short, and come with their heads or after them. */
static void *serve_peer(void *arg)
{
    int fd = *(int *)arg;
    char text[8192], *end;
    size_t have = 0, length;
    ssize_t n;

    while ((n = recv(fd, text + have, sizeof(text) - 1 - have, 0)) > 0) {
        have += (size_t)n;
        text[have] = '\0';
        end = strstr(text, "\r\n\r\n");
        if (!end)
            continue;
        length = strstr(text, "Content-Length: ") ? strtoul(strstr(text, "Content-Length: ") + 16, NULL, 10) : 0;
        if (have < (size_t)(end + 4 - text) + length)
            continue;
        answer(fd, text, end + 4);
        have = 0;
    }
    return NULL;
}

static void *serve(void *arg)
{
    struct server *s = arg;
    int fd;

    while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
        s->fds[s->n_peers] = fd;
        if (pthread_create(&s->peers[s->n_peers], NULL, serve_peer, &s->fds[s->n_peers]) != 0)
            abort();
        s->n_peers++;
    }
    return NULL;
}

static int start_server(struct server *ret)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    *ret = (struct server){.fd = socket(AF_INET, SOCK_STREAM, 0)};
    if (ret->fd < 0 || bind(ret->fd, (struct sockaddr *)&at, len) < 0 || listen(ret->fd, 16) < 0 ||
        getsockname(ret->fd, (struct sockaddr *)&at, &len) < 0 || pthread_create(&ret->thread, NULL, serve, ret) != 0)
        return -1;
    ret->port = ntohs(at.sin_port);
    return 0;
}

static int start(void **state)
{
    static struct server s;

    *state = &s;
    return start_server(&s);
}

static int stop(void **state)
{
    struct server *s = *state;

    (void)shutdown(s->fd, SHUT_RDWR);
    (void)pthread_join(s->thread, NULL);
    for (int i = 0; i < s->n_peers; i++) {
        (void)shutdown(s->fds[i], SHUT_RDWR);
        (void)pthread_join(s->peers[i], NULL);
        (void)close(s->fds[i]);
    }
    (void)close(s->fd);
    return 0;
}

/* --- the client ------------------------------------------------------------------------------------------------ */

static struct calls *open_calls(void **state, struct calls_cfg cfg)
{
    struct calls *h = NULL;
    struct merr err = {""};
    char url[64];

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d/", ((struct server *)*state)->port);
    cfg.url = cfg.url ? cfg.url : url;
    if (calls_new(&cfg, &h, &err) != 0)
        fail_msg("%s", err.text);
    return h;
}

static void take_answer(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct answer *a = arg;

    a->times++;
    a->status = status;
    (void)snprintf(a->body, sizeof(a->body), "%.*s", (int)len, body);
    (void)snprintf(a->why, sizeof(a->why), "%s", why);
}

static int take_piece(void *arg, const char *data, size_t len)
{
    struct answer *a = arg;

    (void)data;
    a->data += len;
    return a->stop_after && a->data >= a->stop_after;
}

static void begin(struct calls *h, struct call call, struct answer *a)
{
    struct merr err = {""};

    call.method = call.method ? call.method : "GET";
    call.done = take_answer;
    call.arg = a;
    if (calls_begin(h, &call, &err) != 0)
        fail_msg("%s", err.text);
}

static void wait_for(struct calls *h, const struct answer *a)
{
    int64_t end_us = clock_mono_us() + 60 * SECOND_US;

    while (a->times == 0 && clock_mono_us() < end_us)
        calls_wait(h, NULL, 0, end_us);
    assert_int_equal(a->times, 1);
}

/* --- tests ----------------------------------------------------------------------------------------------------- */

static void a_call_carries_method_token_and_body(void **state)
{
    struct calls *h = open_calls(state, (struct calls_cfg){.token = "secret"});
    struct answer a = {0}, b = {0}, c = {0};

    begin(h, (struct call){.method = "PUT", .path = "/echo", .body = "text", .len = 4}, &a);
    wait_for(h, &a);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, "PUT|Authorization: Bearer secret|text");
    assert_string_equal(a.why, "");
    begin(h, (struct call){.path = "/nothing"}, &b);
    wait_for(h, &b);
    assert_int_equal(b.status, 404);
    assert_string_equal(b.body, "no such path");
    calls_free(h);
    h = open_calls(state, (struct calls_cfg){0});
    begin(h, (struct call){.path = "/echo"}, &c);
    wait_for(h, &c);
    assert_string_equal(c.body, "GET||");
    calls_free(h);
}

static void a_token_is_read_again_for_each_call(void **state)
{
    char path[] = "/tmp/test_calls.XXXXXX";
    int fd = mkstemp(path);
    struct calls *h = open_calls(state, (struct calls_cfg){.token_file = path});
    static const char *const tokens[] = {"first\n", "second\nline"}, *const said[] = {"first", "second"};
    struct merr err;

    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++) {
        struct answer a = {0};
        char wanted[64];

        assert_int_equal(io_write_file(path, tokens[i], strlen(tokens[i]), 0600, NULL), 0);
        begin(h, (struct call){.path = "/echo"}, &a);
        wait_for(h, &a);
        (void)snprintf(wanted, sizeof(wanted), "GET|Authorization: Bearer %s|", said[i]);
        assert_string_equal(a.body, wanted);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(calls_begin(h, &(struct call){.method = "GET", .path = "/echo", .done = take_answer}, &err),
                     -ENOENT);
    (void)close(fd);
    calls_free(h);
}

static void several_calls_are_under_way_at_once(void **state)
{
    struct calls *h = open_calls(state, (struct calls_cfg){0});
    struct answer never = {0}, a[CALLS] = {0};

    begin(h, (struct call){.path = "/never"}, &never);
    for (int i = 0; i < CALLS; i++)
        begin(h, (struct call){.path = "/echo"}, &a[i]);
    for (int i = 0; i < CALLS; i++)
        wait_for(h, &a[i]);
    assert_int_equal(never.times, 0);
    calls_drop(h);
    begin(h, (struct call){.path = "/echo"}, &a[0]);
    a[0].times = 0;
    wait_for(h, &a[0]);
    calls_free(h);
    assert_int_equal(never.times, 0); /* what is dropped has no callback */
}

/* Without it, a call that waits for an answer would hear of a host without power after half a minute or never. */
static void the_kernel_ends_connections_to_a_host_that_acknowledges_nothing(void **state)
{
    struct calls *h = open_calls(state, (struct calls_cfg){0});
    struct answer a = {0};
    int found = 0;

    begin(h, (struct call){.path = "/echo"}, &a);
    wait_for(h, &a);
    for (int fd = 0; fd < 1024; fd++) {
        unsigned dead_ms = 0;
        int probes = 0;
        struct sockaddr_in peer = {0};
        socklen_t len = sizeof(peer), size = sizeof(dead_ms);

        if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0 ||
            ntohs(peer.sin_port) != ((struct server *)*state)->port)
            continue;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, &size), 0);
        assert_in_range(dead_ms, 1000, 10000);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &probes, &size), 0);
        assert_int_equal(probes, 1);
        found++;
    }
    assert_int_equal(found, 1);
    calls_free(h);
}

static void a_long_poll_is_left_for_a_descriptor_and_ends_at_its_deadline(void **state)
{
    struct calls *h = open_calls(state, (struct calls_cfg){0});
    struct answer a = {0};
    int64_t start_us = clock_mono_us();
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    begin(h, (struct call){.path = "/never", .timeout_ms = 200}, &a);
    assert_int_equal(write(fds[1], "x", 1), 1);
    calls_wait(h, fds, 1, start_us + 3600 * SECOND_US);
    assert_int_equal(a.times, 0);
    assert_true(clock_mono_us() - start_us < 3600 * SECOND_US);
    wait_for(h, &a);
    assert_int_equal(a.status, -EHOSTUNREACH);
    assert_true(a.why[0]);
    assert_true(clock_mono_us() - start_us >= 190000);
    (void)close(fds[0]);
    (void)close(fds[1]);
    calls_free(h);
}

static void a_stream_comes_in_pieces_until_its_reader_has_enough(void **state)
{
    struct calls *h = open_calls(state, (struct calls_cfg){0});
    struct answer all = {0}, some = {.stop_after = 1}, none = {0};

    begin(h, (struct call){.path = "/stream", .data = take_piece}, &all);
    wait_for(h, &all);
    assert_int_equal(all.status, 200);
    assert_int_equal(all.data, 8);
    assert_string_equal(all.body, "");
    begin(h, (struct call){.path = "/stream", .data = take_piece}, &some);
    wait_for(h, &some);
    assert_int_equal(some.status, -ECANCELED);
    begin(h, (struct call){.path = "/nothing", .data = take_piece}, &none); /* a problem is read whole */
    wait_for(h, &none);
    assert_int_equal(none.status, 404);
    assert_int_equal(none.data, 0);
    assert_string_equal(none.body, "no such path");
    calls_free(h);
}

static void an_answer_has_a_limit(void **state)
{
    struct calls *h = open_calls(state, (struct calls_cfg){0});
    struct answer a = {0};

    begin(h, (struct call){.path = "/large"}, &a);
    wait_for(h, &a);
    assert_int_equal(a.status, -EMSGSIZE);
    calls_free(h);
}

static void who_cannot_be_reached_is_told_apart(void **state)
{
    static const struct {
        const char *url;
        int status;
    } table[] = {
        {"http://127.0.0.1:1", -EHOSTUNREACH}, {"http://:0:x", -EINVAL}, {"https://127.0.0.1:1", -EHOSTUNREACH}};
    struct merr err = {""};
    struct calls *h = NULL;

    for (size_t i = 0; i < COUNT(table); i++) {
        struct answer a = {0};

        h = open_calls(state, (struct calls_cfg){.url = table[i].url});
        begin(h, (struct call){.path = "/"}, &a);
        wait_for(h, &a);
        if (a.status != table[i].status || !a.why[0])
            fail_msg("%s: %d, %s", table[i].url, a.status, a.why);
        calls_free(h);
    }
    h = NULL;
    assert_int_equal(calls_new(&(struct calls_cfg){.url = "ftp://127.0.0.1"}, &h, &err), -EINVAL);
    assert_null(h);
    assert_non_null(strstr(err.text, "want http://HOST:PORT or https://HOST:PORT"));
}

static void the_address_by_which_a_server_is_reached_is_known(void **state)
{
    char address[64] = "";

    (void)state;
    assert_int_equal(calls_local_address("http://127.0.0.1:7717", address, sizeof(address), NULL), 0);
    assert_string_equal(address, "127.0.0.1");
    assert_int_equal(calls_local_address("127.0.0.1:7717", address, sizeof(address), NULL), -EINVAL);
}

static void a_call_goes_on_to_another_server_that_was_named_and_to_no_other(void **state)
{
    static const struct {
        const char *servers; /* a, b: those that there are, x: one that is not there */
        bool a_moves, b_moves;
        int status;
        int peers; /* connections to b */
    } row[] = {
        {"ab", true, false, 200, 1},  /* sent on */
        {"xb", true, false, 200, 1},  /* not reached */
        {"xab", true, false, 200, 1}, /* both */
        {"ba", true, false, 200, 1},
        {"a", true, false, -EHOSTUNREACH, 0},  /* b was not named: it gets no token */
        {"xa", true, false, -EHOSTUNREACH, 0}, /* nor here */
        {"ab", true, true, -EHOSTUNREACH, 1},  /* round and round: it ends */
        {"xx", false, false, -EHOSTUNREACH, 0},
    };
    int a = ((struct server *)*state)->port;

    for (size_t i = 0; i < COUNT(row); i++) {
        struct answer got = {0};
        struct server s;
        void *b = &s;
        char url[256] = "";
        struct calls *h;

        assert_int_equal(start_server(&s), 0);
        for (const char *c = row[i].servers; *c; c++)
            (void)snprintf(url + strlen(url), sizeof(url) - strlen(url), "%s%s://127.0.0.1:%d/", *url ? "," : "",
                           "http",
                           *c == 'a'   ? a
                           : *c == 'b' ? s.port
                                       : 9);
        moves[0][0] = row[i].a_moves ? a : 0;
        moves[0][1] = s.port;
        moves[1][0] = row[i].b_moves ? s.port : 0;
        moves[1][1] = a;
        h = open_calls(state, (struct calls_cfg){.url = url, .token = "secret"});
        begin(h, (struct call){.method = "POST", .path = "/moves", .body = "text", .len = 4}, &got);
        wait_for(h, &got);
        assert_int_equal(got.status, row[i].status);
        assert_string_equal(got.body, row[i].status == 200 ? "text" : "");
        if (row[i].status == -EHOSTUNREACH && row[i].a_moves && !row[i].b_moves)
            assert_non_null(strstr(got.why, "none of the servers named"));
        calls_free(h);
        assert_int_equal(stop(&b), 0);
        assert_int_equal(s.n_peers, row[i].peers);
    }
}

static void a_list_of_servers_is_checked(void **state)
{
    static const char *const bad[] = {"", ",", "http://a:1,b:2", "ftp://a"};
    struct calls *h;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(calls_new(&(struct calls_cfg){.url = bad[i]}, &h, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_carries_method_token_and_body),
        cmocka_unit_test(a_token_is_read_again_for_each_call),
        cmocka_unit_test(several_calls_are_under_way_at_once),
        cmocka_unit_test(the_kernel_ends_connections_to_a_host_that_acknowledges_nothing),
        cmocka_unit_test(a_long_poll_is_left_for_a_descriptor_and_ends_at_its_deadline),
        cmocka_unit_test(a_stream_comes_in_pieces_until_its_reader_has_enough),
        cmocka_unit_test(an_answer_has_a_limit),
        cmocka_unit_test(who_cannot_be_reached_is_told_apart),
        cmocka_unit_test(a_call_goes_on_to_another_server_that_was_named_and_to_no_other),
        cmocka_unit_test(a_list_of_servers_is_checked),
        cmocka_unit_test(the_address_by_which_a_server_is_reached_is_known),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
