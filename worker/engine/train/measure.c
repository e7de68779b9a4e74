/* Each device has a process, and these make up a world: they begin each measurement together, and what counts is the
 * mean of what all took. Of one's samples the median of those near the shortest counts: a rank that is put off the
 * processor for a while says nothing of the device. */
#include "worker/engine/train/measure.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/profile.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/plan/memory.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/snapshot/capacity.h"

#define SAMPLES_MAX 64
#define NEAR 1.2        /* times the shortest sample: what took longer was disturbed */
#define NEAR_LEAST 5    /* undisturbed samples */
#define MORE 8          /* times as long as planned, until there are as many */
#define SAMPLE_US 100   /* shorter calls are made several times in a row */
#define ROUNDS 2        /* some seconds apart, of which the shorter time counts: what disturbs may last as long */
#define MEASURE_US 6000 /* on one size in each, at least NEAR_LEAST samples */
#define QUICK_US 1500
#define LIMIT_US 30000000 /* then what is left is measured by NEAR_LEAST samples */
#define WAIT_US 60000000  /* for the other processes */
#define COLD 1048576 /* floats of each array that calls take in turns: with three arrays larger than a core's cache */
#define FAR_MOST ((size_t)1 << 26) /* and at most so many where no cache is to have them */
#define SMALL 4096
#define COLS 256 /* of norms, embeddings and biases */
#define HEAD_ROWS PLAN_HEAD_ROWS
#define LOGITS 1024 /* of a token */
#define HEADS 4
#define ARRAYS 5
#define DEVICES_MOST 64
#define SHARED ((size_t)64 << 20) /* bytes that sums are of */
#define LONG_SUM ((size_t)1 << 20)

/* Without its low half, so that it is a small number as two of bf16, too. */
#define FILLED 0.0078125f

struct sizes { /* what is measured; lists end by 0 */
    int rows[5], sides[6], lengths[6], dims[8];
    int far_rows[4], far_sides[4]; /* of products whose arrays are in no cache */
    int heads[4], vocab;           /* hidden sizes before a vocabulary */
    size_t elements[6], far_elements[6], bytes[6];
};

static const struct sizes cpu_sizes = {
    .rows = {64, 256, 1024},
    .sides = {64, 192, 576, 1728},
    .lengths = {32, 128, 512, 1024},
    .far_rows = {64, 512},
    .far_sides = {192, 576, 1728},
    .dims = {16, 32, 48, 64, 80, 96, 128},
    .heads = {64, 192, 512},
    .vocab = 8192,
    .elements = {1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22},
    .far_elements = {1 << 15, 1 << 20, 1 << 22},
    .bytes = {1 << 10, 1 << 14, 1 << 18, 1 << 21, 1 << 24},
};
static const struct sizes cpu_quick = {
    .rows = {64, 512},
    .sides = {64, 256, 1024},
    .lengths = {64, 512},
    .dims = {16, 64},
    .heads = {64, 512},
    .vocab = 8192,
    .elements = {1 << 13, 1 << 20},
    .bytes = {1 << 12, 1 << 18, 1 << 22},
};
static const struct sizes gpu_sizes = {
    .rows = {256, 1024, 4096, 16384},
    .sides = {256, 1024, 4096, 8192},
    .lengths = {128, 512, 2048, 4096},
    .dims = {64, 128},
    .heads = {1024, 4096},
    .vocab = 32768,
    .elements = {1 << 15, 1 << 19, 1 << 23, 1 << 26},
    .bytes = {1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26},
};

struct bench {
    const struct measure_cfg *cfg;
    const struct sizes *sizes;
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct comm_world *world;
    struct comm_group *all;
    enum kern_type type;
    int64_t began_us;
    int round;
    size_t sums;     /* that there were */
    size_t floats;   /* of each array */
    size_t far;      /* floats of each that calls take in turns where no cache is to have them; 0: none is known */
    size_t cycle;    /* and those that they take in turns now */
    size_t step, at; /* so many floats after the call before, where this one's arrays begin (time_calls) */
    float *a[ARRAYS], *shared;
    int32_t *token, *position, *cu; /* host memory: as many as tokens can be */
    uint64_t *sample;
    struct plan_profile *p;
};

