/* As much of cuDNN's backend interface as Muster calls, by its published description: whatever graph of operations it
 * is given is computed number by number, so that what was said can be compared with what was meant. Each document has
 * one row and key more than it is long, and what the graph does not mask there is NaN. FAKE_DNN=old, start, refuse,
 * loose, large, failing: a library that is too old, does not start, knows no engine, none with fixed results, none with
 * little workspace, or fails when it runs. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "worker/engine/kernels/cuda/dnn_graph.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the library's header has others */

enum { BAD = 2000, TOO_MUCH = 32 };
#define WORK_BYTES 4096

/* tests/gpu/emulate.cc */
void emulate_queue(void *stream, void (*fn)(const void *), const void *data, size_t bytes);

struct value { /* an attribute */
    int name, type;
    int64_t n;
    void *bytes;
};

struct descriptor {
    int kind, uses;
    bool done;
    struct value v[16];
    int values;
    float *now; /* a tensor's numbers while it is computed */
    int axes;   /* a tensor's: bit 2 or 3: these are rows or keys, of which a document may have fewer */
};

static void *stream;
static char last[128];

static size_t size_of(int type)
{
    return type == DNN_DATA || type == DNN_HEURISTIC_MODE || type == DNN_POINTWISE_MODE || type == DNN_REDUCTION_MODE ||
                   type == DNN_NOTE
               ? 4
           : type == DNN_BOOL ? 1
                              : 8;
}

static bool is_mode(const char *mode)
{
    const char *now = getenv("FAKE_DNN");

    return now && strcmp(now, mode) == 0;
}

static const struct value *find(const struct descriptor *d, int name)
{
    for (int i = 0; i < d->values; i++)
        if (d->v[i].name == name)
            return &d->v[i];
    return NULL;
}

static struct descriptor *other(const struct descriptor *d, int name)
{
    const struct value *v = find(d, name);

    return v ? *(struct descriptor **)v->bytes : NULL;
}

static int number(const struct descriptor *d, int name)
{
    const struct value *v = find(d, name);

    return v ? *(const int *)v->bytes : -1;
}

static int refuse(int status, const char *why)
{
    (void)snprintf(last, sizeof(last), "%s", why);
    return status;
}

size_t cudnnGetVersion(void)
{
    return is_mode("old") ? 90900 : 91900;
}

const char *cudnnGetErrorString(int e)
{
    return e == 0 ? "success" : e == DNN_NOT_SUPPORTED ? "not supported" : "a failure";
}

void cudnnGetLastErrorString(char *to, size_t room)
{
    (void)snprintf(to, room, "%s", last);
}

int cudnnCreate(void **ret)
{
    *ret = is_mode("start") ? NULL : malloc(1);
    return *ret ? 0 : 1001;
}

int cudnnDestroy(void *h)
{
    free(h);
    return 0;
}

int cudnnSetStream(void *h, void *s)
{
    stream = s;
    return h ? 0 : BAD;
}

int cudnnBackendCreateDescriptor(int kind, void **ret)
{
    struct descriptor *d = calloc(1, sizeof(*d));

    if (!d)
        return BAD;
    *d = (struct descriptor){.kind = kind, .uses = 1};
    *ret = d;
    return 0;
}

int cudnnBackendDestroyDescriptor(void *p)
{
    struct descriptor *d = p;

    if (!d || --d->uses > 0)
        return 0;
    for (int i = 0; i < d->values; i++) {
        for (int64_t k = 0; d->v[i].type == DNN_DESCRIPTOR && k < d->v[i].n; k++)
            (void)cudnnBackendDestroyDescriptor(((void **)d->v[i].bytes)[k]);
        free(d->v[i].bytes);
    }
    free(d);
    return 0;
}

int cudnnBackendSetAttribute(void *p, int name, int type, int64_t n, const void *values)
{
    struct descriptor *d = p;
    struct value *v = &d->v[d->values];

    if (d->done || find(d, name) || n < 1 || d->values == 16)
        return refuse(BAD, "an attribute twice, or too late");
    *v = (struct value){.name = name, .type = type, .n = n, .bytes = malloc((size_t)n * 8)};
    if (!v->bytes)
        return BAD;
    memcpy(v->bytes, values, (size_t)n * size_of(type));
    for (int64_t i = 0; type == DNN_DESCRIPTOR && i < n; i++) {
        struct descriptor *o = ((struct descriptor **)v->bytes)[i];

        if (!o || !o->done)
            return refuse(BAD, "a descriptor that is not done");
        o->uses++;
    }
    d->values++;
    return 0;
}

