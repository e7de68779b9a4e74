/* test_http - the HTTP side against real sockets: answers from other threads, limits, clients that misbehave */
#include "server/http/http_stream.h"
#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/http/http.h"
#include "server/http/http_page.h"

#define HELD_MAX 512
#define REPLY_MAX (4 << 20)

/* The "core" of the tests: requests put here by handlers are answered by a thread of its own. */
static struct core {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct http_req *held[HELD_MAX];
    size_t n;
    bool end;
    pthread_t thread;
    void *late;   /* a struct http_req that the test itself answers */
    void *stream; /* the newest struct http_stream */
    atomic_int streams;
} core = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static struct http *server;

static void *core_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&core.lock);
    while (!core.end || core.n) {
        struct http_req *r;

        if (!core.n) {
            pthread_cond_wait(&core.more, &core.lock);
            continue;
        }
        r = core.held[--core.n];
        pthread_mutex_unlock(&core.lock);
        http_set_header(r, "ETag", "\"1\"");
        http_reply_new(r, 200,
                       json_pack("{s:s, s:i, s:s}", "id", http_param(r, 0) ? http_param(r, 0) : "", "bytes",
                                 (int)(http_body(r, NULL) ? strlen(http_body(r, NULL)) : 0), "user",
                                 http_identity(r)->user));
        pthread_mutex_lock(&core.lock);
    }
    pthread_mutex_unlock(&core.lock);
    return NULL;
}

static void by_core(void *arg, struct http_req *r)
{
    (void)arg;
    pthread_mutex_lock(&core.lock);
    if (core.n < HELD_MAX) {
        core.held[core.n++] = r;
        r = NULL;
        pthread_cond_signal(&core.more);
    }
    pthread_mutex_unlock(&core.lock);
    if (r)
        http_problem(r, 503, "busy", "too many");
}

static void at_once(void *arg, struct http_req *r)
{
    const char *echo = http_query(r, "echo");

    (void)arg;
    http_reply_text(r, 200, "text/plain", echo ? echo : "hello", echo ? strlen(echo) : 5);
}

static void held(void *arg, struct http_req *r)
{
    (void)arg;
    pthread_mutex_lock(&core.lock);
    core.late = r;
    pthread_cond_broadcast(&core.more);
    pthread_mutex_unlock(&core.lock);
}

static void streamed(void *arg, struct http_req *r)
{
    struct http_stream *s = http_stream_begin(r);

    (void)arg;
    assert_int_equal(http_stream_event(s, 7, "state", "{\"a\":1}"), 0);
    pthread_mutex_lock(&core.lock);
    core.stream = s;
    atomic_fetch_add(&core.streams, 1);
    pthread_cond_broadcast(&core.more);
    pthread_mutex_unlock(&core.lock);
}

static enum http_auth who(void *arg, const char *token, int64_t wall_us, struct http_identity *ret)
{
    (void)arg;
    assert_true(wall_us > 0);
    if (!token)
        return HTTP_AUTH_UNKNOWN;
    if (strcmp(token, "old") == 0)
        return HTTP_AUTH_EXPIRED;
    strncpy(ret->user, token, sizeof(ret->user) - 1);
    ret->role = strcmp(token, "root") == 0    ? ROLE_ADMIN
                : strcmp(token, "eve") == 0   ? ROLE_VIEWER
                : strcmp(token, "robot") == 0 ? ROLE_AGENT
                                              : ROLE_NONE;
    return ret->role == ROLE_NONE ? HTTP_AUTH_UNKNOWN : HTTP_AUTH_KNOWN;
}

#define PAGE_BYTES (16 << 20) /* more than a socket holds */

static struct http_page *page;

static void paged(void *arg, struct http_req *r)
{
    (void)arg;
    http_page_reply(r, 200, "text/plain", http_page_ref(page));
}

static const struct query_parameter echoed[] = {QUERY_TEXT("echo"), {.name = NULL}};
static const struct http_route routes[] = {
    {"GET", "/", ROLE_NONE, at_once, 0, echoed},
    {"GET", "/v1/jobs", ROLE_VIEWER, by_core, 0, NULL},
    {"POST", "/v1/jobs", ROLE_USER, by_core, 0, NULL},
    {"GET", "/v1/jobs/{id}", ROLE_VIEWER, by_core, 0, NULL},
    {"POST", "/v1/agents/{node}/report", ROLE_AGENT, by_core, 0, NULL},
    {"GET", "/held", ROLE_NONE, held, 1, NULL},
    {"GET", "/held-long", ROLE_NONE, held, 30, NULL},
    {"GET", "/stream", ROLE_NONE, streamed, 0, NULL},
    {"GET", "/page", ROLE_NONE, paged, 0, NULL},
};

