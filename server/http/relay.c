#include "server/http/relay.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/protocol/frame.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/thread.h"
#include "server/http/http_upgrade.h"

#define READ_MAX (128 << 10)
#define KEPT_MAX (4 * FRAME_MAX) /* bytes of memory that an empty buffer keeps */
#define IN_MAX (4 * FRAME_MAX)
#define OUT_MAX (RELAY_HELD + 4 * FRAME_MAX)
#define ROUND_MS 1000

enum { CLIENT, AGENT };

struct side {
    struct http_socket *socket; /* NULL: it has not joined, or is closed */
    int fd;
    struct buf in, out;
    bool joining;              /* its request is answered */
    bool ended;                /* nothing more is read of it */
    bool told;                 /* it has been sent why the session ends, or closed first */
    int64_t heard_us, ping_us; /* the last byte; the last ping */
};

struct session {
    struct relay_session s;
    struct side side[2];
    int64_t last_us; /* when it is closed in any case; 0: it is not about to end */
    struct session *next;
};

struct relay {
    struct relay_cfg cfg;
    pthread_t thread;
    int wake_fd;
    pthread_mutex_t lock; /* guards what follows */
    struct session *first;
    size_t n;
    bool stopping;
};

static void wake(struct relay *y)
{
    uint64_t one = 1;

    (void)!write(y->wake_fd, &one, sizeof(one));
}

/* --- one session ------------------------------------------------------------------------------------------------- */

/* The session ends: whoever is there is told. */
static void begin_end(struct session *s, int64_t now_us, enum frame_close code, const char *why)
{
    if (s->last_us)
        return;
    s->last_us = now_us + RELAY_LAST_US;
    (void)snprintf(s->s.why, sizeof(s->s.why), "%s", why);
    for (int i = 0; i < 2; i++)
        if (s->side[i].socket && !s->side[i].told) {
            s->side[i].told = true;
            (void)frame_write_close(&s->side[i].out, code, why, NULL);
        }
}

/* A side has gone, or what it says is no WebSocket. */
static void lose(struct session *s, int which, int64_t now_us, enum frame_close code, const char *why)
{
    struct side *d = &s->side[which];

    d->ended = true;
    d->told = true;
    buf_clear(&d->out);
    begin_end(s, now_us, code, why);
}

static void take_close(struct session *s, int which, int64_t now_us, const struct frame *f)
{
    char why[sizeof(s->s.why)];
    enum frame_close code = frame_read_close(f, why, sizeof(why));

    s->side[which].ended = true;
    begin_end(s, now_us, code, why); /* which answers it, too */
}

/* Pass on what has come of a side, as far as the other has room for it. */
static void pass(struct session *s, int which, int64_t now_us)
{
    struct side *d = &s->side[which], *to = &s->side[!which];
    struct frame f;
    size_t at = 0;
    ssize_t n = 0;

    while (!d->ended && to->out.len < RELAY_HELD && d->out.len < RELAY_HELD &&
           (n = frame_read(d->in.data + at, d->in.len - at, true, &f)) > 0) {
        at += (size_t)n;
        if (f.kind == FRAME_BINARY && !s->last_us) {
            (void)frame_write(&to->out, FRAME_BINARY, f.data, f.len, NULL);
            s->s.bytes[which] += f.len;
            s->s.active_us = now_us;
        } else if (f.kind == FRAME_PING) {
            (void)frame_write(&d->out, FRAME_PONG, f.data, f.len, NULL);
        } else if (f.kind == FRAME_CLOSE) {
            take_close(s, which, now_us, &f);
        }
    }
    buf_drop(&d->in, at);
    if (n < 0)
        lose(s, which, now_us, FRAME_CLOSE_PROTOCOL, "what came was no WebSocket");
    if (buf_failed(&to->out) || buf_failed(&d->out))
        lose(s, !which, now_us, FRAME_CLOSE_LOST, "out of memory");
}

static bool wants_input(const struct session *s, int which)
{
    const struct side *d = &s->side[which];

    return d->socket && !d->ended && s->side[!which].out.len < RELAY_HELD && d->out.len < RELAY_HELD;
}

