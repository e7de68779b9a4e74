/* How fast codecs are on one core (in processor time), each beside a copy of the raw values by memcpy in the same run,
 * and how much they lose or save beside the figures known for them.
 *
 *   compress [--quick] [--only CODEC] [--path plain|avx2|avx512] [--bf16 FILE] [--values FILE]
 *
 * One JSON object a line; ratio is value / reference. --bf16 names a file of bf16 numbers for the lossless rows, such
 * as trained weights; without it they are N(0, 0.02). --values names one of f32 numbers, such as gradients: then the
 * rows are the codecs' errors on them and nothing else (tests/bench/real_values.py makes such files). */
#include <errno.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "base/hash.h"
#include "compress/chunk.h"
#include "compress/codec.h"
#include "compress/optq.h"
#include "tests/unit/compress/data.h"

#define SAMPLES_MAX 15
#define PARTS 4
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct bench {
    size_t count; /* values */
    int samples;
    float *raw, *out;
    uint16_t *half, *half_out;
    uint8_t *blocks[PARTS], *again;
    const struct codec *c;
    enum codec_type type;
    struct chunk_coder *coder;
    const char *bf16_file, *values, *only; /* only: this codec's speed or one kind of rows, and nothing else */
};

typedef void (*bench_fn)(struct bench *b);

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench compress: %s: %s\n", what, why);
    exit(1);
}

static void must(int rc, const struct merr *err)
{
    if (rc < 0)
        die("a codec failed", err->text);
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes);

    if (!p)
        die("memory", "not enough for the buffers");
    memset(p, 1, bytes); /* pages there before anything is timed */
    return p;
}

enum goal_kind { NO_GOAL, GOAL_RATIO, GOAL_VALUE };

static void report(const char *metric, double value, const char *unit, const char *reference, double ratio,
                   enum goal_kind kind, double goal)
{
    (void)printf("{\"bench\": \"compress\", \"metric\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", "
                 "\"reference\": \"%s\", \"ratio\": %.3f",
                 metric, value, unit, reference, ratio);
    if (kind != NO_GOAL)
        (void)printf(", \"goal_%s\": %.3g", kind == GOAL_RATIO ? "ratio" : "value", goal);
    (void)printf(", \"path\": \"%s\"}\n", codec_path());
    (void)fflush(stdout);
}

/* --- speed ------------------------------------------------------------------------------------------------------- */

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

/* Seconds that this thread had the processor: what else runs on the machine is not in it, but for the caches. */
static double processor_s(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) < 0)
        die("clock_gettime", strerror(errno));
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(struct bench *b, bench_fn fn)
{
    double begin = processor_s();

    fn(b);
    return processor_s() - begin;
}

/* Median seconds of each, sampled in turn so that both see the same machine. */
static void compare(struct bench *b, bench_fn fn, bench_fn reference, double *ret, double *ret_reference)
{
    double t[SAMPLES_MAX], u[SAMPLES_MAX];

    fn(b);
    reference(b);
    for (int i = 0; i < b->samples; i++) {
        t[i] = seconds(b, fn);
        u[i] = seconds(b, reference);
    }
    qsort(t, (size_t)b->samples, sizeof(t[0]), by_value);
    qsort(u, (size_t)b->samples, sizeof(u[0]), by_value);
    *ret = t[b->samples / 2];
    *ret_reference = u[b->samples / 2];
}

static const struct codec_site site = {.seed = 1, .tensor = 2, .step = 3};

static const void *raw_of(const struct bench *b)
{
    return b->type == CODEC_F32 ? (const void *)b->raw : b->half;
}

static void *out_of(const struct bench *b)
{
    return b->type == CODEC_F32 ? (void *)b->out : b->half_out;
}

static size_t raw_bytes(const struct bench *b)
{
    return b->count * (b->type == CODEC_F32 ? 4 : 2);
}