/* --- time of one call ---------------------------------------------------------------------------------------- */

typedef int (*measured_call)(struct bench *b, const void *arg, struct merr *err);

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

/* Each call has its arrays after those of the call before: in a step, too, what a call takes is in no core's cache. */
static int time_calls(struct bench *b, measured_call call, const void *arg, int times, double *ret_us, struct merr *err)
{
    int64_t began_us = clock_mono_us();

    for (int i = 0; i < times; i++) {
        TRY(call(b, arg, err));
        b->at = b->at + 2 * b->step <= b->cycle ? b->at + b->step : 0;
    }
    TRY(b->k->stream_sync(b->stream, err));
    *ret_us = (double)(clock_mono_us() - began_us) / times;
    return 0;
}

/* Sort the samples. How many are near the shortest. */
static int near_shortest(double *us, int n)
{
    int near = 1;

    qsort(us, (size_t)n, sizeof(*us), by_value);
    while (near < n && us[near] <= NEAR * us[0])
        near++;
    return near;
}

/* Seconds of a call whose largest array has so many floats. together: other processes take part in it, so all make as
 * many. */
static int measure(struct bench *b, measured_call call, const void *arg, size_t floats, bool together, double *ret_s,
                   struct merr *err)
{
    int64_t budget_us = b->cfg->quick ? QUICK_US : MEASURE_US, began_us, spent_us = 0;
    bool late = clock_mono_us() - b->began_us > LIMIT_US;
    double us[SAMPLES_MAX], first;
    int n = 0, times = 1, near;

    b->at = 0;
    b->step = (floats + COLS - 1) / COLS * COLS;
    TRY(time_calls(b, call, arg, 1, &first, err)); /* makes what the others reuse */
    TRY(time_calls(b, call, arg, 1, &first, err));
    if (together)
        TRY(comm_all_reduce(b->all, &first, 1, COMM_F64, COMM_MAX, err));
    if (first < SAMPLE_US)
        times = (int)(SAMPLE_US / (first > 1 ? first : 1));
    TRY(comm_barrier(b->all, err));
    began_us = clock_mono_us();
    while (n < SAMPLES_MAX) {
        TRY(time_calls(b, call, arg, times, &us[n++], err));
        spent_us = together ? (int64_t)(first * times * n) : clock_mono_us() - began_us;
        if (n < NEAR_LEAST || (spent_us < budget_us && !late))
            continue;
        if (late || together || spent_us > MORE * budget_us || near_shortest(us, n) >= NEAR_LEAST)
            break;
    }
    near = near_shortest(us, n);
    us[0] = us[(together ? n : near) / 2]; /* ranks that meet wait for whoever is put off: that is part of it */
    TRY(comm_all_reduce(b->all, us, 1, COMM_F64, COMM_SUM, err));
    *ret_s = us[0] / b->cfg->devices * 1e-6;
    if (*ret_s <= 0)
        *ret_s = 1e-9;
    return 0;
}

/* Of what earlier rounds found and this one. */
static double shorter(const struct bench *b, double before_s, double now_s)
{
    return b->round > 0 && before_s < now_s ? before_s : now_s;
}

/* --- products and attention ---------------------------------------------------------------------------------- */

/* An array of the call's. */
static float *array(const struct bench *b, int i)
{
    return b->a[i] + b->at;
}

static int product(struct bench *b, const void *arg, struct merr *err)
{
    struct kern_gemm g = *(const struct kern_gemm *)arg;

    g.a = array(b, 0);
    g.b = array(b, 1);
    g.c = array(b, 2);
    return b->k->gemm(b->stream, &g, err);
}

/* The products of a layer as the engine makes them: y = x·W, dx = dy·W', dW += x'·dy. */
static struct kern_gemm product_of(const struct bench *b, enum profile_form form, int rows, int outputs, int inputs)
{
    struct kern_gemm g = {.type = b->type, .c_type = b->type};