static void take_input(struct session *s, int which, int64_t now_us)
{
    static const char *const gone[] = {"the client has gone", "the node has gone"};
    struct side *d = &s->side[which];
    char *to = buf_reserve(&d->in, READ_MAX);
    ssize_t n = to ? recv(d->fd, to, READ_MAX, 0) : 0;

    if (n > 0) {
        buf_commit(&d->in, (size_t)n);
        d->heard_us = now_us;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        lose(s, which, now_us, FRAME_CLOSE_LOST, gone[which]);
    }
}

static void send_output(struct session *s, int which, int64_t now_us)
{
    struct side *d = &s->side[which];

    while (d->out.len > 0) {
        ssize_t n = send(d->fd, d->out.data, d->out.len, MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            lose(s, which, now_us, FRAME_CLOSE_LOST, "it does not take what it is sent");
        if (n <= 0)
            break;
        buf_drop(&d->out, (size_t)n);
    }
    if (d->out.len == 0 && d->out.cap > KEPT_MAX)
        buf_clear(&d->out);
}

/* What the time demands. */
static void look_at_clock(struct relay *y, struct session *s, int64_t now_us)
{
    if (!s->side[AGENT].socket || !s->side[CLIENT].socket) {
        if (now_us - s->s.opened_us > RELAY_JOIN_US)
            begin_end(s, now_us, FRAME_CLOSE_NO_NODE,
                      s->side[CLIENT].socket ? "the node of the rank does not answer" : "nobody used the ticket");
    } else if (now_us - s->s.active_us > y->cfg.idle_us) {
        begin_end(s, now_us, FRAME_CLOSE_IDLE, "nothing has passed for as long as musterd --exec-idle lets it");
    }
    for (int i = 0; i < 2; i++) {
        struct side *d = &s->side[i];

        if (!d->socket || d->told)
            continue;
        if (now_us - d->heard_us > RELAY_LOST_US)
            lose(s, i, now_us, FRAME_CLOSE_LOST,
                 i == CLIENT ? "the client does not answer" : "the node does not answer");
        else if (now_us - d->ping_us > RELAY_PING_US) {
            d->ping_us = now_us;
            (void)frame_write(&d->out, FRAME_PING, NULL, 0, NULL);
        }
    }
}

/* Whether nothing goes to a side any more, and nothing comes: closing a socket from which something is still to be
 * read takes back what the other end has not read yet. */
static bool is_done(const struct side *d)
{
    return !d->joining && (!d->socket || (d->out.len == 0 && d->ended));
}

static bool is_over(const struct session *s, int64_t now_us)
{
    return s->last_us && (now_us > s->last_us || (is_done(&s->side[CLIENT]) && is_done(&s->side[AGENT])));
}

static void session_free(struct session *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->side[i].socket)
            http_upgrade_close(s->side[i].socket);
        buf_clear(&s->side[i].in);
        buf_clear(&s->side[i].out);
    }
    free(s);
}

/* --- the thread -------------------------------------------------------------------------------------------------- */

/* Take those that are over off the list. Returns them. */
static struct session *take_over(struct relay *y, int64_t now_us)
{
    struct session *over = NULL, **at = &y->first;

