/* Names, numbers and layouts are those of NCCL's published interface, which stay the same from 2.14 on. */
#include "worker/engine/comm/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/try.h"

#define OLDEST 21400
#define ABORT_US (INT64_C(10) * 1000000) /* or a wait's deadline, if that is shorter */
#define INSTALL "install NVIDIA's NCCL 2.14 or newer (package libnccl2)"

typedef struct nccl_communicator *communicator;

enum { SUCCESS = 0, IN_PROGRESS = 7 };
enum { BYTES = 1 }; /* of an element's type */

struct id { /* passed by value */
    char bytes[NCCL_ID_BYTES];
};

struct config { /* as of 2.14: newer libraries take their defaults for what it does not have */
    size_t size;
    unsigned int magic, version;
    int blocking;
};

/* Every function that is called: its type, our name for it, the library's. */
#define FUNCTIONS(X)                                                                                                   \
    X(int, version, (int *), "ncclGetVersion")                                                                         \
    X(const char *, error, (int), "ncclGetErrorString")                                                                \
    X(const char *, last_error, (communicator), "ncclGetLastError")                                                    \
    X(int, unique_id, (struct id *), "ncclGetUniqueId")                                                                \
    X(int, init, (communicator *, int, struct id, int, struct config *), "ncclCommInitRankConfig")                     \
    X(int, state, (communicator, int *), "ncclCommGetAsyncError")                                                      \
    X(int, finalize, (communicator), "ncclCommFinalize")                                                               \
    X(int, destroy, (communicator), "ncclCommDestroy")                                                                 \
    X(int, abort, (communicator), "ncclCommAbort")                                                                     \
    X(int, group_start, (void), "ncclGroupStart")                                                                      \
    X(int, group_end, (void), "ncclGroupEnd")                                                                          \
    X(int, send, (const void *, size_t, int, int, communicator, void *), "ncclSend")                                   \
    X(int, recv, (void *, size_t, int, int, communicator, void *), "ncclRecv")                                         \
    X(int, all_gather, (const void *, void *, size_t, int, communicator, void *), "ncclAllGather")                     \
    X(int, broadcast, (const void *, void *, size_t, int, int, communicator, void *), "ncclBroadcast")

static struct {
    void *library; /* NULL: not loaded; never unloaded */
    int number;
#define X(type, name, args, symbol) type(*name) args;
    FUNCTIONS(X)
#undef X
} api;

struct nccl {
    struct comm_group *group;
    struct device_queue *queue;
    void *stream;
    communicator c; /* NULL: aborted */
    bool begun;     /* between begin and end */
    bool left;
};

int nccl_load(int *ret_version, struct merr *err)
{
    static const char soname[] = "libnccl.so.2";
    void *library = api.library ? api.library : dlopen(soname, RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return merr_set(err, -ENOENT, "%s is not found: " INSTALL, soname);
#define X(type, name, args, symbol)                                                                                    \
    api.name = (type(*) args)dlsym(library, symbol);                                                                   \
    if (!api.name) {                                                                                                   \
        (void)dlclose(library);                                                                                        \
        return merr_set(err, -EIO, "%s has no %s: " INSTALL, soname, symbol);                                          \
    }
    FUNCTIONS(X)
#undef X
    if (api.version(&api.number) != SUCCESS || api.number < OLDEST) {
        (void)dlclose(library);
        return merr_set(err, -EIO, "%s is of version %d.%d: " INSTALL, soname, api.number / 10000,
                        api.number / 100 % 100);
    }
    api.library = library;
    *ret_version = api.number;
    return 0;
}

/* --- failing and waiting ------------------------------------------------------------------------ */

struct ending { /* of a communicator; whoever comes last frees it */
    communicator c;
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool ended, left; /* the library has returned; nobody waits for it any more */
};

static void ending_free(struct ending *e)
{
    (void)pthread_cond_destroy(&e->told);
    (void)pthread_mutex_destroy(&e->lock);
    free(e);
}

static void *ending_run(void *arg)
{
    struct ending *e = arg;
    bool left;

    (void)api.abort(e->c);
    (void)pthread_mutex_lock(&e->lock);
    e->ended = true;
    left = e->left;
    (void)pthread_cond_signal(&e->told);
    (void)pthread_mutex_unlock(&e->lock);
    if (left)
        ending_free(e);
    return NULL;
}

/* A thread of its own that aborts a communicator; NULL: there is none, and it has been done here. */
static struct ending *ending_new(communicator c)
{
    struct ending *e = calloc(1, sizeof(*e));
    pthread_condattr_t attr;
    pthread_t thread;

    if (e) {
        *e = (struct ending){.c = c};
        (void)pthread_mutex_init(&e->lock, NULL);
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&e->told, &attr);
        (void)pthread_condattr_destroy(&attr);
        if (pthread_create(&thread, NULL, ending_run, e) == 0) {
            (void)pthread_detach(thread);
            return e;
        }
        ending_free(e);
    }
    (void)api.abort(c);
    return NULL;
}

