/* The planner chooses context parallelism, sequence parallelism and virtual workers where a job leaves them open. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/philox.h"
#include "scheduler/plan/search.h"

#define MIB (UINT64_C(1) << 20)

static uint32_t seed, draws;

static int draw(int below)
{
    uint32_t key[2] = {seed, 9}, ctr[4] = {draws++, 0, 0, 0}, out[4];

    philox4x32(ctr, key, out);
    return (int)(out[0] % (uint32_t)below);
}

static const struct plan_wish closed = {.any_schedule = true, .any_recompute = true};
static const struct plan_wish all_open = {
    .any_schedule = true, .any_recompute = true, .any_cp = true, .any_workers = true, .any_sequence_parallel = true};

static struct plan_job job_of(int sequences, int length, int virtual_workers)
{
    return (struct plan_job){.model = {.family = PLAN_GPT2,
                                       .layers = 4,
                                       .hidden = 128,
                                       .heads = 4,
                                       .kv_heads = 4,
                                       .ffn = 512,
                                       .context = length,
                                       .vocab = 256,
                                       .tied = true},
                             .sequences = sequences,
                             .length = length,
                             .virtual_workers = virtual_workers,
                             .zero = 1};
}

static struct plan_site site_of(int devices, int node_devices, uint64_t memory_bytes)
{
    return (struct plan_site){
        .group = {{.device = {.flops = 1e10, .bytes_per_s = 1e10, .memory_bytes = memory_bytes}, .n = devices}},
        .groups = 1,
        .node_devices = node_devices,
        .inside = {1e-6, 1e10},
        .between = {1e-5, 1e9}};
}

static void draw_case(struct plan_job *job, struct plan_site *site)
{
    *job = job_of(1, 32 << draw(4), 1 << draw(4));
    job->sequences = job->virtual_workers * (1 + draw(4));
    job->model.layers = 1 + draw(8);
    job->bf16 = draw(2);
    *site = site_of(1 + draw(8), 1 << draw(4), draw(3) ? (uint64_t)(36 + draw(20)) * MIB : 0);
    site->inside.latency_s = draw(2) ? 1e-6 : 1e-4;
}

static void an_open_choice_is_never_worse_than_none_and_keeps_to_memory(void **state)
{
    int gained = 0, rescued = 0;

    (void)state;
    for (seed = 0; seed < 150; seed++) {
        struct plan_memory m[PLAN_STAGES_MAX];
        struct plan_result old, new;
        struct plan_job job;
        struct plan_site site;
        int was, is;

        draws = 0;
        draw_case(&job, &site);
        was = plan_search(&job, &closed, &site, &old, NULL);
        is = plan_search(&job, &all_open, &site, &new, NULL);
        if (was == 0 && (is != 0 || new.best.cost.step_s > old.best.cost.step_s))
            fail_msg("seed %u: %g s with nothing of them open, %d %g s with all", seed, old.best.cost.step_s, is,
                     is ? 0 : new.best.cost.step_s);
        gained += was == 0 && new.best.cost.step_s < old.best.cost.step_s;
        rescued += was == -E2BIG && is == 0;
        if (is != 0)
            continue;
        assert_true(new.best.fits);
        assert_int_equal(new.job.sequences % new.job.virtual_workers, 0);
        assert_int_equal(plan_stage_memory(&new.job, &new.best.shape, m, NULL), 0);
        for (int i = 0; i < new.best.shape.pp &&site.group[0].device.memory_bytes > 0; i++)
            assert_true((double)plan_memory_all(&m[i]) <= PLAN_ROOM * (double)site.group[0].device.memory_bytes);
        for (int i = 1; i < new.n_beaten; i++) /* those that do not fit at the end, the others by time */
            assert_true(!new.beaten[i].fits ||
                        (new.beaten[i - 1].fits &&new.beaten[i - 1].cost.step_s <= new.beaten[i].cost.step_s));
    }
    print_message("of 150 jobs %d are faster and %d fit only then\n", gained, rescued);
    assert_true(gained >= 10 && rescued >= 3);
}

static void one_long_sequence_is_cut_over_the_ranks_of_cp(void **state)
{
    struct plan_job job = job_of(1, 4096, 1);
    struct plan_site site = site_of(4, 4, 0);
    struct plan_result p;

    (void)state;
    site.inside.latency_s = 1e-3; /* sums over tp come four times a block and wait long */
    assert_int_equal(plan_search(&job, &all_open, &site, &p, NULL), 0);
    assert_true(p.best.shape.cp > 1);
    job.length = job.model.context = 4095; /* of which no two equal pieces are made */
    assert_int_equal(plan_search(&job, &all_open, &site, &p, NULL), 0);
    assert_int_equal(plan_cp(&p.best.shape), 1);
}

static void fewer_virtual_workers_where_their_gradients_do_not_fit(void **state)
{
    struct plan_job job = job_of(8, 32, 8);
    struct plan_site site = site_of(1, 1, 0);
    struct plan_result eight, p;

    (void)state;
    assert_int_equal(plan_search(&job, &closed, &site, &eight, NULL), 0);
    site.group[0].device.memory_bytes = plan_memory_all(&eight.best.memory) - eight.best.memory.gradients / 4;
    assert_int_equal(plan_search(&job, &closed, &site, &p, NULL), -E2BIG);
    assert_int_equal(plan_search(&job, &all_open, &site, &p, NULL), 0);
    assert_in_range(p.job.virtual_workers, 1, 7);
    assert_true(p.best.memory.gradients < eight.best.memory.gradients);
}