    while (*at) {
        struct session *s = *at;

        if (!is_over(s, now_us)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->next = over;
        over = s;
        y->n--;
    }
    return over;
}

static void tell_over(struct relay *y, struct session *over)
{
    while (over) {
        struct session *next = over->next;

        if (y->cfg.ended)
            y->cfg.ended(y->cfg.arg, &over->s);
        session_free(over);
        over = next;
    }
}

/* All that can be done now. Returns how many places of fds are used. */
static nfds_t work(struct relay *y, struct pollfd *fds, int64_t now_us)
{
    nfds_t n = 0;

    fds[n++] = (struct pollfd){.fd = y->wake_fd, .events = POLLIN};
    for (struct session *s = y->first; s; s = s->next) {
        look_at_clock(y, s, now_us);
        for (int i = 0; i < 2; i++)
            if (wants_input(s, i))
                take_input(s, i, now_us);
        for (int i = 0; i < 2; i++)
            pass(s, i, now_us);
        for (int i = 0; i < 2; i++)
            if (s->side[i].socket)
                send_output(s, i, now_us);
        for (int i = 0; i < 2; i++) {
            struct side *d = &s->side[i];

            if (!d->socket)
                continue;
            fds[n].fd = d->fd;
            fds[n].events = (short)((wants_input(s, i) ? POLLIN : 0) | (d->out.len > 0 ? POLLOUT : 0));
            n += fds[n].events != 0;
        }
    }
    return n;
}

static void *serve(void *arg)
{
    static struct pollfd fds[2 * RELAY_MOST + 1];
    struct relay *y = arg;
    bool ends = false;
    uint64_t count;

    thread_begin("relay", 0);
    while (!ends) {
        int64_t now_us = clock_mono_us();
        struct session *over;
        nfds_t n;

        pthread_mutex_lock(&y->lock);
        for (struct session *s = y->first; y->stopping && s; s = s->next)
            begin_end(s, now_us, FRAME_CLOSE_LEAVING, "the server is stopping");
        n = work(y, fds, now_us);
        over = take_over(y, y->stopping ? INT64_MAX : now_us);
        ends = y->stopping;
        pthread_mutex_unlock(&y->lock);
        tell_over(y, over);
        if (!ends && !over && poll(fds, n, ROUND_MS) > 0 && fds[0].revents)
            (void)!read(y->wake_fd, &count, sizeof(count));
    }
    return NULL;
}

int relay_start(const struct relay_cfg *cfg, struct relay **ret, struct merr *err)
{
    struct relay *y = calloc(1, sizeof(*y));
    int r;

    if (!y)
        return merr_set(err, -ENOMEM, "no memory for sessions");
    y->cfg = *cfg;
    y->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&y->lock, NULL);
    r = y->wake_fd < 0 ? -errno : -pthread_create(&y->thread, NULL, serve, y);
    if (r < 0) {
        relay_free(y);
        return merr_errno(err, r, "cannot start the thread of sessions");
    }
    *ret = y;
    return 0;
}

void relay_stop(struct relay *y)
{
    if (!y)
        return;
    pthread_mutex_lock(&y->lock);
    y->stopping = true;
    pthread_mutex_unlock(&y->lock);
    wake(y);
    (void)pthread_join(y->thread, NULL);
}

void relay_free(struct relay *y)
{
    if (!y)
        return;
    io_close(&y->wake_fd);
    pthread_mutex_destroy(&y->lock);
    free(y);
}

/* --- opening and joining ----------------------------------------------------------------------------------------- */

/* Why there may not be one more like it; NULL: there may. The lock is held. */
static const char *limit_reached(const struct relay *y, const struct relay_session *s)
{
    size_t of_user = 0, of_group = 0;

    for (const struct session *o = y->first; o; o = o->next) {
        of_user += strcmp(o->s.user, s->user) == 0;
        of_group += strcmp(o->s.group, s->group) == 0 && !o->s.port == !s->port;
    }
    if (y->n >= RELAY_MOST)
        return "this server has as many sessions as it may have (512)";
    if (of_user >= RELAY_OF_USER)
        return "you have as many sessions as one user may have (128)";
    if (of_group >= RELAY_OF_GROUP)
        return s->port ? "this job has as many connections to its ports as it may have (16)"
                       : "this job has as many sessions as it may have (16)";
    return NULL;
}

int relay_open(struct relay *y, const struct relay_session *s, const char *begin, size_t len, struct merr *err)
{
    struct session *o = calloc(1, sizeof(*o));
    const char *why = NULL;

    if (!o)
        return merr_set(err, -ENOMEM, "no memory for a session");
    o->s = *s;
    o->s.opened_us = o->s.active_us = clock_mono_us();
    for (int i = 0; i < 2; i++) {
        buf_init(&o->side[i].in, IN_MAX);
        buf_init(&o->side[i].out, OUT_MAX);
    }
    if (frame_write(&o->side[AGENT].out, FRAME_BINARY, begin, len, NULL) < 0) {
        session_free(o);
        return merr_set(err, -ENOMEM, "no memory for a session");
    }
    pthread_mutex_lock(&y->lock);
    why = y->stopping ? "the server is stopping" : limit_reached(y, s);
    if (!why) {
        o->next = y->first;
        y->first = o;
        y->n++;
    }
    pthread_mutex_unlock(&y->lock);
    if (!why)
        return 0;
    session_free(o);
    return merr_set(err, -EBUSY, "%s", why);
}

