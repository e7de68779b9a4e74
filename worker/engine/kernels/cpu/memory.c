/* Copies, by all threads, and fills */
#include "worker/engine/kernels/cpu/cpu.h"

#include <string.h>

#define COPY_ROWS 256                  /* rows of an item of a copy of rows */
#define ITEM_BYTES ((size_t)256 << 10) /* of an item of a plain copy */
#define US_A_BYTE 1e-4

struct rows_job {
    char *dst;
    const char *src;
    size_t dst_stride, src_stride, bytes;
    int rows;
};

static void rows_item(void *arg, int item, int worker)
{
    const struct rows_job *j = arg;
    int end = (item + 1) * COPY_ROWS < j->rows ? (item + 1) * COPY_ROWS : j->rows;

    (void)worker;
    for (size_t r = (size_t)item * COPY_ROWS; r < (size_t)end; r++)
        memcpy(j->dst + r * j->dst_stride, j->src + r * j->src_stride, j->bytes);
}

int cpu_copy_rows(struct kern_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t bytes,
                  int rows, struct merr *err)
{
    struct rows_job j = {dst, src, dst_stride, src_stride, bytes, rows};

    (void)err;
    cpu_run(s, (rows + COPY_ROWS - 1) / COPY_ROWS, (double)rows * (double)bytes * US_A_BYTE, rows_item, &j);
    return 0;
}

struct copy_job {
    char *dst;
    const char *src;
    size_t bytes;
};

static void copy_item(void *arg, int item, int worker)
{
    const struct copy_job *j = arg;
    size_t at = (size_t)item * ITEM_BYTES;

    (void)worker;
    memcpy(j->dst + at, j->src + at, j->bytes - at < ITEM_BYTES ? j->bytes - at : ITEM_BYTES);
}

int cpu_copy(struct kern_stream *s, void *dst, const void *src, size_t bytes, struct merr *err)
{
    struct copy_job j = {dst, src, bytes};

    (void)err;
    if (j.dst < j.src + bytes && j.src < j.dst + bytes)
        memmove(dst, src, bytes);
    else
        cpu_run(s, (int)((bytes + ITEM_BYTES - 1) / ITEM_BYTES), (double)bytes * US_A_BYTE, copy_item, &j);
    return 0;
}

/* Of a large stretch one memset goes past the caches, at more than threads reach that write it in pieces. */
int cpu_fill(struct kern_stream *s, float *dst, float value, size_t n, struct merr *err)
{
    (void)s;
    (void)err;
    if (value == 0)
        memset(dst, 0, n * sizeof(*dst));
    else
        for (size_t i = 0; i < n; i++)
            dst[i] = value;
    return 0;
}