static bool has(const struct descriptor *d, const int *names)
{
    for (; *names >= 0; names++)
        if (!find(d, *names))
            return false;
    return true;
}

int cudnnBackendFinalize(void *p)
{
    static const struct {
        int kind, wants[6];
    } table[] = {
        {DNN_TENSOR, {DNN_TENSOR_TYPE, DNN_TENSOR_SIZES, DNN_TENSOR_STRIDES, DNN_TENSOR_ID, DNN_TENSOR_ALIGNMENT, -1}},
        {DNN_POINTWISE, {DNN_POINTWISE_DOES, DNN_POINTWISE_IN, -1}},
        {DNN_DO_POINTWISE, {DNN_DO_POINTWISE_WHAT, DNN_DO_POINTWISE_X, DNN_DO_POINTWISE_Y, -1}},
        {DNN_MATMUL, {DNN_MATMUL_IN, -1}},
        {DNN_DO_MATMUL, {DNN_DO_MATMUL_A, DNN_DO_MATMUL_B, DNN_DO_MATMUL_C, DNN_DO_MATMUL_WHAT, -1}},
        {DNN_REDUCTION, {DNN_REDUCTION_DOES, DNN_REDUCTION_IN, -1}},
        {DNN_DO_REDUCTION, {DNN_DO_REDUCTION_X, DNN_DO_REDUCTION_Y, DNN_DO_REDUCTION_WHAT, -1}},
        {DNN_DO_RESHAPE, {DNN_DO_RESHAPE_X, DNN_DO_RESHAPE_Y, -1}},
        {DNN_GRAPH, {DNN_GRAPH_HANDLE, DNN_GRAPH_OPERATIONS, -1}},
        {DNN_HEURISTIC, {DNN_HEURISTIC_HOW, DNN_HEURISTIC_GRAPH, -1}},
        {DNN_PLAN, {DNN_PLAN_HANDLE, DNN_PLAN_CONFIG, -1}},
        {DNN_PACK, {DNN_PACK_IDS, DNN_PACK_POINTERS, DNN_PACK_WORK, -1}},
    };
    struct descriptor *d = p;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].kind == d->kind && !has(d, table[i].wants))
            return refuse(BAD, "an attribute is missing");
    if (d->kind == DNN_HEURISTIC && is_mode("refuse"))
        return refuse(DNN_NOT_SUPPORTED, "no engine of a fake for this");
    d->done = true;
    return 0;
}

static void keep(struct descriptor *d, int name, struct descriptor *what)
{
    (void)cudnnBackendSetAttribute(d, name, DNN_DESCRIPTOR, 1, &what);
}

/* Two configurations: the first's results are not always the same, and it computes nothing. */
static void fill_configs(const struct descriptor *heuristic, void **config, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int note = i == 0 || is_mode("loose") ? DNN_NONDETERMINISTIC : 0;
        void *engine = NULL;

        (void)cudnnBackendCreateDescriptor(DNN_ENGINE, &engine);
        (void)cudnnBackendSetAttribute(engine, DNN_ENGINE_NOTES, DNN_NOTE, 1, &note);
        keep(engine, 1300, other(heuristic, DNN_HEURISTIC_GRAPH));
        ((struct descriptor *)engine)->done = true;
        keep(config[i], DNN_CONFIG_ENGINE, engine);
        ((struct descriptor *)config[i])->done = true;
        (void)cudnnBackendDestroyDescriptor(engine);
    }
}

int cudnnBackendGetAttribute(void *p, int name, int type, int64_t room, int64_t *n, void *to)
{
    struct descriptor *d = p;
    struct descriptor *engine;

    (void)type;
    switch (name) {
    case DNN_HEURISTIC_RESULTS:
        *n = room < 2 ? room : 2;
        fill_configs(d, to, *n);
        return 0;
    case DNN_CONFIG_ENGINE: /* what was made to be filled becomes the one of the configuration */
        engine = other(d, name);
        keep(*(struct descriptor **)to, 1300, other(engine, 1300));
        (void)cudnnBackendSetAttribute(*(void **)to, DNN_ENGINE_NOTES, DNN_NOTE, 1,
                                       find(engine, DNN_ENGINE_NOTES)->bytes);
        return 0;
    case DNN_ENGINE_NOTES:
        *n = 1;
        *(int *)to = number(d, name);
        return 0;
    case DNN_PLAN_WORK:
        *n = 1;
        *(int64_t *)to = is_mode("large") ? INT64_C(3) << 30 : WORK_BYTES;
        return 0;
    default:
        return BAD;
    }
}

