#include "worker/agent/waste.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "worker/agent/deep.h"

#define ASIDE ".gone-"
#define NAMES_MAX 10000     /* tried for one folder */
#define FAILED_MAX 64       /* that are known, so as not to be tried again and again */
#define RETRY_US 600000000  /* after which they are */
#define CLEAN_US 3600000000 /* for what is the user's in a folder */

struct waste {
    const struct account *account; /* borrowed */
    char root[PATH_MAX], memory[PATH_MAX];
    atomic_int waiting;
    atomic_bool stopping;
    int stop_fd; /* readable once it stops */

    pthread_mutex_t lock; /* guards the next three */
    pthread_cond_t more;
    bool wanted, running;
    pthread_t thread;

    uint64_t failed[FAILED_MAX]; /* of the thread: hashes of paths */
    size_t n_failed;
    int64_t retry_us;
};

struct waste *waste_new(const struct account *account, const char *root, const char *memory)
{
    struct waste *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->account = account;
    (void)snprintf(w->root, sizeof(w->root), "%s", root);
    (void)snprintf(w->memory, sizeof(w->memory), "%s", memory ? memory : "");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w;
}

/* --- the thread -------------------------------------------------------------------------------------- */

static bool has_failed(const struct waste *w, uint64_t hash)
{
    for (size_t i = 0; i < w->n_failed; i++)
        if (w->failed[i] == hash)
            return true;
    return false;
}

static int remove_tree(const struct waste *w, const char *path)
{
    int r = -EAGAIN;

    while (r == -EAGAIN && !atomic_load(&w->stopping))
        r = deep_empty(path);
    if (r == 0 && rmdir(path) < 0)
        r = -errno;
    return r == -ENOENT ? 0 : r; /* it is gone, whoever removed it */
}

static void remove_folder(struct waste *w, const char *path)
{
    char shm[PATH_MAX];
    int r;

    account_clean(w->account, path, CLEAN_US, w->stop_fd);
    if (w->account->helper && account_shm(w->account, path, shm))
        (void)remove_tree(w, shm);
    r = remove_tree(w, path);
    if (atomic_load(&w->stopping))
        return; /* another agent goes on */
    if (atomic_load(&w->waiting) > 0)
        (void)atomic_fetch_sub(&w->waiting, 1);
    if (r == 0)
        return;
    log_warn("cannot remove '%s', which is tried again in %lld minutes: %s", path, RETRY_US / 60000000LL, strerror(-r));
    if (w->n_failed < FAILED_MAX)
        w->failed[w->n_failed++] = hash_xxh3(path, strlen(path));
}

/* Find a folder in a place that is to go. */
static bool find_folder(const struct waste *w, const char *place, char ret[PATH_MAX])
{
    DIR *d = *place ? opendir(place) : NULL;
    struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d)))
        found = strncmp(e->d_name, ASIDE, strlen(ASIDE)) == 0 &&
                snprintf(ret, PATH_MAX, "%s/%s", place, e->d_name) < PATH_MAX &&
                !has_failed(w, hash_xxh3(ret, strlen(ret)));
    if (d)
        (void)closedir(d);
    return found && w->n_failed < FAILED_MAX;
}

static void remove_all(struct waste *w)
{
    char path[PATH_MAX];

    if (clock_mono_us() > w->retry_us) {
        w->n_failed = 0;
        w->retry_us = clock_mono_us() + RETRY_US;
    }
    while (!atomic_load(&w->stopping) && (find_folder(w, w->memory, path) || find_folder(w, w->root, path)))
        remove_folder(w, path);
}

static void *serve(void *arg)
{
    struct waste *w = arg;

    thread_begin("waste", THREAD_PATIENT);
    pthread_mutex_lock(&w->lock);
    while (!atomic_load(&w->stopping)) {
        if (!w->wanted) {
            pthread_cond_wait(&w->more, &w->lock);
            continue;
        }
        w->wanted = false;
        pthread_mutex_unlock(&w->lock);
        remove_all(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* --- its owner --------------------------------------------------------------------------------------- */

void waste_begin(struct waste *w)
{
    pthread_mutex_lock(&w->lock);
    w->wanted = true;
    if (!w->running)
        w->running = pthread_create(&w->thread, NULL, serve, w) == 0; /* else with the next folder */
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}

/* The same name, but for a number, is free where the folder is and where its /dev/shm would be. */
static int name_aside(const char *path, char ret[PATH_MAX], struct merr *err)
{
    const char *name = strrchr(path, '/') + 1;
    struct stat st;

    for (int i = 0; i < NAMES_MAX; i++) {
        if (snprintf(ret, PATH_MAX, "%.*s" ASIDE "%s~%d", (int)(name - path), path, name, i) >= PATH_MAX)
            return merr_set(err, -ENAMETOOLONG, "cannot set '%s' aside: its path is too long", path);
        if (lstat(ret, &st) < 0 && errno == ENOENT)
            return 0;
    }
    return merr_set(err, -EBUSY, "%d folders that were '%s' wait to be removed", NAMES_MAX, path);
}

int waste_take(struct waste *w, const char *path, struct merr *err)
{
    char aside[PATH_MAX], shm[PATH_MAX], shm_aside[PATH_MAX];
    struct stat st;
    int r;

    if (!w)
        return io_remove_tree(path, err);
    if (lstat(path, &st) < 0 && errno == ENOENT)
        return 0;
    if (atomic_load(&w->waiting) >= WASTE_MAX)
        return merr_set(err, -EBUSY, "'%s' stays for now: %d folders wait to be removed", path, WASTE_MAX);
    r = name_aside(path, aside, err);
    if (r < 0)
        return r;
    /* First: if this process ends in between, the next one gives the folder the same name. */
    if (w->account->helper && account_shm(w->account, path, shm) && account_shm(w->account, aside, shm_aside))
        (void)rename(shm, shm_aside);
    if (rename(path, aside) < 0)
        return merr_errno(err, -errno, "cannot set '%s' aside", path);
    (void)atomic_fetch_add(&w->waiting, 1);
    waste_begin(w);
    return 0;
}

void waste_free(struct waste *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->stopping, true);
    (void)eventfd_write(w->stop_fd, 1);
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    if (w->running)
        (void)pthread_join(w->thread, NULL);
    io_close(&w->stop_fd);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