static void copy(struct bench *b)
{
    memcpy(out_of(b), raw_of(b), raw_bytes(b));
}

static void encode(struct bench *b)
{
    (void)codec_encode(b->c, &site, b->type, raw_of(b), b->count, b->blocks[0]);
}

static void decode(struct bench *b)
{
    struct merr err;
    uint32_t flags = 0;

    must(codec_decode(b->c, b->blocks[0], codec_size(b->c, b->count), b->type, out_of(b), b->count, &flags, &err),
         &err);
}

static void reduce(struct bench *b)
{
    struct codec_parts parts = {
        .blocks = (const void *const *)b->blocks, .n = PARTS, .len = codec_size(b->c, b->count)};
    struct merr err;
    uint32_t flags = 0;

    must(codec_decode_reduce(b->c, &parts, b->type, out_of(b), b->count, &flags, &err), &err);
}

static void reduce_encode(struct bench *b)
{
    struct codec_parts parts = {
        .blocks = (const void *const *)b->blocks, .n = PARTS, .len = codec_size(b->c, b->count)};
    struct merr err;
    uint32_t flags = 0;

    must(codec_decode_reduce_encode(b->c, &parts, b->c, &site, b->again, b->count, &flags, &err), &err);
}

static void difference(struct bench *b)
{
    (void)codec_encode_difference(b->c, &site, b->raw, b->type, out_of(b), b->count, b->blocks[0]);
}

static void add(struct bench *b)
{
    struct merr err;
    uint32_t flags = 0;

    must(codec_decode_add(b->c, b->blocks[0], codec_size(b->c, b->count), b->type, out_of(b), b->count, &flags, &err),
         &err);
}

static void speed_row(struct bench *b, const char *op, bench_fn fn, double goal)
{
    char metric[96];
    double ours, memcpys, gb = 1e-9 * (double)raw_bytes(b);

    compare(b, fn, copy, &ours, &memcpys);
    (void)snprintf(metric, sizeof(metric), "%s%s_%s_gbps", codec_name(b->c), b->type == CODEC_BF16 ? "_bf16" : "", op);
    report(metric, gb / ours, "GB/s", "memcpy of the raw values", memcpys / ours, goal > 0 ? GOAL_RATIO : NO_GOAL,
           goal);
}

/* sums: those of four blocks too. */
static void speeds_of(struct bench *b, const char *name, enum codec_type type, double goal, bool sums)
{
    struct merr err;

    b->type = type;
    must(codec_by_name(name, &b->c, &err), &err);
    for (int i = 0; i < PARTS; i++)
        (void)codec_encode(b->c, &site, type, raw_of(b), b->count, b->blocks[i]);
    speed_row(b, "encode", encode, goal);
    speed_row(b, "decode", decode, goal);
    if (sums) {
        speed_row(b, "decode_reduce_4", reduce, 0);
        speed_row(b, "decode_reduce_encode_4", reduce_encode, 0);
    }
    if (strncmp(name, "qwd", 3))
        return;
    copy(b);
    speed_row(b, "encode_difference", difference, goal);
    speed_row(b, "decode_add", add, goal);
}

static void bench_speed(struct bench *b)
{
    static const struct {
        const char *name;
        double goal;
        bool sums;
    } rows[] = {
        {"r8", 0.35, true},    {"r6", 0, true},       {"r4", 0, true},        {"g8", 0.35, true},   {"g4", 0, false},
        {"hs8", 0.3, true},    {"hs4", 0.3, true},    {"qwd4", 0.3, false},   {"qwd8", 0.3, false}, {"t8", 0.2, true},
        {"t8-g256", 0, false}, {"t8-e5m2", 0, false}, {"t8-paper", 0, false},
    };
    int samples = b->samples;

    for (size_t i = 0; i < COUNT(rows); i++) {
        if (b->only && strcmp(b->only, rows[i].name) != 0)
            continue;
        b->samples = strcmp(rows[i].name, "t8-paper") ? samples : 1; /* plain code: seconds a call */
        speeds_of(b, rows[i].name, CODEC_F32, rows[i].goal, rows[i].sums);
        speeds_of(b, rows[i].name, CODEC_BF16, rows[i].goal, false);
    }
    b->samples = samples;
}