/* --- computing ---------------------------------------------------------------------------------- */

struct job {
    struct descriptor *graph;
    int64_t id[TOO_MUCH];
    void *p[TOO_MUCH];
    int64_t n;
    float value[TOO_MUCH]; /* of those given by value */
    char *work;
    int64_t doc;
    int rows; /* of the document, and one more where there is room */
    struct descriptor *seen[256];
    int n_seen;
};

static const int64_t *sizes(const struct descriptor *t)
{
    return find(t, DNN_TENSOR_SIZES)->bytes;
}

static const int64_t *strides(const struct descriptor *t)
{
    return find(t, DNN_TENSOR_STRIDES)->bytes;
}

static int given_at(const struct job *j, const struct descriptor *t)
{
    int64_t id = *(const int64_t *)find(t, DNN_TENSOR_ID)->bytes;

    for (int i = 0; i < j->n; i++)
        if (j->id[i] == id)
            return i;
    return -1;
}

/* Sizes of one document, cut to its rows. */
static void cut(const struct job *j, const struct descriptor *t, int64_t of[4])
{
    memcpy(of, sizes(t), 4 * sizeof(*of));
    of[0] = 1;
    for (int i = 2; i < 4; i++)
        if (t->axes & 1 << i)
            of[i] = of[i] < j->rows ? of[i] : j->rows;
}

static size_t count_of(const int64_t of[4])
{
    return (size_t)(of[1] * of[2] * of[3]);
}

/* Where a number lies, or -1: the document has no such row. */
static int64_t place(const struct job *j, const struct descriptor *t, int64_t h, int64_t r, int64_t c)
{
    struct descriptor *ragged = other(t, DNN_TENSOR_RAGGED);
    const int64_t *s = strides(t);
    int axis = s[3] > s[2] ? 3 : 2;

    if (!ragged)
        return (sizes(t)[0] > 1 ? j->doc * s[0] : 0) + h * s[1] + r * s[2] + c * s[3];
    const int64_t *at = j->p[given_at(j, ragged)];
    return (axis == 3 ? c : r) < (at[j->doc + 1] - at[j->doc]) / s[axis] ? at[j->doc] + h * s[1] + r * s[2] + c * s[3]
                                                                         : -1;
}

static float *numbers(struct job *j, struct descriptor *t, int64_t of[4])
{
    int at = given_at(j, t), type = number(t, DNN_TENSOR_TYPE);

    if (!t->now && other(t, DNN_TENSOR_RAGGED) && at >= 0)
        t->axes = strides(t)[3] > strides(t)[2] ? 8 : 4;
    cut(j, t, of);
    if (t->now)
        return t->now;
    t->now = malloc(count_of(of) * sizeof(float));
    j->seen[j->n_seen++] = t;
    for (int64_t h = 0, i = 0; h < of[1]; h++)
        for (int64_t r = 0; r < of[2]; r++)
            for (int64_t c = 0; c < of[3]; c++, i++) {
                int64_t from = at >= 0 ? place(j, t, h, r, c) : -1;

                t->now[i] = find(t, DNN_TENSOR_BY_VALUE) ? j->value[at]
                            : from < 0                   ? NAN
                            : type == DNN_BF16           ? bf16_to_float(((const uint16_t *)j->p[at])[from])
                            : type == DNN_INT32          ? (float)((const int32_t *)j->p[at])[from]
                                                         : ((const float *)j->p[at])[from];
            }
    return t->now;
}

static void settle(struct job *j, struct descriptor *t)
{
    int at = given_at(j, t), type = number(t, DNN_TENSOR_TYPE);
    int64_t of[4];

    cut(j, t, of);
    for (int64_t h = 0, i = 0; h < of[1]; h++)
        for (int64_t r = 0; r < of[2]; r++)
            for (int64_t c = 0; c < of[3]; c++, i++) {
                int64_t to = at >= 0 ? place(j, t, h, r, c) : -1;

                if (type == DNN_BF16)
                    t->now[i] = bf16_to_float(bf16_from_float(t->now[i]));
                if (to >= 0 && type == DNN_BF16)
                    ((uint16_t *)j->p[at])[to] = bf16_from_float(t->now[i]);
                else if (to >= 0)
                    ((float *)j->p[at])[to] = t->now[i];
            }
}