    switch (form) {
    case PROFILE_FORWARD:
        g.m = rows;
        g.n = g.ldb = g.ldc = outputs;
        g.k = g.lda = inputs;
        g.b_is_weight = true;
        break;
    case PROFILE_INPUT:
        g.m = rows;
        g.n = g.ldc = inputs;
        g.k = g.lda = g.ldb = outputs;
        g.trans_b = g.b_is_weight = true;
        break;
    default:
        g.m = g.lda = inputs;
        g.n = g.ldb = g.ldc = outputs;
        g.k = rows;
        g.trans_a = g.accumulate = true;
        g.c_type = KERN_F32;
    }
    return g;
}

static size_t most_of(const struct profile_product *p)
{
    int most = p->rows > p->outputs ? p->rows : p->outputs, least = p->rows < p->outputs ? p->rows : p->outputs;

    return (size_t)most * (size_t)(p->inputs > least ? p->inputs : least);
}

static int measure_product(struct bench *b, struct profile_rates *r, int rows, int outputs, int inputs,
                           struct merr *err)
{
    struct profile_product *p = &r->product[r->products++];

    p->rows = rows;
    p->outputs = outputs;
    p->inputs = inputs;
    for (int form = 0; form < PROFILE_FORMS; form++) {
        struct kern_gemm g = product_of(b, (enum profile_form)form, rows, outputs, inputs);
        double seconds;

        TRY(measure(b, product, &g, most_of(p), false, &seconds, err));
        p->flops[form] = fmax(p->flops[form], 2.0 * rows * outputs * inputs / seconds);
    }
    return 0;
}

static int measure_products(struct bench *b, struct profile_rates *r, const int *rows, const int *sides,
                            struct merr *err)
{
    const struct sizes *s = b->sizes;

    for (int i = 0; rows[i]; i++)
        for (int o = 0; sides[o]; o++)
            for (int k = 0; sides[k]; k++)
                TRY(measure_product(b, r, rows[i], sides[o], sides[k], err));
    for (int i = 0; s->heads[i]; i++) /* its weights are [out, in] (scheduler/plan/work.c) */
        TRY(measure_product(b, r, HEAD_ROWS, s->heads[i], s->vocab, err));
    return 0;
}

struct attention {
    struct kern_attention a;
    bool back;
};

static int attend(struct bench *b, const void *arg, struct merr *err)
{
    const struct attention *t = arg;
    struct kern_attention a = t->a;

    a.qkv = array(b, 0);
    a.out = array(b, 1);
    a.lse = array(b, 2);
    a.dout = array(b, 3);
    a.dqkv = array(b, 4);
    return t->back ? b->k->attention_backward(b->stream, &a, err) : b->k->attention_forward(b->stream, &a, err);
}

static int measure_attention(struct bench *b, struct profile_rates *r, struct merr *err)
{
    const struct sizes *s = b->sizes;

    for (int i = 0; s->lengths[i]; i++)
        for (int d = 0; s->dims[d]; d++) {
            struct profile_attention *p = &r->attention[r->attentions++];
            int docs = s->lengths[i] < 512 ? 512 / s->lengths[i] : 1;
            struct attention t = {.a = {.type = b->type,
                                        .tokens = docs * s->lengths[i],
                                        .heads = HEADS,
                                        .kv_heads = HEADS,
                                        .dim = s->dims[d],
                                        .ld = 3 * HEADS * s->dims[d],
                                        .cu = b->cu,
                                        .docs = docs,
                                        .scale = 1 / sqrtf((float)s->dims[d]),
                                        .samples = b->sample}};

            for (int k = 0; k <= docs; k++)
                b->cu[k] = k * s->lengths[i];
            p->length = s->lengths[i];
            p->dim = s->dims[d];
            for (int back = 0; back < 2; back++) {
                double seconds;

                t.back = back;
                TRY(measure(b, attend, &t, (size_t)t.a.tokens * (size_t)t.a.ld, false, &seconds, err));
                p->s[back] = shorter(b, p->s[back], seconds / (HEADS * docs));
            }
        }
    return 0;
}

/* --- work on all elements of arrays -------------------------------------------------------------------------- */

struct op {
    enum profile_op what;
    size_t n;
};