/* --- errors and sizes -------------------------------------------------------------------------------------------- */

/* Signal to error of the first n values of raw. */
static double error_db(struct bench *b, const struct codec *c, size_t n)
{
    struct merr err;
    uint32_t flags = 0;

    (void)codec_encode(c, &site, CODEC_F32, b->raw, n, b->blocks[0]);
    must(codec_decode(c, b->blocks[0], codec_size(c, n), CODEC_F32, b->out, n, &flags, &err), &err);
    return data_db(data_nmse(b->raw, b->out, n));
}

static void bench_errors(struct bench *b)
{
    static const struct {
        const char *name;
        double db[DATA_KINDS]; /* 0: no figure is known */
    } rows[] = {
        {"r8", {43.7, 43.8, 44.3, 47.2, 47.9, 43.8, 44.0}},
        {"r6", {31.5, 31.6, 32.1, 34.7, 35.7}},
        {"r4", {18.6, 18.7, 19.2, 21.9, 22.7, 18.7, 18.9}},
        {"g8", {43.8, 41.0, 37, 33.4, 32.4, 44.5, 47.9}},
        {"g4", {18.6, 15.9, 13.0, 15.5, 11.7, 19.4, 22.7}},
        {"hs8", {40.8, 40.8, 40.8, 42.0, 41.9}},
        {"hs4", {15.6, 15.6, 15.7, 16.9, 16.7}},
        {"qwd4", {13.5, 9.4, 2.7}},
        {"t8", {31.8, 31.8, 31.8, 31.6, 31.4, 33.2, 41.6}},
        {"t8-paper", {31.8, 31.8, 31.8, 31.6, 31.4, 33.2, 41.6}},
        {"t8-e5m2", {25.7, 25.7, 25.6, 25.4, 25.4}},
    };
    const size_t n = b->count < (1u << 20) ? b->count : 1u << 20;
    struct merr err;

    for (int kind = 0; kind < DATA_KINDS; kind++) {
        for (size_t i = 0; i < n; i++)
            b->raw[i] = data_value((enum data_kind)kind, 1, i);
        for (size_t r = 0; r < COUNT(rows); r++) {
            char metric[96];
            const struct codec *c;
            double db;

            must(codec_by_name(rows[r].name, &c, &err), &err);
            db = error_db(b, c, n);
            (void)snprintf(metric, sizeof(metric), "%s_%s_sqnr_db", rows[r].name, data_names[kind]);
            if (rows[r].db[kind] > 0)
                report(metric, db, "dB", "figure of the specification", db / rows[r].db[kind], GOAL_VALUE,
                       rows[r].db[kind]);
            else
                report(metric, db, "dB", "none", 1, NO_GOAL, 0);
            (void)snprintf(metric, sizeof(metric), "%s_bits", rows[r].name);
            if (kind == 0)
                report(metric, 8.0 * (double)codec_size(c, n) / (double)n, "bit/value", "bf16",
                       16.0 * (double)n / (8.0 * (double)codec_size(c, n)), NO_GOAL, 0);
        }
    }
}

/* "gradients" of "/tmp/gradients.f32". */
static void name_of(const char *path, char *name, size_t room)
{
    const char *base = strrchr(path, '/');
    size_t n;

    base = base ? base + 1 : path;
    n = strcspn(base, ".");
    (void)snprintf(name, room, "%.*s", (int)(n < room ? n : room - 1), base);
}