/* One of a dimension of 1 goes with all. */
static float pick(const float *v, const int64_t of[4], int64_t h, int64_t r, int64_t c)
{
    return v[((of[1] == 1 ? 0 : h) * of[2] + (of[2] == 1 ? 0 : r)) * of[3] + (of[3] == 1 ? 0 : c)];
}

static float point(int does, float x, float b, float t)
{
    switch (does) {
    case 0:
        return x + b;
    case 1:
        return x * b;
    case 6:
        return x / b;
    case 9:
        return x - b;
    case 13:
        return expf(x);
    case 15:
        return logf(x);
    case 303:
        return x >= b;
    case 304:
        return x < b;
    case 400:
        return x != 0 && b != 0;
    case 601:
        return t != 0 ? x : b;
    default:
        abort();
    }
}

static void do_pointwise(struct job *j, const struct descriptor *op)
{
    struct descriptor *what = other(op, DNN_DO_POINTWISE_WHAT), *y = other(op, DNN_DO_POINTWISE_Y);
    struct descriptor *b = other(op, DNN_DO_POINTWISE_B), *t = other(op, DNN_DO_POINTWISE_T);
    int64_t of[4], xs[4], bs[4] = {0}, ts[4] = {0};
    const float *x = numbers(j, other(op, DNN_DO_POINTWISE_X), xs), *bv = b ? numbers(j, b, bs) : NULL;
    const float *tv = t ? numbers(j, t, ts) : NULL;
    int does = number(what, DNN_POINTWISE_DOES);
    float *to;

    y->axes = other(op, DNN_DO_POINTWISE_X)->axes;
    to = numbers(j, y, of);
    for (int64_t h = 0, i = 0; h < of[1]; h++)
        for (int64_t r = 0; r < of[2]; r++)
            for (int64_t c = 0; c < of[3]; c++, i++)
                to[i] = does == 501 ? (float)(*(const int64_t *)find(what, DNN_POINTWISE_AXIS)->bytes == 2 ? r : c)
                                    : point(does, pick(x, xs, h, r, c), bv ? pick(bv, bs, h, r, c) : 0,
                                            tv ? pick(tv, ts, h, r, c) : 0);
    settle(j, y);
}

static int64_t limit(struct job *j, const struct descriptor *op, int name, int64_t all)
{
    struct descriptor *lengths = other(op, name);
    int64_t of[4];

    return lengths ? (int64_t)numbers(j, lengths, of)[0] : all;
}

static void do_matmul(struct job *j, const struct descriptor *op)
{
    struct descriptor *c = other(op, DNN_DO_MATMUL_C);
    int64_t as[4], bs[4], of[4], m, n, k;
    const float *a = numbers(j, other(op, DNN_DO_MATMUL_A), as), *b = numbers(j, other(op, DNN_DO_MATMUL_B), bs);
    float *to;

    c->axes = (other(op, DNN_DO_MATMUL_A)->axes & 4) | (other(op, DNN_DO_MATMUL_B)->axes & 8);
    to = numbers(j, c, of);
    m = limit(j, op, DNN_DO_MATMUL_M, of[2]);
    n = limit(j, op, DNN_DO_MATMUL_N, of[3]);
    k = limit(j, op, DNN_DO_MATMUL_K, as[3]);
    for (int64_t h = 0, i = 0; h < of[1]; h++)
        for (int64_t r = 0; r < of[2]; r++)
            for (int64_t q = 0; q < of[3]; q++, i++) {
                const float *x = a + ((h / (of[1] / as[1])) * as[2] + r) * as[3];
                const float *y = b + (h / (of[1] / bs[1])) * bs[2] * bs[3] + q;
                float sum = 0;

                for (int64_t e = 0; e < k; e++)
                    sum += x[e] * y[e * bs[3]];
                to[i] = r < m && q < n ? sum : NAN;
            }
    settle(j, c);
}

