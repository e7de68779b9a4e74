/* check - everything the CUDA backend computes, beside what the processor makes of the same numbers
 *
 * A case is a function that runs one call of a table of kernels on arrays of that table's own memory. It runs once on
 * the plain table and twice on the GPU: the results must agree within a limit, and the GPU's twice bit for bit. Outputs
 * hold NaN before, and every array lies between guards that must stay.
 */
#ifndef MUSTER_TESTS_GPU_CHECK_H
#define MUSTER_TESTS_GPU_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compress/cuda_backend.h"
#include "worker/engine/kernels/kernels.h"

#define CHECK_ARRAYS 12

struct check {
    const struct cuda_backend *gpu;
    struct kern_stream *s, *plain; /* s: attention by our own kernels */
    struct kern_stream *library;   /* attention by cuDNN where there is one; NULL while there is none to be tried */
    uint64_t seed, state;
    bool quick; /* small shapes, no benchmarks: where GPUs are emulated */
    bool no_cases, no_bench, only_attention;
    bool apart;       /* the host cannot touch the GPU's memory */
    const char *json; /* file to write, or NULL */
    int cases, failed;
};

struct check_array {
    const char *name;
    enum kern_type type;
    size_t n;
    float size;       /* random numbers in [-size, size); 0: zeros; below 0: none, it is only written */
    float limit;      /* how far a number may be off, of 1 + its size; below 0: it is no output */
    void *p;          /* for the case: where it is now */
    const void *init; /* what it holds at first, instead of random numbers */
};

typedef int (*check_fn)(const struct kern_ops *k, struct kern_stream *s, const struct check_array *a, const void *arg,
                        struct merr *err);

uint64_t check_word(struct check *c);
int check_range(struct check *c, int lo, int hi);
float check_uniform(struct check *c); /* in [-1, 1) */

/* Note a case's outcome: what went wrong, or "" with the largest error. */
void check_note(struct check *c, const char *what, double error, double limit, const char *wrong);

void check_run(struct check *c, const char *what, check_fn fn, struct check_array *a, int n, const void *arg);

/* A figure of a benchmark: value in unit, and its share of reference. */
void check_figure(struct check *c, const char *what, double value, const char *unit, const char *reference,
                  double ratio);

void check_kernels(struct check *c);
void check_attention(struct check *c);
void check_large_heads(struct check *c);       /* what takes most shared memory; part of the above */
void check_library_attention(struct check *c); /* another part: by cuDNN */
void check_record(struct check *c);
void check_device(struct check *c);
void check_codecs(struct check *c);
void check_bench(struct check *c);

#endif
