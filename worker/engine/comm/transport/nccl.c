/* Names, numbers and layouts are those of NCCL's published interface, which stay the same from 2.14 on. */
#include "worker/engine/comm/transport/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/try.h"
#include "compress/cuda_library.h"

#define OLDEST 21400
#define ABORT_US (INT64_C(10) * 1000000) /* or a wait's deadline, if that is shorter */
#define INSTALL "install NVIDIA's NCCL 2.14 or newer (package libnccl2)"

typedef struct nccl_communicator *communicator;

enum { SUCCESS = 0, IN_PROGRESS = 7 };
enum { BYTES = 1 }; /* of an element's type */

struct id { /* passed by value */
    char bytes[FABRIC_ID_BYTES];
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
    struct fabric base;
    struct wait *wait;
    const struct device_ops *device;
    struct device_queue *queue;
    struct wait_members of;
    void *stream;
    communicator c; /* NULL: aborted */
    bool begun;     /* between begin and end */
    bool left;
};

static struct nccl *nccl_of(struct fabric *f)
{
    return (struct nccl *)f;
}

static int nccl_load(int *ret_version, struct merr *err)
{
    static const char soname[] = "libnccl.so.2";
    struct merr why = {""};
    void *library = api.library ? api.library : cuda_library_open(cuda_library_nccl, NULL, &why);

    if (!library)
        return merr_set(err, -ENOENT, "%s: " INSTALL, why.text);
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
    int64_t us = c->wait->timeout_us < ABORT_US ? c->wait->timeout_us : ABORT_US;

    if (c->begun)
        (void)api.group_end();
    c->begun = false;
    if (c->c && !ended_within(c->c, us)) {
        (void)failure_keep(&c->wait->failure, -EIO, "'%s' cannot be left", c->of.group);
        failure_add(&c->wait->failure,
                    "; NCCL's abort of '%s' did not end in %lld ms: the GPU may still be at it, and the process ends "
                    "without it",
                    c->of.group, (long long)(us / 1000));
        c->device->lose(c->queue);
    }
    c->c = NULL;
}

/* What the library answered when it was to do something. */
static int refused(struct nccl *c, int code, const char *what)
{
    const char *more = c->c ? api.last_error(c->c) : "";
    int r = failure_keep(&c->wait->failure, -EIO, "NCCL could not %s in '%s': %s%s%s", what, c->of.group,
                         api.error(code), more && *more ? ": " : "", more ? more : "");

    give_up(c);
    return r;
}

static int answered(struct nccl *c, int code, const char *what)
{
    return code == SUCCESS || code == IN_PROGRESS ? 0 : refused(c, code, what);
}

/* Another look while the library or the GPU works: 0, or the failure that ends the wait. */
static int look(struct nccl *c, struct wait_vigil *v, const char *what)
{
    int r = wait_watch(c->wait, v, &c->of, what);

    if (r < 0)
        give_up(c);
    return r;
}

static int state_of(struct nccl *c, const char *what)
{
    int state = SUCCESS, code;

    if (!c->c)
        return c->wait->failure.code;
    code = api.state(c->c, &state);
    if (code != SUCCESS || (state != SUCCESS && state != IN_PROGRESS))
        return refused(c, code != SUCCESS ? code : state, what);
    return state == SUCCESS;
}

static int nccl_look(struct fabric *f)
{
    return state_of(nccl_of(f), "work");
}

static int nccl_settle(struct fabric *f, const char *what)
{
    struct nccl *c = nccl_of(f);
    struct wait_vigil vigil = {0};
    int r;

    while ((r = state_of(c, what)) == 0)
        TRY(look(c, &vigil, what));
    return r < 0 ? r : 0;
}

static int nccl_finish(struct fabric *f)
{
    struct nccl *c = nccl_of(f);
    struct wait_vigil vigil = {0};
    struct merr err = {""};

    for (;;) {
        int done = c->device->done(c->queue, &err);

        if (done < 0) {
            done = failure_keep(&c->wait->failure, done, "'%s': %.900s", c->of.group, err.text);
            give_up(c);
            return done;
        }
        TRY(nccl_settle(f, "work"));
        if (done)
            return 0;
        TRY(look(c, &vigil, "work"));
    }
}

