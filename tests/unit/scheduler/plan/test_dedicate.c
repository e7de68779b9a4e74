/* Ranks on nodes that reach each other unlike: terms by hand, the search against every order, families of NICs. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/plan/dedicate.h"
#include "scheduler/plan/search.h"

static uint32_t seed, draws;

static int draw(int below)
{
    uint32_t key[2] = {seed, 11}, ctr[4] = {draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return (int)(out[0] % (uint32_t)below);
}

static struct plan_job some_job(void)
{
    return (struct plan_job){.model = {.family = PLAN_GPT2,
                                       .layers = 16,
                                       .hidden = 256,
                                       .heads = 8,
                                       .kv_heads = 8,
                                       .ffn = 1024,
                                       .context = 128,
                                       .vocab = 256,
                                       .tied = true},
                             .sequences = 64,
                             .length = 128,
                             .virtual_workers = 16,
                             .zero = 1};
}

static struct plan_net *net_of(int n, int devices)
{
    struct plan_part part[PLAN_PARTS_MAX];
    struct plan_net *net;

    for (int i = 0; i < n; i++)
        part[i] = (struct plan_part){.devices = devices};
    net = plan_net_new(part, n, 1e9);
    assert_non_null(net);
    return net;
}

/* Links of rates that differ up to eight times. */
static struct plan_net *random_net(int n, int devices)
{
    struct plan_net *net = net_of(n, devices);

    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++)
            plan_net_measured(net, a, b, 1e8 * (1 + draw(8)));
    return net;
}

