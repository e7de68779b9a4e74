#include "checkpoint/read/load.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/buffer.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/read/scan.h"

#define THREADS_MAX 4
#define SHARED 0.75 /* of chunks: where less is wanted, others want the rest */

struct op { /* what a stored dense box and a wanted one share */
    struct box_walk walk;
    uint64_t stream; /* of the stored box's first element */
    char *to;        /* the wanted box's first element */
    char *have;      /* its mark, where only some are looked for, or NULL */
    uint64_t lo, hi; /* of the stream, that the runs lie in; */
    double part;     /* as much of it as they fill */
    int from_dtype, to_dtype;
};

struct need { /* op wants something of this chunk */
    uint32_t file, chunk;
    uint32_t op;
};

struct load {
    struct mck *c;
    char *have; /* load_some: marks of the buffer's elements; NULL: all must be there */
    struct op *op;
    size_t ops, op_cap;
    struct need *need;
    size_t needs, need_cap;

    pthread_mutex_t lock; /* guards next, code and err */
    size_t next;
    int code;
    struct merr err;
};

static int grow(void **v, size_t *cap, size_t n, size_t size, struct merr *err)
{
    size_t want = *cap ? 2 * *cap : 256;
    void *more;

    if (n < *cap)
        return 0;
    more = realloc(*v, want * size);
    if (!more)
        return merr_set(err, -ENOMEM, "no memory to plan a load of %zu pieces", n);
    *v = more;
    *cap = want;
    return 0;
}

/* --- plan -------------------------------------------------------------------------------------- */

static int add_needs(struct load *l, uint32_t file, uint64_t lo, uint64_t hi, struct merr *err)
{
    for (uint64_t i = lo / MCK_CHUNK; i <= (hi - 1) / MCK_CHUNK; i++) {
        TRY(grow((void **)&l->need, &l->need_cap, l->needs, sizeof(*l->need), err));
        l->need[l->needs++] = (struct need){.file = file, .chunk = (uint32_t)i, .op = (uint32_t)l->ops - 1};
    }
    return 0;
}

struct wanted {
    const struct mck_buffer *b;
    struct box box; /* one dense piece of it */
    char *to, *have;
    uint64_t covered;
};

static int add_op(struct load *l, const struct mck_tensor *t, const struct mck_shard *s, const struct box_piece *piece,
                  struct wanted *w, struct merr *err)
{
    size_t esize = dtype_size(t->dtype);
    uint64_t base = s->stream_off + piece->first * esize, a, b, last;
    struct box both;
    struct op *o;

    if (!box_meet(&piece->box, &w->box, &both))
        return 0;
    TRY(grow((void **)&l->op, &l->op_cap, l->ops, sizeof(*l->op), err));
    o = &l->op[l->ops++];
    *o =
        (struct op){.stream = base, .to = w->to, .have = w->have, .from_dtype = t->dtype, .to_dtype = (int)w->b->dtype};
    box_walk_init(&o->walk, &piece->box, &w->box, &both);
    w->covered += o->walk.runs * o->walk.run;
    box_walk_at(&o->walk, 0, &a, &b);
    box_walk_at(&o->walk, o->walk.runs - 1, &last, &b);
    o->lo = base + a * esize;
    o->hi = base + (last + o->walk.run) * esize;
    o->part = (double)(o->walk.runs * o->walk.run * esize) / (double)(o->hi - o->lo);
    return add_needs(l, s->file_id, o->lo, o->hi, err);
}

static int plan_wanted(struct load *l, const struct mck_tensor *t, struct wanted *w, struct merr *err)
{
    for (uint32_t i = 0; i < t->shard_count; i++) {
        const struct mck_shard *s = &l->c->ix.shard[t->shard_first + i];
        struct box_piece piece[BOX_PIECES_MAX];
        struct box whole, both;
        int n;

        index_shard_box(t, s, &whole);
        if (!box_meet(&whole, &w->box, &both))
            continue;
        n = index_shard_cut(t, s, piece);
        for (int k = 0; k < n; k++)
            TRY(add_op(l, t, s, &piece[k], w, err));
    }
    if (!l->have && w->covered < box_volume(&w->box))
        return merr_set(err, -ENOENT, "tensor '%s' (%s): %llu of %llu wanted elements are not in the checkpoint",
                        w->b->name, role_name((int)w->b->role), (unsigned long long)(box_volume(&w->box) - w->covered),
                        (unsigned long long)box_volume(&w->box));
    return 0;
}

