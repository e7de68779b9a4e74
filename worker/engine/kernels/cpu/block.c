#include "worker/engine/kernels/cpu/block.h"

static int min_int(int x, int y)
{
    return x < y ? x : y;
}

static int max_int(int x, int y)
{
    return x > y ? x : y;
}

struct block_right block_right(const struct kern_stream *s, bool turned, const float *x, int ld, int n, int dim,
                               float *room)
{
    struct block_right b = {.x = x, .ld = ld, .n = n, .packed = room};
    int lines = turned ? n : dim, depth = turned ? dim : n;

    if (!room || !s->tile || dim > CPU_HEAD || dim % s->narrow_tile->columns != 0)
        return b;
    b.tile = dim % s->tile->columns == 0 ? s->tile : s->narrow_tile;
    b.tile->pack(KERN_F32, x, (size_t)ld, turned, b.tile->columns, lines, depth, room,
                 (size_t)depth * (size_t)b.tile->columns);
    return b;
}

/* Keys that some row before `end` sees. */
static int seen_before(const struct block_shape *x, int end)
{
    return max_int(0, min_int(x->keys, x->valid + min_int(end, x->rows) - 1));
}

int block_scores(const struct block_shape *x, const float *a, int lda, const struct block_right *b, float *c, int ldc)
{
    if (!b->tile)
        return cpu_sgemm(false, true, x->rows, x->keys, x->dim, a, lda, b->x, b->ld, false, c, ldc);

    const struct cpu_tile *t = b->tile;

    for (int n = 0; n < x->keys; n += t->columns)
        for (int r = 0; r < x->rows; r += t->rows)
            if (n < seen_before(x, r + t->rows) && n + t->columns > x->skip + r)
                t->multiply_lying(min_int(t->rows, x->rows - r), x->dim, a + (size_t)r * (size_t)lda, (size_t)lda, 1,
                                  b->packed + (size_t)n * (size_t)x->dim, c + (size_t)r * (size_t)ldc + n, (size_t)ldc,
                                  false);
    return 0;
}

int block_values(const struct block_shape *x, const float *a, int lda, const struct block_right *b, bool add, float *c,
                 int ldc)
{
    if (!b->tile)
        return cpu_sgemm(false, false, x->rows, x->dim, x->keys, a, lda, b->x, b->ld, add, c, ldc);

    const struct cpu_tile *t = b->tile;

    for (int n = 0; n < x->dim; n += t->columns)
        for (int r = 0; r < x->rows; r += t->rows)
            t->multiply_lying(min_int(t->rows, x->rows - r), seen_before(x, r + t->rows), a + (size_t)r * (size_t)lda,
                              (size_t)lda, 1, b->packed + (size_t)n * (size_t)b->n, c + (size_t)r * (size_t)ldc + n,
                              (size_t)ldc, add);
    return 0;
}

int block_sums(const struct block_shape *x, const float *a, int lda, const struct block_right *b, float *c, int ldc)
{
    if (!b->tile)
        return cpu_sgemm(true, false, x->keys, x->dim, x->rows, a, lda, b->x, b->ld, true, c, ldc);

    const struct cpu_tile *t = b->tile;
    size_t width = (size_t)t->columns;

    for (int m = 0; m < x->keys; m += t->rows) {
        size_t first = (size_t)max_int(0, m - x->valid + 1); /* row that sees key m */

        for (int n = 0; n < x->dim && first < (size_t)x->rows; n += t->columns)
            t->multiply_lying(min_int(t->rows, x->keys - m), x->rows - (int)first, a + first * (size_t)lda + m, 1,
                              (size_t)lda, b->packed + (size_t)n * (size_t)b->n + first * width,
                              c + (size_t)m * (size_t)ldc + n, (size_t)ldc, true);
    }
    return 0;
}
