/* The segment of a rank and its arena:
 *
 *   segment of rank r:   head | lane from mate 0 | lane from mate 1 | …
 *   arena of rank r:     what comm_shared_alloc gives
 *   lane:                head, tail, free pieces | slots (frame, small payload) | 64 pieces for larger payloads
 *
 * A segment is a memfd that the mates open as /proc/PID/fd/N, so nothing has a name that could be left behind. Only
 * the mate writes its lane's head and slots, only the owner its tail. The arena is the owner's, a memfd too or the
 * caller's file; mates read it, and write it inside a collective call that asks them to.
 */
#include "worker/engine/comm/transport/shm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

#define SEGMENT_MAGIC 0x31676573636d736dULL
#define SLOTS 64u
#define PIECES 64u
#define INLINE_BYTES (512 - sizeof(struct frame) - 8)
#define PART_BYTES (256u << 10) /* of a piece; smaller beyond 16 mates, see piece_bytes() */

enum { AWAKE, ASLEEP_FUTEX, ASLEEP_POLL };
enum { IS_OPEN, LEFT, FAILED };

struct slot {
    struct frame frame;
    uint32_t piece, reserved;
    char data[INLINE_BYTES];
};
static_assert(sizeof(struct slot) == 512, "slots are whole cache lines");

struct lane {
    _Alignas(64) _Atomic uint64_t head; /* slots written */
    _Alignas(64) _Atomic uint64_t tail; /* slots read */
    _Alignas(64) _Atomic uint64_t free; /* a bit for each piece */
    _Atomic uint32_t starving;          /* the writer wants the bell when there is room */
    _Alignas(64) struct slot slot[SLOTS];
};

struct segment {
    uint64_t magic, generation;
    uint32_t rank, lanes;
    _Alignas(64) _Atomic uint32_t bell; /* counts what happened: the word slept on */
    _Atomic uint32_t asleep;
    _Atomic uint32_t state;
    char pad[4096 - 64 - 12];
};

struct shm_card {
    int64_t pid;
    int32_t fd, arena_fd, pipe, reserved;
    uint64_t bytes, piece_bytes, arena_bytes;
};

struct mate {
    int rank;
    struct segment *segment;
    size_t bytes;
    char *arena; /* NULL: none */
    int pidfd, pipe;
    struct shm_card card;
    struct lane *in, *out; /* in my segment, in its segment */
    char *in_pieces, *out_pieces;
};

struct shm {
    struct transport base; /* part_bytes: of a piece */
    struct mate *mate;     /* one each mate, by local index; mine holds my segment */
    struct mate **of;      /* by rank; NULL: on another node */
    int n, self;
    int fd, arena_fd, pipe[2];
    size_t arena_used;
    uint32_t bell_seen;
    bool published;
};

static struct shm *shm_of(struct transport *t)
{
    return (struct shm *)t;
}

static const struct shm *shm_of_const(const struct transport *t)
{
    return (const struct shm *)t;
}

static struct failure *failure_of(const struct shm *s)
{
    return &s->base.host->wait->failure;
}

/* The pieces of a lane follow its slots; each starts on a page. */
static size_t lane_bytes(size_t piece_bytes)
{
    return ((sizeof(struct lane) + 4095) & ~(size_t)4095) + PIECES * piece_bytes;
}

static size_t piece_bytes_for(int mates)
{
    size_t b = PART_BYTES;

    for (int n = 16; n < mates && b > 16384; n *= 2)
        b /= 2;
    return b;
}

static struct lane *lane_at(struct segment *s, int i, size_t piece_bytes)
{
    return (struct lane *)((char *)s + sizeof(*s) + (size_t)i * lane_bytes(piece_bytes));
}

