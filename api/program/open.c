#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/program/handle.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the_one */
static struct muster *the_one;
static _Atomic bool was_child; /* this process came by a fork of one that had opened */

/* In a child of fork(): its handle is of another process, whose thread and locks are not here. */
static void on_child(void)
{
    atomic_fetch_add(&handle_forks, 1);
    atomic_store(&was_child, true);
    the_one = NULL;
    (void)pthread_mutex_init(&lock, NULL);
}

static int start(struct muster *m)
{
    pthread_condattr_t attr;
    sigset_t all, before;
    int r;

    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&m->thread, NULL, orders_watch, m);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}

/* What options and the environment say. 1: outside Muster. */
static int settle(const struct muster_options *given, struct muster *m)
{
    struct muster_options o = {.rank = -1};
    const char *rank = getenv("RANK");
    struct stat st;
    char *end;

    if (given && given->size < sizeof(uint32_t) + sizeof(int))
        return handle_fail(-EINVAL, "muster_open: the options do not tell their size");
    if (given)
        memcpy(&o, given, given->size < sizeof(o) ? given->size : sizeof(o));
    if (o.flags != 0)
        return handle_fail(-EINVAL, "muster_open: flags %#x are not known", o.flags);
    o.run_dir = o.run_dir ? o.run_dir : getenv("MUSTER_RUN_DIR");
    o.job_dir = o.job_dir ? o.job_dir : getenv("MUSTER_JOB_DIR");
    if (!o.run_dir || !*o.run_dir || stat(o.run_dir, &st) < 0 || !S_ISDIR(st.st_mode) || atomic_load(&was_child))
        return 1;
    if (o.rank < 0 && rank) {
        o.rank = (int)strtol(rank, &end, 10);
        o.rank = *rank && *end == '\0' ? o.rank : -1;
    }
    if (o.rank < 0 || o.rank > 99999)
        return handle_fail(-EINVAL, "muster_open: RANK is no number of a rank");
    if (strlen(o.run_dir) >= sizeof(m->run) || (o.job_dir && strlen(o.job_dir) >= sizeof(m->job)))
        return handle_fail(-ENAMETOOLONG, "muster_open: the name of a folder is too long");
    m->rank = o.rank;
    (void)snprintf(m->run, sizeof(m->run), "%s", o.run_dir);
    (void)snprintf(m->job, sizeof(m->job), "%s", o.job_dir ? o.job_dir : "");
    return 0;
}

static int open_new(struct muster *m, struct muster **ret)
{
    static bool listens;
    int r;

    if (the_one) {
        if (the_one->rank != m->rank || strcmp(the_one->run, m->run) != 0 || strcmp(the_one->job, m->job) != 0)
            return handle_fail(-EBUSY, "muster_open: this process has opened with other options");
        the_one->opened++;
        free(m);
        *ret = the_one;
        return 0;
    }
    if (!listens)
        listens = pthread_atfork(NULL, NULL, on_child) == 0;
    m->opened = 1;
    m->forks = atomic_load(&handle_forks);
    r = listens ? start(m) : -ENOMEM;
    if (r < 0)
        return handle_fail(r, "muster_open: cannot start a thread: %s", strerror(-r));
    the_one = m;
    *ret = m;
    return 0;
}

EXPORTED int muster_open(const struct muster_options *options, muster **ret)
{
    struct muster *m = calloc(1, sizeof(*m));
    int r = m ? settle(options, m) : handle_fail(-ENOMEM, "muster_open: no memory");

    *ret = NULL;
    if (r == 0) {
        (void)pthread_mutex_lock(&lock);
        r = open_new(m, ret);
        (void)pthread_mutex_unlock(&lock);
    }
    if (r != 0)
        free(m);
    return r;
}

EXPORTED void muster_close(muster *m)
{
    char path[PATH_ROOM];
    bool last, own;

    if (!handle_live(m))
        return; /* a child has the pages of its parent's, not more */
    (void)pthread_mutex_lock(&lock);
    last = --m->opened == 0;
    if (last)
        the_one = NULL;
    (void)pthread_mutex_unlock(&lock);
    if (!last)
        return;
    own = pthread_equal(pthread_self(), m->thread);
    atomic_store(&m->quiet, true);
    (void)unlink(files_rank_path(m, "beat", path));
    (void)pthread_mutex_lock(&m->lock);
    m->ending = true;
    m->orphan = own;
    (void)pthread_cond_signal(&m->wake);
    (void)pthread_mutex_unlock(&m->lock);
    if (own) {
        (void)pthread_detach(m->thread);
        return;
    }
    (void)pthread_join(m->thread, NULL);
    (void)pthread_cond_destroy(&m->wake);
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}
