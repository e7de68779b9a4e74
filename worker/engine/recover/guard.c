#include "worker/engine/recover/guard.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/parts.h"
#include "worker/engine/comm/comm.h"
#include "worker/snapshot/parity.h"
#include "worker/snapshot/stream.h"

#define PARTS_US (INT64_C(60) * 1000000) /* for the ranks of a node to write their data files */
#define KEPT 2
#define DONE_MAX 8

struct guard {
    char dir[MCK_PATH_MAX];
    uint64_t generation;
    int size;        /* ranks of the job */
    uint32_t *ranks; /* [here]: of this node */
    int here, nodes, node;

    /* of the thread */
    struct comm_world *world;
    struct comm_group *all, *group;
    struct flight *flight; /* its own: a flight page has one writer */
    int first, n;          /* nodes of the group */
    char *in, *out;        /* [n] pieces */
    char *sum;             /* a piece */

    pthread_mutex_t lock; /* guards these */
    pthread_cond_t work, idle;
    bool stop, hurry;
    uint64_t step[GUARD_AT_ONCE]; /* under way, oldest first */
    int under_way;
    struct guard_done done[DONE_MAX];
    int dones;

    int stop_event; /* readable once stop is set */
    pthread_t thread;
    bool running;
};

/* What a node tells the others of its data files. */
struct told {
    int32_t code;
    uint32_t parts;
    uint64_t bytes;
};

int guard_leaders(const int *node_of, int size, int *leader)
{
    int n = 0;

    for (int i = 0; i < size; i++)
        if (node_of[i] == i) {
            if (leader)
                leader[n] = i;
            n++;
        }
    return n;
}

/* --- a snapshot ------------------------------------------------------------------------------------------ */

struct shot {
    uint64_t step;
    int64_t begun_us;
    char folder[MCK_PATH_MAX], temp[MCK_PATH_MAX], final[MCK_PATH_MAX];
    struct parity p;
    struct stream *own;
    int fd; /* of temp */
};

/* Every node's first failure is everybody's. Returns it, or the failure of the world. */
static int agree(struct guard *g, int code, struct merr *err)
{
    double failed = code != 0;

    TRY(comm_all_reduce(g->all, &failed, 1, COMM_F64, COMM_SUM, code ? NULL : err));
    if (code)
        return code;
    return failed > 0 ? merr_set(err, -ECOMM, "%d other nodes cannot have it", (int)failed) : 0;
}

static int wait_for_parts(struct guard *g, struct shot *s, struct merr *err)
{
    struct coordinate c = {.dir = g->dir,
                           .folder = s->folder,
                           .generation = g->generation,
                           .step = s->step,
                           .uuid = s->p.id,
                           .writers = (uint32_t)g->here,
                           .rank = g->ranks,
                           .stop_fd = g->stop_event,
                           .deadline_us = clock_mono_us() + PARTS_US};

    TRY(io_mkdirs(s->folder, 0755, err)); /* a folder that is not there cannot be watched */
    return coordinate_wait(&c, err);
}

/* The lengths of this node's data files. */
static int measure(struct guard *g, struct shot *s, struct parity_part *part, uint64_t *ret_bytes, struct merr *err)
{
    char path[STREAM_PATH_MAX];
    struct stat st;

    *ret_bytes = 0;
    for (int i = 0; i < g->here; i++) {
        stream_path(s->folder, g->ranks[i], "", path);
        if (stat(path, &st) != 0)
            return merr_errno(err, -errno, "cannot look at '%s'", path);
        part[i] = (struct parity_part){.rank = g->ranks[i], .bytes = (uint64_t)st.st_size};
        *ret_bytes += part[i].bytes;
    }
    return 0;
}

/* Members and parts of the whole group. */
static int share_tables(struct guard *g, struct shot *s, const struct parity_part *mine, uint64_t bytes,
                        struct merr *err)
{
    struct told own = {.parts = (uint32_t)g->here, .bytes = bytes}, told[PARITY_NODES_MAX];
    size_t size[PARITY_NODES_MAX], at[PARITY_NODES_MAX];
    struct parity *p = &s->p;

    TRY(comm_all_gather(g->group, &own, sizeof(own), told, err));
    for (int i = 0; i < g->n; i++) {
        p->member[i] = (struct parity_member){.first = p->parts, .parts = told[i].parts, .bytes = told[i].bytes};
        at[i] = p->parts * sizeof(*p->part);
        size[i] = told[i].parts * sizeof(*p->part);
        p->parts += told[i].parts;
    }
    p->segment = parity_segment(p);
    p->part = calloc(p->parts, sizeof(*p->part));
    p->sum = calloc(parity_pieces(p), sizeof(*p->sum));
    if (!p->part || !p->sum) /* the others notice by a lost peer: there is nothing to trade with */
        return merr_set(err, -ENOMEM, "no memory for the tables of %u data files", p->parts);
    return comm_all_gather_v(g->group, mine, size, at, p->part, err);
}

