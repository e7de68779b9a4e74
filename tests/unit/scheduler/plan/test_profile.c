/* Times from measured tables, and plans that are made by them. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/plan/search.h"
#include "scheduler/plan/site.h"
#include "scheduler/plan/work.h"

static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-3 * fabs(b));
}

/* Rates grow with each side; forward, input and weights have 1, 0.9 and 0.5 of it. */
static double rate(double rows, double outputs, double inputs)
{
    return 1e10 * pow(rows, 0.1) * pow(outputs, 0.2) * pow(inputs, 0.3);
}

static struct plan_profile *grid(void)
{
    struct plan_profile *p = calloc(1, sizeof(*p));

    assert_non_null(p);
    for (int m = 64; m <= 1024; m *= 4)
        for (int n = 64; n <= 1024; n *= 4)
            for (int k = 64; k <= 1024; k *= 4)
                p->f32.product[p->f32.products++] =
                    (struct profile_product){.rows = m,
                                             .outputs = n,
                                             .inputs = k,
                                             .flops = {rate(m, n, k), 0.9 * rate(m, n, k), 0.5 * rate(m, n, k)}};
    profile_settle(p);
    return p;
}

static void products_take_what_was_measured_and_between_sizes_what_lies_between(void **state)
{
    struct plan_profile *p = grid();
    const struct profile_rates *r = profile_rates(p, true); /* in bf16 nothing was measured */

    (void)state;
    assert_ptr_equal(r, &p->f32);
    near(profile_product_s(r, PROFILE_FORWARD, 256, 64, 1024), 2.0 * 256 * 64 * 1024 / rate(256, 64, 1024));
    near(profile_product_s(r, PROFILE_WEIGHTS, 256, 64, 1024), 4.0 * 256 * 64 * 1024 / rate(256, 64, 1024));
    near(profile_product_s(r, PROFILE_INPUT, 100, 300, 500), 2.0 * 100 * 300 * 500 / rate(100, 300, 500) / 0.9);
    near(profile_product_s(r, PROFILE_FORWARD, 1024, 1 << 20, 1024), /* beyond all sizes the rate stays */
         2.0 * 1024 * (1 << 20) * 1024 / rate(1024, 1024, 1024));
    free(p);
}

static void work_on_arrays_is_interpolated_and_in_proportion_beyond(void **state)
{
    struct plan_profile *p = grid();
    struct profile_curve *c = &p->f32.op[PROFILE_GELU];
    double s;

    (void)state;
    assert_false(profile_op_s(&p->f32, PROFILE_GELU, 100, &s));
    *c = (struct profile_curve){.n = 3, .at = {{1000, 1e-6}, {10000, 1e-5}, {40000, 8e-5}}};
    assert_true(profile_op_s(&p->f32, PROFILE_GELU, 10000, &s));
    near(s, 1e-5);
    assert_true(profile_op_s(&p->f32, PROFILE_GELU, 20000, &s));
    near(s, sqrt(1e-5 * 8e-5));
    assert_true(profile_op_s(&p->f32, PROFILE_GELU, 80000, &s));
    near(s, 1.6e-4);
    assert_true(profile_op_s(&p->f32, PROFILE_GELU, 100, &s));
    near(s, 1e-7);
    free(p);
}

static void a_head_takes_what_heads_of_its_size_take_though_larger_ones_take_less(void **state)
{
    struct plan_profile *p = calloc(1, sizeof(*p));
    static const struct profile_attention measured[] = {
        {128, 32, {1e-5, 2e-5}},   {512, 32, {16e-5, 32e-5}}, {128, 48, {3e-5, 6e-5}},
        {512, 48, {48e-5, 96e-5}}, {128, 64, {2e-5, 4e-5}},   {512, 64, {32e-5, 64e-5}},
    };
    double s;

    (void)state;
    assert_non_null(p);
    assert_false(profile_attention_s(&p->f32, false, 128, 64, &s));
    memcpy(p->f32.attention, measured, sizeof(measured));
    p->f32.attentions = 6;
    assert_true(profile_attention_s(&p->f32, false, 256, 48, &s));
    near(s, 12e-5); /* four times as much as of half the length, by heads of 48 alone */
    assert_true(profile_attention_s(&p->f32, true, 256, 64, &s));
    near(s, 16e-5);
    assert_true(profile_attention_s(&p->f32, false, 1024, 64, &s)); /* beyond: at the rate of the longest */
    near(s, 128e-5);
    assert_true(profile_attention_s(&p->f32, false, 128, 128, &s)); /* and of the largest head */
    near(s, 4e-5);
    free(p);
}

