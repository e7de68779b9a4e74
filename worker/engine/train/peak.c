#include "worker/engine/train/peak.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/try.h"

#define GEMM_SIDE 256
#define GEMM_SIDE_MOST 8192 /* of a GPU, which small products do not fill */
#define GEMM_LONG_US 1000
#define GEMM_US 20000

/* Ranks of this node share its cores: their threads together are no faster than that. */
static double core_share(const struct rank *rank)
{
    int here = rank_ranks_here(rank);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return cores > 0 && (long)here * rank->run.threads > cores ? (double)cores / ((double)here * rank->run.threads) : 1;
}

/* The fastest of several of these products in a row. */
static int time_row(const struct rank *rank, const struct kern_gemm *g, int64_t *ret_us, struct merr *err)
{
    int64_t began, last, best = INT64_MAX;

    TRY(rank->k->gemm(rank->stream, g, err)); /* the first makes what the others reuse */
    TRY(rank->k->stream_sync(rank->stream, err));
    began = last = clock_mono_us();
    do {
        int64_t now;

        TRY(rank->k->gemm(rank->stream, g, err));
        TRY(rank->k->stream_sync(rank->stream, err));
        now = clock_mono_us();
        best = now - last < best ? now - last : best;
        last = now;
    } while (last - began < GEMM_US);
    *ret_us = best > 0 ? best : 1;
    return 0;
}

static int time_product(const struct rank *rank, int side, int64_t *ret_us, struct merr *err)
{
    struct kern_gemm g = {
        .type = rank_type(rank), .m = side, .n = side, .k = side, .lda = side, .ldb = side, .ldc = side};
    size_t n = (size_t)side * side;
    float *memory;
    int r;

    TRY(rank->k->mem_alloc(rank->stream, 3 * n * sizeof(float), (void **)&memory, err));
    g.a = memory;
    g.b = memory + n;
    g.c = memory + 2 * n;
    r = time_row(rank, &g, ret_us, err);
    rank->k->mem_free(rank->stream, memory);
    return r;
}

int peak_measure(const struct rank *rank, double *ret_flops, struct merr *err)
{
    int64_t us = 0;
    int side = GEMM_SIDE;
    double flops;

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
    flops = 2.0 * side * side * side / ((double)us * 1e-6) * core_share(rank);
    TRY(comm_all_reduce(rank->all, &flops, 1, COMM_F64, COMM_SUM, err));
    *ret_flops = flops;
    return 0;
}