/* Rest as long as the work since began_us took, unless somebody waits. */
static int rest(struct guard *g, int64_t began_us, struct merr *err)
{
    struct pollfd p = {.fd = g->stop_event, .events = POLLIN};
    int64_t now = clock_mono_us();
    bool hurry;

    (void)pthread_mutex_lock(&g->lock);
    hurry = g->hurry;
    (void)pthread_mutex_unlock(&g->lock);
    if (poll(&p, 1, hurry ? 0 : clock_poll_ms(now + (now - began_us))) > 0)
        return merr_set(err, -ECANCELED, "the guard was stopped");
    return 0;
}

/* One piece of each own segment to its holder, and one of every other node's into the own parity. What fails here alone
 * is kept in *own for the end: the others count on the pieces of this node. */
static int trade_piece(struct guard *g, struct shot *s, uint32_t piece, int *own, struct merr *why, struct merr *err)
{
    uint32_t len = parity_piece_bytes(&s->p, piece), me = s->p.index;
    const void *send[PARITY_NODES_MAX];
    void *recv[PARITY_NODES_MAX];
    size_t bytes[PARITY_NODES_MAX];

    for (uint32_t i = 0; i < s->p.nodes; i++) {
        send[i] = g->out + (size_t)i * PARITY_PIECE;
        recv[i] = g->in + (size_t)i * PARITY_PIECE;
        bytes[i] = i == me ? 0 : len;
        if (i != me && *own == 0)
            *own = stream_read(s->own, parity_at(&s->p, me, i) + (uint64_t)piece * PARITY_PIECE,
                               g->out + (size_t)i * PARITY_PIECE, len, why);
    }
    TRY(comm_all_to_all_v(g->group, send, bytes, recv, bytes, err));
    memset(g->sum, 0, len);
    for (uint32_t i = 0; i < s->p.nodes; i++)
        if (i != me)
            parity_xor(g->sum, recv[i], len);
    if (*own == 0)
        *own = parity_write(s->fd, &s->p, piece, g->sum, why);
    return 0;
}

static int trade(struct guard *g, struct shot *s, struct merr *err)
{
    struct merr why = {""};
    int own = 0;

    for (uint32_t i = 0; i < parity_pieces(&s->p); i++) {
        int64_t began = clock_mono_us();

        TRY(trade_piece(g, s, i, &own, &why, err));
        TRY(rest(g, began, err));
    }
    return own == 0 ? 0 : merr_set(err, own, "%s", why.text);
}

static int prepare(struct guard *g, struct shot *s, struct merr *err)
{
    struct parity_part *mine = calloc((size_t)g->here, sizeof(*mine));
    uint64_t bytes = 0;
    int r = mine ? wait_for_parts(g, s, err) : merr_set(err, -ENOMEM, "no memory for %d data files", g->here);

    if (r == 0)
        r = measure(g, s, mine, &bytes, err);
    r = agree(g, r, err);
    if (r == 0)
        r = share_tables(g, s, mine, bytes, err);
    free(mine);
    if (r != 0)
        return r;
    r = stream_open(s->folder, "", &s->p.part[s->p.member[s->p.index].first], (uint32_t)g->here, STREAM_READ, &s->own,
                    err);
    if (r == 0)
        r = parity_create(s->temp, &s->p, &s->fd, err);
    return agree(g, r, err);
}

/* The commit comes after everyone has its parity in place. */
static int protect(struct guard *g, struct shot *s, struct merr *err)
{
    int r;

    TRY(prepare(g, s, err));
    r = trade(g, s, err);
    if (r == 0)
        r = parity_seal(s->fd, &s->p, err);
    TRY(agree(g, r, err));
    return rename(s->temp, s->final) == 0 ? 0 : merr_errno(err, -errno, "cannot rename '%s'", s->temp);
}

/* --- older snapshots ------------------------------------------------------------------------------------- */

static bool has(const char *dir, uint64_t step, const char *name)
{
    char path[MCK_PATH_MAX];

    return folder_step_path(dir, step, name, path, NULL) == 0 && access(path, F_OK) == 0;
}

/* Of the steps below or at step, keep the newest that are committed and drop the others. */
static void collect(struct guard *g, uint64_t step)
{
    uint64_t *v = NULL;
    size_t n = 0;
    int kept = 0;

    if (folder_steps(g->dir, &v, &n, NULL) != 0)
        return;
    for (size_t i = n; i-- > 0;) {
        if (v[i] > step)
            continue; /* being written */
        if (kept < KEPT && (has(g->dir, v[i], PARITY_NAME) || has(g->dir, v[i], "MANIFEST")))
            kept++;
        else
            (void)collect_step(g->dir, v[i], NULL); /* what stays goes the next time */
    }
    free(v);
}

