/* Every codec on the GPU: the processor's blocks and values, bit for bit, of numbers of all kinds; bad blocks are
 * refused with the processor's own words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/group.h"
#include "tests/gpu/check.h"

#define PARTS 3
#define ROOM ((size_t)1 << 20)
#define GUARD 64

struct bench { /* arrays on both sides; each on the device between guards */
    struct check *c;
    const struct kern_ops *k;
    const struct codec_cuda *g;
    void *queue;
    struct codec_cuda_report *report;
    uint64_t tag;    /* of the calls that the next report is of */
    char *device[8]; /* of ROOM bytes and two guards */
    char *got, *want, *raw[PARTS], *block[PARTS];
    size_t count, len;
    const struct codec *codec;
    enum codec_type type;
    struct codec_site site;
    char what[80];
};

static void must(int r, const struct merr *err)
{
    if (r) {
        (void)fprintf(stderr, "check: codecs: %s\n", err->text);
        exit(1);
    }
}

static size_t size_of(enum codec_type t)
{
    return t == CODEC_BF16 ? 2 : 4;
}

/* Put bytes at the start of device array i, which otherwise holds the guard's pattern. */
static void *put(struct bench *b, int i, const void *from, size_t bytes)
{
    struct merr err;

    memset(b->got, 0x5A, ROOM + 2 * GUARD);
    if (bytes > 0)
        memcpy(b->got + GUARD, from, bytes);
    must(b->k->copy(b->c->s, b->device[i], b->got, ROOM + 2 * GUARD, &err), &err);
    return b->device[i] + GUARD;
}

/* Compare device array i with bytes of want, and what is around it with the guard's pattern. */
static void same(struct bench *b, int i, size_t bytes, const char *what)
{
    char name[96], wrong[128] = "";
    struct merr err;
    size_t at = 0;

    must(b->k->copy(b->c->s, b->got, b->device[i], ROOM + 2 * GUARD, &err), &err);
    while (at < bytes && b->got[GUARD + at] == b->want[at])
        at++;
    if (at < bytes)
        (void)snprintf(wrong, sizeof(wrong), "byte %zu of %zu is 0x%02x, the processor writes 0x%02x", at, bytes,
                       (unsigned char)b->got[GUARD + at], (unsigned char)b->want[at]);
    for (at = 0; at < ROOM + 2 * GUARD && !wrong[0]; at++)
        if ((at < GUARD || at >= GUARD + bytes) && b->got[at] != 0x5A)
            (void)snprintf(wrong, sizeof(wrong), "it wrote at byte %zd of %zu", (ssize_t)at - GUARD, bytes);
    if (wrong[0]) {
        (void)snprintf(name, sizeof(name), "%.60s %s", b->what, what);
        check_note(b->c, name, 0, 0, wrong);
    }
}

