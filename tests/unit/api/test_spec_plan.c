#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "api/spec_plan.h"

#define MODEL "\"model\":{\"layers\":4,\"hidden\":64,\"heads\":4,\"context\":32}"
#define TRAIN "\"train\":{" MODEL ",\"data\":{\"path\":\"/c.txt\"},\"batch\":{\"sequences\":8}}"

/* A spec of a small model with this as its parallel; NULL: it is refused. */
static struct job_spec *spec_of(const char *parallel)
{
    char text[1024];
    struct job_spec *s = NULL;
    struct faults f = {.n = 0};

    (void)snprintf(text, sizeof(text), "{" TRAIN "%s%s}", *parallel ? ",\"parallel\":" : "", parallel);
    (void)spec_from_text(text, strlen(text), &s, &f);
    faults_clear(&f);
    return s;
}

static void auto_leaves_things_open_and_the_short_form_all_of_them(void **state)
{
    static const struct {
        const char *parallel;
        bool good, open;
    } t[] = {
        {"", true, false},
        {"{\"tp\":2}", true, false},
        {"{\"tp\":\"auto\"}", true, true},
        {"{\"schedule\":\"auto\"}", true, true},
        {"{\"recompute\":\"auto\",\"schedule\":\"zb-h1\"}", true, true},
        {"{\"chunks\":\"auto\"}", true, true},
        {"{\"cp\":\"auto\"}", true, true},
        {"{\"cp\":\"auto\",\"exact\":\"strict\"}", true, false}, /* which is for cp 1 alone */
        {"{\"virtual_workers\":\"auto\"}", true, true},
        {"{\"sequence_parallel\":\"auto\"}", true, true},
        {"{\"sequence_parallel\":1}", false, false},
        {"{\"zero\":\"auto\"}", true, false}, /* 1 */
        {"\"auto\"", true, true},
        {"\"all\"", false, false},
        {"{\"pp\":\"auto\",\"layers\":[2,2]}", false, false}, /* of how many stages? */
        {"{\"tp\":\"some\"}", false, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct job_spec *s = spec_of(t[i].parallel);

        if (!s != !t[i].good)
            fail_msg("%s is %s", t[i].parallel, s ? "taken" : "refused");
        if (s) {
            struct plan_wish w = spec_plan_wish(s);

            assert_int_equal(plan_wish_open(&w), t[i].open);
        }
        spec_free(s);
    }
}

/* What is settled makes a spec that leaves nothing open, and its shape can be read back. Returns whether some blocks
 * alone make activations again. */
static bool settle(uint64_t memory_bytes)
{
    struct job_spec *open = spec_of("\"auto\""), *settled = NULL;
    struct plan_site site = {
        .group = {{.device = {.flops = 1e9, .bytes_per_s = 1e9, .memory_bytes = memory_bytes}, .n = 4}},
        .groups = 1,
        .node_devices = 4,
        .inside = {1e-5, 1e9},
        .between = {1e-4, 1e8}};
    struct plan_job job = spec_plan_job(open);
    struct plan_wish wish = spec_plan_wish(open);
    struct faults f = {.n = 0};
    struct plan_shape shape;
    struct plan_result p;
    json_t *doc, *plan;

    wish.pp = 2;
    if (plan_search(&job, &wish, &site, &p, NULL) != 0) {
        spec_free(open);
        return false;
    }
    plan = spec_plan_json(&p);
    doc = json_loads("{" TRAIN ",\"parallel\":\"auto\"}", 0, NULL);
    assert_int_equal(spec_settle(doc, plan), 0);
    assert_int_equal(spec_from_json(doc, &settled, &f), 0);
    wish = spec_plan_wish(settled);
    assert_false(plan_wish_open(&wish));
    assert_int_equal(settled->parallel.pp, 2);
    assert_int_equal(settled->parallel.recompute_layers.n, p.best.shape.n_remade);
    assert_int_equal(settled->train.batch.micro, p.best.shape.micro);
    assert_int_equal(spec_plan_shape(plan, &shape), 0);
    assert_memory_equal(&shape, &p.best.shape, sizeof(shape));
    wish = spec_plan_kept(&shape);
    assert_false(plan_wish_open(&wish));
    spec_plan_keep(plan, &job);
    assert_int_equal(job.virtual_workers, settled->parallel.virtual_workers);
    assert_int_equal(job.sequence_parallel, settled->parallel.sequence_parallel);
    assert_int_equal(plan_search(&job, &wish, &site, &p, NULL), 0);
    assert_memory_equal(&shape, &p.best.shape, sizeof(shape));
    assert_int_equal(spec_plan_shape(doc, &shape), -EINVAL);
    assert_int_equal(spec_settle(doc, doc), -EINVAL);
    json_decref(plan);
    json_decref(doc);
    spec_free(open);
    spec_free(settled);
    return shape.n_remade > 0;
}

static void a_settled_spec_is_what_was_planned(void **state)
{
    int some = 0;

    (void)state;
    (void)settle(0);
    for (uint64_t kib = 25 << 10; kib < 64 << 10; kib += 64)
        some += settle(kib << 10);
    assert_true(some > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_leaves_things_open_and_the_short_form_all_of_them),
        cmocka_unit_test(a_settled_spec_is_what_was_planned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
