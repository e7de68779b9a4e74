#include "worker/engine/kernels/cuda/dnn.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "compress/cuda/backend_parts.h"
#include "compress/cuda_library.h"
#include "worker/engine/kernels/cuda/dnn_graph.h"
#include "worker/engine/kernels/cuda/record.h"
#include "worker/engine/kernels/cuda/stream.h"

#ifdef CUDNN_LIBRARY /* of tests */
static const char *const names[] = {CUDNN_LIBRARY, NULL};
#else
#define names cuda_library_dnn
#endif

#define OLDEST 91000 /* from it on, what is masked is minus infinity */
#define DIM_MAX 128
#define PLANS_MAX 64 /* classes that are kept; the oldest goes */
#define WORK_MOST ((size_t)2 << 30)
#define PADDED_FEW 65536 /* rows with those that no document has: so many are always fine */

struct kept {
    struct dnn_shape shape;
    struct dnn_plan plan; /* none: refused */
};

struct dnn {
    void *library, *handle;
    struct dnn_api f;
    size_t version;
    struct kept v[PLANS_MAX];
    int n, next; /* next: the one to go when all are taken */
    struct merr refused;
};

/* --- life --------------------------------------------------------------------------------------------------------- */

static int load(struct dnn *d, struct merr *err)
{
    char where[PATH_MAX];

    d->library = cuda_library_open(names, where, err);
    if (!d->library)
        return -ENOENT;
#define X(type, name, args, symbol)                                                                                    \
    *(void **)&d->f.name = dlsym(d->library, symbol);                                                                  \
    if (!d->f.name)                                                                                                    \
        return merr_set(err, -EIO, "'%s' has no " symbol "; it is of another version", where);
    DNN_FUNCTIONS(X)
#undef X
    d->version = d->f.version();
    return d->version >= OLDEST ? 0
                                : merr_set(err, -EIO, "'%s' is cuDNN %zu.%zu; attention takes 9.10 or newer", where,
                                           d->version / 10000, d->version / 100 % 100);
}

int dnn_new(struct dnn **ret, struct merr *err)
{
    struct dnn *d = calloc(1, sizeof(*d));
    int r, e;

    if (!d)
        return merr_set(err, -ENOMEM, "no memory for attention by cuDNN");
    r = load(d, err);
    if (r == 0) {
        e = d->f.create(&d->handle);
        r = e == DNN_SUCCESS ? 0 : merr_set(err, -EIO, "cuDNN does not start: %s", d->f.error(e));
    }
    if (r < 0)
        dnn_free(d);
    else
        *ret = d;
    return r;
}

void dnn_free(struct dnn *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n; i++)
        dnn_plan_clear(&d->f, &d->v[i].plan);
    if (d->handle)
        (void)d->f.destroy(d->handle);
    if (d->library)
        (void)dlclose(d->library);
    free(d);
}

size_t dnn_version(const struct dnn *d)
{
    return d->version;
}

const char *dnn_refused(const struct dnn *d)
{
    return d->refused.text;
}

/* --- classes of shapes -------------------------------------------------------------------------------------------- */

static bool on_boundary(const void *p)
{
    return (uintptr_t)p % 16 == 0; /* NULL, too */
}

/* Documents and rows of the largest, without rounding. */
static void measure(const struct kern_attention *a, int *ret_docs, int *ret_rows)
{
    *ret_docs = *ret_rows = 0;
    for (int i = 0; i < a->docs; i++) {
        int rows = a->cu[i + 1] - a->cu[i];

        *ret_docs += rows > 0;
        *ret_rows = rows > *ret_rows ? rows : *ret_rows;
    }
}

static int power_of_two(int n)
{
    int p = 1;

    while (p < n)
        p *= 2;
    return p;
}

void dnn_shape_of(const struct kern_attention *a, bool is_backward, struct dnn_shape *ret)
{
    int docs, rows, step;

    measure(a, &docs, &rows);
    step = rows <= 1024 ? 128 : 512;
    memset(ret, 0, sizeof(*ret));
    ret->heads = a->heads;
    ret->kv_heads = a->kv_heads;
    ret->dim = a->dim;
    ret->ld = a->ld;
    ret->docs = power_of_two(docs);
    ret->rows = (rows + step - 1) / step * step;
    ret->backward = is_backward;
}

