/* bench - what the figures of check are measured with: check_bench.c, check_rates.c */
#ifndef MUSTER_TESTS_GPU_BENCH_H
#define MUSTER_TESTS_GPU_BENCH_H

#include "tests/gpu/check.h"

#define BENCH_VALUES ((size_t)64 << 20)

struct bench {
    struct check *c;
    const struct kern_ops *k;
    const struct codec_cuda *g;
    const struct codec *codec;
    struct codec_cuda_report *report;
    float *a, *b, *x; /* BENCH_VALUES each */
    double copy;      /* bytes per second, read and written */
    double square;    /* operations per second of a large product */
    int m, n, kk;
    int32_t cu[2];
    bool plain_attention; /* by ordinary cores */
};

typedef int (*bench_fn)(struct bench *b, struct merr *err);

/* Ends the program when r tells of an error. */
void bench_must(int r, const struct merr *err);
/* Seconds of one call: the best of three samples. */
double bench_seconds(struct bench *b, bench_fn fn);
/* A figure of a call that has to move so many bytes at least, beside the copy. */
void bench_bytes(struct bench *b, const char *what, bench_fn fn, double bytes);

/* Kernels beside the copy, products of models, memory that the host shares, ways to the host (check_rates.c). */
void check_rates(struct bench *b);

#endif