/* --- communicators ------------------------------------------------------------------------------ */

static int nccl_id(struct failure *f, char ret[FABRIC_ID_BYTES])
{
    int code = api.unique_id((struct id *)ret);

    return code == SUCCESS ? 0 : failure_keep(f, -EIO, "NCCL makes no id for a communicator: %s", api.error(code));
}

static void nccl_leave(struct fabric *f)
{
    struct nccl *c = nccl_of(f);

    if (c->left || !c->c)
        return;
    if (c->wait->failure.code || nccl_look(f) == 0) /* 0: nobody came to connect */
        give_up(c);
    c->left = c->c && answered(c, api.finalize(c->c), "disconnect") == 0;
}

static void nccl_free(struct fabric *f)
{
    struct nccl *c = nccl_of(f);
    int saved = errno;

    nccl_leave(f);
    if (c->left && nccl_settle(f, "disconnect") == 0)
        (void)api.destroy(c->c);
    free(c);
    errno = saved;
}

static int nccl_open(const struct fabric_cfg *cfg, struct fabric **ret)
{
    struct config config = {.size = sizeof(config), .magic = 0xcafebeef, .version = OLDEST, .blocking = 0};
    struct nccl *c = calloc(1, sizeof(*c));
    struct id where;
    int r;

    if (!c)
        return failure_keep(&cfg->wait->failure, -ENOMEM, "no memory for the communicator of '%s'", cfg->of.group);
    *c = (struct nccl){.base = {.ops = &nccl_fabric},
                       .wait = cfg->wait,
                       .device = cfg->device,
                       .queue = cfg->queue,
                       .of = cfg->of,
                       .stream = cfg->device->native(cfg->queue)};
    memcpy(where.bytes, cfg->id, FABRIC_ID_BYTES);
    r = answered(c, api.init(&c->c, cfg->n, where, cfg->index, &config), "connect GPUs");
    if (r < 0)
        nccl_free(&c->base);
    else
        *ret = &c->base;
    return r;
}

/* --- work --------------------------------------------------------------------------------------- */

static int nccl_begin(struct fabric *f)
{
    struct nccl *c = nccl_of(f);

    if (!c->c)
        return c->wait->failure.code;
    TRY(answered(c, api.group_start(), "begin"));
    c->begun = true;
    return 0;
}

static int nccl_send(struct fabric *f, int member, const void *buf, size_t bytes)
{
    struct nccl *c = nccl_of(f);

    return answered(c, api.send(buf, bytes, BYTES, member, c->c, c->stream), "send");
}

static int nccl_recv(struct fabric *f, int member, void *buf, size_t bytes)
{
    struct nccl *c = nccl_of(f);

    return answered(c, api.recv(buf, bytes, BYTES, member, c->c, c->stream), "receive");
}

static int nccl_all_gather(struct fabric *f, const void *in, size_t bytes, void *out)
{
    struct nccl *c = nccl_of(f);

    return answered(c, api.all_gather(in, out, bytes, BYTES, c->c, c->stream), "gather");
}

static int nccl_broadcast(struct fabric *f, void *buf, size_t bytes, int root)
{
    struct nccl *c = nccl_of(f);

    return answered(c, api.broadcast(buf, buf, bytes, BYTES, root, c->c, c->stream), "broadcast");
}

static int nccl_start(struct fabric *f)
{
    struct nccl *c = nccl_of(f);

    c->begun = false;
    return answered(c, api.group_end(), "start");
}

const struct fabric_ops nccl_fabric = {
    .name = "NCCL",
    .load = nccl_load,
    .id = nccl_id,
    .open = nccl_open,
    .leave = nccl_leave,
    .free = nccl_free,
    .look = nccl_look,
    .settle = nccl_settle,
    .begin = nccl_begin,
    .send = nccl_send,
    .recv = nccl_recv,
    .all_gather = nccl_all_gather,
    .broadcast = nccl_broadcast,
    .start = nccl_start,
    .finish = nccl_finish,
};
