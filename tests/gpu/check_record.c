/* Calls that are recorded beside the same calls made each time: what they leave has to have the same bits, while the
 * numbers that they read from the host change from round to round, and with them the arrays they work on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

#define ROWS 40
#define HEADS 2
#define DIM 8
#define HIDDEN (HEADS * DIM)
#define QKV (3 * HIDDEN)
#define ROUNDS 4
#define KEYS 140   /* more than are kept */
#define SLICES 200 /* of one array: more than arrays that are read again */

enum { X, QKVS, OUT, LSE, DQKV, Y, DROPPED, W, M, V, GAMMA, DGAMMA, RSTD, MATRIX, LONG, ARRAYS };

static const size_t floats[ARRAYS] = {
    [X] = ROWS * HIDDEN,
    [QKVS] = ROWS * QKV,
    [OUT] = ROWS * HIDDEN,
    [LSE] = ROWS * HEADS,
    [DQKV] = ROWS * QKV,
    [Y] = ROWS * HIDDEN,
    [DROPPED] = ROWS * HIDDEN,
    [W] = 3000,
    [M] = 3000,
    [V] = 3000,
    [GAMMA] = HIDDEN,
    [DGAMMA] = HIDDEN,
    [RSTD] = ROWS,
    [MATRIX] = HIDDEN * HIDDEN,
    [LONG] = 4096 * HIDDEN,
};

struct part { /* of a block's work, on a stream of its own */
    const struct kern_ops *k;
    struct kern_stream *s;
    float *a[ARRAYS];
    bool waits, grows; /* among its calls is one that cannot be recorded; that takes more workspace */
    int calls;         /* times that they were made */
    /* what calls read from the host */
    int32_t cu[3], position[ROWS];
    uint64_t sample[ROWS], samples[2];
    uint32_t keys[2 * HEADS];
    float freq[DIM / 2];
    struct kern_adamw_step step;
    int32_t token[2 * SLICES];
};

static void die(const char *what, const struct merr *err)
{
    (void)fprintf(stderr, "check: %s: %s\n", what, err->text);
    exit(1);
}

static int attend(struct part *p, struct merr *err)
{
    const struct kern_attention a = {
        .tokens = ROWS,
        .heads = HEADS,
        .kv_heads = HEADS,
        .dim = DIM,
        .ld = QKV,
        .cu = p->cu,
        .docs = 2,
        .scale = 0.3f,
        .qkv = p->a[QKVS],
        .out = p->a[OUT],
        .lse = p->a[LSE],
        .dropout = 0.25f,
        .drop_threshold = 1u << 30,
        .drop_keys = p->keys,
        .samples = p->samples,
        .dout = p->a[X],
        .dqkv = p->a[DQKV],
    };
    int r = p->k->attention_forward(p->s, &a, err);

    return r ? r : p->k->attention_backward(p->s, &a, err);
}

static int calls(void *arg, struct merr *err)
{
    struct part *p = arg;
    const struct kern_ops *k = p->k;
    const struct kern_gemm g = {.m = ROWS,
                                .n = HIDDEN,
                                .k = HIDDEN,
                                .a = p->a[OUT],
                                .lda = HIDDEN,
                                .b = p->a[MATRIX],
                                .ldb = HIDDEN,
                                .c = p->a[Y],
                                .ldc = HIDDEN};
    const struct kern_dropout d = {.rows = ROWS,
                                   .cols = HIDDEN,
                                   .ld = HIDDEN,
                                   .p = 0.25f,
                                   .threshold = 1u << 30,
                                   .key = {3, 4},
                                   .position = p->position,
                                   .sample = p->sample};
    const struct kern_adamw w = {.n = 3000,
                                 .w = p->a[W],
                                 .m = p->a[M],
                                 .v = p->a[V],
                                 .g = p->a[LONG],
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .step = &p->step};
    int r = k->rope(p->s, KERN_F32, p->a[QKVS], ROWS, 2 * HEADS, DIM, QKV, p->position, p->freq, false, err);

    p->calls++;
    if (r == 0)
        r = attend(p, err);
    if (r == 0)
        r = k->gemm(p->s, &g, err);
    if (r == 0)
        r = k->dropout(p->s, &d, p->a[Y], p->a[DROPPED], err);
    if (r == 0)
        r = k->copy(p->s, p->a[X], p->a[DROPPED], floats[X] * sizeof(float), err);
    if (r == 0)
        r = k->rmsnorm_forward(p->s, KERN_F32, p->a[X], p->a[GAMMA], 1e-5f, ROWS, HIDDEN, p->a[Y], p->a[RSTD], err);
    if (r == 0)
        r = k->rmsnorm_backward(p->s, p->a[Y], p->a[X], p->a[GAMMA], p->a[RSTD], ROWS, HIDDEN, p->a[X], true,
                                p->a[DGAMMA], err);
    if (r == 0)
        r = k->adamw(p->s, &w, err);
    if (r == 0 && p->waits)
        r = k->stream_sync(p->s, err);
    return r;
}

