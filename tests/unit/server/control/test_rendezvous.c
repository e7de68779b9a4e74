/* Rendezvous keys: kept once, in order, bounded, and gone with their run. */
#include "tests/unit/server/control/scene.h"

#include <errno.h>

#include "api/protocol/rendezvous.h"
#include "server/control/rendezvous.h"

#define ONE "devices: {min: 1, max: 1}\ncommand: {argv: [x]}\n"

static struct entry *running(struct scene *s)
{
    uint64_t job;

    assert_int_equal(scene_register(s, "n1", "a", 1), 200);
    job = scene_submit(s, ONE);
    scene_report_all(s, job, "running", 0);
    return scene_entry(s, job);
}

/* How many keys an answer from a number on has. */
static size_t seen(struct scene *s, const struct entry *e, uint64_t since)
{
    json_t *doc = rendezvous_view(s->core, e, since);
    size_t n = json_array_size(json_object_get(doc, "keys"));

    assert_non_null(doc);
    json_decref(doc);
    return n;
}

static void a_key_is_put_once_and_the_first_value_stands(void **state)
{
    struct scene *s = *state;
    struct entry *e = running(s);
    uint64_t first = rendezvous_next(s->core, e);

    assert_int_equal(rendezvous_put(s->core, e, "ucx-0", "b25l"), 0);
    assert_int_equal(rendezvous_put(s->core, e, "ucx-0", "dHdv"), 0);
    assert_int_equal(rendezvous_next(s->core, e), first + 1);
    assert_string_equal(e->run.keys[0].value, "b25l");
}

static void an_answer_goes_on_where_the_last_one_ended(void **state)
{
    struct scene *s = *state;
    struct entry *e = running(s);
    uint64_t first = rendezvous_next(s->core, e);
    char key[16];

    for (int i = 0; i < 5; i++) {
        (void)snprintf(key, sizeof(key), "ucx-%d", i);
        assert_int_equal(rendezvous_put(s->core, e, key, "eA=="), 0);
    }
    assert_int_equal(seen(s, e, first + 2), 3);
    assert_int_equal(seen(s, e, first + 5), 0);
    assert_int_equal(seen(s, e, 1), 5);          /* a number of an earlier server: all again */
    assert_int_equal(seen(s, e, first + 99), 5); /* one that was never given */
}

static void a_run_has_a_limit_and_leaves_nothing(void **state)
{
    struct scene *s = *state;
    struct entry *e = running(s);
    uint64_t job = e->job.id;
    char key[16];

    for (int i = 0; i < RENDEZVOUS_KEYS_MAX; i++) {
        (void)snprintf(key, sizeof(key), "ucx-%d", i);
        assert_int_equal(rendezvous_put(s->core, e, key, "eA=="), 0);
    }
    assert_int_equal(rendezvous_put(s->core, e, "more", "eA=="), -ENOSPC);
    assert_int_equal(rendezvous_put(s->core, e, "ucx-0", "eA=="), 0); /* it is there */
    assert_true(s->core->rendezvous_bytes > 0);
    scene_report_all(s, job, "exited", 0);
    assert_int_equal(s->core->rendezvous_bytes, 0);
}

static void all_runs_together_have_a_limit(void **state)
{
    struct scene *s = *state;
    struct entry *e = running(s);

    s->core->rendezvous_bytes += (size_t)256 << 20; /* as if of other runs */
    assert_int_equal(rendezvous_put(s->core, e, "ucx-0", "eA=="), -ENOSPC);
    assert_int_equal(e->run.n_keys, 0);
    s->core->rendezvous_bytes -= (size_t)256 << 20;
    assert_int_equal(rendezvous_put(s->core, e, "ucx-0", "eA=="), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_key_is_put_once_and_the_first_value_stands),
        TEST(an_answer_goes_on_where_the_last_one_ended),
        TEST(a_run_has_a_limit_and_leaves_nothing),
        TEST(all_runs_together_have_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
