#include "worker/engine/train/peak.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/try.h"

#define GEMM_SIDE 256
#define GEMM_SIDE_MOST 8192 /* of a GPU, which small products do not fill */
#define GEMM_LONG_US 1000
#define GEMM_US 20000
#define ROW_MOST 4096
#define NOISE_BYTES ((size_t)1 << 20)

/* Ranks of this node share its cores: their threads together are no faster than that. */
static double core_share(const struct rank *rank)
{
    int here = rank_ranks_here(rank);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return cores > 0 && (long)here * rank->run.threads > cores ? (double)cores / ((double)here * rank->run.threads) : 1;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* What one of several of these products in a row takes: the fastest on a processor, which others use too; a GPU is the
 * rank's own and slows down under load, so there it is what half of them reach. */
static int time_row(const struct rank *rank, const struct kern_gemm *g, int64_t *ret_us, struct merr *err)
{
    int64_t began, last, us[ROW_MOST];
    int n = 0;

    TRY(rank->k->gemm(rank->stream, g, err)); /* the first makes what the others reuse */
    TRY(rank->k->stream_sync(rank->stream, err));
    began = last = clock_mono_us();
    do {
        int64_t now;

        TRY(rank->k->gemm(rank->stream, g, err));
        TRY(rank->k->stream_sync(rank->stream, err));
        now = clock_mono_us();
        us[n++] = now - last;
        last = now;
    } while (last - began < GEMM_US && n < ROW_MOST);
    qsort(us, (size_t)n, sizeof(*us), by_size);
    *ret_us = us[rank->k->device ? n / 2 : 0];
    *ret_us = *ret_us > 0 ? *ret_us : 1;
    return 0;
}

/* Numbers of all sizes up to 1, of either type: a GPU multiplies zeros faster, for it takes less power. */
static int fill_with_noise(const struct rank *rank, float *x, size_t bytes, struct merr *err)
{
    uint64_t state = 1;
    size_t at = 0, n;
    char *noise = malloc(NOISE_BYTES);
    int r = noise ? 0 : merr_set(err, -ENOMEM, "no memory for the numbers of products that are timed");

    for (size_t i = 0; noise && i < NOISE_BYTES / sizeof(uint16_t); i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ((uint16_t *)noise)[i] = bf16_from_float((float)(int32_t)(state >> 32) * 0x1p-31f); /* as f32: two of them */
    }
    for (; r == 0 && at < bytes; at += n) {
        n = bytes - at < NOISE_BYTES ? bytes - at : NOISE_BYTES;
        r = rank->k->copy(rank->stream, (char *)x + at, noise, n, err);
    }
    free(noise);
    return r;
}

static int time_product(const struct rank *rank, int side, int64_t *ret_us, struct merr *err)
{
    struct kern_gemm g = {.type = rank_type(rank),
                          .c_type = rank_type(rank),
                          .m = side,
                          .n = side,
                          .k = side,
                          .lda = side,
                          .ldb = side,
                          .ldc = side};
    size_t n = (size_t)side * side;
    float *memory;
    int r;

    TRY(rank->k->mem_alloc(rank->stream, 3 * n * sizeof(float), (void **)&memory, err));
    g.a = memory;
    g.b = memory + n;
    g.c = memory + 2 * n;
    r = fill_with_noise(rank, memory, 2 * n * sizeof(float), err);
    if (r == 0)
        r = time_row(rank, &g, ret_us, err);
    rank->k->mem_free(rank->stream, memory);
    return r;
}

int peak_time(const struct rank *rank, double *ret_flops, struct merr *err)
{
    int64_t us = 0;
    int side = GEMM_SIDE;

    TRY(time_product(rank, side, &us, err));
    while (rank->k->device && us < GEMM_LONG_US && side < GEMM_SIDE_MOST) {
        int64_t of_larger;
        int r = time_product(rank, 2 * side, &of_larger, err);

        if (r == -ENOMEM) /* others have the GPU's memory: the smaller one must do */
            break;
        TRY(r);
        side *= 2;
        us = of_larger;
    }
    *ret_flops = 2.0 * side * side * side / ((double)us * 1e-6);
    return 0;
}

int peak_measure(const struct rank *rank, double *ret_flops, struct merr *err)
{
    double flops;

    TRY(peak_time(rank, &flops, err));
    flops *= core_share(rank);
    TRY(comm_all_reduce(rank->all, &flops, 1, COMM_F64, COMM_SUM, err));
    *ret_flops = flops;
    return 0;
}