/* A call of another shape, between recorded ones. */
static int long_sum(struct part *p, struct merr *err)
{
    return p->k->bias_gradient(p->s, KERN_F32, p->a[LONG], 4096, HIDDEN, HIDDEN, p->a[DGAMMA], err);
}

static void part_open(struct check *c, struct part *p, bool record)
{
    const struct kern_cfg cfg = {.threads = 1, .record = record, .apart = c->apart};
    struct merr err = {""};

    *p = (struct part){.k = c->gpu->kernels};
    if (p->k->stream_new(&cfg, &p->s, &err))
        die("a stream", &err);
    for (int i = 0; i < ARRAYS; i++)
        if (p->k->mem_alloc(p->s, floats[i] * sizeof(float), (void **)&p->a[i], &err))
            die("memory", &err);
}

static void part_close(struct part *p)
{
    for (int i = 0; i < ARRAYS; i++)
        p->k->mem_free(p->s, p->a[i]);
    p->k->stream_free(p->s);
}

/* The same numbers for both parts: arrays of the device once, what calls read from the host in each round. */
static void fill_both(struct check *c, struct part *p, struct part *q)
{
    struct merr err = {""};

    for (int i = 0; i < ARRAYS; i++) {
        float *x = malloc(floats[i] * sizeof(*x));

        if (!x)
            exit(1);
        for (size_t n = 0; n < floats[i]; n++)
            x[n] = i == V || i == M ? 0 : check_uniform(c);
        if (p->k->copy(p->s, p->a[i], x, floats[i] * sizeof(*x), &err) ||
            q->k->copy(q->s, q->a[i], x, floats[i] * sizeof(*x), &err))
            die("a copy", &err);
        free(x);
    }
}

static void change_both(struct check *c, struct part *p, struct part *q)
{
    static const int32_t cu[3] = {0, 17, ROWS};

    for (int i = 0; i < ROWS; i++) {
        p->position[i] = check_range(c, 0, 500);
        p->sample[i] = check_word(c);
    }
    for (int i = 0; i < 2; i++)
        p->samples[i] = check_word(c);
    for (int i = 0; i < 2 * HEADS; i++)
        p->keys[i] = (uint32_t)i;
    for (int i = 0; i < DIM / 2; i++)
        p->freq[i] = 1 / (float)(1 + i);
    memcpy(p->cu, cu, sizeof(cu));
    p->step = (struct kern_adamw_step){.grad_scale = check_uniform(c),
                                       .lr = 0.01f * check_uniform(c),
                                       .inv_bias1 = 2 + check_uniform(c),
                                       .inv_bias2 = 3 + check_uniform(c)};
    memcpy(q->cu, p->cu, sizeof(q->cu));
    memcpy(q->position, p->position, sizeof(q->position));
    memcpy(q->sample, p->sample, sizeof(q->sample));
    memcpy(q->samples, p->samples, sizeof(q->samples));
    memcpy(q->keys, p->keys, sizeof(q->keys));
    memcpy(q->freq, p->freq, sizeof(q->freq));
    q->step = p->step;
}

static bool same_bits(struct part *p, struct part *q)
{
    bool same = true;

    for (int i = 0; i < ARRAYS; i++) {
        char *x = malloc(floats[i] * sizeof(float)), *y = malloc(floats[i] * sizeof(float));
        struct merr err = {""};

        if (!x || !y)
            exit(1);
        if (p->k->copy(p->s, x, p->a[i], floats[i] * sizeof(float), &err) ||
            q->k->copy(q->s, y, q->a[i], floats[i] * sizeof(float), &err))
            die("a copy", &err);
        same &= memcmp(x, y, floats[i] * sizeof(float)) == 0;
        free(x);
        free(y);
    }
    return same;
}