/* Errors on the values of a file, beside those on as many of N(0, 1). */
static void bench_values(struct bench *b)
{
    static double real[64];
    char name[32], metric[96];
    const struct codec *c;
    size_t n;
    FILE *f = fopen(b->values, "rbe");

    if (!f)
        die(b->values, strerror(errno));
    n = fread(b->raw, sizeof(*b->raw), b->count, f);
    (void)fclose(f);
    if (n == 0)
        die(b->values, "holds no f32 numbers");
    name_of(b->values, name, sizeof(name));
    for (size_t i = 0; (c = codec_at(i)) != NULL && i < COUNT(real); i++)
        real[i] = error_db(b, c, n);
    for (size_t i = 0; i < n; i++)
        b->raw[i] = data_value(DATA_NORMAL, 1, i);
    for (size_t i = 0; (c = codec_at(i)) != NULL && i < COUNT(real); i++) {
        double normal = error_db(b, c, n);

        (void)snprintf(metric, sizeof(metric), "%s_%s_sqnr_db", codec_name(c), name);
        report(metric, real[i], "dB", "the same on as many of N(0, 1)", real[i] / normal, NO_GOAL, 0);
    }
}

/* --- lossless ---------------------------------------------------------------------------------------------------- */

enum { LOSSLESS_BYTES = 16 << 20 };

struct packed {
    struct chunk_form forms[LOSSLESS_BYTES / CHUNK_BYTES_MAX];
    size_t total;
};

static struct packed packed;
static enum chunk_codec lossless;
static size_t lossless_bytes;

static void copy_lossless(struct bench *b)
{
    memcpy(b->half_out, b->half, lossless_bytes);
}

static void pack_chunks(struct bench *b)
{
    packed.total = 0;
    for (size_t at = 0, i = 0; at < lossless_bytes; at += CHUNK_BYTES_MAX, i++) {
        size_t n = lossless_bytes - at < CHUNK_BYTES_MAX ? lossless_bytes - at : CHUNK_BYTES_MAX;

        chunk_encode(b->coder, lossless, 2, 1, (const uint8_t *)b->half + at, n, b->blocks[0] + at, &packed.forms[i]);
        if (packed.forms[i].codec == CHUNK_RAW)
            memcpy(b->blocks[0] + at, (const uint8_t *)b->half + at, n);
        packed.total += packed.forms[i].len;
    }
}

static void unpack_chunks(struct bench *b)
{
    for (size_t at = 0, i = 0; at < lossless_bytes; at += CHUNK_BYTES_MAX, i++) {
        size_t n = lossless_bytes - at < CHUNK_BYTES_MAX ? lossless_bytes - at : CHUNK_BYTES_MAX;

        if (chunk_decode(b->coder, &packed.forms[i], 2, b->blocks[0] + at, (uint8_t *)b->half_out + at, n))
            die("a chunk", "does not decode");
    }
}