static int loss(struct bench *b, int rows, struct merr *err)
{
    float *stats = array(b, 2), *losses = stats + (size_t)3 * rows;

    TRY(b->k->xent_partial(b->stream, array(b, 0), rows, LOGITS, 0, LOGITS, b->token, stats, err));
    return b->k->xent_finish(b->stream, array(b, 0), stats, 1, rows, LOGITS, 0, LOGITS, b->token, 1, losses, b->type,
                             array(b, 1), err);
}

static int work(struct bench *b, const void *arg, struct merr *err)
{
    static const struct kern_adamw_step step = {.grad_scale = 1, .lr = 1e-4F, .inv_bias1 = 1, .inv_bias2 = 1};
    static float freq[COLS];
    const struct kern_ops *k = b->k;
    const struct op *op = arg;
    struct kern_stream *s = b->stream;
    float *x = array(b, 0), *y = array(b, 1), *z = array(b, 2), *gamma = array(b, 3), *dgamma = array(b, 4);
    int rows = (int)(op->n / COLS);
    double sums[64];

    switch (op->what) {
    case PROFILE_LAYERNORM:
        return k->layernorm_forward(s, b->type, x, gamma, gamma, 1e-5F, rows, COLS, y, dgamma, dgamma + rows, err);
    case PROFILE_LAYERNORM_BACK:
        return k->layernorm_backward(s, x, y, gamma, gamma, gamma + rows, rows, COLS, z, true, dgamma, dgamma + COLS,
                                     err);
    case PROFILE_RMSNORM:
        return k->rmsnorm_forward(s, b->type, x, gamma, 1e-5F, rows, COLS, y, dgamma, err);
    case PROFILE_RMSNORM_BACK:
        return k->rmsnorm_backward(s, x, y, gamma, gamma, rows, COLS, z, true, dgamma, err);
    case PROFILE_GELU:
        return k->gelu_forward(s, b->type, x, op->n, y, err);
    case PROFILE_GELU_BACK:
        return k->gelu_backward(s, b->type, x, y, op->n, z, err);
    case PROFILE_SWIGLU: /* of so many results */
        return k->swiglu_forward(s, b->type, x, rows / 2, COLS, y, err);
    case PROFILE_SWIGLU_BACK:
        return k->swiglu_backward(s, b->type, x, y, rows / 2, COLS, z, err);
    case PROFILE_ROPE:
        return k->rope(s, b->type, x, rows, COLS / 32, 32, COLS, b->position, freq, false, err);
    case PROFILE_RESIDUAL:
        TRY(k->copy(s, y, x, op->n * sizeof(float), err));
        return k->add(s, y, z, op->n, err);
    case PROFILE_BIAS_BACK:
        return k->bias_gradient(s, b->type, x, rows, COLS, COLS, z, err);
    case PROFILE_EMBED:
        return k->embedding_forward(s, b->type, x, 0, rows, COLS, b->token, rows, y, err);
    case PROFILE_EMBED_BACK:
        return k->embedding_backward(s, x, 0, rows, COLS, b->token, rows, y, err);
    case PROFILE_LOSS:
        return loss(b, (int)(op->n / LOGITS), err);
    case PROFILE_FILL:
        return k->fill(s, z, 0, op->n, err);
    case PROFILE_ADD:
        return k->add(s, z, x, op->n, err);
    case PROFILE_SQUARES:
        return k->sum_squares(s, x, op->n, op->n / 64 + 1, sums, err);
    case PROFILE_TO_BF16:
        return k->to_bf16(s, x, op->n, y, err);
    default:
        return k->adamw(s,
                        &(struct kern_adamw){.n = op->n,
                                             .w = x,
                                             .m = y,
                                             .v = gamma,
                                             .g = dgamma,
                                             .beta1 = 0.9F,
                                             .beta2 = 0.95F,
                                             .eps = 1e-8F,
                                             .step = &step},
                        err);
    }
}

/* Elements that a result has for each that the call is told. */
static double share_of(enum profile_op op)
{
    return op == PROFILE_SWIGLU || op == PROFILE_SWIGLU_BACK ? 0.5 : 1;
}