/* Whether the library has aborted it in time. It waits for its own threads and for the GPU, and may do so for ever. */
static bool ended_within(communicator c, int64_t us)
{
    struct ending *e = ending_new(c);
    struct timespec until;
    bool ended;

    if (!e)
        return true;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    us += until.tv_nsec / 1000;
    until.tv_sec += us / 1000000;
    until.tv_nsec = us % 1000000 * 1000;
    (void)pthread_mutex_lock(&e->lock);
    while (!e->ended && pthread_cond_timedwait(&e->told, &e->lock, &until) == 0)
        ;
    ended = e->ended;
    e->left = true;
    (void)pthread_mutex_unlock(&e->lock);
    if (ended)
        ending_free(e);
    return ended;
}

/* Ends what runs on the GPU, too; where that cannot be had, the GPU is lost to this process. */
static void give_up(struct nccl *c)
{
    struct comm_world *w = c->group->world;
    int64_t us = w->timeout_us < ABORT_US ? w->timeout_us : ABORT_US;
    size_t n;

    if (c->begun)
        (void)api.group_end();
    c->begun = false;
    if (c->c && !ended_within(c->c, us)) {
        (void)world_fail(w, -EIO, "'%s' cannot be left", c->group->name);
        n = strlen(w->why.text);
        (void)snprintf(w->why.text + n, sizeof(w->why.text) - n,
                       "; NCCL's abort of '%s' did not end in %lld ms: the "
                       "GPU may still be at it, and the process ends without it",
                       c->group->name, (long long)(us / 1000));
        w->gpu.ops->lose(c->queue);
    }
    c->c = NULL;
}

/* What the library answered when it was to do something. */
static int refused(struct nccl *c, int code, const char *what)
{
    const char *more = c->c ? api.last_error(c->c) : "";
    int r = world_fail(c->group->world, -EIO, "NCCL could not %s in '%s': %s%s%s", what, c->group->name,
                       api.error(code), more && *more ? ": " : "", more ? more : "");

    give_up(c);
    return r;
}

static int answered(struct nccl *c, int code, const char *what)
{
    return code == SUCCESS || code == IN_PROGRESS ? 0 : refused(c, code, what);
}

/* Another look while the library or the GPU works: 0, or the failure that ends the wait. */
static int look(struct nccl *c, struct world_vigil *v, const char *what)
{
    int r = world_watch(c->group, v, what);

    if (r < 0)
        give_up(c);
    return r;
}

static int state_of(struct nccl *c, const char *what)
{
    int state = SUCCESS, code;

    if (!c->c)
        return c->group->world->failed;
    code = api.state(c->c, &state);
    if (code != SUCCESS || (state != SUCCESS && state != IN_PROGRESS))
        return refused(c, code != SUCCESS ? code : state, what);
    return state == SUCCESS;
}