static void do_reduction(struct job *j, const struct descriptor *op)
{
    struct descriptor *y = other(op, DNN_DO_REDUCTION_Y);
    bool max = number(other(op, DNN_DO_REDUCTION_WHAT), DNN_REDUCTION_DOES) == 3;
    int64_t of[4], xs[4];
    const float *x = numbers(j, other(op, DNN_DO_REDUCTION_X), xs);
    float *to;

    y->axes = other(op, DNN_DO_REDUCTION_X)->axes & (sizes(y)[3] == 1 ? 4 : 12);
    to = numbers(j, y, of);
    for (size_t i = 0; i < count_of(of); i++)
        to[i] = max ? -INFINITY : 0;
    for (int64_t h = 0, i = 0; h < xs[1]; h++)
        for (int64_t r = 0; r < xs[2]; r++)
            for (int64_t c = 0; c < xs[3]; c++, i++) {
                float *one = &to[((h / (xs[1] / of[1])) * of[2] + r / (xs[2] / of[2])) * of[3] + c / (xs[3] / of[3])];

                *one = max ? fmaxf(*one, x[i]) : *one + x[i];
            }
    settle(j, y);
}

static void do_reshape(struct job *j, const struct descriptor *op)
{
    struct descriptor *y = other(op, DNN_DO_RESHAPE_Y);
    int64_t of[4], xs[4];
    const float *x = numbers(j, other(op, DNN_DO_RESHAPE_X), xs);
    int from = other(op, DNN_DO_RESHAPE_X)->axes;
    float *to;

    y->axes = (from & 4 ? 8 : 0) | (from & 8 ? 4 : 0);
    to = numbers(j, y, of);
    for (int64_t h = 0, i = 0; h < of[1]; h++)
        for (int64_t r = 0; r < of[2]; r++)
            for (int64_t c = 0; c < of[3]; c++, i++)
                to[i] = x[(h * xs[2] + c) * xs[3] + r];
    settle(j, y);
}

static void compute(const void *data)
{
    struct job j = *(const struct job *)data;
    const struct value *ops = find(j.graph, DNN_GRAPH_OPERATIONS);
    const int32_t *lengths = NULL;
    int64_t docs = 0;

    memset(j.work, 0xff, WORK_BYTES); /* it is the plan's own */
    for (int i = 0; i < j.n; i++)
        if (j.id[i] == DNN_Q_LENGTHS)
            lengths = j.p[i];
    for (int64_t i = 0; i < ops->n; i++) {
        struct descriptor *op = ((struct descriptor **)ops->bytes)[i];

        if (op->kind == DNN_DO_MATMUL)
            docs = sizes(other(op, DNN_DO_MATMUL_C))[0];
    }
    for (j.doc = 0; j.doc < docs; j.doc++) {
        j.rows = lengths[j.doc] + 1;
        for (int64_t i = 0; i < ops->n && lengths[j.doc] > 0; i++) {
            struct descriptor *op = ((struct descriptor **)ops->bytes)[i];

            (op->kind == DNN_DO_POINTWISE   ? do_pointwise
             : op->kind == DNN_DO_MATMUL    ? do_matmul
             : op->kind == DNN_DO_REDUCTION ? do_reduction
                                            : do_reshape)(&j, op);
        }
        while (j.n_seen > 0) {
            free(j.seen[--j.n_seen]->now);
            j.seen[j.n_seen]->now = NULL;
        }
    }
}

int cudnnBackendExecute(void *h, void *p, void *pack)
{
    struct descriptor *engine = other(other(p, DNN_PLAN_CONFIG), DNN_CONFIG_ENGINE);
    const struct value *ids = find(pack, DNN_PACK_IDS), *pointers = find(pack, DNN_PACK_POINTERS);
    struct job j = {.graph = other(engine, 1300)};
    char *work = *(char **)find(pack, DNN_PACK_WORK)->bytes;

    if (is_mode("failing"))
        return 5000;
    if (!h || !work || ids->n != pointers->n || ids->n > TOO_MUCH || number(engine, DNN_ENGINE_NOTES) != 0)
        return refuse(BAD, "what is given does not fit the plan");
    j.n = ids->n;
    memcpy(j.id, ids->bytes, (size_t)j.n * sizeof(*j.id));
    memcpy(j.p, pointers->bytes, (size_t)j.n * sizeof(*j.p));
    for (int64_t i = 0; i < j.n; i++)
        if (j.id[i] == DNN_SCALE || j.id[i] == DNN_MASKED || j.id[i] == DNN_ONE)
            j.value[i] = *(const float *)j.p[i];
    j.work = work;
    emulate_queue(stream, compute, &j, sizeof(j));
    return 0;
}