static int start_with(int max_connections, int read_limit_ms)
{
    struct http_cfg cfg = {.bind = "127.0.0.1",
                           .routes = routes,
                           .n_routes = COUNT(routes),
                           .auth = who,
                           .max_connections = max_connections,
                           .read_limit_ms = read_limit_ms};
    struct merr err;

    core.end = false;
    if (pthread_create(&core.thread, NULL, core_main, NULL) != 0)
        return -1;
    if (http_start(&cfg, &server, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    return 0;
}

static int start(void **state)
{
    (void)state;
    return start_with(0, 0);
}

static int start_with_allowance(void **state)
{
    struct http_cfg cfg = {.bind = "127.0.0.1",
                           .routes = routes,
                           .n_routes = COUNT(routes),
                           .auth = who,
                           .of_large = {.per_s = 1, .burst = 600 << 10}};

    (void)state;
    core.end = false;
    return pthread_create(&core.thread, NULL, core_main, NULL) == 0 && http_start(&cfg, &server, NULL) == 0 ? 0 : -1;
}

static int start_small(void **state)
{
    (void)state;
    return start_with(16, 1500);
}

static int stop(void **state)
{
    (void)state;
    http_stop(server);
    pthread_mutex_lock(&core.lock);
    core.end = true;
    pthread_cond_broadcast(&core.more);
    pthread_mutex_unlock(&core.lock);
    pthread_join(core.thread, NULL);
    return 0;
}

/* --- a client that says exactly what it is told ------------------------------------------------------ */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_port(server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    size_t len = strlen(text), done = 0;

    while (done < len) {
        ssize_t n = send(fd, text + done, len - done, MSG_NOSIGNAL);

        if (n <= 0)
            return; /* the server has closed: what it said before is what counts */
        done += (size_t)n;
    }
}

/* Read until the text holds `until` or the connection ends; one that does neither for 20 s is a fault. */
static char *hear(int fd, const char *until)
{
    static char reply[REPLY_MAX];
    size_t len = 0;

    reply[0] = '\0';
    while (len < sizeof(reply) - 1) {
        ssize_t n = recv(fd, reply + len, sizeof(reply) - 1 - len, 0);

        if (n < 0 && errno == EAGAIN)
            fail_msg("no end after\n%.2000s", reply);
        if (n <= 0)
            break;
        len += (size_t)n;
        reply[len] = '\0';
        if (until && strstr(reply, until))
            break;
    }
    return reply;
}

static char *ask(const char *request)
{
    int fd = dial();
    char *reply;

    say(fd, request);
    reply = hear(fd, NULL);
    close(fd);
    return reply;
}

#define HEAD(method, path, more) method " " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" more "\r\n"
#define ROOT "Authorization: Bearer root\r\n"

static void each_request_gets_the_answer_it_deserves(void **state)
{
    static const struct {
        const char *request, *status, *part;
    } t[] = {
        {HEAD("GET", "/", ""), "200", "hello"},
        {HEAD("GET", "/?echo=a%20b%2B", ""), "200", "a b+"},
        {HEAD("GET", "/?echo=%zz", ""), "400", "bad-uri"},
        {HEAD("GET", "/%00", ""), "400", "bad-uri"},
        {HEAD("HEAD", "/", ""), "200", "Content-Length: 5"},
        {HEAD("GET", "/v1/jbos", ""), "404", "did you mean '/v1/jobs'"},
        {HEAD("GET", "/nothing/like/it/at/all", ""), "404", "/openapi.yaml"},
        {HEAD("DELETE", "/v1/jobs", ""), "405", "Allow: GET, HEAD, POST"},
        {HEAD("GET", "/v1/jobs", ""), "401", "WWW-Authenticate: Bearer"},
        {HEAD("GET", "/v1/jobs", "Authorization: Basic eA==\r\n"), "401", "not a bearer token"},
        {HEAD("GET", "/v1/jobs", "Authorization: Bearer nobody\r\n"), "401", "unknown-token"},
        {HEAD("GET", "/v1/jobs", "Authorization: Bearer old\r\n"), "401", "token-expired"},
        {HEAD("GET", "/v1/jobs", ROOT), "200", "\"user\":\"root\""},
        {HEAD("GET", "/v1/jobs/a%2Fb", ROOT), "200", "\"id\":\"a/b\""},
        {HEAD("GET", "/v1/jobs", "Authorization: Bearer eve\r\n"), "200", "ETag: \"1-"},
        {HEAD("POST", "/v1/jobs", "Authorization: Bearer eve\r\nContent-Length: 0\r\n"), "403", "takes the role user"},
        {HEAD("POST", "/v1/jobs", "Authorization: Bearer robot\r\nContent-Length: 0\r\n"), "403", "forbidden"},
        {HEAD("POST", "/v1/agents/n1/report", ROOT "Content-Length: 0\r\n"), "403", "takes the role agent"},
        {HEAD("POST", "/v1/jobs", ROOT "Content-Length: 3\r\n") "abc", "200", "\"bytes\":3"},
        {HEAD("POST", "/v1/jobs", ROOT "Transfer-Encoding: chunked\r\n") "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "200",
         "\"bytes\":5"},
        {HEAD("POST", "/v1/jobs", ROOT "Content-Length: 99999999999\r\n"), "413", "1048576 bytes"},
        {HEAD("POST", "/v1/jobs", ROOT "Expect: 100-continue\r\nContent-Length: 2000000\r\n"), "413", "body-too-large"},
        {HEAD("GET", "/", "X-Request-Id: mine-1\r\n"), "200", "X-Request-Id: mine-1"},
        {HEAD("GET", "/", ""), "200", "X-Content-Type-Options: nosniff"},
        {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", "505", ""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        char *reply = ask(t[i].request);

        if (strncmp(reply, "HTTP/1.", 7) != 0 || strncmp(reply + 9, t[i].status, 3) != 0 || !strstr(reply, t[i].part))
            fail_msg("asked\n%s\nwanted %s with \"%s\", got\n%.2000s", t[i].request, t[i].status, t[i].part, reply);
    }
}

/* Two readers of such a head could see two requests where the other sees one. */
static void a_head_that_can_be_read_in_two_ways_is_refused_and_the_connection_ends(void **state)
{
    static const struct {
        const char *request;
        size_t len; /* 0: of the text */
    } t[] = {
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 0},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT
         "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
         0},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT
         "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
         0},
        {"GET / HTTP/1.1\nHost: x\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\nHost: x\nAccept: */*\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\n\r\n", 0},
        {"GET / HTTP/1.1\r\nHost: x\r\n\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\nHost: x\rAccept: */*\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\nHost: x\r\nX-A: a\r\n b\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\n\r\n",
         sizeof("GET / HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\n\r\n") - 1},
        {"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", sizeof("GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n") - 1},
        {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 0},
        {"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Authorization: Bearer eve\r\n\r\n", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        int fd = dial();
        char *reply;

        assert_true(send(fd, t[i].request, t[i].len ? t[i].len : strlen(t[i].request), MSG_NOSIGNAL) > 0);
        reply = hear(fd, NULL); /* to the end of the connection */
        close(fd);
        if (strncmp(reply, "HTTP/1.1 400", 12) != 0 || strstr(reply + 1, "HTTP/1."))
            fail_msg("request %zu\n%s\nwanted one 400 and the end, got\n%.2000s", i, t[i].request, reply);
    }
}

/* A head as long as heads may be, in pieces of any size, is none of those. */
static void a_long_head_that_comes_in_pieces_is_read_as_it_is(void **state)
{
    static char text[24000];
    size_t len = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");

    (void)state;
    for (int i = 0; len < 20000; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "X-Filler-%d: %0512d\r\n", i, i);
    (void)snprintf(text + len, sizeof(text) - len, "\r\n");
    len += 2;
    for (size_t piece = 1; piece < 9000; piece = piece * 7 + 1) {
        int fd = dial();

        for (size_t at = 0; at < len; at += piece)
            assert_true(send(fd, text + at, at + piece < len ? piece : len - at, MSG_NOSIGNAL) > 0);
        assert_non_null(strstr(hear(fd, NULL), "hello"));
        close(fd);
    }
}

/* On a connection that is kept, the second head is looked at as the first was. */
static void heads_that_follow_on_a_connection_are_read_alike(void **state)
{
    int fd = dial();

    (void)state;
    say(fd,
        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(hear(fd, "hello"), "\"bytes\":3"));
    say(fd, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_non_null(strstr(hear(fd, "hello"), "200"));
    say(fd, "GET / HTTP/1.1\r\nHost: x\n\r\n");
    assert_non_null(strstr(hear(fd, NULL), "400"));
    close(fd);
}

static void many_wrong_tokens_of_an_address_are_told_to_wait_and_a_right_one_is_taken(void **state)
{
    int refused = 0, waits = 0;
    int fd = dial();

    (void)state;
    for (int i = 0; i < 300; i++) {
        char *reply;

        say(fd, "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess\r\n\r\n");
        reply = hear(fd, "\"}");
        refused += strstr(reply, " 401 ") != NULL;
        waits += strstr(reply, " 429 ") && strstr(reply, "Retry-After: ");
    }
    close(fd);
    assert_int_equal(refused + waits, 300);
    assert_in_range(refused, 30, 100); /* the burst, and one a second on a slow machine */
    assert_non_null(strstr(ask(HEAD("GET", "/v1/jobs", ROOT)), " 200 "));
    assert_non_null(strstr(ask(HEAD("GET", "/", "")), " 200 "));
}

static void garbage_is_let_go_and_harms_nobody(void **state)
{
    static const char *const garbage[] = {
        "rubbish\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\xfc\x03\x03\r\n\r\n",
        "GET\r\n\r\n",
        "\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nbroken header\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Content-Length: -1\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(garbage); i++) {
        int fd = dial();

        say(fd, garbage[i]);
        (void)shutdown(fd, SHUT_WR);
        assert_null(strstr(hear(fd, NULL), " 200 "));
        close(fd);
        assert_non_null(strstr(ask(HEAD("GET", "/", "")), "hello"));
    }
}

static void a_request_id_with_strange_characters_is_replaced(void **state)
{
    char *reply = ask(HEAD("GET", "/", "X-Request-Id: <script>\r\n"));

    (void)state;
    assert_non_null(strstr(reply, "X-Request-Id: "));
    assert_null(strstr(reply, "script"));
}

static char *big_post(size_t bytes, const char *token)
{
    char *request = malloc(bytes + 512);
    int head = snprintf(request, 512,
                        "POST /v1/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                        "Authorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n",
                        strcmp(token, "robot") == 0 ? "agents/n1/report" : "jobs", token, bytes);
    char *reply;

    memset(request + head, 'x', bytes);
    request[(size_t)head + bytes] = '\0';
    reply = ask(request);
    free(request);
    return reply;
}

static void bodies_end_at_the_limit_of_their_route(void **state)
{
    (void)state;
    assert_non_null(strstr(big_post(HTTP_BODY_MAX, "root"), "\"bytes\":1048576"));
    assert_non_null(strstr(big_post(HTTP_BODY_MAX + 1, "root"), " 413 "));
    assert_non_null(strstr(big_post(HTTP_BODY_MAX + 1, "robot"), "\"bytes\":1048577"));
    assert_non_null(strstr(big_post(HTTP_AGENT_BODY_MAX + 1, "robot"), " 413 "));
}

static void headers_end_at_their_limit(void **state)
{
    char *request = malloc(100000);
    int head = snprintf(request, 100000, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: ");

    (void)state;
    memset(request + head, 'a', 90000);
    memcpy(request + head + 90000, "\r\n\r\n", 5);
    assert_null(strstr(ask(request), " 200 "));
    free(request);
}

/* What a handler of the tests left in *place, once it did. */
static void *take(void **place)
{
    void *taken;

    pthread_mutex_lock(&core.lock);
    while (!*place)
        pthread_cond_wait(&core.more, &core.lock);
    taken = *place;
    *place = NULL;
    pthread_mutex_unlock(&core.lock);
    return taken;
}

static void an_answer_after_the_deadline_is_dropped(void **state)
{
    int fd = dial();
    struct http_req *r;
    char *reply;

    (void)state;
    say(fd, HEAD("GET", "/held", "X-Request-Id: late\r\n"));
    r = take(&core.late);
    reply = hear(fd, NULL);
    assert_non_null(strstr(reply, " 504 "));
    assert_non_null(strstr(reply, "urn:muster:problem:timeout"));
    close(fd);
    assert_string_equal(http_request_id(r), "late"); /* still the holder's */
    http_reply_new(r, 200, json_object());
}

static void a_client_that_leaves_harms_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        int fd = dial();

        say(fd, HEAD("GET", "/held-long", ""));
        close(fd);
        http_reply_text(take(&core.late), 200, "text/plain", "x", 1);
    }
    assert_non_null(strstr(ask(HEAD("GET", "/", "")), "hello"));
}

static void a_stream_delivers_events_as_they_come_and_ends(void **state)
{
    int fd = dial();
    struct http_stream *s;
    char *reply;

    (void)state;
    say(fd, HEAD("GET", "/stream", ""));
    s = take(&core.stream);
    reply = hear(fd, "data: {\"a\":1}\n\n");
    assert_non_null(strstr(reply, "Content-Type: text/event-stream"));
    assert_non_null(strstr(reply, "id: 7\nevent: state\n"));
    for (int i = 0; i < 100; i++) {
        char data[32], want[32];

        (void)snprintf(data, sizeof(data), "line %d\nmore", i);
        (void)snprintf(want, sizeof(want), "data: line %d\ndata: more\n\n", i);
        assert_int_equal(http_stream_event(s, 0, "note", data), 0);
        assert_non_null(strstr(hear(fd, want), want));
    }
    http_stream_end(s);
    assert_non_null(strstr(hear(fd, NULL), "0\r\n\r\n"));
    close(fd);
}

static void a_stream_learns_that_its_client_is_gone(void **state)
{
    int fd = dial(), rc = 0;
    int64_t deadline_us = clock_mono_us() + 10000000;
    struct http_stream *s;

    (void)state;
    say(fd, HEAD("GET", "/stream", ""));
    s = take(&core.stream);
    (void)hear(fd, "a\":1}\n\n");
    close(fd);
    while (rc == 0 && clock_mono_us() < deadline_us) {
        (void)poll(NULL, 0, 20);
        rc = http_stream_event(s, 0, "note", "x");
    }
    assert_int_equal(rc, -EPIPE);
    http_stream_end(s);
}

static void a_client_too_slow_is_told_so_and_let_go(void **state)
{
    int fd = dial(), rc = 0, sent = 0;
    static char data[32768];
    struct http_stream *s;
    char *reply;

    (void)state;
    memset(data, 'x', sizeof(data) - 1);
    say(fd, HEAD("GET", "/stream", ""));
    s = take(&core.stream);
    for (; rc == 0 && sent < 2000; sent++)
        rc = http_stream_event(s, 0, "note", data);
    assert_int_equal(rc, -ENOBUFS);
    assert_int_equal(http_stream_event(s, 0, "note", "x"), -EPIPE);
    http_stream_end(s);
    do /* more than the client's buffer may come: only the end counts */
        reply = hear(fd, "event: lagging\n");
    while (*reply && !strstr(reply, "event: lagging\n"));
    assert_non_null(strstr(reply, "event: lagging\n"));
    close(fd);
}

static void *many_main(void *arg)
{
    int fd = dial();
    long ok = 0;

    (void)arg;
    for (int i = 0; i < 10; i++) {
        char reply[4096] = "";
        size_t len = 0;

        say(fd, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Content-Length: 3\r\n\r\nabc");
        while (len < sizeof(reply) - 1) {
            ssize_t n = recv(fd, reply + len, sizeof(reply) - 1 - len, 0);

            if (n <= 0) {
                print_message("request %d: %s after '%s'\n", i, n < 0 ? strerror(errno) : "the end", reply);
                break;
            }
            len += (size_t)n;
            reply[len] = '\0';
            if (strstr(reply, "\"user\":\"root\"}")) {
                ok++;
                break;
            }
        }
    }
    close(fd);
    return (void *)ok;
}

static void two_hundred_clients_at_once_all_get_their_answers(void **state)
{
    pthread_t threads[200];
    long total = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_main, NULL), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        void *ok;

        assert_int_equal(pthread_join(threads[i], &ok), 0);
        total += (long)ok;
    }
    assert_int_equal(total, 2000);
}

