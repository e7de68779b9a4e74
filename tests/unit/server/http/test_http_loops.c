/* test_http_loops - as many requests at once as a loop takes events at a time get their answers, too */
#include "server/http/http_loops.h"

#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"

#define EVENTS 128 /* that libmicrohttpd takes at a time */
#define CLIENTS (HTTP_LOOPS * EVENTS + 1)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int held, begun; /* handlers that wait here; handlers that were entered */
    bool open;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* "/": which loop it is, by its thread. "/gate": that, once the gate is open. */
static enum MHD_Result answer(void *arg, struct MHD_Connection *conn, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
    pthread_t self = pthread_self();
    struct MHD_Response *r;
    enum MHD_Result ret;

    (void)arg, (void)method, (void)version, (void)data, (void)size;
    if (!*state) { /* its head alone is there */
        *state = &gate;
        return MHD_YES;
    }
    pthread_mutex_lock(&gate.lock);
    gate.begun++;
    gate.held += strcmp(url, "/gate") == 0;
    pthread_cond_broadcast(&gate.changed);
    while (strcmp(url, "/gate") == 0 && !gate.open)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    r = MHD_create_response_from_buffer(sizeof(self), &self, MHD_RESPMEM_MUST_COPY);
    ret = MHD_queue_response(conn, 200, r);
    MHD_destroy_response(r);
    return ret;
}

static struct MHD_Daemon *start(void *arg, int listener)
{
    (void)arg;
    return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, answer, NULL,
                            MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT, 1000U,
                            MHD_OPTION_CONNECTION_TIMEOUT, 60U, MHD_OPTION_END);
}

static int open_listener(struct sockaddr_in *ret)
{
    socklen_t len = sizeof(*ret);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)ret, sizeof(*ret)), 0);
    assert_int_equal(listen(fd, 1024), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &len), 0);
    return fd;
}

static int dial(const struct sockaddr_in *to)
{
    struct timeval limit = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (const struct sockaddr *)to, sizeof(*to)), 0);
    return fd;
}

static void ask(int fd, const char *path)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);

    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
}

/* The thread that answered. */
static pthread_t hear(int fd)
{
    char text[1024];
    pthread_t thread;
    size_t len = 0;

    for (;;) {
        ssize_t n = recv(fd, text + len, sizeof(text) - len, 0);
        const char *end;

        if (n <= 0)
            fail_msg("no answer: %s", n < 0 ? strerror(errno) : "the end");
        len += (size_t)n;
        end = memmem(text, len, "\r\n\r\n", 4);
        if (end && len == (size_t)(end - text) + 4 + sizeof(thread)) {
            memcpy(&thread, end + 4, sizeof(thread));
            return thread;
        }
    }
}

/* Of the clients the thread that has EVENTS + 1 of them: put these first. */
static void sort(int fd[CLIENTS], pthread_t of[CLIENTS])
{
    for (size_t i = 0; i < CLIENTS; i++) {
        size_t n = 0;

        for (size_t k = 0; k < CLIENTS; k++)
            n += pthread_equal(of[i], of[k]) != 0;
        if (n <= EVENTS)
            continue;
        for (size_t k = 0, at = 0; k < CLIENTS; k++)
            if (pthread_equal(of[i], of[k])) {
                int f = fd[at];
                pthread_t t = of[at];

                fd[at] = fd[k];
                of[at++] = of[k];
                fd[k] = f;
                of[k] = t;
            }
        return;
    }
    fail_msg("no thread has %d clients", EVENTS + 1);
}

static void as_many_requests_at_once_as_a_loop_takes_events_are_answered_before_anything_else_happens(void **state)
{
    static int fd[CLIENTS];
    static pthread_t of[CLIENTS];
    struct sockaddr_in address;
    int listener = open_listener(&address);
    struct http_loops *l = NULL;
    struct merr err = {""};
    int64_t began_us;

    (void)state;
    if (http_loops_start(listener, start, NULL, &l, &err) < 0)
        fail_msg("%s", err.text);
    io_close(&listener);
    for (size_t i = 0; i < CLIENTS; i++) {
        fd[i] = dial(&address);
        ask(fd[i], "/");
        of[i] = hear(fd[i]);
    }
    sort(fd, of);
    ask(fd[EVENTS], "/gate"); /* its loop stands still, */
    pthread_mutex_lock(&gate.lock);
    while (gate.held == 0)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    for (size_t i = 0; i < EVENTS; i++) /* has so many events to take, */
        ask(fd[i], "/");
    began_us = clock_mono_us();
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    for (size_t i = 0; i <= EVENTS; i++) /* and answers them */
        assert_true(pthread_equal(hear(fd[i]), of[i]));
    print_message("answered after %lld ms\n", (long long)(clock_mono_us() - began_us) / 1000);
    for (size_t i = 0; i < CLIENTS; i++)
        close(fd[i]);
    http_loops_quiesce(l);
    http_loops_stop(l);
}

static struct MHD_Daemon *start_none(void *arg, int listener)
{
    (void)listener;
    return --*(int *)arg < 0 ? NULL : start(NULL, listener);
}

static void a_loop_that_does_not_start_ends_the_others_and_leaves_no_descriptor(void **state)
{
    struct sockaddr_in address;
    struct http_loops *l = NULL;
    int listener = open_listener(&address), before = dup(listener), after;
    struct merr err;

    (void)state;
    close(before);
    for (int starts = 0; starts < HTTP_LOOPS; starts++) {
        int left = starts;

        assert_int_equal(http_loops_start(listener, start_none, &left, &l, &err), -EIO);
        assert_null(l);
    }
    after = dup(listener);
    assert_int_equal(after, before);
    close(after);
    close(listener);
    http_loops_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_requests_at_once_as_a_loop_takes_events_are_answered_before_anything_else_happens),
        cmocka_unit_test(a_loop_that_does_not_start_ends_the_others_and_leaves_no_descriptor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
