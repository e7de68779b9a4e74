/* The planner: its terms by hand, its search against trying everything, its memory against what it promises. */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/plan/balance.h"
#include "scheduler/plan/search.h"

#define MIB (UINT64_C(1) << 20)

static uint32_t seed, draws;

static int draw(int below)
{
    uint32_t key[2] = {seed, 3}, ctr[4] = {draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return (int)(out[0] % (uint32_t)below);
}

static struct plan_job small_job(void)
{
    return (struct plan_job){.model = {.family = PLAN_GPT2,
                                       .layers = 8,
                                       .hidden = 64,
                                       .heads = 4,
                                       .kv_heads = 4,
                                       .ffn = 256,
                                       .context = 32,
                                       .vocab = 256,
                                       .tied = true},
                             .sequences = 16,
                             .length = 32,
                             .virtual_workers = 4,
                             .zero = 1};
}

static struct plan_site site_of(int devices, int node_devices)
{
    return (struct plan_site){.group = {{.device = {.flops = 1e9, .bytes_per_s = 1e9}, .n = devices}},
                              .groups = 1,
                              .node_devices = node_devices,
                              .inside = {1e-5, 1e9},
                              .between = {1e-4, 1e8}};
}

static struct plan_option weighed(const struct plan_job *job, struct plan_shape s, const struct plan_site *site)
{
    struct plan_option o;
    struct merr err = {""};

    s.chunks = s.chunks ? s.chunks : 1;
    s.micro = s.micro ? s.micro : 1;
    if (plan_weigh(job, &s, site, &o, &err) != 0)
        fail_msg("%s", err.text);
    return o;
}

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * (fabs(a) + fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

static void one_rank_takes_its_arithmetic_and_the_update(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(1, 1);
    struct plan_option o = weighed(&job, (struct plan_shape){.tp = 1, .pp = 1, .dp = 1}, &site);
    double rows = 32, block = 2 * rows * (4 * 64 * 64 + 2 * 64 * 256) + 2 * rows * 32 * 64;

    (void)state;
    near(o.cost.compute_s, 16 * (8 * 3 * block + 6 * rows * 256 * 64) / 1e9);
    near(o.cost.tp_s + o.cost.exchange_s, 0);
    assert_true(o.cost.idle_s < 1e-12);
    near(o.cost.step_s, o.cost.compute_s + o.cost.update_s);
}

static void rings_take_latency_and_bandwidth_of_their_link(void **state)
{
    struct plan_link l = {.latency_s = 1e-5, .bytes_per_s = 1e9};

    (void)state;
    near(plan_ring_s(&l, 4e6, 4), 2 * 3 * (1e6 / 1e9 + 1e-5));
    near(plan_ring_s(&l, 4e6, 1), 0);
}

/* Sums over tp: two forward and two backward a block, one at each end of the model. */
static void tensor_parallel_sums_are_counted(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(2, 2);
    struct plan_option o = weighed(&job, (struct plan_shape){.tp = 2, .pp = 1, .dp = 1}, &site);

    (void)state;
    near(o.cost.tp_s, 16 * 8 * 4 * plan_ring_s(&site.inside, 32 * 64 * 4, 2));
    site.node_devices = 1; /* between nodes */
    o = weighed(&job, (struct plan_shape){.tp = 2, .pp = 1, .dp = 1}, &site);
    near(o.cost.tp_s, 16 * 8 * 4 * plan_ring_s(&site.between, 32 * 64 * 4, 2));
}

/* Megatron-LM 2021: the bubble is (p - 1) / m of the work, and 1 / v of that with v chunks; ZB-H1 leaves a third. */
static void idle_time_of_pipelines_is_that_of_the_literature(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(4, 4);
    struct plan_shape s = {.tp = 1, .pp = 4, .dp = 1, .n_layers = 4, .layers = {2, 2, 2, 2}};
    double share[3];

    (void)state;
    job.model.vocab = 1;
    site.inside = (struct plan_link){.latency_s = 0, .bytes_per_s = 1e30};
    for (int i = 0; i < 3; i++) {
        struct plan_option o;

        s.chunks = i == 1 ? 2 : 1;
        s.schedule = i == 2 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
        s.n_layers = 4 * s.chunks;
        for (int k = 0; k < s.n_layers; k++)
            s.layers[k] = (uint16_t)(2 / s.chunks);
        o = weighed(&job, s, &site);
        share[i] = o.cost.idle_s / o.cost.compute_s;
    }
    assert_true(fabs(share[0] - 3.0 / 16) < 0.01);
    assert_true(fabs(share[1] - 3.0 / 32) < 0.01);
    assert_true(fabs(share[2] - 1.0 / 16) < 0.01);
}

/* With nothing to be sent the classic estimate is exact, for p = 1 and for m = 1, too. */
static void without_messages_a_step_takes_m_plus_p_minus_1_turns(void **state)
{
    (void)state;
    for (int p = 1; p <= 4; p *= 2)
        for (int micro = 1; micro <= 16; micro *= 2) {
            struct plan_job job = small_job();
            struct plan_site site = site_of(p, p);
            struct plan_shape s = {.tp = 1, .pp = p, .dp = 1, .n_layers = p, .micro = micro, .chunks = 1};
            struct schedule_times t[4];
            struct plan_option o;
            int m = 16 / micro;

            job.model.vocab = 1;
            job.virtual_workers = 1;
            site.inside = (struct plan_link){.latency_s = 0, .bytes_per_s = 1e30};
            for (int i = 0; i < p; i++)
                s.layers[i] = (uint16_t)(8 / p);
            plan_stage_times(&job, &s, &site, t);
            o = weighed(&job, s, &site);
            if (fabs((o.cost.compute_s + o.cost.idle_s) / ((m + p - 1) * (t[0].f + t[0].i + t[0].w)) - 1) > 0.01)
                fail_msg("p %d, m %d: %g s", p, m, o.cost.compute_s + o.cost.idle_s);
        }
}

/* Pipette 2024: on slow links the round trip is exposed once a group of p micro-batches. */
static void slow_links_expose_a_round_trip_for_each_group(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(2, 1);
    struct plan_shape s = {.tp = 1, .pp = 2, .dp = 1, .n_layers = 2, .layers = {4, 4}};
    struct schedule_times t[2];
    struct plan_option o;

    (void)state;
    job.model.vocab = 1;
    site.between = (struct plan_link){.latency_s = 0, .bytes_per_s = 1e5};
    s.chunks = s.micro = 1;
    plan_stage_times(&job, &s, &site, t);
    o = weighed(&job, s, &site);
    assert_true(fabs((o.cost.compute_s + o.cost.idle_s) /
                         (8 * (2 * (t[0].f + t[0].i + t[0].w) + 2 * t[0].hop) + t[0].f + t[0].i + t[0].w) -
                     1) < 0.01);
}

/* Steps of many micro-batches are extended from few: as if all had been simulated, but for a thousandth where unlike
 * stages take long to settle. */
static void long_steps_take_what_simulating_all_of_them_says(void **state)
{
    (void)state;
    for (seed = 0; seed < 60; seed++) {
        struct plan_site site = site_of(8, 2);
        struct plan_job job = small_job();
        struct plan_shape s = {.tp = 1, .dp = 1};
        struct schedule_times t[8];
        struct schedule *all;
        double span;

        draws = 0;
        s.pp = 2 + draw(3);
        s.chunks = 1 + draw(2);
        s.schedule = draw(2) ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
        s.micro = 1;
        job.sequences = job.virtual_workers * s.pp * (2 + draw(20));
        plan_stage_times(&job, &s, &site, t);
        assert_int_equal(schedule_new(s.schedule, s.pp, s.chunks, job.sequences, &all, NULL), 0);
        assert_int_equal(schedule_simulate(all, t, s.pp * s.chunks, &span, NULL), 0);
        struct plan_option o = weighed(&job, s, &site);

        if (fabs((o.cost.compute_s + o.cost.tp_s + o.cost.idle_s) / span - 1) > 1e-3)
            fail_msg("seed %u: %g, not %g", seed, o.cost.compute_s + o.cost.tp_s + o.cost.idle_s, span);
        schedule_free(all);
    }
}

static void a_stage_keeps_pace_with_its_slowest_device(void **state)
{
    struct plan_site site = site_of(2, 4);
    struct plan_shape s = {.tp = 1, .pp = 2, .dp = 2};

    (void)state;
    site.group[0].n = 3;
    site.group[1] = (struct plan_group){.device = {.flops = 5e8, .bytes_per_s = 1e9, .memory_bytes = 7}, .n = 1};
    site.groups = 2;
    near(plan_stage_device(&site, &s, 0).flops, 1e9);
    near(plan_stage_device(&site, &s, 1).flops, 5e8);
    assert_int_equal(plan_stage_device(&site, &s, 1).memory_bytes, 7);
}

/* --- shares of layers ---------------------------------------------------------------------------------------- */

static double brute(const struct plan_stage *st, int n, int layers)
{
    double best = -1;

    if (n == 1)
        return layers >= 1 && layers <= st->most ? st->fixed_s + st->block_s * layers : -1;
    for (int k = 1; k <= layers - (n - 1) && k <= st->most; k++) {
        double rest = brute(st + 1, n - 1, layers - k), mine = st->fixed_s + st->block_s * k;

        if (rest >= 0 && (best < 0 || fmax(mine, rest) < best))
            best = fmax(mine, rest);
    }
    return best;
}

static void layers_are_shared_out_as_well_as_trying_all_ways(void **state)
{
    (void)state;
    for (seed = 0; seed < 500; seed++) {
        struct plan_stage st[5];
        uint16_t share[5] = {0};
        double most = 0, got;
        int n, layers, all = 0;

        draws = 0;
        n = 1 + draw(5);
        layers = 1 + draw(14);
        for (int i = 0; i < n; i++)
            st[i] = (struct plan_stage){.block_s = 1 + draw(4), .fixed_s = draw(5), .most = draw(12)};
        got = plan_balance(st, n, layers, share);
        if (fabs(got - brute(st, n, layers)) > 1e-9)
            fail_msg("seed %u: %g, not %g", seed, got, brute(st, n, layers));
        for (int i = 0; got >= 0 && i < n; i++) {
            assert_in_range(share[i], 1, st[i].most);
            most = fmax(most, st[i].fixed_s + st[i].block_s * share[i]);
            all += share[i];
        }
        assert_true(got < 0 || (all == layers && fabs(most - got) < 1e-9));
    }
}

/* --- the search ---------------------------------------------------------------------------------------------- */

static const struct plan_wish all_open = {.any_schedule = true, .any_recompute = true};

static void draw_case(struct plan_job *job, struct plan_site *site)
{
    *job = small_job();
    job->model.layers = 1 + draw(8);
    job->model.heads = 1 << draw(4);
    job->model.kv_heads = job->model.heads;
    job->virtual_workers = 1 << draw(4);
    job->sequences = job->virtual_workers * (1 << draw(3));
    job->bf16 = draw(2);
    *site = site_of(1 + draw(8), 1 << draw(4));
    site->group[0].device.memory_bytes = draw(3) ? (uint64_t)(42 + draw(16)) * MIB : 0;
    site->group[0].device.call_s = draw(2) ? 1e-4 : 0;
}

/* The fastest of all layouts that fit; -1: none. */
static double fastest(const struct plan_job *job, const struct plan_site *site)
{
    double best = -1;
    int leaf = job->sequences / job->virtual_workers, devices = plan_site_devices(site);

    for (int tp = 1; tp <= devices && tp <= site->node_devices; tp++)
        for (int pp = 1; tp * pp <= devices; pp++)
            for (int micro = 1; micro <= leaf; micro *= 2)
                for (int kind = 0; kind < 6; kind++)
                    for (int re = 0; re < PLAN_RECOMPUTES; re++) {
                        struct plan_shape s = {.tp = tp,
                                               .pp = pp,
                                               .dp = devices / (tp * pp),
                                               .micro = micro,
                                               .chunks = 1 << kind / 2,
                                               .recompute = (enum plan_recompute)re,
                                               .schedule = kind % 2 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B};
                        struct plan_option o;

                        s.dp = s.dp > job->virtual_workers ? job->virtual_workers : s.dp;
                        if ((pp == 1 && kind > 0) || plan_weigh(job, &s, site, &o, NULL) != 0 || !o.fits)
                            continue;
                        best = best < 0 || o.cost.step_s < best ? o.cost.step_s : best;
                    }
    return best;
}

static void the_search_finds_what_trying_everything_finds(void **state)
{
    (void)state;
    for (seed = 0; seed < 60; seed++) {
        struct plan_job job;
        struct plan_site site;
        struct plan_result p;
        double best;
        int r;

        draws = 0;
        draw_case(&job, &site);
        best = fastest(&job, &site);
        r = plan_search(&job, &all_open, &site, &p, NULL);
        if (best < 0 ? r != -E2BIG : r != 0 || p.best.cost.step_s > best * 1.021)
            fail_msg("seed %u: %d, %g s, while the best is %g s", seed, r, r ? 0 : p.best.cost.step_s, best);
    }
}

static void what_is_said_to_fit_leaves_room_on_every_rank(void **state)
{
    int fit = 0;

    (void)state;
    for (seed = 1000; seed < 1060; seed++) {
        struct plan_memory m[PLAN_STAGES_MAX];
        struct plan_job job;
        struct plan_site site;
        struct plan_result p;

        draws = 0;
        draw_case(&job, &site);
        if (site.group[0].device.memory_bytes == 0 || plan_search(&job, &all_open, &site, &p, NULL) != 0)
            continue;
        fit++;
        assert_true(p.best.fits);
        assert_int_equal(plan_stage_memory(&job, &p.best.shape, m, NULL), 0);
        for (int i = 0; i < p.best.shape.pp; i++)
            assert_true((double)plan_memory_all(&m[i]) <= PLAN_ROOM * (double)site.group[0].device.memory_bytes);
    }
    assert_true(fit > 10);
}

/* With one block fewer on any rank it does not fit, and with all of them it is no faster. */
static void as_few_blocks_are_made_again_as_memory_asks_for(void **state)
{
    int some = 0;

    (void)state;
    for (seed = 2000; seed < 2100; seed++) {
        struct plan_wish wish = {.tp = 1, .pp = 1 + (int)seed % 4, .chunks = 1, .any_recompute = true};
        struct plan_shape all;
        struct plan_option o;
        struct plan_job job;
        struct plan_site site;
        struct plan_result p;

        draws = 0;
        draw_case(&job, &site);
        job.length = job.model.context = 512;
        site.group[0].device.memory_bytes = 0;
        if (plan_search(&job, &wish, &site, &p, NULL) != 0)
            continue;
        wish.micro = p.best.shape.micro;
        site.group[0].device.memory_bytes = plan_memory_all(&p.best.memory) * (uint64_t)(70 + draw(30)) / 100;
        if (plan_search(&job, &wish, &site, &p, NULL) != 0 || p.best.shape.n_remade == 0)
            continue;
        some++;
        all = p.best.shape;
        all.n_remade = 0;
        assert_int_equal(plan_weigh(&job, &all, &site, &o, NULL), 0);
        assert_true(o.cost.step_s >= p.best.cost.step_s);
        for (int r = 0; r < p.best.shape.pp; r++) {
            struct plan_shape fewer = p.best.shape;
            int most = 0;

            for (int i = r; i < fewer.n_remade; i += fewer.pp)
                most = fewer.remade[i] > most ? fewer.remade[i] : most;
            for (int i = r; i < fewer.n_remade && most > 0; i += fewer.pp)
                fewer.remade[i] = (uint16_t)(fewer.remade[i] < most ? fewer.remade[i] : most - 1);
            assert_int_equal(plan_weigh(&job, &fewer, &site, &o, NULL), 0);
            if (most > 0 && o.fits)
                fail_msg("seed %u: rank %d could do with less", seed, r);
        }
    }
    print_message("of 100 plans %d make some blocks again\n", some);
    assert_true(some >= 3);
}

static void wishes_are_kept_and_the_impossible_is_named(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(8, 8);
    struct plan_wish w = {
        .tp = 2, .pp = 2, .micro = 2, .chunks = 2, .schedule = PLAN_INTERLEAVED, .recompute = PLAN_RECOMPUTE_FULL};
    struct plan_result p;
    struct merr err;

    (void)state;
    assert_int_equal(plan_search(&job, &w, &site, &p, &err), 0);
    assert_int_equal(p.considered, 1);
    assert_int_equal(p.best.shape.tp * 100 + p.best.shape.pp * 10 + p.best.shape.dp, 222);
    assert_int_equal(p.best.shape.chunks, 2);
    assert_int_equal(p.best.shape.recompute, PLAN_RECOMPUTE_FULL);
    w.tp = 3;
    assert_int_equal(plan_search(&job, &w, &site, &p, &err), -EINVAL);
    w.tp = 4;
    w.pp = 4;
    assert_int_equal(plan_search(&job, &w, &site, &p, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "8 devices"));
    site.group[0].device.memory_bytes = 20 * MIB;
    assert_int_equal(plan_search(&job, &all_open, &site, &p, &err), -E2BIG);
    assert_non_null(strstr(err.text, "no layout fits"));
}

static void memory_that_is_short_makes_pipelines_or_recomputation(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(4, 4);
    struct plan_result roomy, tight;
    uint64_t need;

    (void)state;
    job.model.vocab = 20000;
    assert_int_equal(plan_search(&job, &all_open, &site, &roomy, NULL), 0);
    need = plan_memory_all(&roomy.best.memory);
    site.group[0].device.memory_bytes = need * 9 / 10;
    assert_int_equal(plan_search(&job, &all_open, &site, &tight, NULL), 0);
    assert_true(tight.unfit > 0);
    assert_true(plan_memory_all(&tight.best.memory) < need * 9 / 10);
    assert_false(tight.beaten[tight.n_beaten - 1].fits);
}

/* A pipeline over two classes: the slow one gets fewer layers. */
static void slow_stages_get_fewer_layers(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(1, 1);
    struct plan_wish w = {.tp = 1, .pp = 2, .micro = 1, .chunks = 1, .any_recompute = true};
    struct plan_result p;

    (void)state;
    site.group[1] = site.group[0];
    site.group[1].device.flops = 5e8;
    site.groups = 2;
    job.model.vocab = 1;
    assert_int_equal(plan_search(&job, &w, &site, &p, NULL), 0);
    assert_int_equal(p.best.shape.n_layers, 2);
    assert_in_range(p.best.shape.layers[0], 5, 6); /* 5 and 3 or 6 and 2: the slower one ends after six blocks' time */
    assert_int_equal(p.best.shape.layers[0] + p.best.shape.layers[1], 8);
}

/* Three places of which one has devices 2.5 times as slow: by even stages the slow ones would be worse than none. */
static void slow_devices_of_another_class_are_taken_where_uneven_stages_gain_by_them(void **state)
{
    struct plan_job job = small_job();
    struct plan_wish w = {.cp = 1, .any_schedule = true};
    struct plan_site site = site_of(8, 4), alone = site_of(8, 4);
    struct plan_result p, fast;

    (void)state;
    job.model.layers = 30;
    job.sequences = 64;
    job.model.vocab = 1;
    site.inside.bytes_per_s = site.between.bytes_per_s = 1e12;
    site.inside.latency_s = site.between.latency_s = 1e-9;
    alone.inside = alone.between = site.inside;
    site.group[1] = (struct plan_group){.device = {.flops = 4e8, .bytes_per_s = 1e9, .memory_bytes = 1 << 30}, .n = 4};
    site.groups = 2;
    assert_int_equal(plan_search(&job, &w, &alone, &fast, NULL), 0);
    assert_int_equal(plan_search(&job, &w, &site, &p, NULL), 0);
    if (p.best.shape.pp % 3 != 0 || p.best.cost.step_s > 0.97 * fast.best.cost.step_s)
        fail_msg("pp %d x dp %d takes %g s, the fast ones alone %g", p.best.shape.pp, p.best.shape.dp,
                 p.best.cost.step_s, fast.best.cost.step_s);
    assert_int_equal(p.room_bytes[0], 0);
    assert_int_equal(p.room_bytes[p.best.shape.pp - 1], 1 << 30);
}

static void the_same_input_gives_the_same_words(void **state)
{
    struct plan_job job = small_job();
    struct plan_site site = site_of(4, 4);
    struct plan_result p;
    struct buf a, b;

    (void)state;
    buf_init(&a, 65536);
    buf_init(&b, 65536);
    assert_int_equal(plan_search(&job, &all_open, &site, &p, NULL), 0);
    assert_int_equal(plan_print(&p, &a), 0);
    assert_int_equal(plan_search(&job, &all_open, &site, &p, NULL), 0);
    assert_int_equal(plan_print(&p, &b), 0);
    assert_string_equal(buf_text(&a), buf_text(&b));
    assert_non_null(strstr(buf_text(&a), "\"layout\":{\"tp\":1,\"pp\":1,\"dp\":4,\"cp\":1}"));
    assert_non_null(strstr(buf_text(&a), "\"settled\":{\"parallel\":{\"tp\":1"));
    buf_clear(&a);
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_takes_its_arithmetic_and_the_update),
        cmocka_unit_test(rings_take_latency_and_bandwidth_of_their_link),
        cmocka_unit_test(tensor_parallel_sums_are_counted),
        cmocka_unit_test(idle_time_of_pipelines_is_that_of_the_literature),
        cmocka_unit_test(without_messages_a_step_takes_m_plus_p_minus_1_turns),
        cmocka_unit_test(slow_links_expose_a_round_trip_for_each_group),
        cmocka_unit_test(long_steps_take_what_simulating_all_of_them_says),
        cmocka_unit_test(a_stage_keeps_pace_with_its_slowest_device),
        cmocka_unit_test(layers_are_shared_out_as_well_as_trying_all_ways),
        cmocka_unit_test(the_search_finds_what_trying_everything_finds),
        cmocka_unit_test(what_is_said_to_fit_leaves_room_on_every_rank),
        cmocka_unit_test(as_few_blocks_are_made_again_as_memory_asks_for),
        cmocka_unit_test(wishes_are_kept_and_the_impossible_is_named),
        cmocka_unit_test(memory_that_is_short_makes_pipelines_or_recomputation),
        cmocka_unit_test(slow_stages_get_fewer_layers),
        cmocka_unit_test(slow_devices_of_another_class_are_taken_where_uneven_stages_gain_by_them),
        cmocka_unit_test(the_same_input_gives_the_same_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