static int measure_ops(struct bench *b, struct profile_rates *r, const size_t *elements, struct merr *err)
{
    size_t filled = b->cycle; /* what calls take: the largest size comes last */

    for (int i = 0; elements[i]; i++)
        filled = b->cycle + elements[i];
    filled = filled < b->floats ? filled : b->floats;
    for (int op = 0; op < PROFILE_OPS; op++)
        for (int i = 0; elements[i]; i++) {
            struct op what = {(enum profile_op)op, elements[i]};
            struct profile_curve *c = &r->op[op];
            double seconds;

            for (int a = 0; a < ARRAYS && i == 0; a++) /* no sum has grown out of bounds */
                TRY(b->k->fill(b->stream, b->a[a], FILLED, filled, err));
            c->at[i].size = (double)what.n * share_of(what.what);
            TRY(measure(b, work, &what, what.n, false, &seconds, err));
            c->at[i].s = shorter(b, c->at[i].s, seconds);
            c->n = i + 1;
        }
    return 0;
}

/* --- messages ------------------------------------------------------------------------------------------------ */

struct exchange {
    size_t bytes; /* 0: none, only what is computed between two */
    bool message; /* to the next, from the one before; else a sum over all */
};

static int pass_on(struct bench *b, size_t bytes, struct merr *err)
{
    int n = b->cfg->devices, me = comm_group_index(b->all);
    struct comm_request *send, *recv;
    int r = comm_irecv(b->all, (me + n - 1) % n, 1, b->a[1], bytes, &recv, err);

    if (r != 0)
        return r;
    r = comm_isend(b->all, (me + 1) % n, 1, b->a[0], bytes, &send, err);
    if (r == 0)
        r = comm_wait(send, err);
    return comm_wait(recv, r == 0 ? err : NULL) == 0 ? r : -EIO;
}

/* Long sums are of gradients, which no cache has: each is of what comes after that of the one before. */
static int sum_up(struct bench *b, size_t bytes, struct merr *err)
{
    size_t places = SHARED / bytes;
    float *at = b->shared + (bytes < LONG_SUM ? 0 : b->sums++ % places * bytes / sizeof(float));

    return comm_all_reduce(b->all, at, bytes / sizeof(float), COMM_F32, COMM_SUM, err);
}

/* As in a step: ranks compute before they meet, none exactly as long as another. */
static int meet(struct bench *b, const void *arg, struct merr *err)
{
    struct kern_gemm g = product_of(b, PROFILE_FORWARD, 256, 192, 192);
    const struct exchange *e = arg;

    TRY(product(b, &g, err));
    TRY(b->k->stream_sync(b->stream, err));
    if (e->bytes == 0)
        return 0;
    return e->message ? pass_on(b, e->bytes, err) : sum_up(b, e->bytes, err);
}

/* Seconds of the exchange beside the work. */
static int measure_exchange(struct bench *b, const struct exchange *e, double work_s, double *ret_s, struct merr *err)
{
    double both_s;

    TRY(measure(b, meet, e, 0, true, &both_s, err));
    *ret_s = shorter(b, *ret_s, both_s > 1.01 * work_s ? both_s - work_s : 0.01 * work_s);
    return 0;
}

static int measure_messages(struct bench *b, struct merr *err)
{
    struct profile_message *sum = b->p->all_reduce, *message = b->p->message;
    double work_s;

    b->type = KERN_F32;
    memset(b->shared, 0, SHARED);
    if (b->cfg->devices > 1)
        TRY(measure(b, meet, &(struct exchange){.bytes = 0}, 0, true, &work_s, err));
    for (int i = 0; b->cfg->devices > 1 && b->sizes->bytes[i]; i++) {
        size_t bytes = b->sizes->bytes[i];

        sum[i] = (struct profile_message){.ranks = b->cfg->devices, .bytes = (double)bytes, .s = sum[i].s};
        message[i] = (struct profile_message){.ranks = 2, .bytes = (double)bytes, .s = message[i].s};
        TRY(measure_exchange(b, &(struct exchange){.bytes = bytes}, work_s, &sum[i].s, err));
        TRY(measure_exchange(b, &(struct exchange){.bytes = bytes, .message = true}, work_s, &message[i].s, err));
        b->p->all_reduces = b->p->messages = i + 1;
    }
    return 0;
}