static char *pieces_of(struct lane *l)
{
    return (char *)l + ((sizeof(*l) + 4095) & ~(size_t)4095);
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    (void)syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* Something happened that the mate may be waiting for. */
static void ring(struct mate *m)
{
    (void)atomic_fetch_add(&m->segment->bell, 1);
    switch (atomic_load(&m->segment->asleep)) {
    case ASLEEP_FUTEX:
        futex(&m->segment->bell, FUTEX_WAKE, 1, NULL);
        break;
    case ASLEEP_POLL:
        if (atomic_exchange(&m->segment->asleep, AWAKE) == ASLEEP_POLL && m->pipe >= 0)
            (void)!write(m->pipe, "", 1); /* a full pipe wakes as well */
        break;
    default:
        break;
    }
}

static enum transport_took shm_send(struct transport *t, int rank, const struct frame *f, const void *payload,
                                    void *token)
{
    struct shm *shm = shm_of(t);
    struct mate *m = shm->of[rank];
    struct lane *l = m->out;
    uint64_t head = atomic_load_explicit(&l->head, memory_order_relaxed), free_pieces = 0;
    struct slot *s = &l->slot[head % SLOTS];

    (void)token;
    for (int again = 0; again < 2; again++) {
        free_pieces = atomic_load(&l->free);
        if (head - atomic_load(&l->tail) < SLOTS && (f->part <= INLINE_BYTES || free_pieces))
            break;
        if (again)
            return TRANSPORT_NOT_NOW;
        atomic_store(&l->starving, 1);
    }
    s->frame = *f;
    if (f->part > INLINE_BYTES) {
        s->piece = (uint32_t)__builtin_ctzll(free_pieces); /* the lowest: the same few stay in the cache */
        (void)atomic_fetch_and(&l->free, ~(1ull << s->piece));
        memcpy(m->out_pieces + s->piece * shm->base.part_bytes, payload, f->part);
    } else if (f->part) {
        memcpy(s->data, payload, f->part);
    }
    atomic_store(&l->head, head + 1);
    ring(m);
    return TRANSPORT_TOOK;
}

static int take_slot(struct shm *shm, struct mate *m, struct slot *s)
{
    const struct transport_host *host = shm->base.host;
    size_t piece_bytes = shm->base.part_bytes;
    struct frame f = s->frame;
    uint32_t piece = s->piece;
    const char *payload = s->data;
    struct merr err = {"a piece that is not there"};
    int r = 0;

    if (frame_check(&f, f.part, &err) < 0 || f.part > piece_bytes || (f.part > INLINE_BYTES && piece >= PIECES))
        return failure_keep(failure_of(shm), -EPROTO, "memory shared with rank %d is damaged: %s", m->rank,
                            f.part > piece_bytes ? "frame too large" : err.text);
    if (f.part > INLINE_BYTES)
        payload = m->in_pieces + piece * piece_bytes;
    if (f.generation == host->meet.generation)
        r = host->arrive(host->above, m->rank, &f, payload);
    if (f.part > INLINE_BYTES)
        (void)atomic_fetch_or(&m->in->free, 1ull << piece);
    return r;
}

static bool shm_progress(void *self)
{
    struct shm *s = self;
    bool moved = false;

    for (int i = 0; i < s->n; i++) {
        struct mate *m = &s->mate[i];
        uint64_t tail, head;

        if (!m->in)
            continue;
        tail = atomic_load_explicit(&m->in->tail, memory_order_relaxed);
        head = atomic_load(&m->in->head);
        for (int k = 0; k < (int)SLOTS && tail < head && !failure_of(s)->code; k++) {
            moved = true;
            if (take_slot(s, m, &m->in->slot[tail % SLOTS]) < 0)
                break;
            atomic_store(&m->in->tail, ++tail);
        }
        if (moved && atomic_load(&m->in->starving) && atomic_exchange(&m->in->starving, 0))
            ring(m);
    }
    return moved;
}

static void *map_shared(int fd, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

static int arena_make(struct shm *s, const struct transport_cfg *cfg, struct merr *err)
{
    struct mate *me = &s->mate[s->self];
    size_t bytes = me->card.arena_bytes;
    bool own = cfg->shared_fd <= 0;

    if (bytes == 0)
        return 0;
    s->arena_fd = own ? memfd_create("muster-arena", MFD_CLOEXEC) : fcntl(cfg->shared_fd, F_DUPFD_CLOEXEC, 0);
    if (s->arena_fd < 0 || (own && ftruncate(s->arena_fd, (off_t)bytes) < 0))
        return merr_errno(err, -errno, "cannot make %zu bytes of shared memory", bytes);
    me->card.arena_fd = s->arena_fd;
    me->arena = map_shared(s->arena_fd, bytes);
    return me->arena ? 0 : merr_errno(err, -errno, "cannot map %zu bytes of shared memory", bytes);
}

static int segment_make(struct shm *s, const struct transport_cfg *cfg, bool mates, bool alone, struct merr *err)
{
    const struct rendezvous *meet = &s->base.host->meet;
    struct mate *me = &s->mate[s->self];
    int lanes = mates ? s->n : 0;
    struct segment *g;

    me->card = (struct shm_card){.pid = getpid(),
                                 .arena_fd = -1,
                                 .pipe = -1,
                                 .piece_bytes = s->base.part_bytes,
                                 .bytes = sizeof(struct segment) + (size_t)lanes * lane_bytes(s->base.part_bytes),
                                 .arena_bytes = (cfg->shared_bytes + 4095) & ~(size_t)4095};
    me->bytes = me->card.bytes;
    s->fd = memfd_create("muster-comm", MFD_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)me->bytes) < 0)
        return merr_errno(err, -errno, "cannot make %zu bytes of shared memory", me->bytes);
    g = map_shared(s->fd, me->bytes);
    if (!g)
        return merr_errno(err, -errno, "cannot map %zu bytes of shared memory", me->bytes);
    me->segment = g;
    me->card.fd = s->fd;
    if (mates && !alone) {
        if (pipe2(s->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
            return merr_errno(err, -errno, "cannot make a pipe");
        me->card.pipe = s->pipe[1];
    }
    g->generation = meet->generation;
    g->rank = (uint32_t)meet->rank;
    g->lanes = (uint32_t)lanes;
    for (int i = 0; i < lanes; i++)
        atomic_store(&lane_at(g, i, s->base.part_bytes)->free, UINT64_MAX);
    g->magic = SEGMENT_MAGIC;
    return arena_make(s, cfg, err);
}

static void shm_close(struct transport *t)
{
    struct shm *s = shm_of(t);

    if (s->mate && s->of && s->mate[s->self].segment) {
        atomic_store(&s->mate[s->self].segment->state, failure_of(s)->code ? FAILED : LEFT);
        for (int i = 0; i < s->n; i++) {
            if (s->mate[i].segment && i != s->self)
                ring(&s->mate[i]);
        }
        if (s->published)
            rendezvous_remove(&t->host->meet, "shm");
    }
    for (int i = 0; s->mate && i < s->n; i++) {
        if (s->mate[i].segment)
            (void)munmap(s->mate[i].segment, s->mate[i].bytes);
        if (s->mate[i].arena)
            (void)munmap(s->mate[i].arena, s->mate[i].card.arena_bytes);
        io_close(&s->mate[i].pidfd);
        io_close(&s->mate[i].pipe);
    }
    io_close(&s->fd);
    io_close(&s->arena_fd);
    io_close(&s->pipe[0]);
    io_close(&s->pipe[1]);
    free(s->mate);
    free(s->of);
    free(s);
}

static bool shm_reaches(const struct transport_cfg *cfg, int from, int to)
{
    return cfg->node_of[from] == cfg->node_of[to];
}

/* This rank, and its mates on the node. */
static int find_mates(struct shm *s, const struct transport_cfg *cfg, bool mates, struct merr *err)
{
    const struct rendezvous *meet = &s->base.host->meet;
    int n = 0;

    for (int i = 0; i < meet->size; i++)
        n += i == meet->rank || (mates && shm_reaches(cfg, meet->rank, i));
    s->mate = calloc((unsigned)n, sizeof(*s->mate));
    s->of = calloc((unsigned)meet->size, sizeof(*s->of));
    if (!s->mate || !s->of)
        return merr_set(err, -ENOMEM, "no memory for %d node-mates", n);
    for (int i = 0; i < meet->size; i++) {
        if (i != meet->rank && (!mates || !shm_reaches(cfg, meet->rank, i)))
            continue;
        if (i == meet->rank)
            s->self = s->n;
        s->mate[s->n].rank = i;
        s->mate[s->n].pidfd = s->mate[s->n].pipe = -1;
        s->of[i] = &s->mate[s->n++];
    }
    s->base.part_bytes = piece_bytes_for(s->n);
    return 0;
}

static int shm_open_rank(const struct transport_host *host, const struct transport_cfg *cfg, bool mates, bool alone,
                         struct transport **ret, struct merr *err)
{
    struct shm *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return merr_set(err, -ENOMEM, "no memory for the shared transport");
    s->base = (struct transport){.ops = &shm_transport, .host = host};
    s->fd = s->arena_fd = s->pipe[0] = s->pipe[1] = -1;
    r = find_mates(s, cfg, mates, err);
    if (r == 0)
        r = segment_make(s, cfg, mates, alone, err);
    if (r == 0 && mates) {
        r = rendezvous_publish(&host->meet, "shm", &s->mate[s->self].card, sizeof(struct shm_card), err);
        s->published = r == 0;
    }
    if (r < 0)
        shm_close(&s->base);
    else
        *ret = &s->base;
    return r;
}

/* Open what a mate holds under a descriptor number. */
static int open_theirs(const struct shm_card *c, int fd, int flags)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)c->pid, fd);
    return open(path, flags | O_CLOEXEC);
}

