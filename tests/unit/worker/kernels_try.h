/* kernels_try - arrays between guard pages, and one call run by the plain table and by the CPU table on 1, 2, 4 threads
 * and with the loops for any processor */
#ifndef MUSTER_TESTS_UNIT_WORKER_KERNELS_TRY_H
#define MUSTER_TESTS_UNIT_WORKER_KERNELS_TRY_H

#include "tests/unit/test.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/engine/kernels/cpu/cpu.h"
#include "worker/engine/kernels/kernels.h"

#define TRY_ARRAYS 256
#define TRY_OUTS 4

static struct {
    void *map;
    size_t bytes;
} try_array[TRY_ARRAYS];
static int try_arrays;
static uint64_t try_seed, try_state;
static const struct cpu_loops *try_loops; /* NULL: those the CPU table chose */

/* 64 bits of splitmix64; the seed is TRY_SEED or 20261121, and named by each failure. */
static inline uint64_t try_word(void)
{
    uint64_t z = try_state += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline int try_range(int lo, int hi)
{
    return lo + (int)(try_word() % (uint64_t)(hi - lo + 1));
}

static inline float try_uniform(void)
{
    return (float)(try_word() >> 40) * 0x1p-23f - 1;
}

/* bytes that end (and nearly begin) at a page nobody may touch. */
static inline void *try_bytes(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page - 1) / page * page;
    char *map = mmap(NULL, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(map != MAP_FAILED);
    if (inside > 0)
        assert_int_equal(mprotect(map + page, inside, PROT_READ | PROT_WRITE), 0);
    assert_true(try_arrays < TRY_ARRAYS);
    try_array[try_arrays].map = map;
    try_array[try_arrays++].bytes = inside + 2 * page;
    return map + page + (inside - bytes);
}

static inline void try_drop_arrays(int down_to)
{
    while (try_arrays > down_to) {
        try_arrays--;
        assert_int_equal(munmap(try_array[try_arrays].map, try_array[try_arrays].bytes), 0);
    }
}

/* n numbers in [-size, size). */
static inline float *try_floats(size_t n, float size)
{
    float *p = try_bytes(n * sizeof(*p));

    for (size_t i = 0; i < n; i++)
        p[i] = size * try_uniform();
    return p;
}

static inline int try_setup(void **state)
{
    const char *seed = getenv("TRY_SEED");

    (void)state;
    try_seed = try_state = seed ? strtoull(seed, NULL, 0) : 20261121;
    return 0;
}

static inline int try_teardown(void **state)
{
    (void)state;
    try_drop_arrays(0);
    return 0;
}

struct try_out {
    size_t n;
    const float *init; /* what it holds before the call; NULL: NaN, all of which must be overwritten */
};

typedef void (*try_fn)(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg);

static inline void try_run(const struct kern_ops *ops, int threads, try_fn fn, const void *arg,
                           const struct try_out *out, int n, float **ret)
{
    const struct kern_cfg cfg = {.threads = threads};
    struct kern_stream *s = NULL;
    struct merr err = {""};

    for (int i = 0; i < n; i++) {
        ret[i] = try_bytes(out[i].n * sizeof(float));
        for (size_t k = 0; k < out[i].n; k++)
            ret[i][k] = out[i].init ? out[i].init[k] : NAN;
    }
    if (ops->stream_new(&cfg, &s, &err) < 0)
        fail_msg("no stream: %s", err.text);
    if (try_loops && ops == kern_cpu())
        s->loops = try_loops;
    fn(ops, s, ret, arg);
    assert_int_equal(ops->stream_sync(s, NULL), 0);
    ops->stream_free(s);
}

static inline void try_compare(const char *what, int number, const float *got, const float *want, size_t n, float tol)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= tol * (1 + fabsf(want[i]))) && !(isinf(want[i]) && got[i] == want[i]))
            fail_msg("%s: output %d [%zu of %zu] is %.9g, plain gives %.9g (seed %llu)", what, number, i, n,
                     (double)got[i], (double)want[i], (unsigned long long)try_seed);
}

/* Run fn everywhere; the CPU's results must be within tol of the plain ones and the same for 1, 2, 4 threads. */
static inline void try_check(const char *what, try_fn fn, const void *arg, const struct try_out *out, int n, float tol)
{
    static const int threads[] = {1, 2, 4};
    int before = try_arrays;
    float *want[TRY_OUTS], *first[TRY_OUTS], *got[TRY_OUTS];

    assert_true(n <= TRY_OUTS);
    try_run(kern_plain(), 1, fn, arg, out, n, want);
    for (size_t t = 0; t < COUNT(threads); t++) {
        try_run(kern_cpu(), threads[t], fn, arg, out, n, t == 0 ? first : got);
        for (int i = 0; i < n && t == 0; i++)
            try_compare(what, i, first[i], want[i], out[i].n, tol);
        for (int i = 0; i < n && t > 0; i++)
            if (memcmp(got[i], first[i], out[i].n * sizeof(float)) != 0)
                fail_msg("%s: output %d has other bits with %d threads (seed %llu)", what, i, threads[t],
                         (unsigned long long)try_seed);
    }
    try_loops = &cpu_loops_generic;
    try_run(kern_cpu(), 1, fn, arg, out, n, got);
    try_loops = NULL;
    for (int i = 0; i < n; i++)
        try_compare(what, i, got[i], want[i], out[i].n, tol);
    try_drop_arrays(before);
}

#endif