static void messages_cost_by_their_size(void **state)
{
    struct plan_profile *p = grid();
    struct plan_link l = {.latency_s = 1, .bytes_per_s = 1, .measured = p};
    double s;

    (void)state;
    assert_false(profile_all_reduce_s(p, 2, 100, &s));
    near(plan_ring_s(&l, 4, 2), 2 * (2 + 1)); /* none was measured: latency and bandwidth */
    p->all_reduce[0] = (struct profile_message){2, 1000, 1e-5};
    p->all_reduce[1] = (struct profile_message){2, 100000, 1e-3};
    p->all_reduces = 2;
    near(plan_ring_s(&l, 10000, 2), 1e-4);
    near(plan_ring_s(&l, 10, 2), 1e-5);          /* no message takes less than the smallest */
    near(plan_ring_s(&l, 10000, 4), 1.5 * 1e-4); /* each rank sends 3/4 instead of 1/2 */
    free(p);
}

static const struct plan_job gpt2 = {
    .model = {.family = PLAN_GPT2,
              .layers = 2,
              .hidden = 256,
              .heads = 4,
              .kv_heads = 4,
              .ffn = 1024,
              .context = 64,
              .vocab = 512,
              .tied = true},
    .sequences = 4,
    .length = 64,
    .virtual_workers = 1,
    .zero = 1,
};

static const struct plan_shape one = {.tp = 1, .pp = 1, .dp = 1, .chunks = 1, .micro = 4};

static void a_block_takes_its_products_attention_and_arrays(void **state)
{
    struct plan_profile *p = grid();
    struct plan_device d = plan_device_measured((struct plan_device){.flops = 1, .bytes_per_s = 1}, p, false);
    struct work_block bare, w;
    double products = 0;

    (void)state;
    static const int layer[4][2] = {{768, 256}, {256, 256}, {1024, 256}, {256, 1024}}; /* outputs, inputs */

    for (int i = 0; i < 4; i++)
        products += 2.0 * 256 * layer[i][0] * layer[i][1] / rate(256, layer[i][0], layer[i][1]);
    bare = work_block(&gpt2, &one, &d);
    assert_true(bare.f_s > products); /* attention at the rate of products: of little weight here */
    assert_true(bare.f_s < 1.1 * products);
    near(bare.w_s, 2 * products);
    p->f32.attention[0] = (struct profile_attention){.length = 64, .dim = 64, .s = {1e-3, 3e-3}};
    p->f32.attentions = 1;
    p->f32.op[PROFILE_GELU] = (struct profile_curve){.n = 1, .at = {{256 * 1024, 0.5}}};
    p->f32.op[PROFILE_BIAS_BACK] = (struct profile_curve){.n = 1, .at = {{256, 1e-3}}};
    p->call_s = 0.25;
    w = work_block(&gpt2, &one, &d);
    near(w.f_s, products + 16 * 1e-3 + 0.5 + 0.25);
    near(w.i_s, products / 0.9 + 16 * 3e-3 + 0.25);
    near(w.w_s, 2 * products + 1e-3 * (768 + 1024 + 2 * 256) + 0.25);
    near(w.cheap_s, 0.5);
    near(w.f_s - w.again_s, 2.0 * 256 * 256 * 1024 / rate(256, 256, 1024)); /* the last product is not made again */
    d = plan_device_times(d, 2);                                            /* a device that turned out twice as fast */
    near(work_block(&gpt2, &one, &d).f_s, w.f_s / 2);
    free(p);
}

static void what_a_rank_cannot_keep_in_its_cache_takes_the_time_of_memory(void **state)
{
    struct plan_profile *p = grid();
    struct plan_device d;
    struct work_block near_w, half, far_w;
    int slots[1] = {1};
    struct plan_memory m;
    struct plan_cut cut;

    (void)state;
    assert_true(plan_cut(&gpt2.model, 1, &cut));
    plan_memory_of(&gpt2, &one, &cut, 0, -1, slots, &m);
    p->far_f32 = p->f32;
    for (int i = 0; i < p->far_f32.products; i++)
        for (int form = 0; form < PROFILE_FORMS; form++)
            p->far_f32.product[i].flops[form] /= 2;
    profile_settle(p);
    d = plan_device_measured((struct plan_device){.flops = 1, .bytes_per_s = 1}, p, false);
    near_w = work_block(&gpt2, &one, &d); /* how large the cache is was not told */
    p->cache_bytes = 1e12;
    near(work_block(&gpt2, &one, &d).w_s, near_w.w_s);
    p->cache_bytes = (double)(m.weights + m.gradients + m.activations) / 2;
    half = work_block(&gpt2, &one, &d);
    p->cache_bytes = 1;
    far_w = work_block(&gpt2, &one, &d);
    near(far_w.w_s, 2 * near_w.w_s);
    near(half.w_s, 1.5 * near_w.w_s);
    free(p);
}