static int mate_map_arena(struct mate *m, struct merr *err)
{
    int rank = m->rank;
    IO_CLOSE_AUTO int fd = -1;
    struct stat st;

    if (m->card.arena_bytes == 0)
        return 0;
    fd = open_theirs(&m->card, m->card.arena_fd, O_RDWR);
    if (fd < 0 || fstat(fd, &st) < 0)
        return merr_errno(err, errno == EACCES || errno == EPERM ? -errno : -ECONNRESET,
                          "rank %d, process %lld, is not there any more, or not this user's", rank,
                          (long long)m->card.pid);
    if ((uint64_t)st.st_size < m->card.arena_bytes)
        return merr_set(err, -EPROTO, "rank %d shares less memory than it says", rank);
    m->arena = map_shared(fd, m->card.arena_bytes);
    return m->arena ? 0
                    : merr_errno(err, -errno, "cannot map %llu bytes of rank %d",
                                 (unsigned long long)m->card.arena_bytes, rank);
}

static int mate_map(struct shm *s, struct mate *m, struct merr *err)
{
    uint64_t generation = s->base.host->meet.generation;
    int rank = m->rank;
    const struct shm_card *c = &m->card;
    IO_CLOSE_AUTO int fd = -1;
    struct stat st;
    void *p;
    int r;

    m->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)c->pid, 0);
    if (m->pidfd < 0 && errno != ESRCH)
        return merr_errno(err, -errno, "cannot watch rank %d, process %lld", rank, (long long)c->pid);
    fd = open_theirs(c, c->fd, O_RDWR);
    if (m->pidfd < 0 || fd < 0 || fstat(fd, &st) < 0)
        return merr_errno(err, errno == EACCES || errno == EPERM ? -errno : -ECONNRESET,
                          "rank %d, process %lld, is not there any more, or not this user's", rank, (long long)c->pid);
    if ((uint64_t)st.st_size != c->bytes || c->piece_bytes != s->base.part_bytes)
        return merr_set(err, -EPROTO, "rank %d shares memory of another layout: all ranks need the same version", rank);
    p = map_shared(fd, c->bytes);
    if (!p)
        return merr_errno(err, -errno, "cannot map %llu bytes of rank %d", (unsigned long long)c->bytes, rank);
    m->segment = p;
    m->bytes = c->bytes;
    if (m->segment->magic != SEGMENT_MAGIC || m->segment->generation != generation ||
        m->segment->rank != (uint32_t)rank || m->segment->lanes != (uint32_t)s->n)
        return merr_set(err, -EPROTO, "process %lld is not rank %d of generation %llu", (long long)c->pid, rank,
                        (unsigned long long)generation);
    if (c->pipe >= 0) {
        /* Both ends, so that a wake-up of a dead mate is no SIGPIPE. */
        m->pipe = open_theirs(c, c->pipe, O_RDWR | O_NONBLOCK);
        if (m->pipe < 0)
            return merr_errno(err, -errno, "cannot open the wake-up pipe of rank %d", rank);
    }
    r = mate_map_arena(m, err);
    if (r < 0)
        return r;
    m->in = lane_at(s->mate[s->self].segment, (int)(m - s->mate), s->base.part_bytes);
    m->out = lane_at(m->segment, s->self, s->base.part_bytes);
    m->in_pieces = pieces_of(m->in);
    m->out_pieces = pieces_of(m->out);
    return 0;
}