/* --- a process ----------------------------------------------------------------------------------------------- */

/* Bytes of this process in memory. */
static uint64_t resident(void)
{
    struct merr err;
    struct buf text;
    unsigned long long all, here = 0;

    buf_init(&text, 4096);
    if (io_read_file("/proc/self/statm", &text, &err) < 0 || sscanf(buf_text(&text), "%llu %llu", &all, &here) != 2)
        here = 0;
    buf_clear(&text);
    return (uint64_t)here * (uint64_t)sysconf(_SC_PAGESIZE);
}

static size_t largest(const struct sizes *s)
{
    size_t most = 0;

    for (int i = 0; s->elements[i]; i++)
        most = s->elements[i] > most ? s->elements[i] : most;
    for (int i = 0; s->bytes[i]; i++)
        most = s->bytes[i] / sizeof(float) > most ? s->bytes[i] / sizeof(float) : most;
    for (int i = 0; s->sides[i]; i++)
        for (int k = 0; s->rows[k]; k++) {
            size_t n = (size_t)s->sides[i] * (size_t)(s->rows[k] > s->sides[i] ? s->rows[k] : s->sides[i]);

            most = n > most ? n : most;
        }
    for (int i = 0; s->heads[i]; i++) {
        size_t wide = (size_t)(s->heads[i] > HEAD_ROWS ? s->heads[i] : HEAD_ROWS) * (size_t)s->vocab;

        most = wide > most ? wide : most;
    }
    return most + ((size_t)4 << 10); /* and what is of rows */
}

static int make_arrays(struct bench *b, size_t floats, struct merr *err)
{
    for (int i = 0; i < ARRAYS; i++) {
        TRY(b->k->mem_alloc(b->stream, floats * sizeof(float), (void **)&b->a[i], err));
        TRY(b->k->fill(b->stream, b->a[i], FILLED, floats, err));
    }
    return 0;
}

/* All that a rank calls has been called once, on little: from now on libraries are there. */
static int warm_up(struct bench *b, struct merr *err)
{
    for (b->type = KERN_F32; b->type <= KERN_BF16; b->type++) {
        for (int form = 0; form < PROFILE_FORMS; form++) {
            struct kern_gemm g = product_of(b, (enum profile_form)form, 128, 128, 128);

            TRY(product(b, &g, err));
        }
        for (int op = 0; op < PROFILE_OPS; op++)
            TRY(work(b, &(struct op){(enum profile_op)op, SMALL}, err));
    }
    return b->k->stream_sync(b->stream, err);
}

/* Of the program, and of a device: what is taken of it beside the arrays, which is this rank's where it has it to
 * itself. */
static int measure_memory(struct bench *b, uint64_t arrays, struct merr *err)
{
    struct plan_profile *p = b->p;
    uint64_t free, taken = resident();
    struct capacity here;

    if (!b->k->device) {
        capacity_here(&here);
        p->memory_bytes = here.total / (uint64_t)b->cfg->devices;
        p->program_bytes = taken > arrays ? taken - arrays : taken;
        return 0;
    }
    p->program_bytes = taken;
    TRY(b->k->device->room(comm_group_index(b->all), &free, &p->memory_bytes, err));
    p->context_bytes = p->memory_bytes - free > arrays ? p->memory_bytes - free - arrays : 0;
    return 0;
}