static void load_bf16(struct bench *b)
{
    FILE *f;

    lossless_bytes = b->count * 2 < LOSSLESS_BYTES ? b->count * 2 : LOSSLESS_BYTES;
    if (!b->bf16_file) {
        for (size_t i = 0; i < lossless_bytes / 2; i++) {
            float x = data_value(DATA_NORMAL, 7, i) * 0.02f;
            uint32_t u;

            memcpy(&u, &x, 4);
            b->half[i] = (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
        }
        return;
    }
    f = fopen(b->bf16_file, "rbe");
    if (!f)
        die(b->bf16_file, strerror(errno));
    lossless_bytes = fread(b->half, 2, lossless_bytes / 2, f) * 2;
    (void)fclose(f);
    if (lossless_bytes == 0)
        die(b->bf16_file, "holds no bf16 numbers");
}

/* zstd and lz4 as they are, on the same bytes. */
static void bench_plain_packers(struct bench *b)
{
    size_t cap = ZSTD_compressBound(lossless_bytes), n;
    size_t lz4_cap = (size_t)LZ4_compressBound((int)lossless_bytes);
    uint8_t *to = room(cap > lz4_cap ? cap : lz4_cap);
    double begin = processor_s();

    n = ZSTD_compress(to, cap, b->half, lossless_bytes, 3);
    if (ZSTD_isError(n))
        die("zstd", ZSTD_getErrorName(n));
    report("zstd3_bf16_compress_gbps", 1e-9 * (double)lossless_bytes / (processor_s() - begin), "GB/s", "none", 1,
           NO_GOAL, 0);
    report("zstd3_bf16_ratio", (double)lossless_bytes / (double)n, "x", "none", 1, NO_GOAL, 0);
    begin = processor_s();
    n = (size_t)LZ4_compress_default((const char *)b->half, (char *)to, (int)lossless_bytes, (int)lz4_cap);
    report("lz4_bf16_compress_gbps", 1e-9 * (double)lossless_bytes / (processor_s() - begin), "GB/s", "none", 1,
           NO_GOAL, 0);
    report("lz4_bf16_ratio", (double)lossless_bytes / (double)n, "x", "none", 1, NO_GOAL, 0);
    free(to);
}

static void bench_lossless(struct bench *b)
{
    const char *from = b->bf16_file ? "1.48 on trained weights" : "1.48 on trained weights; these are N(0, 0.02)";
    double ours, memcpys, gb, ratio;

    load_bf16(b);
    gb = 1e-9 * (double)lossless_bytes;
    lossless = CHUNK_PLANE;
    compare(b, pack_chunks, copy_lossless, &ours, &memcpys);
    ratio = (double)lossless_bytes / (double)packed.total;
    report("plane_bf16_ratio", ratio, "x", from, ratio / 1.48, GOAL_VALUE, 1.48);
    report("plane_bf16_compress_gbps", gb / ours, "GB/s", "memcpy of the raw values", memcpys / ours, GOAL_VALUE, 1.2);
    compare(b, unpack_chunks, copy_lossless, &ours, &memcpys);
    unpack_chunks(b);
    if (memcmp(b->half, b->half_out, lossless_bytes) != 0)
        die("a chunk", "decodes to other bytes");
    report("plane_bf16_decompress_gbps", gb / ours, "GB/s", "memcpy of the raw values", memcpys / ours, GOAL_VALUE, 2);
    bench_plain_packers(b);
}

/* --- moments of AdamW -------------------------------------------------------------------------------------------- */

enum { MOMENTS = 1 << 19 };

static const struct optq_bounds moment_bounds = {.rho = 0.01f, .eb = 0x1p-7f};
static struct optq *moments;
static size_t moments_len;

static void copy_moments(struct bench *b)
{
    memcpy(b->out, b->raw, 2 * MOMENTS * sizeof(*b->raw));
}

static void pack_moments(struct bench *b)
{
    struct merr err;

    must(optq_encode(moments, &moment_bounds, b->raw, b->raw + MOMENTS, MOMENTS, b->blocks[0], &moments_len, &err),
         &err);
}

static void unpack_moments(struct bench *b)
{
    struct merr err;

    must(optq_decode(moments, b->blocks[0], moments_len, b->out, b->out + MOMENTS, MOMENTS, &err), &err);
}

static void bench_moments(struct bench *b)
{
    const double gb = 1e-9 * 2 * MOMENTS * sizeof(*b->raw);
    double ours, memcpys, bits;

    moments = optq_new();
    if (!moments)
        die("memory", "not enough for a coder of moments");
    for (size_t i = 0; i < MOMENTS; i++) {
        float size = exp2f(1.55f * data_value(DATA_NORMAL, 1, i) - 13);

        b->raw[i] = 0.2294f * size * data_value(DATA_NORMAL, 2, i);
        b->raw[MOMENTS + i] = size * size;
    }
    compare(b, pack_moments, copy_moments, &ours, &memcpys);
    bits = 8.0 * (double)moments_len / MOMENTS;
    report("optq_bits", bits, "bit/element", "64 raw; 14.6 published of other moments", 64 / bits, NO_GOAL, 0);
    report("optq_encode_gbps", gb / ours, "GB/s", "memcpy of the raw values", memcpys / ours, NO_GOAL, 0);
    compare(b, unpack_moments, copy_moments, &ours, &memcpys);
    report("optq_decode_gbps", gb / ours, "GB/s", "memcpy of the raw values", memcpys / ours, NO_GOAL, 0);
    optq_free(moments);
}

/* --- the sum of what leaves a node ------------------------------------------------------------------------------- */

enum { FRAME = 256 << 10, FRAMES = 16 };

static void sum_frames(struct bench *b)
{
    volatile uint64_t all = 0;

    for (size_t i = 0; i < FRAMES; i++)
        all ^= hash_xxh3((const char *)b->raw + i * FRAME, FRAME);
}

static void copy_frames(struct bench *b)
{
    memcpy(b->out, b->raw, FRAMES * FRAME);
}

static void bench_checksum(struct bench *b)
{
    double ours, memcpys;

    compare(b, sum_frames, copy_frames, &ours, &memcpys);
    report("wire_checksum_gbps", 1e-9 * FRAMES * FRAME / ours, "GB/s", "memcpy of the same bytes", memcpys / ours,
           NO_GOAL, 0);
}

/* --- main -------------------------------------------------------------------------------------------------------- */

static void make_buffers(struct bench *b)
{
    const struct codec *c;
    size_t most = 4 * b->count;

    for (size_t i = 0; (c = codec_at(i)) != NULL; i++)
        most = codec_size(c, b->count) > most ? codec_size(c, b->count) : most;
    b->raw = room(4 * b->count);
    b->out = room(4 * b->count);
    b->half = room(2 * b->count);
    b->half_out = room(2 * b->count);
    for (int i = 0; i < PARTS; i++)
        b->blocks[i] = room(i ? most / 2 : most);
    b->again = room(most / 2);
    b->coder = chunk_coder_new();
    if (!b->coder)
        die("memory", "not enough for a chunk coder");
    for (size_t i = 0; i < b->count; i++) {
        uint32_t u;

        b->raw[i] = data_value(DATA_NORMAL, 3, i % 65536); /* any numbers: no time depends on them */
        memcpy(&u, &b->raw[i], 4);
        b->half[i] = (uint16_t)(u >> 16);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.count = 16u << 20, .samples = 5};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            b.count = 1u << 20;
            b.samples = 1;
        } else if (strcmp(argv[i], "--path") == 0 && i + 1 < argc) {
            if (codec_use(argv[++i]))
                die("--path", "want plain, avx2 or avx512, on a processor that has it");
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            b.only = argv[++i];
        } else if (strcmp(argv[i], "--bf16") == 0 && i + 1 < argc) {
            b.bf16_file = argv[++i];
        } else if (strcmp(argv[i], "--values") == 0 && i + 1 < argc) {
            b.values = argv[++i];
        } else {
            (void)fprintf(stderr, "usage: compress [--quick] [--only CODEC] [--path plain|avx2|avx512] "
                                  "[--bf16 FILE] [--values FILE]\n");
            return 2;
        }
    }
    make_buffers(&b);
    if (b.values)
        bench_values(&b);
    else
        bench_speed(&b);
    if (!b.values && (!b.only || !strcmp(b.only, "errors")))
        bench_errors(&b);
    if (!b.values && (!b.only || !strcmp(b.only, "plane")))
        bench_lossless(&b);
    if (!b.values && (!b.only || !strcmp(b.only, "optq")))
        bench_moments(&b);
    if (!b.values && (!b.only || !strcmp(b.only, "checksum")))
        bench_checksum(&b);
    chunk_coder_free(b.coder);
    for (int i = 0; i < PARTS; i++)
        free(b.blocks[i]);
    free(b.again);
    free(b.raw);
    free(b.out);
    free(b.half);
    free(b.half_out);
    return 0;
}