static int check_match(const struct mck_tensor *t, const struct mck_buffer *b, struct merr *err)
{
    bool same = t->ndim == b->ndim;

    for (int d = 0; same && d < b->ndim; d++)
        same = t->shape[d] == b->shape[d];
    if (!same)
        return merr_set(err, -EINVAL, "tensor '%s' (%s) has another shape in the checkpoint than here", b->name,
                        role_name((int)b->role));
    if (!dtype_converts(t->dtype, (int)b->dtype))
        return merr_set(err, -EINVAL, "tensor '%s' (%s) is %s in the checkpoint: it does not convert to %s", b->name,
                        role_name((int)b->role), dtype_name(t->dtype), dtype_name((int)b->dtype));
    return 0;
}

static int plan_buffer(struct load *l, const struct mck_buffer *b, struct merr *err)
{
    struct box_piece piece[BOX_PIECES_MAX];
    const struct mck_tensor *t;
    uint64_t from, to;
    struct box box;
    int n;

    TRY(buffer_check(b, err));
    t = index_find(&l->c->ix, b->name, (int)b->role);
    if (!t)
        return merr_set(err, -ENOENT, "tensor '%s' (%s) is not in the checkpoint '%s'", b->name,
                        role_name((int)b->role), l->c->path);
    TRY(check_match(t, b, err));
    buffer_range(b, &box, &from, &to);
    n = box_cut(&box, from, to, piece);
    for (int i = 0; i < n; i++) {
        struct wanted w = {.b = b,
                           .box = piece[i].box,
                           .to = (char *)b->data + piece[i].first * dtype_size((int)b->dtype),
                           .have = l->have ? l->have + piece[i].first : NULL};

        TRY(plan_wanted(l, t, &w, err));
    }
    return 0;
}