/* What an earlier generation left behind the step that training goes on from, and what its end cut short. What cannot
 * be removed goes later. */
static void sweep(const struct guard *g, uint64_t step)
{
    uint64_t *v = NULL;
    size_t n = 0;

    (void)collect_trash(g->dir, NULL);
    if (folder_steps(g->dir, &v, &n, NULL) != 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (v[i] > step)
            (void)collect_step(g->dir, v[i], NULL);
    free(v);
}

/* --- the thread ------------------------------------------------------------------------------------------ */

static int shot_init(const struct guard *g, struct shot *s, uint64_t step, struct merr *err)
{
    *s = (struct shot){.step = step, .begun_us = clock_mono_us(), .fd = -1};
    s->p = (struct parity){
        .step = step, .writers = (uint32_t)g->size, .nodes = (uint32_t)g->n, .index = (uint32_t)(g->node - g->first)};
    folder_attempt(g->generation, step, 0, s->p.id);
    TRY(folder_step_path(g->dir, step, NULL, s->folder, err));
    TRY(folder_step_path(g->dir, step, PARITY_NAME ".tmp", s->temp, err));
    return folder_step_path(g->dir, step, PARITY_NAME, s->final, err);
}

static void shot_clear(struct shot *s)
{
    io_close(&s->fd);
    stream_free(s->own);
    parity_clear(&s->p);
}

static struct guard_done take(struct guard *g, uint64_t step)
{
    struct guard_done d = {.step = step};
    struct shot s;

    d.code = shot_init(g, &s, step, &d.err);
    if (d.code == 0)
        d.code = protect(g, &s, &d.err);
    if (d.code == 0) {
        d.bytes = s.p.member[s.p.index].bytes;
        d.parity_bytes = s.p.segment;
        collect(g, step);
    } else {
        (void)unlink(s.temp); /* the data files stay: with all of the other nodes' they are still worth something */
    }
    d.seconds = (double)(clock_mono_us() - s.begun_us) * 1e-6;
    shot_clear(&s);
    return d;
}

static void *guard_run(void *arg)
{
    struct guard *g = arg;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 5); /* the trainer first */
    (void)pthread_mutex_lock(&g->lock);
    while (!g->stop) {
        struct guard_done d;
        uint64_t step;

        if (!g->under_way) {
            (void)pthread_cond_wait(&g->work, &g->lock);
            continue;
        }
        step = g->step[0];
        (void)pthread_mutex_unlock(&g->lock);
        d = take(g, step);
        (void)pthread_mutex_lock(&g->lock);
        memmove(g->step, g->step + 1, sizeof(g->step) - sizeof(g->step[0]));
        g->under_way--;
        if (g->dones == DONE_MAX)
            memmove(g->done, g->done + 1, (size_t)--g->dones * sizeof(g->done[0]));
        g->done[g->dones++] = d;
        (void)pthread_cond_broadcast(&g->idle);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* --- from outside ---------------------------------------------------------------------------------------- */

int guard_begin(struct guard *g, uint64_t step, struct merr *err)
{
    int r = 0;

    (void)pthread_mutex_lock(&g->lock);
    if (g->under_way == GUARD_AT_ONCE)
        r = merr_set(err, -EBUSY, "%d snapshots are under way", g->under_way);
    else
        g->step[g->under_way++] = step;
    (void)pthread_cond_signal(&g->work);
    (void)pthread_mutex_unlock(&g->lock);
    return r;
}

int guard_under_way(struct guard *g)
{
    int n;

    (void)pthread_mutex_lock(&g->lock);
    n = g->under_way;
    (void)pthread_mutex_unlock(&g->lock);
    return n;
}

int guard_next_done(struct guard *g, struct guard_done *ret)
{
    int found;

    (void)pthread_mutex_lock(&g->lock);
    found = g->dones > 0;
    if (found) {
        *ret = g->done[0];
        memmove(g->done, g->done + 1, (size_t)--g->dones * sizeof(g->done[0]));
    }
    (void)pthread_mutex_unlock(&g->lock);
    return found;
}

int guard_drain(struct guard *g, int64_t deadline_us, struct merr *err)
{
    int r = 0;

    (void)pthread_mutex_lock(&g->lock);
    g->hurry = true;
    while (g->under_way && r == 0) {
        struct timespec until = {.tv_sec = deadline_us / 1000000, .tv_nsec = deadline_us % 1000000 * 1000};

        if (pthread_cond_timedwait(&g->idle, &g->lock, &until) == ETIMEDOUT && g->under_way)
            r = merr_set(err, -ETIMEDOUT, "the snapshot of step %llu was not committed in time",
                         (unsigned long long)g->step[0]);
    }
    g->hurry = false;
    (void)pthread_mutex_unlock(&g->lock);
    return r;
}

static int find_place(struct guard *g, const struct guard_cfg *cfg, int *leader, struct merr *err)
{
    g->nodes = guard_leaders(cfg->node_of, cfg->size, leader);
    for (g->node = 0; leader[g->node] != cfg->rank;)
        g->node++;
    parity_group(g->nodes, g->node, &g->first, &g->n);
    for (int i = 0; i < cfg->size; i++)
        if (cfg->node_of[i] == cfg->rank)
            g->ranks[g->here++] = (uint32_t)i;
    g->in = malloc((size_t)g->n * PARITY_PIECE);
    g->out = malloc((size_t)g->n * PARITY_PIECE);
    g->sum = malloc(PARITY_PIECE);
    return g->in && g->out && g->sum ? 0 : merr_set(err, -ENOMEM, "no memory for pieces of %d nodes", g->n);
}

static int open_world(struct guard *g, struct comm_cfg *c, const int *place, struct merr *err)
{
    TRY(flight_private(&g->flight, err));
    c->flight = g->flight;
    TRY(comm_world_open(c, &g->world, err));
    TRY(comm_group_new(g->world, "nodes", place, g->nodes, &g->all, err));
    return comm_group_new(g->world, "parity", place + g->first, g->n, &g->group, err);
}

static int meet(struct guard *g, const struct guard_cfg *cfg, struct merr *err)
{
    int *place = calloc((size_t)g->nodes, sizeof(*place));
    struct comm_cfg c = {.rank = g->node,
                         .size = g->nodes,
                         .generation = cfg->generation,
                         .node_of = place,
                         .rendezvous = cfg->rendezvous,
                         .name = "guard."};
    int r;

    if (!place)
        return merr_set(err, -ENOMEM, "no memory for %d nodes", g->nodes);
    for (int i = 0; i < g->nodes; i++)
        place[i] = i;
    r = open_world(g, &c, place, err);
    free(place);
    return r;
}

int guard_open(const struct guard_cfg *cfg, struct guard **ret, struct merr *err)
{
    int *leader = calloc((size_t)cfg->size, sizeof(*leader)), r;
    struct guard *g = calloc(1, sizeof(*g));
    pthread_condattr_t attr;

    assert(cfg->node_of[cfg->rank] == cfg->rank);
    if (g)
        g->ranks = calloc((size_t)cfg->size, sizeof(*g->ranks));
    if (!leader || !g || !g->ranks) {
        free(leader);
        if (g)
            free(g->ranks);
        free(g);
        return merr_set(err, -ENOMEM, "no memory for a guard of %d ranks", cfg->size);
    }
    (void)snprintf(g->dir, sizeof(g->dir), "%s", cfg->dir);
    g->generation = cfg->generation;
    g->size = cfg->size;
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&g->work, NULL);
    (void)pthread_cond_init(&g->idle, &attr);
    (void)pthread_condattr_destroy(&attr);
    g->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = g->stop_event < 0 ? merr_errno(err, -errno, "cannot make an event") : find_place(g, cfg, leader, err);
    free(leader);
    if (r == 0) {
        sweep(g, cfg->step);
        r = meet(g, cfg, err);
    }
    if (r == 0) {
        r = -pthread_create(&g->thread, NULL, guard_run, g);
        g->running = r == 0;
        if (r != 0)
            (void)merr_errno(err, r, "cannot start a thread for snapshots");
    }
    if (r != 0)
        guard_free(g);
    else
        *ret = g;
    return r;
}

void guard_free(struct guard *g)
{
    if (!g)
        return;
    (void)pthread_mutex_lock(&g->lock);
    g->stop = true;
    (void)pthread_cond_signal(&g->work);
    (void)pthread_mutex_unlock(&g->lock);
    if (g->stop_event >= 0)
        (void)eventfd_write(g->stop_event, 1);
    if (g->flight)
        flight_order_set(g->flight, FLIGHT_ABORT); /* every wait of its world ends */
    if (g->running)
        (void)pthread_join(g->thread, NULL);
    comm_world_close(g->world);
    if (g->flight)
        flight_close(g->flight);
    (void)pthread_cond_destroy(&g->work);
    (void)pthread_cond_destroy(&g->idle);
    (void)pthread_mutex_destroy(&g->lock);
    io_close(&g->stop_event);
    free(g->in);
    free(g->out);
    free(g->sum);
    free(g->ranks);
    free(g);
}
