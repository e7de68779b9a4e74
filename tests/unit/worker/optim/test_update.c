#include "tests/unit/worker/optim_bench.h"

#include <math.h>
#include <string.h>

static void the_learning_rate_follows_the_formula(void **state)
{
    static const struct {
        enum lr_schedule kind;
        int warmup;
        uint64_t step;
        double want;
    } t[] = {
        {LR_COSINE, 4, 0, 0.25},  {LR_COSINE, 4, 3, 1.0},         {LR_COSINE, 4, 4, 1.0},    {LR_COSINE, 4, 12, 0.55},
        {LR_COSINE, 4, 20, 0.1},  {LR_COSINE, 0, 0, 1.0},         {LR_LINEAR, 4, 1, 0.5},    {LR_LINEAR, 4, 4, 1.0},
        {LR_LINEAR, 4, 12, 0.55}, {LR_LINEAR, 4, 20, 0.1},        {LR_CONSTANT, 4, 2, 0.75}, {LR_CONSTANT, 4, 19, 1.0},
        {LR_COSINE, 20, 19, 1.0}, {LR_COSINE, 30, 19, 20.0 / 30},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct job_spec s = {.kind = JOB_TRAIN};

        s.train.steps = 20;
        s.train.optimizer.lr = 2e-3;
        s.train.optimizer.min_lr_ratio = 0.1;
        s.train.optimizer.schedule = t[i].kind;
        s.train.optimizer.warmup = t[i].warmup;
        assert_true(fabs(optim_lr(&s, t[i].step) - 2e-3 * t[i].want) < 1e-15);
    }
}

static void an_update_is_adamw_with_decay_on_matrices_alone(void **state)
{
    const double lr = 1e-2, scale = 0.5;
    struct bench b;
    float *before;

    (void)state;
    open_bench(&b, 1);
    before = malloc(b.p.weight_n * sizeof(float));
    memcpy(before, b.w, b.p.weight_n * sizeof(float));
    run_leaves(&b);
    assert_int_equal(optim_update(b.o, 1, lr, scale, NULL), 0);
    for (int i = 0; i < b.p.n; i++) {
        const struct param *q = &b.p.v[i];

        for (size_t e = q->at; e < q->at + q->n; e++) {
            double g = e < q->at + q->box[0].len[0] ? (double)gradient(&b, 0, e) : 0, m, v, want;

            if (e == b.p.rest_n)
                g += 0.5;
            g *= scale;
            m = 0.1 * g / 0.1; /* the first step: corrected for its bias, the moments are g and g^2 */
            v = 0.05 * g * g / 0.05;
            want = (double)before[e] * (1 - (q->decay ? lr * 0.1 : 0)) - lr * m / (sqrt(v) + 1e-8);
            assert_true(fabs((double)b.w[e] - want) < 1e-6 * (1 + fabs(want)));
        }
    }
    free(before);
    close_bench(&b);
}

struct gated {
    struct bench *b;
    const float *before;
    int next; /* the place whose gate comes next */
};

/* What lies before a place has changed, what lies from there on has not. */
static int expect_place(void *arg, int place, struct merr *err)
{
    struct gated *g = arg;
    const struct param *q = g->b->p.by_place[place];

    (void)err;
    assert_int_equal(place, g->next++);
    assert_memory_equal(g->b->w + q->at, g->before + q->at, (g->b->p.weight_n - q->at) * sizeof(float));
    if (place > 0)
        assert_true(g->b->w[g->b->p.by_place[place - 1]->at] != g->before[g->b->p.by_place[place - 1]->at]);
    return 0;
}

static void each_tensor_passes_its_gate_before_it_changes(void **state)
{
    struct gated g;
    struct bench b;

    (void)state;
    open_gated(&b, 1, expect_place, &g);
    g = (struct gated){.b = &b,
                       .before = memcpy(malloc(b.p.weight_n * sizeof(float)), b.w, b.p.weight_n * sizeof(float))};
    run_leaves(&b);
    assert_int_equal(optim_update(b.o, 1, 1e-2, 1, NULL), 0);
    assert_int_equal(g.next, b.p.n);
    free((void *)g.before);
    close_bench(&b);
}

static void padding_stays_zero(void **state)
{
    struct bench b;
    size_t real = 70 * 8;

    (void)state;
    open_bench(&b, 2);
    for (uint64_t t = 1; t <= 3; t++) {
        run_leaves(&b);
        assert_int_equal(optim_update(b.o, t, 1e-2, 1, NULL), 0);
    }
    for (size_t e = b.p.rest_n + real; e < b.p.weight_n; e++)
        assert_true(b.w[e] == 0);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_learning_rate_follows_the_formula),
        cmocka_unit_test(an_update_is_adamw_with_decay_on_matrices_alone),
        cmocka_unit_test(each_tensor_passes_its_gate_before_it_changes),
        cmocka_unit_test(padding_stays_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
