/* Attention with kept keys and values against attention over the whole sequence at once. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/kernels/kernels.h"

enum { HEADS = 6, KV = 2, DIM = 8, LD = (HEADS + 2 * KV) * DIM + 3, TOKENS = 600 };

struct sequence {
    float *qkv, *whole, *lse, *keys, *values, *out;
};

static struct sequence make(const struct kern_ops *k, struct kern_stream *s)
{
    static const int32_t cu[] = {0, TOKENS};
    struct sequence q = {
        calloc((size_t)TOKENS * LD, sizeof(float)),       calloc((size_t)TOKENS * HEADS * DIM, sizeof(float)),
        calloc((size_t)TOKENS * HEADS, sizeof(float)),    calloc((size_t)TOKENS * KV * DIM, sizeof(float)),
        calloc((size_t)TOKENS * KV * DIM, sizeof(float)), calloc((size_t)TOKENS * HEADS * DIM, sizeof(float)),
    };
    struct kern_attention a = {
        .tokens = TOKENS,
        .heads = HEADS,
        .kv_heads = KV,
        .dim = DIM,
        .ld = LD,
        .cu = cu,
        .docs = 1,
        .scale = 0.5f,
        .qkv = q.qkv,
        .out = q.whole,
        .lse = q.lse,
    };
    uint32_t word = 4711;

    for (size_t i = 0; i < (size_t)TOKENS * LD; i++) {
        word = word * 1664525u + 1013904223u;
        q.qkv[i] = (float)(word >> 8) * 0x1p-23f - 1;
    }
    assert_int_equal(k->attention_forward(s, &a, NULL), 0);
    return q;
}

static void clear(struct sequence *q)
{
    free(q->qkv);
    free(q->whole);
    free(q->lse);
    free(q->keys);
    free(q->values);
    free(q->out);
}

/* Hand the sequence in by pieces of step rows. */
static void check(const struct kern_ops *k, int threads, int step)
{
    struct kern_cfg cfg = {.threads = threads};
    struct kern_stream *s;
    struct sequence q;

    assert_int_equal(k->stream_new(&cfg, &s, NULL), 0);
    q = make(k, s);
    for (int at = 0; at < TOKENS; at += step) {
        struct kern_cached c = {
            .rows = TOKENS - at < step ? TOKENS - at : step,
            .past = at,
            .heads = HEADS,
            .kv_heads = KV,
            .dim = DIM,
            .ld = LD,
            .scale = 0.5f,
            .qkv = q.qkv + (size_t)at * LD,
            .keys = q.keys,
            .values = q.values,
            .out = q.out + (size_t)at * HEADS * DIM,
        };

        assert_int_equal(k->attention_cached(s, &c, NULL), 0);
    }
    for (size_t i = 0; i < (size_t)TOKENS * HEADS * DIM; i++)
        if (fabsf(q.out[i] - q.whole[i]) > 2e-6f) /* other blocks, another order of some hundred terms */
            fail_msg("'%s', %d rows at a time: element %zu is %g, of the whole %g", k->name, step, i, (double)q.out[i],
                     (double)q.whole[i]);
    clear(&q);
    k->stream_free(s);
}

static void pieces_give_what_the_whole_sequence_gives(void **state)
{
    static const int step[] = {1, 7, 64, 65, 256, 300, TOKENS};

    (void)state;
    for (size_t i = 0; i < COUNT(step); i++) {
        check(kern_plain(), 1, step[i]);
        check(kern_cpu(), 1, step[i]);
        check(kern_cpu(), 2, step[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_what_the_whole_sequence_gives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