int nccl_look(struct nccl *c)
{
    return state_of(c, "work");
}

int nccl_settle(struct nccl *c, const char *what)
{
    struct world_vigil vigil = {0};
    int r;

    while ((r = state_of(c, what)) == 0)
        TRY(look(c, &vigil, what));
    return r < 0 ? r : 0;
}

int nccl_finish(struct nccl *c)
{
    const struct device_ops *ops = c->group->world->gpu.ops;
    struct world_vigil vigil = {0};
    struct merr err = {""};

    for (;;) {
        int done = ops->done(c->queue, &err);

        if (done < 0) {
            done = world_fail(c->group->world, done, "'%s': %.900s", c->group->name, err.text);
            give_up(c);
            return done;
        }
        TRY(nccl_settle(c, "work"));
        if (done)
            return 0;
        TRY(look(c, &vigil, "work"));
    }
}

/* --- communicators ------------------------------------------------------------------------------ */

int nccl_id(struct comm_world *w, char ret[NCCL_ID_BYTES])
{
    int code = api.unique_id((struct id *)ret);

    return code == SUCCESS ? 0 : world_fail(w, -EIO, "NCCL makes no id for a communicator: %s", api.error(code));
}

int nccl_new(struct comm_group *g, const struct nccl_place *at, struct device_queue *q, struct nccl **ret)
{
    struct config config = {.size = sizeof(config), .magic = 0xcafebeef, .version = OLDEST, .blocking = 0};
    struct nccl *c = calloc(1, sizeof(*c));
    struct id where;
    int r;

    if (!c)
        return world_fail(g->world, -ENOMEM, "no memory for the communicator of '%s'", g->name);
    *c = (struct nccl){.group = g, .queue = q, .stream = g->world->gpu.ops->native(q)};
    memcpy(where.bytes, at->id, NCCL_ID_BYTES);
    r = answered(c, api.init(&c->c, at->n, where, at->index, &config), "connect GPUs");
    if (r < 0) {
        nccl_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void nccl_leave(struct nccl *c)
{
    if (c->left || !c->c)
        return;
    if (c->group->world->failed || nccl_look(c) == 0) /* 0: nobody came to connect */
        give_up(c);
    c->left = c->c && answered(c, api.finalize(c->c), "disconnect") == 0;
}

void nccl_free(struct nccl *c)
{
    int saved = errno;

    if (!c)
        return;
    nccl_leave(c);
    if (c->left && nccl_settle(c, "disconnect") == 0)
        (void)api.destroy(c->c);
    free(c);
    errno = saved;
}

/* --- work --------------------------------------------------------------------------------------- */

int nccl_begin(struct nccl *c)
{
    if (!c->c)
        return c->group->world->failed;
    TRY(answered(c, api.group_start(), "begin"));
    c->begun = true;
    return 0;
}

int nccl_send(struct nccl *c, int member, const void *buf, size_t bytes)
{
    return answered(c, api.send(buf, bytes, BYTES, member, c->c, c->stream), "send");
}

int nccl_recv(struct nccl *c, int member, void *buf, size_t bytes)
{
    return answered(c, api.recv(buf, bytes, BYTES, member, c->c, c->stream), "receive");
}

int nccl_all_gather(struct nccl *c, const void *in, size_t bytes, void *out)
{
    return answered(c, api.all_gather(in, out, bytes, BYTES, c->c, c->stream), "gather");
}

int nccl_broadcast(struct nccl *c, void *buf, size_t bytes, int root)
{
    return answered(c, api.broadcast(buf, buf, bytes, BYTES, root, c->c, c->stream), "broadcast");
}

int nccl_start(struct nccl *c)
{
    c->begun = false;
    return answered(c, api.group_end(), "start");
}

int nccl_end(struct nccl *c)
{
    TRY(nccl_start(c));
    return nccl_settle(c, "start");
}