/* Rounds of both parts; what the recorded one tells afterwards. wrong: "" when they have the same bits. */
static void rounds(struct check *c, struct part *p, struct part *q, int n, struct kern_recordings *ret, char *wrong,
                   size_t size)
{
    static const int number = 7;
    const struct kern_key key = {
        .head = &number, .head_bytes = sizeof(number), .list = p->cu, .list_bytes = sizeof(p->cu)};
    struct merr err = {""};

    for (int i = 0; i < n && !wrong[0]; i++) {
        change_both(c, p, q);
        if (kern_recorded(p->k, p->s, &key, calls, p, &err) || calls(q, &err))
            (void)snprintf(wrong, size, "round %d: %.120s", i, err.text);
        else if (p->grows && i == n / 2 && (long_sum(p, &err) || long_sum(q, &err)))
            (void)snprintf(wrong, size, "a long sum: %.120s", err.text);
        else if (!same_bits(p, q))
            (void)snprintf(wrong, size, "round %d has other bits than calls that are not recorded", i);
    }
    p->k->recordings(p->s, ret);
}

static void run(struct check *c, const char *what, bool waits, bool grows, struct kern_recordings want)
{
    struct kern_recordings got = {.made = 0};
    struct part p, q;
    char wrong[160] = "";
    int n = grows ? 2 * ROUNDS : ROUNDS;

    part_open(c, &p, true);
    part_open(c, &q, false);
    p.waits = q.waits = waits;
    p.grows = grows;
    fill_both(c, &p, &q);
    rounds(c, &p, &q, n, &got, wrong, sizeof(wrong));
    if (!wrong[0] && (got.made != want.made || got.launched != want.launched || got.refused != want.refused))
        (void)snprintf(wrong, sizeof(wrong), "%d graphs, %d launches, %d refused: %.100s", (int)got.made,
                       (int)got.launched, (int)got.refused, got.why);
    if (!wrong[0] && want.refused == 0 && p.calls != n - (int)want.launched + (int)want.made)
        (void)snprintf(wrong, sizeof(wrong), "calls were made %d times", p.calls);
    if (!wrong[0] && (want.refused > 0) != (got.why[0] != '\0'))
        (void)snprintf(wrong, sizeof(wrong), "the words for what is refused are '%.100s'", got.why);
    check_note(c, what, 0, 0, wrong);
    part_close(&p);
    part_close(&q);
}

/* As the head does it: rows by rows, each with its part of one array. */
static int embed_slices(void *arg, struct merr *err)
{
    struct part *p = arg;
    float *rows = p->a[LONG] + 2048 * HIDDEN;
    int r = 0;

    for (int i = 0; i < SLICES && r == 0; i++)
        r = p->k->embedding_forward(p->s, KERN_F32, p->a[LONG], 0, 2048, HIDDEN, p->token + 2 * i, 2,
                                    rows + 2 * i * HIDDEN, err);
    return r;
}

static void slices(struct check *c)
{
    static const int number = 8;
    const struct kern_key key = {.head = &number, .head_bytes = sizeof(number)};
    struct kern_recordings told;
    struct merr err = {""};
    char wrong[160] = "";
    struct part p, q;

    part_open(c, &p, true);
    part_open(c, &q, false);
    fill_both(c, &p, &q);
    for (int round = 0; round < 3 && !wrong[0]; round++) {
        for (int i = 0; i < 2 * SLICES; i++)
            p.token[i] = q.token[i] = check_range(c, 0, 2047);
        if (kern_recorded(p.k, p.s, &key, embed_slices, &p, &err) || embed_slices(&q, &err))
            (void)snprintf(wrong, sizeof(wrong), "round %d: %.120s", round, err.text);
        else if (!same_bits(&p, &q))
            (void)snprintf(wrong, sizeof(wrong), "round %d has other bits than calls that are not recorded", round);
    }
    p.k->recordings(p.s, &told);
    if (!wrong[0] && (told.made != 1 || told.refused != 0))
        (void)snprintf(wrong, sizeof(wrong), "%d graphs, %d refused: %.100s", (int)told.made, (int)told.refused,
                       told.why);
    check_note(c, "recorded calls that upload many parts of one array", 0, 0, wrong);
    part_close(&p);
    part_close(&q);
}

