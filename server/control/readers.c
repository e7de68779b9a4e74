#include "server/control/readers.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "server/http/call.h"

struct reader { /* a user with reads that wait or run */
    struct reader *next;
    char user[sizeof(((struct http_identity *)NULL)->user)];
    struct call *head, **tail;
    size_t waiting;
    bool running;
};

struct readers {
    void *owner; /* borrowed */
    unsigned n_threads;
    pthread_t thread[READERS_THREADS];
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t more;
    struct reader *users; /* whose turn is next comes first */
    size_t waiting;
    bool stopped;
};

/* The first user with a read that may run now, NULL: none. */
static struct reader **next_user(struct readers *r)
{
    struct reader **at = &r->users;

    while (*at && ((*at)->running || (*at)->waiting == 0))
        at = &(*at)->next;
    return *at ? at : NULL;
}

/* Take the user's oldest read; the user goes behind all others. */
static struct call *take(struct readers *r, struct reader **at, struct reader **ret_user)
{
    struct reader *u = *at;
    struct call *call = u->head;

    u->head = call->next;
    if (!u->head)
        u->tail = &u->head;
    call->next = NULL;
    u->waiting--;
    r->waiting--;
    u->running = true;
    *at = u->next;
    while (*at)
        at = &(*at)->next;
    *at = u;
    u->next = NULL;
    *ret_user = u;
    return call;
}

static void drop_idle(struct readers *r, const struct reader *u)
{
    struct reader **at = &r->users;

    while (*at != u)
        at = &(*at)->next;
    if (!u->running && u->waiting == 0) {
        struct reader *gone = *at;

        *at = gone->next;
        free(gone);
    }
}

static void run(struct readers *r, struct call *call)
{
    if (http_gone(call->req)) {
        call_problem(call, 503, "client-left", "nobody waits for the answer");
        call_deliver(call);
    } else {
        call->run(r->owner, call);
    }
}

static void *serve(void *arg)
{
    struct readers *r = arg;

    thread_begin("reads", THREAD_PATIENT);
    (void)pthread_mutex_lock(&r->lock);
    while (!r->stopped) {
        struct reader **at = next_user(r), *user;
        struct call *call;

        if (!at) {
            (void)pthread_cond_wait(&r->more, &r->lock);
            continue;
        }
        call = take(r, at, &user);
        (void)pthread_mutex_unlock(&r->lock);
        run(r, call);
        (void)pthread_mutex_lock(&r->lock);
        user->running = false;
        if (user->waiting > 0)
            (void)pthread_cond_signal(&r->more);
        drop_idle(r, user);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

int readers_start(unsigned threads, void *owner, struct readers **ret, struct merr *err)
{
    struct readers *r = calloc(1, sizeof(*r));

    assert(threads <= READERS_THREADS);
    if (!r)
        return merr_set(err, -ENOMEM, "out of memory");
    r->owner = owner;
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->more, NULL);
    for (; r->n_threads < threads; r->n_threads++) {
        int code = pthread_create(&r->thread[r->n_threads], NULL, serve, r);

        if (code != 0) {
            readers_stop(r);
            readers_free(r);
            return merr_errno(err, -code, "cannot start a thread");
        }
    }
    *ret = r;
    return 0;
}

void readers_stop(struct readers *r)
{
    if (!r)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stopped = true;
    (void)pthread_cond_broadcast(&r->more);
    (void)pthread_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->n_threads; i++)
        (void)pthread_join(r->thread[i], NULL);
    r->n_threads = 0;
    for (struct reader *u = r->users, *next; u; u = next) {
        next = u->next;
        for (struct call *call = u->head, *after; call; call = after) {
            after = call->next;
            call_problem(call, 503, "stopping", "the server is stopping; ask again");
            call_deliver(call);
        }
        free(u);
    }
    r->users = NULL;
}

void readers_free(struct readers *r)
{
    if (!r)
        return;
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->more);
    free(r);
}

/* The user's place in the list, new where there is none. NULL: no memory. */
static struct reader *user_of(struct readers *r, const char *name)
{
    struct reader **at = &r->users;

    while (*at && strcmp((*at)->user, name) != 0)
        at = &(*at)->next;
    if (!*at && (*at = calloc(1, sizeof(**at)))) {
        memcpy((*at)->user, name, strlen(name) + 1);
        (*at)->tail = &(*at)->head;
    }
    return *at;
}

/* False: the call is refused, and answered by the caller. */
static bool put(struct readers *r, struct call *call)
{
    struct reader *u = user_of(r, http_identity(call->req)->user);

    if (r->stopped)
        call_problem(call, 503, "stopping", "the server is stopping; ask again");
    else if (!u)
        call_problem(call, 503, "no-memory", "out of memory");
    else if (u->waiting == READERS_WAITING_MAX || r->waiting == READERS_QUEUE_MAX)
        call_problem(call, 429, "too-many-reads", "%s requests of this kind wait; ask again in a second",
                     u->waiting == READERS_WAITING_MAX ? "as many as one user may have" : "as many as there may be");
    if (call->status != 0) {
        if (u)
            drop_idle(r, u);
        return false;
    }
    call->next = NULL;
    *u->tail = call;
    u->tail = &call->next;
    u->waiting++;
    r->waiting++;
    (void)pthread_cond_signal(&r->more);
    return true;
}

void readers_post(struct readers *r, struct call *call)
{
    bool kept;

    if (r->n_threads == 0 && !r->stopped) {
        run(r, call);
        return;
    }
    (void)pthread_mutex_lock(&r->lock);
    kept = put(r, call);
    (void)pthread_mutex_unlock(&r->lock);
    if (kept)
        return;
    if (call->status == 429)
        http_set_header(call->req, "Retry-After", "1");
    call_deliver(call);
}
