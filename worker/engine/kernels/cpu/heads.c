/* Calls over heads: their norms, and attention to some keys merged with that to others */
#include "worker/engine/kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define ITEM_ROWS 32 /* of one thread; gradients of gamma are collected for so many and added up in their order */

struct heads_job {
    const struct cpu_loops *loops;
    enum kern_type type;
    int rows, heads, dim, ld;
    char *x;          /* [rows, ld] */
    char *raw;        /* [rows, heads * dim] */
    const char *part; /* as raw */
    const float *gamma, *part_lse;
    float *out, *lse;
    float *room;    /* [threads][width] four times, then [heads] */
    float *partial; /* [items][dim]; NULL: forward */
    float eps;
};

static size_t width_of(const struct heads_job *j)
{
    return (size_t)j->heads * (size_t)j->dim;
}

static size_t room_of(const struct heads_job *j)
{
    return 4 * width_of(j) + (size_t)j->heads;
}

static int end_of(const struct heads_job *j, int item)
{
    return (item + 1) * ITEM_ROWS < j->rows ? (item + 1) * ITEM_ROWS : j->rows;
}

/* A row as floats: where it lies, or in room. */
static const float *widened(const struct heads_job *j, const char *at, float *room)
{
    if (j->type == KERN_F32)
        return (const float *)(const void *)at;
    j->loops->widen((const uint16_t *)(const void *)at, width_of(j), room);
    return room;
}

static void write_row(const struct heads_job *j, const float *from, char *at)
{
    if (j->type == KERN_F32)
        memcpy(at, from, width_of(j) * sizeof(*from));
    else
        j->loops->narrow(from, width_of(j), (uint16_t *)(void *)at);
}

/* The statistics of a row are made again on the way back, by the same call. */
static void norm_item(void *arg, int item, int worker)
{
    const struct heads_job *j = arg;
    size_t width = width_of(j), size = kern_size(j->type);
    float *room = j->room + room_of(j) * (size_t)worker, *made = room + 2 * width, *rstd = room + 4 * width;
    float *dgamma = j->partial ? j->partial + (size_t)item * (size_t)j->dim : NULL;

    if (dgamma)
        memset(dgamma, 0, (size_t)j->dim * sizeof(*dgamma));
    for (int r = item * ITEM_ROWS; r < end_of(j, item); r++) {
        char *at = j->x + (size_t)r * (size_t)j->ld * size, *raw = j->raw + (size_t)r * width * size;
        const float *was;

        if (!dgamma)
            memcpy(raw, at, width * size);
        was = widened(j, raw, room);
        j->loops->rmsnorm_forward(was, j->gamma, j->eps, j->heads, j->dim, made, rstd);
        if (dgamma)
            j->loops->rmsnorm_backward(widened(j, at, room + width), was, j->gamma, rstd, j->heads, j->dim, made, false,
                                       dgamma);
        write_row(j, made, at);
    }
}

static int open_job(struct kern_stream *s, struct heads_job *j, struct merr *err)
{
    j->loops = s->loops;
    return cpu_wide(s, room_of(j) * (size_t)pool_threads(s->pool), &j->room, err);
}

static int items_of(const struct heads_job *j)
{
    return (j->rows + ITEM_ROWS - 1) / ITEM_ROWS;
}

int cpu_head_norm_forward(struct kern_stream *s, enum kern_type type, void *x, const float *gamma, float eps, int rows,
                          int heads, int dim, int ld, void *raw, struct merr *err)
{
    struct heads_job j = {.type = type,
                          .rows = rows,
                          .heads = heads,
                          .dim = dim,
                          .ld = ld,
                          .x = x,
                          .raw = raw,
                          .gamma = gamma,
                          .eps = eps};
    int rc = open_job(s, &j, err);

    if (rc == 0)
        cpu_run(s, items_of(&j), (double)rows * (double)width_of(&j) * 0.8e-3, norm_item, &j);
    return rc;
}

int cpu_head_norm_backward(struct kern_stream *s, enum kern_type type, void *dx, const void *raw, const float *gamma,
                           float eps, int rows, int heads, int dim, int ld, float *dgamma, struct merr *err)
{
    struct heads_job j = {.type = type,
                          .rows = rows,
                          .heads = heads,
                          .dim = dim,
                          .ld = ld,
                          .x = dx,
                          .raw = (char *)raw, /* only read, as there is a partial */
                          .gamma = gamma,
                          .eps = eps};
    void *work;
    int rc = cpu_work(s, (size_t)items_of(&j) * (size_t)dim * sizeof(float), &work, err);

    if (rc == 0)
        rc = open_job(s, &j, err);
    if (rc < 0)
        return rc;
    j.partial = work;
    cpu_run(s, items_of(&j), (double)rows * (double)width_of(&j) * 2e-3, norm_item, &j);
    for (int i = 0; i < items_of(&j); i++)
        s->loops->add(dgamma, j.partial + (size_t)i * (size_t)dim, (size_t)dim);
    return 0;
}

static void merge_head(const struct heads_job *j, float *out, float *lse, const float *part, float part_lse)
{
    float top = fmaxf(*lse, part_lse), a, b;

    if (part_lse == -INFINITY)
        return;
    if (*lse == -INFINITY) {
        memcpy(out, part, (size_t)j->dim * sizeof(*out));
        *lse = part_lse;
        return;
    }
    a = expf(*lse - top);
    b = expf(part_lse - top);
    *lse = top + logf(a + b);
    a /= a + b;
    b = 1 - a;
    for (int i = 0; i < j->dim; i++)
        out[i] = a * out[i] + b * part[i];
}

static void merge_item(void *arg, int item, int worker)
{
    const struct heads_job *j = arg;
    size_t width = width_of(j);
    float *room = j->room + room_of(j) * (size_t)worker;

    for (int r = item * ITEM_ROWS; r < end_of(j, item); r++) {
        const float *part = widened(j, j->part + (size_t)r * width * kern_size(j->type), room);

        for (size_t h = 0; h < (size_t)j->heads; h++) {
            size_t at = (size_t)r * (size_t)j->heads + h;

            merge_head(j, j->out + at * (size_t)j->dim, j->lse + at, part + h * (size_t)j->dim, j->part_lse[at]);
        }
    }
}

int cpu_attention_merge(struct kern_stream *s, enum kern_type type, float *out, float *lse, const void *part,
                        const float *part_lse, int rows, int heads, int dim, struct merr *err)
{
    struct heads_job j = {.type = type,
                          .rows = rows,
                          .heads = heads,
                          .dim = dim,
                          .part = part,
                          .part_lse = part_lse,
                          .out = out,
                          .lse = lse};
    int rc = open_job(s, &j, err);

    if (rc == 0)
        cpu_run(s, items_of(&j), (double)rows * (double)width_of(&j) * 0.5e-3, merge_item, &j);
    return rc;
}
