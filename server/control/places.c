#include "server/control/places.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "server/control/change.h"
#include "server/control/state.h"
#include "server/http/call.h"

struct list { /* numbers of jobs */
    uint64_t *v;
    size_t n, cap;
};

struct places {
    struct core *core; /* borrowed; of it the thread uses its queue and its spool */
    bool threaded;
    size_t asked; /* of the core: not noted yet */
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t more, done;
    struct list wanted, made;
    bool late; /* the core has not waited for some */
    bool stopped;
};

static bool add(struct list *l, uint64_t job)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        uint64_t *v = realloc(l->v, cap * sizeof(*v));

        if (!v)
            return false;
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = job;
    return true;
}

static void make(const struct core *c, uint64_t job)
{
    struct merr err;

    if (spool_make_job(&c->cfg.spool, job, &err) < 0) /* what it says is kept all the same */
        log_warn("job j%llu: %s", (unsigned long long)job, err.text);
}

/* --- the thread -------------------------------------------------------------------------------------- */

static void wake(void *core, struct call *call)
{
    ((struct core *)core)->handed = true; /* a turn is all that was wanted */
    call_free(call);
}

static void *serve(void *arg)
{
    struct places *p = arg;
    struct list now = {.n = 0}, empty;

    thread_begin("places", 0);
    pthread_mutex_lock(&p->lock);
    while (!p->stopped) {
        struct call *call = NULL;

        if (p->wanted.n == 0) {
            pthread_cond_wait(&p->more, &p->lock);
            continue;
        }
        empty = now;
        now = p->wanted;
        p->wanted = empty;
        for (size_t i = 0; i < now.n && !p->stopped; i++) {
            pthread_mutex_unlock(&p->lock);
            make(p->core, now.v[i]);
            pthread_mutex_lock(&p->lock);
            (void)add(&p->made, now.v[i]); /* there is room: see places_ask() */
        }
        now.n = 0;
        pthread_cond_signal(&p->done);
        if (p->late)
            call = call_new(NULL, wake);
        if (call && !queue_give(&p->core->turn.queue, call))
            call_free(call);
    }
    pthread_mutex_unlock(&p->lock);
    free(now.v);
    return NULL;
}

/* --- the core's side --------------------------------------------------------------------------------- */

int places_start(struct core *core, bool thread, struct places **ret, struct merr *err)
{
    struct places *p = calloc(1, sizeof(*p));
    pthread_condattr_t attr;
    int r;

    if (!p)
        return merr_set(err, -ENOMEM, "out of memory");
    *p = (struct places){.core = core, .threaded = thread};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->done, &attr);
    pthread_condattr_destroy(&attr);
    r = thread ? pthread_create(&p->thread, NULL, serve, p) : 0;
    if (r != 0) {
        p->threaded = false;
        places_free(p);
        return merr_errno(err, -r, "cannot start a thread");
    }
    *ret = p;
    return 0;
}

void places_free(struct places *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
    if (p->threaded)
        (void)pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p->wanted.v);
    free(p->made.v);
    free(p);
}

/* Room for all that was asked for and is not noted yet, and one more. */
static bool has_room(struct list *l, size_t asked)
{
    size_t n = l->n;
    bool ok = true;

    while (ok && l->cap < asked + 1) {
        l->n = l->cap;
        ok = add(l, 0);
    }
    l->n = n;
    return ok;
}

void places_ask(struct core *c, struct entry *e)
{
    struct places *p = c->places;
    bool kept = false;

    if (p->threaded) {
        pthread_mutex_lock(&p->lock);
        kept = has_room(&p->made, p->asked) && add(&p->wanted, e->job.id);
        if (kept)
            pthread_cond_signal(&p->more);
        pthread_mutex_unlock(&p->lock);
    }
    e->run.folders = kept ? ENTRY_FOLDERS_ASKED : ENTRY_FOLDERS_MADE;
    p->asked += kept;
    if (!kept)
        make(c, e->job.id);
}

void places_note(struct core *c, int64_t deadline_us)
{
    struct timespec at = {.tv_sec = deadline_us / 1000000, .tv_nsec = deadline_us % 1000000 * 1000};
    struct places *p = c->places;
    bool was_late;

    if (p->asked == 0)
        return;
    pthread_mutex_lock(&p->lock);
    was_late = p->late;
    while (!was_late && p->made.n < p->asked && pthread_cond_timedwait(&p->done, &p->lock, &at) == 0)
        ;
    for (size_t i = 0; i < p->made.n; i++) {
        struct entry *e = table_find(&c->jobs, p->made.v[i]);

        if (!e || e->run.folders != ENTRY_FOLDERS_ASKED)
            continue;
        e->run.folders = ENTRY_FOLDERS_MADE;
        if (was_late && e->job.live)
            change_orders(c, &e->job);
    }
    p->asked -= p->made.n;
    p->made.n = 0;
    p->late = p->asked > 0;
    pthread_mutex_unlock(&p->lock);
}