static void clients_that_drip_make_room_for_others(void **state)
{
    static const char *const begin[] = {"GET / HTTP/1.1\r\nX-Slow: ",
                                        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" ROOT "Content-Length: 99999\r\n\r\n"};
    int64_t began_us = clock_mono_us();
    int drips[16], closed = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(drips); i++) { /* all the connections there are */
        drips[i] = dial();
        say(drips[i], begin[i % 2]);
    }
    while (closed < (int)COUNT(drips) && clock_mono_us() - began_us < 20 * 1000000LL) {
        struct pollfd p = {.events = POLLIN | POLLRDHUP};

        for (size_t i = 0; i < COUNT(drips); i++) {
            p.fd = drips[i];
            if (p.fd >= 0 && poll(&p, 1, 5) > 0) {
                close(drips[i]);
                drips[i] = -1;
                closed++;
            } else if (p.fd >= 0) {
                say(p.fd, "x");
            }
        }
        assert_non_null(strstr(ask(HEAD("GET", "/", "")), "hello"));
    }
    assert_int_equal(closed, COUNT(drips));
}

static void four_hundred_idle_connections_slow_nobody(void **state)
{
    static int idle[400];
    int64_t began_us;

    (void)state;
    for (size_t i = 0; i < COUNT(idle); i++)
        idle[i] = dial();
    began_us = clock_mono_us();
    for (int i = 0; i < 100; i++)
        assert_non_null(strstr(ask(HEAD("GET", "/v1/jobs", ROOT)), "\"user\":\"root\""));
    assert_true(clock_mono_us() - began_us < 5 * 1000000LL);
    for (size_t i = 0; i < COUNT(idle); i++)
        close(idle[i]);
}