/* Bytes of the machine's last cache; 0: it does not tell. */
static double last_cache(void)
{
    char path[64], unit = 0;
    double n = 0;

    for (int level = 4; level >= 2 && n <= 0; level--) {
        struct buf text;

        (void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
        buf_init(&text, 64);
        if (io_read_file(path, &text, NULL) < 0 || sscanf(buf_text(&text), "%lf%c", &n, &unit) != 2)
            n = 0;
        buf_clear(&text);
    }
    return n * (unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : 1);
}

/* What a rank has of the last cache when all are at work; and arrays that are four times as large. */
static void look_at_cache(struct bench *b)
{
    double bytes = b->k->device ? 0 : last_cache();
    struct capacity here;

    b->cycle = COLD;
    if (bytes <= 0 || b->sizes->far_rows[0] == 0)
        return;
    capacity_here(&here);
    b->p->cache_bytes = bytes / b->cfg->devices;
    b->far = (size_t)b->p->cache_bytes < COLD ? COLD : (size_t)b->p->cache_bytes;
    if (b->far > FAR_MOST || b->far * ARRAYS * sizeof(float) > here.total / (uint64_t)b->cfg->devices / 4) {
        b->far = 0; /* such arrays have no room */
        b->p->cache_bytes = 0;
    }
}

static int open_devices(struct bench *b, struct merr *err)
{
    const char *kernels = getenv("MUSTER_KERNELS");
    struct kern_cfg cfg = {.threads = b->cfg->threads, .apart = b->cfg->devices == 1};

    TRY(kern_find(kernels ? kernels : "auto", &b->k, err));
    b->sizes = b->k->device ? &gpu_sizes : b->cfg->quick ? &cpu_quick : &cpu_sizes;
    cfg.device = b->k->device ? comm_group_index(b->all) : 0;
    TRY(b->k->stream_new(&cfg, &b->stream, err));
    look_at_cache(b);
    b->floats = largest(b->sizes) + b->far;
    b->token = calloc(b->floats / COLS, sizeof(*b->token));
    b->position = calloc(b->floats / COLS, sizeof(*b->position));
    b->cu = calloc(b->floats / COLS, sizeof(*b->cu));
    b->sample = calloc(b->floats / COLS, sizeof(*b->sample));
    if (!b->token || !b->position || !b->cu || !b->sample)
        return merr_set(err, -ENOMEM, "no memory for %zu tokens", b->floats / COLS);
    for (size_t i = 0; i < b->floats / COLS; i++) {
        b->token[i] = (int32_t)(i * 7 % COLS);
        b->position[i] = (int32_t)(i % 512);
    }
    TRY(make_arrays(b, SMALL + COLD, err));
    TRY(warm_up(b, err));
    TRY(measure_memory(b, ARRAYS * (SMALL + COLD) * sizeof(float), err));
    for (int i = 0; i < ARRAYS; i++)
        b->k->mem_free(b->stream, b->a[i]);
    TRY(make_arrays(b, b->floats, err));
    return 0;
}

/* The same where a call finds nothing of what it takes in a cache, as in a step of a large model. */
static int measure_far(struct bench *b, struct profile_rates *r, struct merr *err)
{
    b->cycle = b->far;
    TRY(measure_products(b, r, b->sizes->far_rows, b->sizes->far_sides, err));
    TRY(measure_ops(b, r, b->sizes->far_elements, err));
    b->cycle = COLD;
    return 0;
}

static int measure_round(struct bench *b, struct merr *err)
{
    struct plan_profile *p = b->p;

    TRY(measure_messages(b, err));
    for (int i = 0; i < 2; i++) {
        struct profile_rates *r = i ? &p->bf16 : &p->f32, *far = i ? &p->far_bf16 : &p->far_f32;

        b->type = i ? KERN_BF16 : KERN_F32;
        r->products = r->attentions = far->products = 0;
        TRY(measure_products(b, r, b->sizes->rows, b->sizes->sides, err));
        TRY(measure_attention(b, r, err));
        TRY(measure_ops(b, r, b->sizes->elements, err));
        if (b->far > 0)
            TRY(measure_far(b, far, err));
    }
    return 0;
}

static int measure_all(struct bench *b, struct merr *err)
{
    struct plan_profile *p = b->p;
    const struct profile_curve *add = &p->f32.op[PROFILE_ADD];

    for (b->round = 0; b->round < ROUNDS; b->round++)
        TRY(measure_round(b, err));
    p->copy_bytes_per_s = 3 * sizeof(float) * add->at[add->n - 1].size / add->at[add->n - 1].s;
    return 0;
}

static int rank_run(const struct measure_cfg *cfg, int rank, const char *folder, FILE *out, struct merr *err)
{
    struct bench b = {.cfg = cfg, .began_us = clock_mono_us(), .p = calloc(1, sizeof(*b.p))};
    int node_of[DEVICES_MOST] = {0}, ranks[DEVICES_MOST], r;
    struct comm_cfg world = {.rank = rank,
                             .size = cfg->devices,
                             .generation = 1,
                             .rendezvous = folder,
                             .node_of = node_of,
                             .shared_bytes = SHARED,
                             .timeout_us = WAIT_US,
                             .threads = cfg->threads};
    json_auto_t *doc = NULL;

    for (int i = 0; i < cfg->devices; i++)
        ranks[i] = i;
    TRY(b.p ? flight_private(&world.flight, err) : merr_set(err, -ENOMEM, "no memory for a profile"));
    TRY(comm_world_open(&world, &b.world, err));
    b.shared = comm_shared_alloc(b.world, SHARED);
    TRY(b.shared ? comm_group_new(b.world, "dp", ranks, cfg->devices, &b.all, err)
                 : merr_set(err, -ENOMEM, "no memory that ranks share"));
    TRY(open_devices(&b, err));
    b.p->threads = cfg->threads;
    b.p->side_by_side = cfg->devices;
    TRY(measure_all(&b, err));
    r = comm_barrier(b.all, err);
    if (r != 0 || rank != 0)
        return r;
    doc = profile_write(b.p, cfg->quick, (long long)time(NULL), (double)(clock_mono_us() - b.began_us) * 1e-6);
    if (!doc || json_dumpf(doc, out, JSON_COMPACT) < 0 || fputc('\n', out) == EOF || fflush(out) != 0)
        return merr_set(err, -EIO, "the profile cannot be printed");
    return cfg->keep ? profile_keep(cfg->keep, doc, err) : 0;
}

int measure_rank(const struct measure_cfg *cfg, int rank, const char *folder, FILE *out, struct merr *err)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (rank >= cfg->devices || cfg->devices > DEVICES_MOST)
        return merr_set(err, -EINVAL, "rank %d of %d devices, which are at most %d", rank, cfg->devices, DEVICES_MOST);
    return rank_run(cfg, rank, folder, out, err);
}