static void replicas_of_processors_exchange_beside_no_backward(void **state)
{
    struct plan_site site = {.groups = 1, .node_devices = 2};
    struct plan_shape two = {.tp = 1, .pp = 1, .dp = 2, .chunks = 1, .micro = 1};
    struct plan_job job = gpt2;
    struct plan_profile *p = grid();
    struct plan_option of_processors, of_gpus;

    (void)state;
    job.virtual_workers = 2;
    p->all_reduce[0] = (struct profile_message){2, 1000, 1e-3};
    p->all_reduces = 1;
    site.group[0] = (struct plan_group){
        .device = plan_device_measured((struct plan_device){.flops = 1, .bytes_per_s = 1}, p, false), .n = 2};
    plan_links_measured(&site, p);
    assert_int_equal(plan_weigh(&job, &two, &site, &of_processors, NULL), 0);
    p->context_bytes = 1 << 20; /* a GPU's own engines copy */
    assert_int_equal(plan_weigh(&job, &two, &site, &of_gpus, NULL), 0);
    assert_true(of_processors.cost.exchange_s > of_gpus.cost.exchange_s);
    free(p);
}

static void a_step_has_the_head_the_embedding_and_the_update_of_the_profile(void **state)
{
    static const enum profile_op ops[] = {PROFILE_LOSS, PROFILE_EMBED, PROFILE_ADAMW, PROFILE_FILL, PROFILE_SQUARES};
    struct plan_site site = {.groups = 1, .node_devices = 1};
    struct plan_profile *p = grid();
    struct plan_option before, after;

    (void)state;
    plan_links_assumed("cpu", &site);
    site.group[0] = (struct plan_group){plan_device_measured(plan_device_assumed("cpu", 1, false, 0), p, false), 1};
    assert_int_equal(plan_weigh(&gpt2, &one, &site, &before, NULL), 0);
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) { /* each by itself makes the step longer */
        p->f32.op[ops[i]] = (struct profile_curve){.n = 1, .at = {{1000, 1e-2}}};
        assert_int_equal(plan_weigh(&gpt2, &one, &site, &after, NULL), 0);
        assert_true(after.cost.step_s > 1.1 * before.cost.step_s);
        before = after;
    }
    p->step_s = 5;
    assert_int_equal(plan_weigh(&gpt2, &one, &site, &after, NULL), 0);
    near(after.cost.update_s - before.cost.update_s, 5);
    free(p);
}

static void a_plan_says_whether_its_times_were_measured(void **state)
{
    struct plan_site site = {.groups = 1, .node_devices = 1};
    struct plan_wish wish = {.tp = 1, .pp = 1, .chunks = 1, .micro = 4};
    struct plan_profile *p = grid();
    struct plan_result r;
    struct buf text;

    (void)state;
    for (int measured = 0; measured < 2; measured++) {
        struct plan_device d = plan_device_assumed("cpu", 1, false, 0);

        plan_links_assumed("cpu", &site);
        site.group[0] = (struct plan_group){measured ? plan_device_measured(d, p, false) : d, 1};
        assert_int_equal(plan_search(&gpt2, &wish, &site, &r, NULL), 0);
        assert_int_equal(r.measured, measured);
        buf_init(&text, 1 << 16);
        assert_int_equal(plan_print(&r, &text), 0);
        assert_non_null(strstr(buf_text(&text), measured ? "\"rates\":\"measured\"" : "\"rates\":\"assumed\""));
        buf_clear(&text);
    }
    free(p);
}

static void memory_has_the_program_and_the_gpu_context_of_the_profile(void **state)
{
    struct plan_profile *p = grid();
    struct plan_job job = gpt2;
    struct plan_memory assumed[1], measured[1];
    struct plan_device d;

    (void)state;
    assert_int_equal(plan_stage_memory(&job, &one, assumed, NULL), 0);
    job.program_bytes = 5 << 20;
    assert_int_equal(plan_stage_memory(&job, &one, measured, NULL), 0);
    assert_int_equal(plan_memory_all(assumed) - plan_memory_all(measured), PLAN_PROGRAM_BYTES - (5 << 20));
    p->context_bytes = 1 << 30;
    d = plan_device_measured((struct plan_device){.memory_bytes = (uint64_t)4 << 30}, p, false);
    assert_int_equal(d.memory_bytes, (uint64_t)3 << 30);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_take_what_was_measured_and_between_sizes_what_lies_between),
        cmocka_unit_test(work_on_arrays_is_interpolated_and_in_proportion_beyond),
        cmocka_unit_test(a_head_takes_what_heads_of_its_size_take_though_larger_ones_take_less),
        cmocka_unit_test(what_a_rank_cannot_keep_in_its_cache_takes_the_time_of_memory),
        cmocka_unit_test(replicas_of_processors_exchange_beside_no_backward),
        cmocka_unit_test(messages_cost_by_their_size),
        cmocka_unit_test(a_block_takes_its_products_attention_and_arrays),
        cmocka_unit_test(a_step_has_the_head_the_embedding_and_the_update_of_the_profile),
        cmocka_unit_test(a_plan_says_whether_its_times_were_measured),
        cmocka_unit_test(memory_has_the_program_and_the_gpu_context_of_the_profile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
