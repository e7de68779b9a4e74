/* The planner's count of a rank's memory against the engine's own, number by number. */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "base/philox.h"
#include "checkpoint/checkpoint.h"
#include "scheduler/plan/memory.h"
#include "worker/engine/train/store.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/stage.h"
#include "worker/engine/optim/exchange.h"
#include "worker/engine/optim/optim.h"
#include "worker/engine/optim/tree.h"
#include "worker/engine/train/run.h"

_Static_assert(PLAN_TENSOR_BLOCK == PARAM_BLOCK, "a tensor's place");
_Static_assert(PLAN_HEAD_ROWS == STAGE_HEAD_ROWS, "rows of logits");
_Static_assert(PLAN_RING_BYTES == MCK_POOL_BYTES, "the ring of checkpoints");
_Static_assert(PLAN_EXCHANGE_FLOATS == EXCHANGE_SLOTS * EXCHANGE_BUCKET, "room for gradients of others");
_Static_assert(PLAN_VOCAB_ALIGN == MODEL_VOCAB_ALIGN, "rows of the vocabulary");

static uint32_t seed, draws;

static int draw(int below)
{
    uint32_t key[2] = {seed, 9}, ctr[4] = {draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return (int)(out[0] % (uint32_t)below);
}

struct twin { /* one job in both tongues */
    struct plan_job job;
    struct plan_shape shape;
    struct plan_cut cut;
    struct model_cfg model;
    struct schedule *schedule, *forward;
};

static void draw_model(struct plan_model *m, struct model_cfg *c)
{
    *m = (struct plan_model){.family = draw(2) ? PLAN_LLAMA : PLAN_GPT2,
                             .layers = 1 + draw(9),
                             .heads = 4 << draw(2),
                             .context = 8 << draw(4),
                             .vocab = 50 + draw(900),
                             .tied = draw(2)};
    m->hidden = m->heads * (2 + 2 * draw(5));
    m->kv_heads = m->family == PLAN_LLAMA ? m->heads >> draw(3) : m->heads;
    m->ffn = 16 * (1 + draw(6));
    if (m->family == PLAN_LLAMA)
        switch (draw(4)) {
        case 0:
            m->qkv_bias = true;
            break;
        case 1:
            m->qk_norm = true;
            break;
        case 2:
            m->fused = true;
            m->kv_heads = m->heads; /* its tensors are not for ranks that share heads of keys */
            break;
        default:
            break;
        }
    m->dim = m->family == PLAN_LLAMA && draw(2) ? 2 + 2 * draw(6) : 0;
    *c = (struct model_cfg){.family = m->family == PLAN_LLAMA ? &family_llama : &family_gpt2,
                            .layers = m->layers,
                            .hidden = m->hidden,
                            .heads = m->heads,
                            .kv_heads = m->kv_heads,
                            .ffn = m->ffn,
                            .context = m->context,
                            .vocab = m->vocab,
                            .tied = m->tied,
                            .qkv_bias = m->qkv_bias,
                            .qk_norm = m->qk_norm,
                            .fused = m->fused,
                            .dim = m->dim};
}

static void draw_layout(struct twin *t)
{
    struct plan_shape *s = &t->shape;

    *s = (struct plan_shape){.tp = 1 << draw(3),
                             .cp = 1 << draw(3),
                             .pp = 1 + draw(4),
                             .dp = 1 + draw(5),
                             .chunks = 1 + draw(2),
                             .recompute = (enum plan_recompute)draw(PLAN_RECOMPUTES)};
    s->pp = s->pp > t->job.model.layers ? t->job.model.layers : s->pp;
    s->chunks = s->pp == 1 || t->job.model.layers / s->pp < s->chunks ? 1 : s->chunks;
    s->schedule = s->recompute == PLAN_RECOMPUTE_NONE && draw(2) ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
    s->n_remade = draw(2) ? s->pp * s->chunks : 0;
    for (int i = 0; i < s->n_remade; i++)
        s->remade[i] = (uint16_t)draw(5);
    s->micro = 1 << draw(2);
    t->job.virtual_workers = s->dp + draw(5);
    t->job.sequences = t->job.virtual_workers * s->micro * (1 + draw(3));
    t->job.length = 8 * (1 + draw(t->job.model.context / 8));
    t->job.zero = draw(3) > 0;
    t->job.dp_coded = t->job.zero && draw(4) == 0;
    t->job.stored = t->job.zero && !t->job.dp_coded && draw(3) == 0;
    t->job.bf16 = draw(2);
    t->job.sequence_parallel = draw(2);
}

static void twin_init(struct twin *t, int replica)
{
    enum schedule_kind kind;

    *t = (struct twin){.forward = NULL};
    draw_model(&t->job.model, &t->model);
    draw_layout(t);
    t->model.sequence_parallel = t->job.sequence_parallel && t->shape.tp > 1;
    assert_int_equal(model_cut(&t->model, t->shape.tp, 0, NULL), 0);
    assert_true(plan_cut(&t->job.model, t->shape.tp, &t->cut));
    t->job.cp_heads = t->model.kv_heads_local % t->shape.cp == 0 && draw(2);
    kind = t->shape.schedule;
    assert_int_equal(schedule_new(kind, t->shape.pp, t->shape.chunks,
                                  plan_micros(&t->job, &t->shape, replica % t->shape.dp), &t->schedule, NULL),
                     0);
    if (draw(2))
        assert_int_equal(schedule_new(SCHEDULE_FORWARD, t->shape.pp, t->shape.chunks, 1 + draw(8), &t->forward, NULL),
                         0);
}

/* As train.c asks for it. */
static struct plan_memory of_engine(struct twin *t, int r, int replica, const int *slots)
{
    struct plan_split split = plan_split_of(&t->job.model, &t->shape);
    struct layer_range chunk[4];
    struct params p;
    struct plan_memory m = {.activations = 0};
    enum kern_type type = t->job.bf16 ? KERN_BF16 : KERN_F32;
    int begin, end;

    for (int i = 0; i < t->shape.chunks; i++)
        plan_split_layers(&split, i * t->shape.pp + r, &chunk[i].begin, &chunk[i].end);
    assert_int_equal(params_init(&p, &t->model, chunk, t->shape.chunks, r == 0, r == t->shape.pp - 1, NULL), 0);
    struct optim_cfg o = {.params = &p,
                          .mesh = {.dp = t->shape.dp, .dp_index = replica},
                          .leaves = t->job.virtual_workers,
                          .zero = t->job.zero,
                          .stored = t->job.stored,
                          .narrow = t->job.bf16 && t->job.zero && !t->job.dp_coded,
                          .coded = t->shape.dp > 1 && t->job.dp_coded};

    plan_leaves(t->job.virtual_workers, t->shape.dp, replica, &begin, &end);
    m.weights = p.weight_n * (t->job.bf16 ? kern_size(type) : 0) + (o.narrow ? p.vector_n : p.weight_n) * sizeof(float);
    m.gradients = p.grad_n * (size_t)tree_buffers(begin, end) * sizeof(float);
    m.optimizer = optim_bytes(&o);
    if (t->job.stored)
        m.optimizer += store_bytes(p.weight_n / (size_t)t->shape.dp);
    for (int i = 0; i < t->shape.chunks; i++) {
        struct stage_cfg s = {
            .model = &t->model,
            .params = &p,
            .precision = {.type = type},
            .part = {.layers = chunk[i],
                     .first = r == 0 && i == 0,
                     .last = r == t->shape.pp - 1 && i == t->shape.chunks - 1},
            .retain = {.policy = retain_recompute((enum recompute)t->shape.recompute),
                       .kept = chunk[i].end - chunk[i].begin -
                               plan_remade(&t->shape, i * t->shape.pp + r, chunk[i].end - chunk[i].begin)},
            .sizes = {.micro = t->shape.micro, .length = t->job.length / t->shape.cp, .slots = slots[i]},
            .context = {.mode = t->job.cp_heads ? CP_ULYSSES : CP_ZIGZAG, .size = t->shape.cp},
            .split = t->shape.schedule == SCHEDULE_ZB_H1};

        m.activations += stage_bytes(&s, i == 0);
    }
    params_clear(&p);
    return m;
}

static void same(const char *what, uint64_t plan, uint64_t engine)
{
    if (plan != engine)
        fail_msg("seed %u: %s is %llu bytes to the planner, %llu to the engine", seed, what, (unsigned long long)plan,
                 (unsigned long long)engine);
}

static void the_planner_counts_every_byte_that_the_engine_counts(void **state)
{
    (void)state;
    for (seed = 0; seed < 400; seed++) {
        struct twin t;
        int replica, slots[4];

        draws = 0;
        replica = draw(8);
        twin_init(&t, replica);
        replica %= t.shape.dp;
        for (int r = 0; r < t.shape.pp; r++) {
            struct plan_memory mine, theirs, worst;

            for (int i = 0; i < t.shape.chunks; i++)
                slots[i] = plan_slots(t.schedule, t.forward, r, i);
            plan_memory_of(&t.job, &t.shape, &t.cut, r, replica, slots, &mine);
            plan_memory_of(&t.job, &t.shape, &t.cut, r, -1, slots, &worst);
            theirs = of_engine(&t, r, replica, slots);
            same("weights", mine.weights, theirs.weights);
            same("gradients", mine.gradients, theirs.gradients);
            same("optimizer", mine.optimizer, theirs.optimizer);
            same("activations", mine.activations, theirs.activations);
            assert_true(plan_memory_all(&worst) >= plan_memory_all(&mine));
        }
        schedule_free(t.schedule);
        schedule_free(t.forward);
    }
}

static void buffers_of_leaves_are_those_of_the_tree(void **state)
{
    (void)state;
    for (int end = 1; end <= 64; end++)
        for (int begin = 0; begin < end; begin++)
            assert_int_equal(plan_leaf_buffers(begin, end), tree_buffers(begin, end));
}

static void checkpoints_wait_in_room_for_two_of_the_state(void **state)
{
    const uint64_t mib = 1 << 20;

    (void)state;
    assert_int_equal(plan_ring_bytes(1, 1), 16 * mib); /* whole slots of weights, and of moments */
    assert_int_equal(plan_ring_bytes(mib, 2), 16 * mib);
    assert_int_equal(plan_ring_bytes(mib, 1), 24 * mib);
    assert_int_equal(plan_ring_bytes(1000 * mib, 8), MCK_POOL_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_planner_counts_every_byte_that_the_engine_counts),
        cmocka_unit_test(checkpoints_wait_in_room_for_two_of_the_state),
        cmocka_unit_test(buffers_of_leaves_are_those_of_the_tree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