static int shm_meet(struct transport *t, int rank, int64_t deadline_us, struct merr *err)
{
    struct shm *s = shm_of(t);
    struct mate *m = s->of[rank];
    struct buf b;
    int r;

    buf_init(&b, sizeof(struct shm_card));
    r = rendezvous_wait(&t->host->meet, "shm", rank, deadline_us, &b, err);
    if (r == 0 && b.len != sizeof(struct shm_card))
        r = merr_set(err, -EPROTO, "rank %d speaks another version of shared memory", rank);
    if (r == 0)
        memcpy(&m->card, b.data, sizeof(struct shm_card));
    buf_clear(&b);
    return r < 0 ? r : mate_map(s, m, err);
}

static void *shm_alloc(struct transport *t, size_t bytes)
{
    struct shm *s = shm_of(t);
    const struct shm_card *c = &s->mate[s->self].card;
    size_t need = (bytes + TRANSPORT_ALIGN - 1) / TRANSPORT_ALIGN * TRANSPORT_ALIGN;
    char *p;

    if (need < bytes || need > c->arena_bytes - s->arena_used)
        return NULL;
    p = s->mate[s->self].arena + s->arena_used;
    s->arena_used += need;
    return p;
}

static uint64_t shm_offset(const struct transport *t, const void *p, size_t bytes)
{
    const struct shm *s = shm_of_const(t);
    uintptr_t arena = (uintptr_t)s->mate[s->self].arena, at = (uintptr_t)p;

    if (!arena || at < arena || at - arena > s->arena_used || bytes > s->arena_used - (at - arena))
        return UINT64_MAX;
    return at - arena;
}

