#include "worker/engine/recover/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/try.h"
#include "checkpoint/parts.h"
#include "worker/snapshot/stream.h"

#define BATCH_BYTES (64u << 20) /* of all slots of a node that sends, and again of one that is sent to */
#define BATCH_MAX 16

struct fetch {
    const struct fetch_cfg *cfg;
    const struct mck_index *ix;
    size_t bytes;      /* of a rank's bits: one a chunk, in order of files */
    uint8_t *bits;     /* [nodes * bytes] */
    uint32_t *file_of; /* [chunks] */
    int *fd;           /* [files], -1: not open */
    size_t longest;    /* bytes of a chunk */
    size_t batch;      /* chunks that go from a node to another in a round */
    size_t slot;       /* bytes of so many */
    char *in, *out;    /* [nodes] slots */
    int *own;
    struct merr *why;
};

static bool bit(const uint8_t *bits, size_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

/* --- who needs what -------------------------------------------------------------------------------------- */

struct marks {
    const struct mck_index *ix;
    uint8_t *bits;
};

static void mark(void *arg, uint32_t file, uint32_t chunk)
{
    struct marks *m = arg;
    size_t i = m->ix->file[file].chunk_first + chunk;

    m->bits[i / 8] |= (uint8_t)(1u << i % 8);
}

/* Ask this rank, tell all, and join what the ranks of each node said. */
static int ask(struct fetch *f, struct mck *c, struct merr *err)
{
    const struct fetch_cfg *cfg = f->cfg;
    uint8_t *all = calloc((size_t)cfg->size, f->bytes), *mine = calloc(1, f->bytes);
    struct marks m = {.ix = f->ix, .bits = mine};
    int r =
        all && mine ? 0 : merr_set(err, -ENOMEM, "no memory to ask %d ranks for %zu chunks", cfg->size, f->ix->chunks);

    if (r == 0) {
        *f->own = cfg->needed(cfg->arg, c, mark, &m, f->why);
        r = comm_all_gather(cfg->all, mine, f->bytes, all, err);
    }
    for (int node = 0; node < cfg->nodes && r == 0; node++)
        for (int i = 0; i < cfg->size; i++)
            for (size_t k = 0; cfg->node_of[i] == cfg->leader[node] && k < f->bytes; k++)
                f->bits[(size_t)node * f->bytes + k] |= all[(size_t)i * f->bytes + k];
    free(all);
    free(mine);
    return r;
}

static bool goes(const struct fetch *f, size_t chunk, int from, int to)
{
    return from != to && f->cfg->owner[f->file_of[chunk]] == from && bit(f->bits + (size_t)to * f->bytes, chunk);
}

/* The next chunk from *at on that goes from one node to another; SIZE_MAX: none. */
static size_t next(const struct fetch *f, int from, int to, size_t *at)
{
    while (*at < f->ix->chunks && !goes(f, *at, from, to))
        ++*at;
    return *at < f->ix->chunks ? (*at)++ : SIZE_MAX;
}

/* Rounds it takes: batches of the busiest pair. A round waits for its slowest node, so a chunk each were too few. */
static int count(struct fetch *f, size_t *ret_rounds, uint64_t *bytes, struct merr *err)
{
    size_t n = (size_t)f->cfg->nodes, *pair = calloc(n * n, sizeof(*pair)), most = 0;

    if (!pair)
        return merr_set(err, -ENOMEM, "no memory for %zu nodes", n);
    for (size_t i = 0; i < f->ix->chunks; i++)
        for (size_t to = 0; to < n; to++) {
            size_t from = (size_t)f->cfg->owner[f->file_of[i]];

            if (!goes(f, i, (int)from, (int)to))
                continue;
            *bytes += f->ix->chunk[i].stored_len;
            if (++pair[from * n + to] > most)
                most = pair[from * n + to];
        }
    free(pair);
    f->batch = BATCH_BYTES / (n * (f->longest + 1));
    f->batch = f->batch < 1 ? 1 : f->batch > BATCH_MAX ? BATCH_MAX : f->batch;
    f->slot = f->batch * f->longest;
    *ret_rounds = (most + f->batch - 1) / f->batch;
    return 0;
}

/* --- on the leaders -------------------------------------------------------------------------------------- */

/* Move a chunk between a slot and its place in the view. */
static void move_chunk(struct fetch *f, size_t i, char *slot, bool out)
{
    const struct mck_chunk *e = &f->ix->chunk[i];
    uint32_t file = f->file_of[i];
    char path[STREAM_PATH_MAX];

    stream_path(f->cfg->folder, file, "", path);
    if (*f->own == 0 && f->fd[file] < 0) {
        f->fd[file] = open(path, (out ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
        if (f->fd[file] < 0)
            *f->own = merr_errno(f->why, -errno, "cannot open '%s'", path);
    }
    if (*f->own == 0)
        *f->own = out ? input_read_at(f->fd[file], path, e->file_off, slot, e->stored_len, f->why)
                      : stream_write_at(f->fd[file], path, e->file_off, slot, e->stored_len, f->why);
}

struct cursors {
    size_t to, from;         /* next chunk to a node, and from it */
    size_t taken[BATCH_MAX]; /* those that are coming */
};

struct wires {
    const void **send;
    void **recv;
    size_t *out, *in;
};

static int round_trip(struct fetch *f, struct cursors *cur, struct wires *w, struct merr *err)
{
    int me = f->cfg->node;

    for (int i = 0; i < f->cfg->nodes; i++) {
        w->send[i] = f->out + (size_t)i * f->slot;
        w->recv[i] = f->in + (size_t)i * f->slot;
        w->out[i] = w->in[i] = 0;
        for (size_t k = 0; k < f->batch; k++) {
            size_t goes_out = next(f, me, i, &cur[i].to), comes = next(f, i, me, &cur[i].from);

            if (goes_out != SIZE_MAX) {
                move_chunk(f, goes_out, f->out + (size_t)i * f->slot + w->out[i], true);
                w->out[i] += f->ix->chunk[goes_out].stored_len;
            }
            cur[i].taken[k] = comes;
            w->in[i] += comes == SIZE_MAX ? 0 : f->ix->chunk[comes].stored_len;
        }
    }
    TRY(comm_all_to_all_v(f->cfg->leaders, w->send, w->out, w->recv, w->in, err));
    for (int i = 0; i < f->cfg->nodes; i++)
        for (size_t k = 0, at = 0; k < f->batch && cur[i].taken[k] != SIZE_MAX; k++) {
            move_chunk(f, cur[i].taken[k], f->in + (size_t)i * f->slot + at, false);
            at += f->ix->chunk[cur[i].taken[k]].stored_len;
        }
    return 0;
}

static int trade(struct fetch *f, size_t rounds, struct merr *err)
{
    size_t n = (size_t)f->cfg->nodes;
    struct cursors *cur = calloc(n, sizeof(*cur));
    struct wires w = {.send = calloc(n, sizeof(*w.send)),
                      .recv = calloc(n, sizeof(*w.recv)),
                      .out = calloc(n, sizeof(*w.out)),
                      .in = calloc(n, sizeof(*w.in))};
    int r = 0;

    f->in = malloc(n * f->slot + 1);
    f->out = malloc(n * f->slot + 1);
    if (!cur || !w.send || !w.recv || !w.out || !w.in || !f->in || !f->out)
        r = merr_set(err, -ENOMEM, "no memory for chunks of %zu nodes", n);
    for (size_t i = 0; i < rounds && r == 0; i++)
        r = round_trip(f, cur, &w, err);
    free(cur);
    free(w.send);
    free(w.recv);
    free(w.out);
    free(w.in);
    return r;
}

/* --- from outside ---------------------------------------------------------------------------------------- */

static int prepare(struct fetch *f, struct merr *err)
{
    const struct mck_index *ix = f->ix;

    f->bytes = (ix->chunks + 7) / 8 + 1;
    f->bits = calloc((size_t)f->cfg->nodes, f->bytes);
    f->file_of = calloc(ix->chunks + 1, sizeof(*f->file_of));
    f->fd = calloc(ix->files + 1, sizeof(*f->fd));
    if (!f->bits || !f->file_of || !f->fd)
        return merr_set(err, -ENOMEM, "no memory for %zu chunks", ix->chunks);
    for (uint32_t i = 0; i < ix->files; i++) {
        f->fd[i] = -1;
        for (uint64_t k = 0; k < ix->file[i].chunk_count; k++) {
            f->file_of[ix->file[i].chunk_first + k] = i;
            if (ix->chunk[ix->file[i].chunk_first + k].stored_len > f->longest)
                f->longest = ix->chunk[ix->file[i].chunk_first + k].stored_len;
        }
    }
    return 0;
}

static int fetch(struct fetch *f, struct mck *c, uint64_t *bytes, struct merr *err)
{
    size_t rounds = 0;

    TRY(prepare(f, err));
    TRY(ask(f, c, err));
    TRY(count(f, &rounds, bytes, err));
    return f->cfg->leaders ? trade(f, rounds, err) : 0;
}

int fetch_chunks(const struct fetch_cfg *cfg, struct mck *c, uint64_t *bytes, int *ret_own, struct merr *why,
                 struct merr *err)
{
    struct fetch f = {.cfg = cfg, .ix = mck_tables(c), .own = ret_own, .why = why};
    int r = fetch(&f, c, bytes, err);

    for (uint32_t i = 0; f.fd && i < f.ix->files; i++)
        io_close(&f.fd[i]);
    free(f.fd);
    free(f.file_of);
    free(f.bits);
    free(f.in);
    free(f.out);
    return r;
}