static int one_sum(void *arg, struct merr *err)
{
    struct part *p = arg;

    return p->k->add(p->s, p->a[Y], p->a[X], floats[X], err);
}

/* Keys from 0 on, each some times in a row, with these calls; wrong: which of them failed and why. */
static struct kern_recordings each_key(const struct kern_ops *k, struct kern_stream *s, int keys, int times,
                                       kern_calls make, void *arg, char *wrong, size_t size)
{
    struct kern_recordings told;
    struct merr err = {""};

    for (int i = 0; i < times * keys && !wrong[0]; i++) {
        const int number = i / times;
        const struct kern_key key = {.head = &number, .head_bytes = sizeof(number)};

        if (kern_recorded(k, s, &key, make, arg, &err))
            (void)snprintf(wrong, size, "key %d: %.120s", number, err.text);
    }
    k->recordings(s, &told);
    return told;
}

/* Far more keys than are kept. */
static void many_keys(struct check *c)
{
    struct kern_recordings told;
    struct part p;
    char wrong[160] = "";

    part_open(c, &p, true);
    told = each_key(p.k, p.s, KEYS, 3, one_sum, &p, wrong, sizeof(wrong));
    if (!wrong[0] && (told.made != KEYS || told.launched != 2 * KEYS || told.refused != 0))
        (void)snprintf(wrong, sizeof(wrong), "%d graphs, %d launches, %d refused", (int)told.made, (int)told.launched,
                       (int)told.refused);
    check_note(c, "recorded calls with more keys than are kept", 0, 0, wrong);
    part_close(&p);
}

/* Uploads without work: dropout of no columns, from `arrays` places or of many rows. */
struct uploads {
    const struct kern_ops *k;
    struct kern_stream *s;
    int rows, arrays;
    int32_t *position;
    uint64_t *sample;
};

static int upload_only(void *arg, struct merr *err)
{
    const struct uploads *u = arg;
    int r = 0;

    for (int i = 0; i < u->arrays && r == 0; i++) {
        const struct kern_dropout d = {.rows = u->rows, .position = u->position + i, .sample = u->sample + i};

        r = u->k->dropout(u->s, &d, NULL, NULL, err);
    }
    return r;
}

/* Each of n keys twice: all calls end well, and of what is recorded ends what has to, with these words. */
static void limit(struct check *c, const char *what, int rows, int arrays, int n, const char *words)
{
    const struct kern_cfg cfg = {.threads = 1, .record = true, .apart = c->apart};
    struct uploads u = {.k = c->gpu->kernels, .rows = rows, .arrays = arrays};
    struct kern_recordings told;
    char wrong[160] = "";
    struct merr err = {""};

    u.position = calloc((size_t)(rows + arrays), sizeof(*u.position));
    u.sample = calloc((size_t)(rows + arrays), sizeof(*u.sample));
    if (!u.position || !u.sample || u.k->stream_new(&cfg, &u.s, &err))
        die("a stream", &err);
    told = each_key(u.k, u.s, n, 2, upload_only, &u, wrong, sizeof(wrong));
    if (!wrong[0] && (told.refused != 1 || told.made != (uint64_t)n - 1 || !strstr(told.why, words)))
        (void)snprintf(wrong, sizeof(wrong), "%d graphs, %d refused: '%.100s'", (int)told.made, (int)told.refused,
                       told.why);
    check_note(c, what, 0, 0, wrong);
    u.k->stream_free(u.s);
    free(u.position);
    free(u.sample);
}

void check_record(struct check *c)
{
    limit(c, "recorded calls that upload from too many places", 1, 200, 1, "or more than 128 arrays");
    limit(c, "recorded calls that upload too much", 3000000, 1, 1, "more than the 33554432 that there is room for");
    limit(c, "recorded calls for which places run out", 900000, 1, 13, "ran out 4 times");
    run(c, "recorded calls that read other numbers each time", false, false,
        (struct kern_recordings){.made = 1, .launched = ROUNDS - 1});
    run(c, "recorded calls when workspace moves in between", false, true,
        (struct kern_recordings){.made = 2, .launched = 2 * ROUNDS - 2});
    run(c, "calls that wait, which cannot be recorded", true, false, (struct kern_recordings){.refused = 1});
    many_keys(c);
    slices(c);
}