/* This program once more, as one of the ranks: forked alone it would share its libraries' pages with the others. */
static pid_t start(const struct measure_cfg *cfg, int rank, const char *folder)
{
    char number[3][16];
    const char *argv[] = {"muster-train",
                          "--profile",
                          "--run",
                          folder,
                          "--rank",
                          number[0],
                          "--devices",
                          number[1],
                          "--threads",
                          number[2],
                          cfg->keep    ? "--keep"
                          : cfg->quick ? "--quick"
                                       : NULL,
                          cfg->keep ? cfg->keep : NULL,
                          cfg->keep && cfg->quick ? "--quick" : NULL,
                          NULL};
    pid_t pid;

    (void)snprintf(number[0], sizeof(number[0]), "%d", rank);
    (void)snprintf(number[1], sizeof(number[1]), "%d", cfg->devices);
    (void)snprintf(number[2], sizeof(number[2]), "%d", cfg->threads);
    pid = fork();
    if (pid == 0) {
        (void)execv("/proc/self/exe", (char *const *)argv);
        _exit(1);
    }
    return pid;
}

int measure_print(const struct measure_cfg *cfg, const char *folder, struct merr *err)
{
    char made[] = "/tmp/muster-profile.XXXXXX";
    pid_t pid[DEVICES_MOST];
    int bad = 0;

    if (cfg->devices < 1 || cfg->devices > DEVICES_MOST)
        return merr_set(err, -EINVAL, "at most %d devices are measured side by side", DEVICES_MOST);
    if (folder) {
        (void)io_remove_tree(folder, NULL);
        TRY(io_mkdirs(folder, 0700, err));
    } else if (!(folder = mkdtemp(made))) {
        return merr_set(err, -errno, "no folder under /tmp: %s", strerror(errno));
    }
    for (int i = 0; i < cfg->devices; i++)
        pid[i] = start(cfg, i, folder);
    for (int i = 0; i < cfg->devices; i++) {
        int status = 1;

        bad |= pid[i] < 0 || waitpid(pid[i], &status, 0) < 0 || status != 0;
    }
    (void)io_remove_tree(folder, NULL);
    return bad ? merr_set(err, -EIO, "the devices cannot be measured") : 0;
}
