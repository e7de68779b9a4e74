/* A libnccl.so.2 for tests: communicators between processes that move bytes through shared memory, on host memory.
 *
 * Nothing runs by itself: what was started goes on while its state is asked for, and the state is "in progress" until
 * all bytes have moved. FAKE_NCCL tells one rank to misbehave: WHAT@RANK:N, where WHAT is
 *
 *   hang     the N-th group of calls never ends (0: connecting does not)
 *   wedge    as hang, and to abort it then never ends either
 *   fail     the N-th group of calls ends with a remote error
 *   refuse   the N-th group of calls is not taken
 *   old      the library says it is 2.12
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define RING 65536u
#define OPS_MAX 64
#define RANKS_MAX 8

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };

struct id {
    char name[128];
};
struct config {
    size_t size;
    unsigned int magic, version;
    int blocking;
};

struct ring { /* from one rank to another */
    _Atomic uint64_t in, out;
    char data[RING];
};

struct shared {
    _Atomic int here;
    struct ring ring[RANKS_MAX][RANKS_MAX]; /* [from][to] */
};

struct op {
    char *buf;
    size_t bytes, moved;
    int peer;
    bool send;
};

struct communicator {
    struct shared *m;
    struct id id;
    int n, rank, groups, state;
    struct op op[OPS_MAX];
    int ops;
    bool stuck, wedged;
};

int ncclGetVersion(int *version);
const char *ncclGetErrorString(int code);
const char *ncclGetLastError(struct communicator *c);
int ncclGetUniqueId(struct id *id);
int ncclCommInitRankConfig(struct communicator **ret, int n, struct id id, int rank, struct config *config);
int ncclCommGetAsyncError(struct communicator *c, int *state);
int ncclCommFinalize(struct communicator *c);
int ncclCommDestroy(struct communicator *c);
int ncclCommAbort(struct communicator *c);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *buf, size_t n, int type, int peer, struct communicator *c, void *stream);
int ncclRecv(void *buf, size_t n, int type, int peer, struct communicator *c, void *stream);
int ncclAllGather(const void *in, void *out, size_t n, int type, struct communicator *c, void *stream);
int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, struct communicator *c, void *stream);
uint64_t fake_nccl_bytes(void); /* moved by this rank */
int fake_nccl_live(void);       /* communicators that nobody has let go of */

static struct communicator *opened; /* the one whose calls are gathered */
static bool grouping;
static int live;
static uint64_t moved;

static bool told(const char *what, int rank, int group)
{
    const char *s = getenv("FAKE_NCCL");
    char want[64];

    (void)snprintf(want, sizeof(want), "%s@%d:%d", what, rank, group);
    return s && strcmp(s, want) == 0;
}

int ncclGetVersion(int *version)
{
    const char *s = getenv("FAKE_NCCL");

    *version = s && strcmp(s, "old") == 0 ? 21200 : 21903;
    return SUCCESS;
}

const char *ncclGetErrorString(int code)
{
    return code == REMOTE ? "remote process exited or there was a network error" : "invalid usage";
}

const char *ncclGetLastError(struct communicator *c)
{
    (void)c;
    return "";
}

int ncclGetUniqueId(struct id *id)
{
    uint64_t name[2]; /* of no process that ever was: a killed one leaves its memory behind */

    if (getrandom(name, sizeof(name), 0) != sizeof(name))
        return INVALID_USAGE;
    (void)snprintf(id->name, sizeof(id->name), "/muster-fake-nccl-%016" PRIx64 "%016" PRIx64, name[0], name[1]);
    return SUCCESS;
}