bool dnn_suits(const struct kern_attention *a)
{
    struct dnn_shape s;
    int64_t padded;

    if (a->type != KERN_BF16 || a->dropout > 0 || a->kv || a->dim > DIM_MAX || a->dim % 8 || a->ld % 8 ||
        a->tokens <= 0 || !on_boundary(a->qkv) || !on_boundary(a->out) || !on_boundary(a->dout) ||
        !on_boundary(a->dqkv))
        return false;
    dnn_shape_of(a, false, &s);
    padded = (int64_t)s.docs * s.rows; /* whose sums and products between heads are made room for */
    return padded <= PADDED_FEW || padded <= 4 * (int64_t)a->tokens;
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static size_t work_most(void)
{
    size_t free_bytes = 0, all = 0;

    if (cudaMemGetInfo(&free_bytes, &all) != cudaSuccess)
        return WORK_MOST;
    return free_bytes / 2 < WORK_MOST ? free_bytes / 2 : WORK_MOST;
}

static void refuse(struct dnn *d, struct kept *k, const struct merr *why)
{
    dnn_plan_clear(&d->f, &k->plan);
    if (!*d->refused.text)
        d->refused = *why;
}

static int plan_for(struct dnn *d, const struct kern_stream *s, const struct dnn_shape *shape, struct kept **ret,
                    struct merr *err)
{
    struct kept fresh = {.shape = *shape};
    struct merr why = {""};
    int at = d->n < PLANS_MAX ? d->n : d->next, r;

    for (int i = 0; i < d->n; i++)
        if (memcmp(&d->v[i].shape, shape, sizeof(*shape)) == 0) {
            *ret = &d->v[i];
            return 0;
        }
    if (record_capturing(s->records))
        return merr_set(err, -EAGAIN, "calls with one key ask for another plan of attention than they did before");
    r = dnn_plan_new(&d->f, d->handle, NULL, shape, work_most(), &fresh.plan, &why);
    if (r == -ENOMEM)
        return merr_set(err, r, "%s", why.text);
    if (at < d->n) {
        dnn_plan_clear(&d->f, &d->v[at].plan);
        d->next = (d->next + 1) % PLANS_MAX;
    } else {
        d->n++;
    }
    d->v[at] = fresh;
    if (r < 0)
        refuse(d, &d->v[at], &why);
    *ret = &d->v[at];
    return 0;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

enum { LENGTHS, QKV_AT, O_AT, LSE_AT, LISTS };

/* Lengths of documents that have rows, then nothing; and where each begins, one more than there are. */
static int tell_documents(struct kern_stream *s, const struct kern_attention *a, const struct dnn_shape *shape,
                          struct upload up[LISTS], struct merr *err)
{
    const size_t n = (size_t)shape->docs;
    int64_t *at[LISTS] = {NULL};
    int32_t *lengths;
    void *room;
    int docs = 0;

    TRY(stream_counts(s, 3 * (n + 1) * sizeof(int64_t) + n * sizeof(int32_t), &room, err));
    at[QKV_AT] = room;
    at[O_AT] = at[QKV_AT] + n + 1;
    at[LSE_AT] = at[O_AT] + n + 1;
    lengths = (int32_t *)(at[LSE_AT] + n + 1);
    for (int i = 0; i <= a->docs; i++) {
        int64_t first = a->cu[i];

        if (i < a->docs && a->cu[i + 1] == a->cu[i])
            continue;
        at[QKV_AT][docs] = first * a->ld;
        at[O_AT][docs] = first * a->heads * a->dim;
        at[LSE_AT][docs] = first * a->heads;
        if (i < a->docs)
            lengths[docs++] = a->cu[i + 1] - a->cu[i];
    }
    for (size_t i = (size_t)docs; i < n; i++) {
        lengths[i] = 0;
        for (int k = QKV_AT; k < LISTS; k++)
            at[k][i + 1] = at[k][docs];
    }
    up[LENGTHS] = (struct upload){.host = lengths, .bytes = n * sizeof(int32_t), .kept = true};
    for (int k = QKV_AT; k < LISTS; k++)
        up[k] = (struct upload){.host = at[k], .bytes = (n + 1) * sizeof(int64_t), .kept = true};
    return stream_upload(s, up, LISTS, err);
}

struct pack { /* what a plan is given */
    int64_t id[DNN_TENSORS];
    const void *p[DNN_TENSORS];
    int64_t n;
};

static void give(struct pack *v, enum dnn_tensor id, const void *p)
{
    v->id[v->n] = id;
    v->p[v->n++] = p;
}

static const char *part_of(const void *rows, int64_t numbers)
{
    return (const char *)rows + numbers * (int64_t)sizeof(uint16_t);
}

/* The host's three are read when the call is queued. */
static void fill_pack(struct pack *v, const struct kern_attention *a, bool is_backward, const struct upload up[LISTS],
                      const void *sums)
{
    static const float masked = -INFINITY, one = 1;
    const int64_t k = (int64_t)a->heads * a->dim, values = k + (int64_t)a->kv_heads * a->dim;

    v->n = 0;
    give(v, DNN_SCALE, &a->scale);
    give(v, DNN_MASKED, &masked);
    give(v, DNN_Q, a->qkv);
    give(v, DNN_K, part_of(a->qkv, k));
    give(v, DNN_V, part_of(a->qkv, values));
    give(v, DNN_O, a->out);
    give(v, DNN_LSE, a->lse);
    give(v, DNN_Q_LENGTHS, up[LENGTHS].device);
    give(v, DNN_K_LENGTHS, up[LENGTHS].device);
    give(v, DNN_QKV_AT, up[QKV_AT].device);
    give(v, DNN_O_AT, up[O_AT].device);
    give(v, DNN_LSE_AT, up[LSE_AT].device);
    if (!is_backward)
        return;
    give(v, DNN_ONE, &one);
    give(v, DNN_DO, a->dout);
    give(v, DNN_DQ, a->dqkv);
    give(v, DNN_DK, part_of(a->dqkv, k));
    give(v, DNN_DV, part_of(a->dqkv, values));
    give(v, DNN_SUMS, sums);
}

static int run(struct dnn *d, struct kern_stream *s, const struct dnn_plan *plan, const struct pack *v,
               const void *work)
{
    void *pack = NULL;
    int e = d->f.make(DNN_PACK, &pack);

    if (e != DNN_SUCCESS)
        return e;
    e = d->f.set(pack, DNN_PACK_IDS, DNN_I64, v->n, v->id);
    if (e == DNN_SUCCESS)
        e = d->f.set(pack, DNN_PACK_POINTERS, DNN_POINTER, v->n, v->p);
    if (e == DNN_SUCCESS)
        e = d->f.set(pack, DNN_PACK_WORK, DNN_POINTER, 1, &work);
    if (e == DNN_SUCCESS)
        e = d->f.finalize(pack);
    if (e == DNN_SUCCESS)
        e = d->f.set_stream(d->handle, s->queue);
    if (e == DNN_SUCCESS)
        e = d->f.execute(d->handle, plan->plan, pack);
    (void)d->f.unmake(pack);
    return e;
}

int dnn_attention(struct dnn *d, struct kern_stream *s, const struct kern_attention *a, bool backward, struct merr *err)
{
    struct upload up[LISTS];
    struct dnn_shape shape;
    struct merr why = {""};
    struct kept *k = NULL;
    struct pack v;
    size_t sums;
    void *work;
    int r, e;

    dnn_shape_of(a, backward, &shape);
    TRY(plan_for(d, s, &shape, &k, err));
    if (!k->plan.plan)
        return 0;
    sums = backward ? stream_aligned(dnn_sums_bytes(&shape)) : 0;
    r = stream_work(s, sums + k->plan.work_bytes + 1, &work, &why);
    if (r == -ENOMEM) { /* the GPU is full: less does for our own kernels */
        refuse(d, k, &why);
        return 0;
    }
    if (r < 0)
        return merr_set(err, r, "%s", why.text);
    TRY(tell_documents(s, a, &shape, up, err));
    fill_pack(&v, a, backward, up, work);
    e = run(d, s, &k->plan, &v, (const char *)work + sums);
    return e == DNN_SUCCESS ? 1 : merr_set(err, -EIO, "attention by cuDNN failed: %s", d->f.error(e));
}