static void more_virtual_workers_where_more_replicas_run(void **state)
{
    struct plan_job job = job_of(64, 128, 8);
    struct plan_site site = site_of(32, 8, 0);
    struct plan_wish wish = {.tp = 1, .pp = 1, .chunks = 1, .any_workers = true};
    struct plan_result p;

    (void)state;
    site.between = (struct plan_link){.latency_s = 1e-6, .bytes_per_s = 1e11};
    assert_int_equal(plan_search(&job, &wish, &site, &p, NULL), 0);
    assert_int_equal(p.job.virtual_workers, 32);
    assert_int_equal(p.best.shape.dp, 32);
    wish.micro = 8;
    assert_int_equal(plan_search(&job, &wish, &site, &p, NULL), 0);
    assert_int_equal(p.job.virtual_workers, 8); /* micro-batches of 8 that a user gives make up no other number */
}

static void sequence_parallelism_where_activations_do_not_fit(void **state)
{
    struct plan_job job = job_of(8, 1024, 1);
    struct plan_site site = site_of(4, 4, 0);
    struct plan_wish wish = {.tp = 4, .pp = 1, .micro = 8, .chunks = 1}, open = wish;
    struct plan_result p;

    (void)state;
    open.any_sequence_parallel = true;
    assert_int_equal(plan_search(&job, &wish, &site, &p, NULL), 0);
    site.group[0].device.memory_bytes = plan_memory_all(&p.best.memory);
    assert_int_equal(plan_search(&job, &wish, &site, &p, NULL), -E2BIG);
    assert_int_equal(plan_search(&job, &open, &site, &p, NULL), 0);
    assert_true(p.job.sequence_parallel && p.best.sequence_parallel);
}

/* What the user fixes stays, whatever would be better; what cannot be is refused with numbers. */
static void what_is_given_is_kept(void **state)
{
    struct plan_job job = job_of(8, 64, 4);
    struct plan_site site = site_of(4, 4, 0);
    struct plan_wish wish = {.tp = 1, .pp = 1, .cp = 2, .chunks = 1, .any_sequence_parallel = true};
    struct plan_result p;
    struct merr err;

    (void)state;
    assert_int_equal(plan_search(&job, &wish, &site, &p, NULL), 0);
    assert_int_equal(p.best.shape.cp, 2);
    assert_int_equal(p.job.virtual_workers, 4);
    wish.cp = 8;
    assert_int_equal(plan_search(&job, &wish, &site, &p, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "more than the 4 devices"));
    site.group[0].device.memory_bytes = MIB;
    assert_int_equal(plan_search(&job, &all_open, &site, &p, &err), -E2BIG);
    assert_non_null(strstr(err.text, "GiB"));
}

/* So "auto" means it. */
static void zero_1_never_takes_more_time_or_memory_than_zero_0(void **state)
{
    (void)state;
    for (seed = 500; seed < 600; seed++) {
        struct plan_option with, without;
        struct plan_job job;
        struct plan_site site;
        struct plan_shape s = {.tp = 1, .pp = 1, .cp = 1, .chunks = 1, .micro = 1};
        uint64_t twice;

        draws = 0;
        draw_case(&job, &site);
        s.dp = 1 + draw(job.virtual_workers);
        job.zero = 1;
        assert_int_equal(plan_weigh(&job, &s, &site, &with, NULL), 0);
        job.zero = 0;
        assert_int_equal(plan_weigh(&job, &s, &site, &without, NULL), 0);
        assert_true(with.cost.step_s <= without.cost.step_s);
        /* In bf16 each owner has masters of norms and biases, too, which all hold in f32 anyway. */
        twice = job.bf16 && with.memory.weights > without.memory.weights / 3
                    ? with.memory.weights - without.memory.weights / 3
                    : 0;
        assert_true(plan_memory_all(&with.memory) <= plan_memory_all(&without.memory) + twice);
    }
}

static void a_plan_names_what_was_chosen(void **state)
{
    struct plan_job job = job_of(64, 128, 8);
    struct plan_site site = site_of(32, 8, 0);
    struct plan_wish wish = {.tp = 1, .pp = 1, .chunks = 1, .any_workers = true};
    struct plan_result p;
    struct buf text;

    (void)state;
    site.between = (struct plan_link){.latency_s = 1e-6, .bytes_per_s = 1e11};
    buf_init(&text, 65536);
    assert_int_equal(plan_search(&job, &wish, &site, &p, NULL), 0);
    assert_int_equal(plan_print(&p, &text), 0);
    assert_non_null(strstr(buf_text(&text), "\"virtual_workers\":32,\"sequence_parallel\":false,\"layers\""));
    assert_non_null(strstr(buf_text(&text), "\"cp\":1,\"schedule\":\"1f1b\""));
    assert_non_null(strstr(buf_text(&text), ", 8 virtual workers: ")); /* among those that it beat */
    buf_clear(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_choice_is_never_worse_than_none_and_keeps_to_memory),
        cmocka_unit_test(one_long_sequence_is_cut_over_the_ranks_of_cp),
        cmocka_unit_test(fewer_virtual_workers_where_their_gradients_do_not_fit),
        cmocka_unit_test(more_virtual_workers_where_more_replicas_run),
        cmocka_unit_test(sequence_parallelism_where_activations_do_not_fit),
        cmocka_unit_test(what_is_given_is_kept),
        cmocka_unit_test(zero_1_never_takes_more_time_or_memory_than_zero_0),
        cmocka_unit_test(a_plan_names_what_was_chosen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