/* Compare what the GPU reports with the processor's return value, flags and words. */
static void same_report(struct bench *b, int want, uint32_t want_flags, const struct merr *want_err, const char *what)
{
    char name[96], wrong[400] = "";
    struct codec_cuda_fault fault = {0, 0};
    struct merr err = {""};
    uint32_t flags = 0;
    size_t block = 0;
    int r;

    must(b->g->fetch(b->queue, b->report, &err), &err);
    must(b->c->gpu->kernels->stream_sync(b->c->s, &err), &err);
    r = b->g->collect(b->report, &flags, &fault, &err);
    (void)sscanf(err.text, "block %zu of", &block);
    if (r != 0 && (fault.tag != b->tag || fault.block != block))
        (void)snprintf(wrong, sizeof(wrong), "it blames block %zu of call %llu, not %zu of %llu", fault.block,
                       (unsigned long long)fault.tag, block, (unsigned long long)b->tag);
    b->g->report_tag(b->report, ++b->tag);
    if (r != want || (r == 0 && flags != want_flags) || (r != 0 && strcmp(err.text, want_err->text) != 0))
        (void)snprintf(wrong, sizeof(wrong), "it reports %d, flags %u, '%.100s'; the processor %d, %u, '%.100s'", r,
                       flags, err.text, want, want_flags, want ? want_err->text : "");
    if (wrong[0]) {
        (void)snprintf(name, sizeof(name), "%.60s %s", b->what, what);
        check_note(b->c, name, 0, 0, wrong);
    }
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* A run of numbers of all kinds: ordinary, zeros, huge, tiny, now and then not finite. */
static void fill(struct bench *b, char *to)
{
    size_t i = 0;

    while (i < b->count) {
        size_t len = (size_t)check_range(b->c, 1, 700);
        int kind = check_range(b->c, 0, 7);
        float size = kind == 0 ? 0 : kind == 1 ? 1e37f : kind == 2 ? 1e-38f : kind == 3 ? 1e-44f : 1;

        for (; len > 0 && i < b->count; len--, i++) {
            float x = size * check_uniform(b->c);

            if (check_range(b->c, 0, 999) == 0)
                x = kind % 2 ? NAN : -INFINITY;
            if (b->type == CODEC_BF16)
                ((uint16_t *)(void *)to)[i] = bf16_from_float(x);
            else
                ((float *)(void *)to)[i] = x;
        }
    }
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void check_encode(struct bench *b)
{
    struct merr err = {""};
    uint32_t flags = codec_encode(b->codec, &b->site, b->type, b->raw[0], b->count, b->want);
    void *in = put(b, 0, b->raw[0], b->count * size_of(b->type)), *out = put(b, 1, NULL, 0);

    must(b->g->encode(b->queue, b->codec, &b->site, b->type, in, b->count, out, b->report, &err), &err);
    same_report(b, 0, flags, NULL, "encode");
    same(b, 1, b->len, "encode");
}

static void check_decode(struct bench *b, const char *block, const char *what)
{
    struct merr err = {""}, mine = {""};
    uint32_t flags = 0;
    int r = codec_decode(b->codec, block, b->len, b->type, b->want, b->count, &flags, &err);
    void *in = put(b, 0, block, b->len), *out = put(b, 1, NULL, 0);

    must(b->g->decode(b->queue, b->codec, in, b->len, b->type, out, b->count, b->report, &mine), &mine);
    same_report(b, r, flags, &err, what);
    if (r == 0)
        same(b, 1, b->count * size_of(b->type), what);
}

static void check_difference(struct bench *b)
{
    struct merr err = {""};
    uint32_t flags;
    void *master, *replica, *out;
    float *full = (float *)(void *)b->block[1]; /* not in use yet */

    for (size_t i = 0; i < b->count; i++) /* near the replica, mostly */
        full[i] = (b->type == CODEC_BF16 ? bf16_to_float(((uint16_t *)(void *)b->raw[1])[i])
                                         : ((float *)(void *)b->raw[1])[i]) +
                  1e-3f * check_uniform(b->c);
    flags = codec_encode_difference(b->codec, &b->site, full, b->type, b->raw[1], b->count, b->want);
    master = put(b, 0, full, b->count * sizeof(float));
    replica = put(b, 1, b->raw[1], b->count * size_of(b->type));
    out = put(b, 2, NULL, 0);
    must(
        b->g->encode_difference(b->queue, b->codec, &b->site, master, b->type, replica, b->count, out, b->report, &err),
        &err);
    same_report(b, 0, flags, NULL, "difference");
    same(b, 2, b->len, "difference");
}

static void check_add(struct bench *b, const char *block, const char *what)
{
    struct merr err = {""}, mine = {""};
    size_t bytes = b->count * size_of(b->type);
    uint32_t flags = 0;
    void *in = put(b, 0, block, b->len), *out = put(b, 1, b->raw[1], bytes);
    int r;

    memcpy(b->want, b->raw[1], bytes);
    r = codec_decode_add(b->codec, block, b->len, b->type, b->want, b->count, &flags, &err);
    must(b->g->decode_add(b->queue, b->codec, in, b->len, b->type, out, b->count, b->report, &mine), &mine);
    same_report(b, r, flags, &err, what);
    same(b, 1, bytes, what); /* unchanged when the block is bad */
}

/* Sums of PARTS blocks, or of all but one of them and raw values. bad: in the place of the last, or NULL. */
static void check_reduce(struct bench *b, bool own, bool again, const char *bad, const char *what)
{
    const void *blocks[PARTS], *on_device[PARTS];
    struct codec_parts p = {.blocks = blocks, .n = PARTS, .len = b->len, .own_type = b->type};
    struct codec_site site = b->site;
    struct merr err = {""}, mine = {""};
    uint32_t flags = 0;
    void *out;
    int r;

    site.step++;
    for (int i = 0; i < PARTS; i++) {
        blocks[i] = own && i == 1 ? NULL : bad && i == PARTS - 1 ? bad : b->block[i];
        on_device[i] = blocks[i] ? put(b, i, blocks[i], b->len) : NULL;
    }
    p.own = own ? b->raw[1] : NULL;
    if (again)
        r = codec_decode_reduce_encode(b->codec, &p, b->codec, &site, b->want, b->count, &flags, &err);
    else
        r = codec_decode_reduce(b->codec, &p, b->type, b->want, b->count, &flags, &err);
    p.blocks = on_device;
    p.own = own ? put(b, PARTS, b->raw[1], b->count * size_of(b->type)) : NULL;
    out = put(b, PARTS + 1, NULL, 0);
    if (again)
        must(b->g->decode_reduce_encode(b->queue, b->codec, &p, b->codec, &site, out, b->count, b->report, &mine),
             &mine);
    else
        must(b->g->decode_reduce(b->queue, b->codec, &p, b->type, out, b->count, b->report, &mine), &mine);
    same_report(b, r, flags, &err, what);
    if (r == 0)
        same(b, PARTS + 1, again ? b->len : b->count * size_of(b->type), what);
}

/* Blocks with one byte changed anywhere, more often where much depends on it. */
static void check_bad_blocks(struct bench *b)
{
    char *bad = b->raw[2]; /* not needed any more */

    for (int i = 0; i < (b->c->quick ? 6 : 24); i++) {
        size_t codes = (group_codes_bytes(b->codec, b->count) + 15) / 16 * 16;
        size_t at = i % 3 == 0   ? b->len - 1 - check_word(b->c) % 16
                    : i % 3 == 1 ? codes + check_word(b->c) % (b->len - 16 - codes)
                                 : check_word(b->c) % b->len;

        memcpy(bad, b->block[0], b->len);
        bad[at] = (char)(i % 2 ? 0x80 : check_word(b->c));
        if (i % 3 == 1) /* a whole group's scale */
            memset(bad + at / 8 * 8, i % 2 ? 0xFF : 0, 8);
        check_decode(b, bad, "decode of a damaged block");
        check_add(b, bad, "addition of a damaged block");
        check_reduce(b, false, i % 2, bad, "sum with a damaged block");
    }
}

static void check_codec(struct bench *b)
{
    int failed = b->c->failed;

    (void)snprintf(b->what, sizeof(b->what), "%s %s %zu", codec_name(b->codec), b->type == CODEC_BF16 ? "bf16" : "f32",
                   b->count);
    b->len = codec_size(b->codec, b->count);
    b->site = (struct codec_site){.seed = check_word(b->c),
                                  .tensor = (uint32_t)check_range(b->c, 0, 99),
                                  .step = (uint32_t)check_range(b->c, 0, 99999),
                                  .micro = 3,
                                  .offset = check_range(b->c, 0, 2) ? 4096 : check_word(b->c) >> 20};
    for (int i = 0; i < PARTS; i++)
        fill(b, b->raw[i]);
    check_encode(b);
    check_difference(b);
    for (int i = 0; i < PARTS; i++)
        (void)codec_encode(b->codec, &b->site, b->type, b->raw[i], b->count, b->block[i]);
    check_decode(b, b->block[0], "decode");
    check_add(b, b->block[0], "decode and add");
    check_reduce(b, false, false, NULL, "reduce");
    check_reduce(b, true, false, NULL, "reduce with own values");
    check_reduce(b, false, true, NULL, "reduce and encode");
    check_reduce(b, true, true, NULL, "reduce with own values and encode");
    if (b->count > 0)
        check_bad_blocks(b);
    if (b->c->failed == failed) /* failures were noted one by one */
        check_note(b->c, b->what, 0, 0, "");
}

void check_codecs(struct check *c)
{
    static const size_t counts[] = {1, 127, 2048, 5003, 0};
    struct bench b = {.c = c, .k = c->gpu->kernels, .g = c->gpu->codecs};
    size_t n = sizeof(counts) / sizeof(counts[0]);
    struct merr err;
    char **host[] = {&b.got, &b.want, &b.raw[0], &b.raw[1], &b.raw[2], &b.block[0], &b.block[1], &b.block[2]};

    b.queue = c->gpu->native_stream(c->s);
    must(b.g->report_new(&b.report, &err), &err);
    for (size_t i = 0; i < 8; i++) {
        void *p;

        must(b.k->mem_alloc(c->s, ROOM + 2 * GUARD, &p, &err), &err);
        b.device[i] = p;
        *host[i] = malloc(ROOM + 2 * GUARD);
        must(*host[i] ? 0 : merr_set(&err, -1, "no memory"), &err);
    }
    for (size_t e = 0; (b.codec = codec_at(e)) != NULL; e++)
        for (size_t i = 0; i < n; i++) {
            b.count = counts[i] == 5003 ? (size_t)check_range(c, 2049, c->quick ? 5000 : 60000) : counts[i];
            b.type = (e + i) % 2 || !c->quick ? CODEC_F32 : CODEC_BF16;
            check_codec(&b);
            b.type = CODEC_BF16;
            if (!c->quick)
                check_codec(&b);
        }
    for (size_t i = 0; i < 8; i++) {
        b.k->mem_free(c->s, b.device[i]);
        free(*host[i]);
    }
    b.g->report_free(b.report);
}