int ncclCommInitRankConfig(struct communicator **ret, int n, struct id id, int rank, struct config *config)
{
    struct communicator *c;
    int fd;

    if (n > RANKS_MAX || config->magic != 0xcafebeef || config->version < 21400 || config->blocking != 0)
        return INVALID_ARGUMENT;
    fd = shm_open(id.name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    c = calloc(1, sizeof(*c));
    if (fd < 0 || !c || ftruncate(fd, sizeof(struct shared)) < 0)
        return INVALID_USAGE;
    c->m = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (c->m == MAP_FAILED)
        return INVALID_USAGE;
    c->id = id;
    c->n = n;
    c->rank = rank;
    c->state = IN_PROGRESS;
    c->wedged = told("wedge", rank, 0);
    c->stuck = c->wedged || told("hang", rank, 0);
    if (!c->stuck && atomic_fetch_add(&c->m->here, 1) == n - 1)
        (void)shm_unlink(id.name);
    live++;
    *ret = c;
    return IN_PROGRESS;
}

/* What can move now. */
static void move(struct communicator *c, struct op *op)
{
    struct ring *g = op->send ? &c->m->ring[c->rank][op->peer] : &c->m->ring[op->peer][c->rank];
    uint64_t in = atomic_load(&g->in), out = atomic_load(&g->out);
    size_t n = op->send ? RING - (in - out) : in - out, at = (op->send ? in : out) % RING;

    n = n < op->bytes - op->moved ? n : op->bytes - op->moved;
    n = n < RING - at ? n : RING - at; /* the rest at the next look */
    if (op->send) {
        memcpy(g->data + at, op->buf + op->moved, n);
        atomic_store(&g->in, in + n);
    } else {
        memcpy(op->buf + op->moved, g->data + at, n);
        atomic_store(&g->out, out + n);
    }
    op->moved += n;
    moved += n;
}

/* Operations between the same two ranks go in order, others side by side. */
static bool may_move(const struct communicator *c, int at)
{
    for (int i = 0; i < at; i++) {
        if (c->op[i].moved < c->op[i].bytes && c->op[i].peer == c->op[at].peer && c->op[i].send == c->op[at].send)
            return false;
    }
    return true;
}

int ncclCommGetAsyncError(struct communicator *c, int *state)
{
    bool all = true;

    if (c->state == IN_PROGRESS && !c->stuck) {
        for (int i = 0; i < c->ops; i++) {
            if (may_move(c, i))
                move(c, &c->op[i]);
            all &= c->op[i].moved == c->op[i].bytes;
        }
        if (all && atomic_load(&c->m->here) >= c->n) {
            c->state = SUCCESS;
            c->ops = 0;
        }
    }
    *state = c->state;
    return SUCCESS;
}

int ncclCommFinalize(struct communicator *c)
{
    return c->state == SUCCESS ? SUCCESS : INVALID_USAGE;
}

static int forget(struct communicator *c)
{
    live--;
    if (atomic_load(&c->m->here) < c->n)
        (void)shm_unlink(c->id.name);
    (void)munmap(c->m, sizeof(*c->m));
    free(c);
    return SUCCESS;
}

int ncclCommDestroy(struct communicator *c)
{
    return forget(c);
}

int ncclCommAbort(struct communicator *c)
{
    while (c->wedged)
        (void)pause();
    return forget(c);
}

uint64_t fake_nccl_bytes(void)
{
    return moved;
}

int fake_nccl_live(void)
{
    return live;
}

int ncclGroupStart(void)
{
    grouping = true;
    opened = NULL;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    struct communicator *c = opened;

    grouping = false;
    opened = NULL;
    if (!c)
        return SUCCESS;
    c->groups++;
    if (told("refuse", c->rank, c->groups))
        return INVALID_USAGE;
    c->state = told("fail", c->rank, c->groups) ? REMOTE : IN_PROGRESS;
    c->wedged = told("wedge", c->rank, c->groups);
    c->stuck = c->wedged || told("hang", c->rank, c->groups);
    return IN_PROGRESS;
}

static int add(struct communicator *c, void *buf, size_t bytes, int peer, bool send)
{
    if (!grouping || c->ops == OPS_MAX || peer < 0 || peer >= c->n || c->state != SUCCESS)
        return INVALID_USAGE;
    opened = c;
    c->op[c->ops++] = (struct op){.buf = buf, .bytes = bytes, .peer = peer, .send = send};
    return SUCCESS;
}

int ncclSend(const void *buf, size_t n, int type, int peer, struct communicator *c, void *stream)
{
    (void)stream;
    return type == 1 ? add(c, (void *)(uintptr_t)buf, n, peer, true) : INVALID_ARGUMENT;
}

int ncclRecv(void *buf, size_t n, int type, int peer, struct communicator *c, void *stream)
{
    (void)stream;
    return type == 1 ? add(c, buf, n, peer, false) : INVALID_ARGUMENT;
}

int ncclAllGather(const void *in, void *out, size_t n, int type, struct communicator *c, void *stream)
{
    char *to = out;
    int r = SUCCESS;

    memmove(to + (size_t)c->rank * n, in, n);
    for (int i = 0; i < c->n && r == SUCCESS; i++) {
        if (i != c->rank)
            r = ncclSend(to + (size_t)c->rank * n, n, type, i, c, stream);
        if (i != c->rank && r == SUCCESS)
            r = ncclRecv(to + (size_t)i * n, n, type, i, c, stream);
    }
    return r;
}

int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, struct communicator *c, void *stream)
{
    int r = SUCCESS;

    if (c->rank != root)
        return ncclRecv(out, n, type, root, c, stream);
    for (int i = 0; i < c->n && r == SUCCESS; i++) {
        if (i != root)
            r = ncclSend(in, n, type, i, c, stream);
    }
    return r;
}