static struct plan_shape shape_of(int tp, int pp, int dp)
{
    return (struct plan_shape){.tp = tp, .pp = pp, .dp = dp, .chunks = 1, .micro = 1};
}

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * (fabs(a) + fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

static void links_are_as_their_slower_end_and_family_have_them(void **state)
{
    const struct plan_part part[4] = {{1, 0, PLAN_NIC_INFINIBAND, 2e10},
                                      {1, 0, PLAN_NIC_INFINIBAND, 1e10},
                                      {1, 0, PLAN_NIC_ROCE, 1e10},
                                      {1, 0, PLAN_NIC_ROCE, 0}};
    struct plan_net *net = plan_net_new(part, 4, 3e9);

    (void)state;
    assert_non_null(net);
    near(plan_net_pair(net, 0, 1), 1e10);
    near(plan_net_pair(net, 1, 2), 0.25e10);
    near(plan_net_pair(net, 3, 2), 3e9); /* one did not tell */
    near(plan_net_pair(net, 2, 2), 0);
    near(plan_net_ring(net, 0, 4), 0.25 * 3e9); /* round again from the last to the first */
    plan_net_measured(net, 0, 1, 7e9);
    plan_net_measured(net, 1, 0, 5e9); /* the slower direction */
    plan_net_measured(net, 0, 1, 6e9);
    near(plan_net_pair(net, 1, 0), 5e9);
    assert_true(plan_net_mixed(net, 1, 3));
    assert_false(plan_net_mixed(net, 2, 4));
    assert_false(plan_net_even(net));
    assert_int_equal(plan_net_place(net, 2), 2);
    assert_int_equal(plan_net_place(net, 9), 3);
    assert_int_equal(plan_nic_parse("roce"), PLAN_NIC_ROCE);
    assert_int_equal(plan_nic_parse("token ring"), PLAN_NIC_UNKNOWN);
    assert_int_equal(plan_nic_parse(NULL), PLAN_NIC_UNKNOWN);
    plan_net_free(net);
    net = net_of(3, 2);
    assert_true(plan_net_even(net));
    assert_int_equal(plan_net_place(net, 3), 1);
    plan_net_free(net);
}

static void messages_take_what_adding_them_up_says(void **state)
{
    struct plan_job job = some_job();
    struct plan_shape replicas = shape_of(1, 1, 4), pipe = shape_of(1, 4, 1), both = shape_of(1, 2, 2);
    struct plan_net *net = net_of(4, 1);
    struct plan_messages m;

    (void)state;
    plan_net_measured(net, 0, 3, 5e8); /* a ring of four goes over it, a pipeline does not */
    assert_int_equal(plan_messages(&job, &replicas, net, &m), 0);
    near(m.time_s, plan_exchange_bytes(&job, &replicas, 0) / 5e8);
    assert_int_equal(plan_messages(&job, &pipe, net, &m), 0);
    near(m.time_s, 3 * 2 * 16 * plan_hop_bytes(&job, &pipe) / 1e9); /* 64 micro-batches in groups of four */
    assert_int_equal(plan_messages(&job, &both, net, &m), 0);
    near(m.time_s, 2 * 16 * plan_hop_bytes(&job, &both) / 1e9 + plan_exchange_bytes(&job, &both, 0) / 1e9);
    assert_int_equal(m.mixed, 0);
    plan_net_free(net);
    net = net_of(2, 2); /* two places a node: a pipeline of two whose stages are a node each */
    assert_int_equal(plan_messages(&job, &both, net, &m), 0);
    near(m.time_s, 2 * 16 * plan_hop_bytes(&job, &both) / 1e9);
    plan_net_free(net);
}

/* The least over all orders from place k on, in a way of its own. */
static double least_of(const struct plan_job *job, const struct plan_shape *s, struct plan_net *net, int k)
{
    struct plan_messages m;
    double least = INFINITY;

    if (k == net->n) {
        assert_int_equal(plan_messages(job, s, net, &m), 0);
        return m.time_s;
    }
    for (int i = k; i < net->n; i++) {
        double other;

        plan_net_swap(net, k, i);
        other = least_of(job, s, net, k + 1);
        plan_net_swap(net, k, i);
        least = other < least ? other : least;
    }
    return least;
}

static struct plan_shape draw_shape(int n, int devices)
{
    int world = n * devices, tp = devices > 1 ? 1 + draw(2) : 1, pp;

    do
        pp = 1 + draw(n);
    while (world / tp % pp != 0);
    return shape_of(tp, pp, world / tp / pp < 16 ? world / tp / pp : 16);
}

static void few_nodes_are_laid_as_trying_every_order_finds(void **state)
{
    struct plan_job job = some_job();

    (void)state;
    for (seed = 1; seed <= 100; seed++) {
        int n = 2 + draw(4), devices = 1 + draw(2);
        struct plan_net *net = random_net(n, devices);
        struct plan_shape s = draw_shape(n, devices);
        double least = least_of(&job, &s, net, 0);
        struct plan_messages m;

        assert_int_equal(plan_dedicate(&job, &s, PLAN_DEDICATE, net, &m), 0);
        if (m.time_s > least * (1 + 1e-5))
            fail_msg("seed %u: %d nodes, %g where %g can be", seed, n, m.time_s, least);
        plan_net_free(net);
    }
}

static void annealing_comes_close_to_trying_every_order(void **state)
{
    struct plan_job job = some_job();
    double sum = 0, sum_least = 0, sum_given = 0, worst = 1;
    int exact = 0, runs = 0;

    (void)state;
    for (seed = 1; seed <= 40; seed++) {
        struct plan_net *all = random_net(7, 1 + draw(2)), *annealed = plan_net_copy(all);
        struct plan_shape s = draw_shape(7, all->part[0].devices);
        struct plan_messages given, least, m;

        assert_non_null(annealed);
        assert_int_equal(plan_messages(&job, &s, all, &given), 0);
        assert_int_equal(plan_dedicate(&job, &s, PLAN_DEDICATE_ALL, all, &least), 0);
        assert_int_equal(plan_dedicate(&job, &s, PLAN_DEDICATE_ANNEAL, annealed, &m), 0);
        assert_true(least.time_s <= m.time_s * (1 + 1e-5) && m.time_s <= given.time_s);
        exact += m.time_s <= least.time_s * (1 + 1e-5);
        worst = m.time_s / least.time_s > worst ? m.time_s / least.time_s : worst;
        sum += m.time_s;
        sum_least += least.time_s;
        sum_given += given.time_s;
        runs++;
        plan_net_free(all);
        plan_net_free(annealed);
    }
    print_message("seeds 1 to 40: %d of %d exact, %.4f of the least in all, worst %.4f; in their order %.2f\n", exact,
                  runs, sum / sum_least, worst, sum_given / sum_least);
    assert_true(exact >= runs * 9 / 10 && worst < 1.05);
}

/* Nodes of two families that come by turns: replicas exchange within a family, the pipeline goes across. */
static void replicas_stay_within_a_family(void **state)
{
    struct plan_job job = some_job();
    struct plan_messages before, m;

    (void)state;
    for (int n = 4; n <= 64; n *= 2) {
        struct plan_shape s = shape_of(1, 2, n / 2 < 16 ? n / 2 : 16);
        struct plan_part part[64];
        struct plan_net *net;

        for (int i = 0; i < n; i++)
            part[i] = (struct plan_part){
                .devices = 1, .nic = i % 2 ? PLAN_NIC_ETHERNET : PLAN_NIC_ROCE, .bytes_per_s = i % 2 ? 1e9 : 1e10};
        net = plan_net_new(part, n, 1e9);
        assert_non_null(net);
        assert_int_equal(plan_messages(&job, &s, net, &before), 0);
        assert_int_equal(plan_dedicate(&job, &s, PLAN_DEDICATE, net, &m), 0);
        assert_int_equal(before.mixed, 2);
        assert_int_equal(m.mixed, 0);
        assert_true(m.time_s < before.time_s);
        plan_net_free(net);
    }
}

static void only_parts_alike_are_exchanged(void **state)
{
    struct plan_job job = some_job();

    (void)state;
    for (seed = 1; seed <= 50; seed++) {
        struct plan_part part[12];
        struct plan_net *net;
        struct plan_shape s;
        bool seen[12] = {false};
        int all = 0;

        for (int i = 0; i < 12; i++) {
            part[i] = (struct plan_part){.devices = 1 + draw(2),
                                         .kind = draw(2),
                                         .nic = (enum plan_nic)draw(PLAN_NICS),
                                         .bytes_per_s = 1e8 * (1 + draw(8))};
            all += part[i].devices;
        }
        s = shape_of(1, 2, all / 2 < 16 ? all / 2 : 16); /* a device may be left over, and whole nodes */
        net = plan_net_new(part, 12, 1e9);
        assert_non_null(net);
        assert_int_equal(plan_dedicate(&job, &s, PLAN_DEDICATE, net, NULL), 0);
        for (int i = 0; i < 12; i++) {
            assert_true(plan_parts_alike(&part[i], &net->part[net->at[i]]));
            assert_false(seen[net->at[i]]);
            seen[net->at[i]] = true;
        }
        plan_net_free(net);
    }
}

static void plans_lie_on_their_nodes_no_worse_than_in_the_given_order(void **state)
{
    static const struct plan_wish open = {.any_schedule = true, .any_recompute = true};
    struct plan_job job = some_job();
    int faster = 0;

    (void)state;
    for (seed = 1; seed <= 12; seed++) {
        struct plan_net *net = random_net(8, 2);
        struct plan_site site = {.group = {{.device = {.flops = 1e12, .bytes_per_s = 1e11}, .n = 16}},
                                 .groups = 1,
                                 .node_devices = 2,
                                 .inside = {1e-5, 1e10},
                                 .between = {1e-5, 1e8},
                                 .net = net};
        struct plan_result p, again;
        char text[2][32768];

        assert_int_equal(plan_search(&job, &open, &site, &p, NULL), 0);
        assert_int_equal(plan_search(&job, &open, &site, &again, NULL), 0);
        for (int i = 0; i < 2; i++) {
            struct buf out;

            buf_init(&out, sizeof(text[0]) - 1);
            assert_int_equal(plan_print(i ? &again : &p, &out), 0);
            (void)snprintf(text[i], sizeof(text[i]), "%s", buf_text(&out));
            buf_clear(&out);
        }
        assert_string_equal(text[0], text[1]);
        assert_non_null(strstr(text[0], "\"dedication\":{\"order\":["));
        assert_int_equal(p.parts, 8);
        if (p.best.cost.step_s > p.in_order_s && p.mixed >= p.mixed_in_order)
            fail_msg("seed %u: %g s, in the given order %g", seed, p.best.cost.step_s, p.in_order_s);
        faster += p.best.cost.step_s < p.in_order_s * 0.98;
        for (int i = 0; i < net->n; i++)
            assert_int_equal(net->at[i], i); /* the caller's is left alone */
        plan_net_free(net);
    }
    assert_true(faster >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_as_their_slower_end_and_family_have_them),
        cmocka_unit_test(messages_take_what_adding_them_up_says),
        cmocka_unit_test(few_nodes_are_laid_as_trying_every_order_finds),
        cmocka_unit_test(annealing_comes_close_to_trying_every_order),
        cmocka_unit_test(replicas_stay_within_a_family),
        cmocka_unit_test(only_parts_alike_are_exchanged),
        cmocka_unit_test(plans_lie_on_their_nodes_no_worse_than_in_the_given_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