static void *shm_peer_at(const struct transport *t, int rank, uint64_t offset, size_t bytes)
{
    const struct mate *m = shm_of_const(t)->of[rank];

    if (offset > m->card.arena_bytes || bytes > m->card.arena_bytes - offset)
        return NULL;
    return m->arena + offset;
}

/* A mate that ended without saying so is lost, and with it the world. */
static void shm_look(void *self)
{
    struct shm *s = self;

    for (int i = 0; i < s->n; i++) {
        struct mate *m = &s->mate[i];
        struct wait_peer *p = &s->base.host->wait->peer[m->rank];
        struct pollfd f = {.fd = m->pidfd, .events = POLLIN};
        uint32_t state;

        if (i == s->self || !m->segment || p->left)
            continue;
        state = atomic_load(&m->segment->state);
        if (state == IS_OPEN && poll(&f, 1, 0) <= 0)
            continue;
        state = atomic_load(&m->segment->state); /* what it did before it ended */
        (void)shm_progress(s);
        if (state == LEFT)
            p->left = true;
        else
            p->lost = true;
    }
}

static struct segment *my_segment(const struct shm *s)
{
    return s->mate[s->self].segment;
}

static void shm_announce(void *self, bool alone)
{
    struct shm *s = self;

    s->bell_seen = atomic_load(&my_segment(s)->bell);
    atomic_store(&my_segment(s)->asleep, alone ? ASLEEP_FUTEX : ASLEEP_POLL);
}

static int shm_arm(void *self)
{
    const struct shm *s = self;

    return s->pipe[0];
}

static void shm_sleep(void *self, int64_t us)
{
    struct shm *s = self;
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    futex(&my_segment(s)->bell, FUTEX_WAIT, s->bell_seen, &t);
}

static void shm_awake(void *self)
{
    struct shm *s = self;
    char drop[64];

    atomic_store(&my_segment(s)->asleep, AWAKE);
    while (s->pipe[0] >= 0 && read(s->pipe[0], drop, sizeof(drop)) == (ssize_t)sizeof(drop))
        ;
}

static const struct wait_source source = {
    .progress = shm_progress,
    .look = shm_look,
    .announce = shm_announce,
    .arm = shm_arm,
    .sleep = shm_sleep,
    .awake = shm_awake,
};

const struct transport_ops shm_transport = {
    .name = "shm",
    .copies = true,
    .reaches = shm_reaches,
    .open = shm_open_rank,
    .meet = shm_meet,
    .close = shm_close,
    .send = shm_send,
    .alloc = shm_alloc,
    .offset = shm_offset,
    .peer_at = shm_peer_at,
    .source = &source,
};