static int compare_needs(const void *x, const void *y)
{
    const struct need *a = x, *b = y;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

/* --- scatter ----------------------------------------------------------------------------------- */

/* Copy what o wants of the stream bytes [lo, hi), which data holds. */
static void scatter(const struct op *o, uint64_t lo, uint64_t hi, const char *data)
{
    size_t from_size = dtype_size(o->from_dtype), to_size = dtype_size(o->to_dtype);
    uint64_t bytes = o->walk.run * from_size, first = 0, end = o->walk.runs, a, b;

    while (first < end) { /* the first run that ends after lo */
        uint64_t mid = first + (end - first) / 2;

        box_walk_at(&o->walk, mid, &a, &b);
        if (o->stream + a * from_size + bytes > lo)
            end = mid;
        else
            first = mid + 1;
    }
    for (uint64_t i = first; i < o->walk.runs; i++) {
        uint64_t start, stop, from;

        box_walk_at(&o->walk, i, &a, &b);
        from = o->stream + a * from_size;
        if (from >= hi)
            break;
        start = from > lo ? from : lo;
        stop = from + bytes < hi ? from + bytes : hi;
        b += (start - from) / from_size;
        dtype_convert(o->from_dtype, o->to_dtype, data + (start - lo), o->to + b * to_size, (stop - start) / from_size);
        if (o->have)
            memset(o->have + b, 1, (stop - start) / from_size);
    }
}

/* --- the readers ------------------------------------------------------------------------------- */

/* Needs [*ret_from, *ret_to) form the next read: chunks in sequence, at most a slot of stored bytes. */
static bool next_batch(struct load *l, size_t *ret_from, size_t *ret_to)
{
    size_t i;
    bool any;

    (void)pthread_mutex_lock(&l->lock);
    i = l->next;
    any = i < l->needs && !l->code;
    if (any) {
        const struct need *n = &l->need[i];

        *ret_from = i;
        for (i++; i < l->needs && l->need[i].file == n->file && l->need[i].chunk < n->chunk + MCK_SLOT / MCK_CHUNK &&
                  l->need[i].chunk - l->need[i - 1].chunk <= 1;)
            i++;
        *ret_to = i;
        l->next = i;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return any;
}

struct reader {
    struct load *l;
    struct scan scan;
    const struct need *need, *end;
};

static int take_chunk(void *arg, uint64_t chunk, const void *data, uint32_t len)
{
    struct reader *r = arg;
    uint64_t lo = chunk * MCK_CHUNK;

    for (; r->need < r->end && r->need->chunk == chunk; r->need++)
        scatter(&r->l->op[r->need->op], lo, lo + len, data);
    return 0;
}

/* Do others want much of the chunks of [from, end)? Ranks of tp that are on this node, where tensors are cut otherwise
 * than they were written: the disk is to send them once. */
static bool is_shared(const struct load *l, const struct need *from, const struct need *end)
{
    double wanted = 0, all = 0;

    for (const struct need *n = from; n < end; n++) {
        const struct op *o = &l->op[n->op];
        uint64_t lo = (uint64_t)n->chunk * MCK_CHUNK, hi = lo + MCK_CHUNK;

        wanted += o->part * (double)((o->hi < hi ? o->hi : hi) - (o->lo > lo ? o->lo : lo));
        if (n == from || n->chunk != n[-1].chunk)
            all += MCK_CHUNK;
    }
    return wanted < SHARED * all;
}

static int read_needs(struct reader *rd, const struct need *from, const struct need *end, struct merr *err)
{
    rd->need = from;
    rd->end = end;
    rd->scan.cached = is_shared(rd->l, from, end);
    return scan_chunks(&rd->scan, from->file, from->chunk, end[-1].chunk + 1u, take_chunk, rd, err);
}

/* Chunk by chunk: those that cannot be had are left out. */
static void read_some(struct reader *rd, const struct need *from, const struct need *end)
{
    const struct need *next;

    for (; from < end; from = next) {
        for (next = from + 1; next < end && next->chunk == from->chunk;)
            next++;
        (void)read_needs(rd, from, next, NULL);
    }
}

static void *reader_run(void *arg)
{
    struct load *l = arg;
    struct reader rd = {.l = l};
    struct merr err = {.text = ""};
    int r = scan_init(&rd.scan, l->c, &err);
    size_t from, to;

    while (r == 0 && next_batch(l, &from, &to)) {
        r = read_needs(&rd, &l->need[from], &l->need[to], &err);
        if (r < 0 && l->have) {
            read_some(&rd, &l->need[from], &l->need[to]);
            r = 0;
        }
    }
    scan_clear(&rd.scan);
    if (r < 0) {
        (void)pthread_mutex_lock(&l->lock);
        if (!l->code) {
            l->code = r;
            l->err = err;
        }
        (void)pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static int run_readers(struct load *l, struct merr *err)
{
    pthread_t id[THREADS_MAX];
    int want = THREADS_MAX, n = 0; /* on few processors too: some wait for the disk while others check */

    if (l->needs < 16)
        want = 1;
    (void)pthread_mutex_init(&l->lock, NULL);
    for (; n < want - 1; n++)
        if (pthread_create(&id[n], NULL, reader_run, l))
            break;
    (void)reader_run(l); /* this thread reads too */
    while (n-- > 0)
        (void)pthread_join(id[n], NULL);
    (void)pthread_mutex_destroy(&l->lock);
    if (l->code && err)
        *err = l->err;
    return l->code;
}

static int plan_all(struct load *l, const struct mck_buffer *bufs, size_t n, struct merr *err)
{
    for (size_t i = 0; i < n; i++)
        TRY(plan_buffer(l, &bufs[i], err));
    return 0;
}

int load_needed(struct mck *c, const struct mck_buffer *bufs, size_t n,
                void (*take)(void *arg, uint32_t file, uint32_t chunk), void *arg, struct merr *err)
{
    struct load l = {.c = c};
    int r = plan_all(&l, bufs, n, err);

    for (size_t i = 0; i < l.needs && r == 0; i++)
        take(arg, l.need[i].file, l.need[i].chunk);
    free(l.op);
    free(l.need);
    return r;
}

static int load(struct mck *c, const struct mck_buffer *bufs, size_t n, char *have, struct merr *err)
{
    struct load l = {.c = c, .have = have};
    int r = plan_all(&l, bufs, n, err);

    if (r == 0 && l.needs) {
        qsort(l.need, l.needs, sizeof(*l.need), compare_needs);
        r = run_readers(&l, err);
    }
    free(l.op);
    free(l.need);
    return r;
}

int mck_load(struct mck *c, const struct mck_buffer *bufs, size_t n, struct merr *err)
{
    return load(c, bufs, n, NULL, err);
}

int load_some(struct mck *c, const struct mck_buffer *b, char *have, struct merr *err)
{
    return load(c, b, 1, have, err);
}