static void stopping_answers_what_waits(void **state)
{
    int waiting = dial(), following = dial();
    struct http_req *r;
    struct http_stream *s;

    (void)state;
    say(waiting, HEAD("GET", "/held-long", ""));
    say(following, HEAD("GET", "/stream", ""));
    r = take(&core.late);
    s = take(&core.stream);
    http_stop(server);
    assert_non_null(strstr(hear(waiting, NULL), " 503 "));
    assert_non_null(strstr(hear(following, NULL), "0\r\n\r\n"));
    close(waiting);
    close(following);
    http_reply_new(r, 200, json_object()); /* too late, and harmless even after the server's end */
    assert_int_equal(http_stream_event(s, 0, "note", "x"), -EPIPE);
    http_stream_end(s);
    server = NULL;
}

static void an_address_beyond_loopback_needs_tls_or_consent(void **state)
{
    static const struct {
        const char *bind, *cert, *key, *says;
        int code;
    } t[] = {
        {"0.0.0.0", NULL, NULL, "refusing to bind '0.0.0.0'", -EPERM},
        {"::", NULL, NULL, "--insecure", -EPERM},
        {"example", NULL, NULL, "cannot bind 'example'", -EINVAL},
        {"127.0.0.1", "/nowhere.pem", NULL, "--tls-key is missing", -EINVAL},
        {"127.0.0.1", "/nowhere.pem", "/nowhere.key", "/nowhere.pem", -ENOENT},
        {"127.0.0.1", "/etc/hostname", "/etc/hostname", "PEM", -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct http_cfg cfg = {.bind = t[i].bind,
                               .tls_cert = t[i].cert,
                               .tls_key = t[i].key,
                               .routes = routes,
                               .n_routes = COUNT(routes),
                               .auth = who};
        struct http *h = NULL;
        struct merr err = {""};

        assert_int_equal(http_start(&cfg, &h, &err), t[i].code);
        assert_null(h);
        if (!strstr(err.text, t[i].says))
            fail_msg("wanted \"%s\" in \"%s\"", t[i].says, err.text);
    }
}

static void a_port_in_use_is_named(void **state)
{
    struct http_cfg cfg = {.bind = "127.0.0.1", .routes = routes, .n_routes = COUNT(routes), .auth = who};
    struct http *h = NULL;
    struct merr err;

    (void)state;
    cfg.port = http_port(server);
    assert_int_equal(http_start(&cfg, &h, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, "another program"));
}

static void new_page(void)
{
    char *text = malloc(PAGE_BYTES);

    assert_non_null(text);
    memset(text, 'x', PAGE_BYTES);
    page = http_page_new(text, PAGE_BYTES);
    assert_non_null(page);
}

/* Bytes of an answer to its end, the head counted. */
static size_t count_to_end(int fd)
{
    static char part[65536];
    size_t len = 0;
    ssize_t n;

    while ((n = recv(fd, part, sizeof(part), 0)) > 0)
        len += (size_t)n;
    assert_true(n == 0 || errno != EAGAIN);
    close(fd);
    return len;
}

static int begin_page(const char *request)
{
    int fd = dial();

    say(fd, request);
    assert_true(recv(fd, &(char){0}, 1, 0) == 1);
    return fd;
}

/* So many bytes of a page in each of the answers would be gigabytes. */
static void many_readers_share_one_page_and_one_that_is_withdrawn_cuts_them_off(void **state)
{
    static int slow[100];

    (void)state;
    new_page();
    for (size_t i = 0; i < COUNT(slow); i++)
        slow[i] = begin_page(HEAD("GET", "/page", "")); /* it goes no further */
    assert_true(http_page_shared(page));
    assert_true(count_to_end(begin_page(HEAD("GET", "/page", ""))) > PAGE_BYTES);
    assert_non_null(strstr(ask(HEAD("HEAD", "/page", "")), "Content-Length: 16777216"));
    http_page_withdraw(page);
    for (size_t i = 0; i < COUNT(slow); i++)
        assert_true(count_to_end(slow[i]) < PAGE_BYTES);
    http_page_unref(page);
}

/* The answer to a report of so many bytes, of one node of two. */
static int post_report(const char *node, size_t len)
{
    char head[256], *body = malloc(len + 1), *reply;
    int fd = dial();

    assert_non_null(body);
    memset(body, 'x', len);
    body[len] = '\0';
    (void)snprintf(head, sizeof(head),
                   "POST /v1/agents/%s/report HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                   "Authorization: Bearer robot\r\nContent-Length: %zu\r\n\r\n",
                   node, len);
    say(fd, head);
    say(fd, body);
    reply = hear(fd, NULL);
    close(fd);
    free(body);
    return (int)strtol(reply + 9, NULL, 10);
}

static void large_reports_beyond_a_nodes_allowance_are_refused_unread_and_small_ones_taken(void **state)
{
    (void)state;
    assert_int_equal(post_report("n1", 400 << 10), 200);
    assert_int_equal(post_report("n1", 400 << 10), 413);
    assert_int_equal(post_report("n1", HTTP_AGENT_LARGE), 200);
    assert_int_equal(post_report("n2", 400 << 10), 200); /* another node's is its own */
    assert_int_equal(post_report("n1", HTTP_AGENT_LARGE + 1), 413);
}

int main(void)
{
#define WITH_SERVER(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(each_request_gets_the_answer_it_deserves),
        WITH_SERVER(a_head_that_can_be_read_in_two_ways_is_refused_and_the_connection_ends),
        WITH_SERVER(a_long_head_that_comes_in_pieces_is_read_as_it_is),
        WITH_SERVER(heads_that_follow_on_a_connection_are_read_alike),
        WITH_SERVER(many_wrong_tokens_of_an_address_are_told_to_wait_and_a_right_one_is_taken),
        WITH_SERVER(garbage_is_let_go_and_harms_nobody),
        WITH_SERVER(a_request_id_with_strange_characters_is_replaced),
        WITH_SERVER(bodies_end_at_the_limit_of_their_route),
        WITH_SERVER(headers_end_at_their_limit),
        WITH_SERVER(an_answer_after_the_deadline_is_dropped),
        WITH_SERVER(a_client_that_leaves_harms_nobody),
        WITH_SERVER(a_stream_delivers_events_as_they_come_and_ends),
        WITH_SERVER(a_stream_learns_that_its_client_is_gone),
        WITH_SERVER(a_client_too_slow_is_told_so_and_let_go),
        WITH_SERVER(two_hundred_clients_at_once_all_get_their_answers),
        cmocka_unit_test_setup_teardown(clients_that_drip_make_room_for_others, start_small, stop),
        WITH_SERVER(four_hundred_idle_connections_slow_nobody),
        WITH_SERVER(stopping_answers_what_waits),
        WITH_SERVER(a_port_in_use_is_named),
        WITH_SERVER(many_readers_share_one_page_and_one_that_is_withdrawn_cuts_them_off),
        cmocka_unit_test_setup_teardown(large_reports_beyond_a_nodes_allowance_are_refused_unread_and_small_ones_taken,
                                        start_with_allowance, stop),
        cmocka_unit_test(an_address_beyond_loopback_needs_tls_or_consent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