static struct session *find(struct relay *y, const char *id)
{
    struct session *s = y->first;

    while (s && strcmp(s->s.id, id) != 0)
        s = s->next;
    return s;
}

static void joined(struct relay *y, int which, const struct http_req *r, int fd, struct http_socket *socket,
                   const char *early, size_t n)
{
    int64_t now_us = clock_mono_us();
    struct session *s;
    bool taken = false;

    pthread_mutex_lock(&y->lock);
    s = find(y, http_param(r, which == AGENT ? 1 : 0));
    if (s && !s->last_us && !y->stopping && s->side[which].joining && buf_add(&s->side[which].in, early, n) == 0) {
        struct side *d = &s->side[which];

        d->fd = fd;
        d->socket = socket;
        d->joining = false;
        d->heard_us = d->ping_us = s->s.active_us = now_us;
        taken = true;
    }
    pthread_mutex_unlock(&y->lock);
    if (!taken)
        http_upgrade_close(socket);
    wake(y);
}

static void client_joined(void *arg, const struct http_req *r, int fd, struct http_socket *socket, const char *early,
                          size_t n)
{
    joined(arg, CLIENT, r, fd, socket, early, n);
}

static void agent_joined(void *arg, const struct http_req *r, int fd, struct http_socket *socket, const char *early,
                         size_t n)
{
    joined(arg, AGENT, r, fd, socket, early, n);
}

/* Takes as long wherever they differ. */
static bool same_secret(const char *a, const char *b)
{
    unsigned char differ = strlen(a) != strlen(b);

    for (size_t i = 0; !differ && a[i]; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return !differ;
}

static void join(struct relay *y, int which, struct http_req *r, const char *id, const char *proof)
{
    struct session *s;
    bool good;

    pthread_mutex_lock(&y->lock);
    s = find(y, id);
    good = s && !s->last_us && !s->side[which].joining && !s->side[which].socket &&
           (which == AGENT ? strcmp(s->s.node, proof) == 0 : same_secret(s->s.ticket, proof));
    if (good)
        s->side[which].joining = true; /* nobody else may, also when this one goes before it is answered */
    pthread_mutex_unlock(&y->lock);
    if (!good) {
        http_problem(r, 404, "unknown-session", "there is no such session; it has ended, or was joined before");
        return;
    }
    if (http_upgrade(r, FRAME_PROTOCOL, which == AGENT ? agent_joined : client_joined, y))
        return;
    pthread_mutex_lock(&y->lock);
    s = find(y, id);
    if (s)
        s->side[which].joining = false;
    pthread_mutex_unlock(&y->lock);
}

void relay_join_client(struct relay *y, struct http_req *r, const char *id, const char *ticket)
{
    join(y, CLIENT, r, id, ticket);
}

void relay_join_agent(struct relay *y, struct http_req *r, const char *id, const char *node)
{
    join(y, AGENT, r, id, node);
}

/* --- questions --------------------------------------------------------------------------------------------------- */

void relay_waiting(struct relay *y, const char *node, void (*fn)(void *arg, const struct relay_session *s), void *arg)
{
    pthread_mutex_lock(&y->lock);
    for (const struct session *s = y->first; s; s = s->next)
        if (strcmp(s->s.node, node) == 0 && !s->side[AGENT].joining && !s->side[AGENT].socket && !s->last_us)
            fn(arg, &s->s);
    pthread_mutex_unlock(&y->lock);
}

void relay_end_token(struct relay *y, const char *token)
{
    int64_t now_us = clock_mono_us();

    pthread_mutex_lock(&y->lock);
    for (struct session *s = y->first; s; s = s->next)
        if (strcmp(s->s.token, token) == 0)
            begin_end(s, now_us, FRAME_CLOSE_DONE, "the token that opened it is good no more");
    pthread_mutex_unlock(&y->lock);
    wake(y);
}
