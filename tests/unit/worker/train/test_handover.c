/* test_handover - what one generation leaves in memory, who may take it over, and how long it may be nowhere else */
#include "tests/unit/worker/train/one_rank.h"

#include <errno.h>

#include "base/clock.h"
#include "worker/snapshot/handoff.h"

#define SECOND INT64_C(1000000)

/* A generation that has left its state after so many steps. */
static void leave(uint64_t steps)
{
    struct one_rank o;

    one_rank_start(&o, one_rank_spec());
    o.shard.step = steps;
    o.shard.tokens = 100 * steps;
    for (size_t i = 0; i < o.rank.params.weight_n; i++)
        o.shard.weights[i] = (float)i;
    one_rank_good(&o, handover_leave(&o.handover, &o.err));
    one_rank_stop(&o);
}

static void the_next_generation_goes_on_from_what_was_left_and_it_is_taken_once(void **state)
{
    struct one_rank o;
    uint64_t step;

    (void)state;
    leave(5);
    one_rank_start(&o, one_rank_spec());
    assert_int_equal(o.shard.step, 5);
    assert_int_equal(o.shard.tokens, 500);
    assert_true(o.shard.weights[1000] == 1000.0f);
    assert_false(handover_left(&o.handover, &step)); /* a later one may not: it has been trained on */
    assert_int_equal(handover_check(&o.handover, &o.err), -EPROTO);
    one_rank_stop(&o);
}

static void what_another_layout_left_is_refused_in_words(void **state)
{
    static const struct {
        int tp, cp, pp, chunks;
        uint64_t weights;
    } others[] = {{2, 1, 1, 1, 0}, {1, 2, 1, 1, 0}, {1, 1, 2, 1, 0}, {1, 1, 1, 2, 0}, {1, 1, 1, 1, 1}};
    struct one_rank o;
    struct handoff_mark m;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    o.handover.cleared = false; /* as it is when somebody asks */
    for (size_t i = 0; i < COUNT(others); i++) {
        m = (struct handoff_mark){.step = 3,
                                  .weight_n = o.rank.params.weight_n + others[i].weights,
                                  .tp = others[i].tp,
                                  .cp = others[i].cp,
                                  .pp = others[i].pp,
                                  .dp = 1,
                                  .chunks = others[i].chunks};
        one_rank_good(&o, handoff_mark_put(o.rank.run.memory, &m, &o.err));
        assert_int_equal(handover_check(&o.handover, &o.err), -EPROTO);
        assert_non_null(strstr(o.err.text, "left in memory is of tp"));
    }
    one_rank_stop(&o);
}

static void memory_that_was_cleared_or_dropped_is_not_gone_on_from(void **state)
{
    struct one_rank o;
    struct handoff_mark m;

    (void)state;
    leave(4);
    one_rank_plan(&o, one_rank_spec()); /* for the folder's name alone */
    assert_true(handoff_mark_get(o.rank.run.memory, &m));
    assert_int_equal(m.step, 4);
    handoff_trim(o.rank.run.memory, 0);
    one_rank_stop(&o);

    one_rank_start(&o, one_rank_spec());
    assert_int_equal(o.shard.step, 0);
    for (int i = 0; i < 2; i++) { /* twice is once */
        handover_clear(&o.handover);
        assert_int_equal(handover_check(&o.handover, &o.err), -EPROTO);
    }
    one_rank_stop(&o);
}

static void moments_of_each_replica_coded_weights_and_no_folder_are_not_left(void **state)
{
    struct one_rank o;
    json_t *spec = one_rank_spec();

    (void)state;
    one_rank_set(spec, "parallel/zero", json_integer(0));
    one_rank_start(&o, spec);
    assert_false(o.handover.agreed);
    one_rank_stop(&o);
    spec = one_rank_spec();
    (void)json_object_set_new(spec, "compress", json_pack("{s:s}", "dp", "g8"));
    one_rank_start(&o, spec);
    assert_false(o.handover.agreed);
    one_rank_stop(&o);
    one_rank_start(&o, one_rank_spec());
    assert_true(o.handover.agreed);
    one_rank_stop(&o);
}

static void state_is_in_memory_alone_for_a_while_only(void **state)
{
    struct one_rank o;
    struct mesh second;
    const struct mesh *first;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    first = o.rank.mesh;
    second = *first;
    second.rank = 1;
    assert_false(handover_must_be_durable(&o.handover)); /* nothing is lost yet */
    assert_false(handover_copy_due(&o.handover));
    o.handover.durable_us = clock_wall_us() - 24 * 3600 * SECOND;
    assert_true(handover_must_be_durable(&o.handover));
    o.handover.copy_us = clock_wall_us() - 1;
    assert_true(handover_copy_due(&o.handover));
    o.rank.mesh = &second; /* one decides for all */
    assert_false(handover_must_be_durable(&o.handover));
    assert_false(handover_copy_due(&o.handover));
    o.rank.mesh = first;
    handover_note_copy(&o.handover);
    assert_false(handover_copy_due(&o.handover));
    handover_note_durable(&o.handover);
    assert_false(handover_must_be_durable(&o.handover));
    one_rank_stop(&o);
}

static void a_snapshot_tells_since_when_its_state_is_on_disk(void **state)
{
    static const struct {
        const char *kv;
        int64_t durable_us; /* 0: by now */
    } table[] = {
        {"{\"step\": 3, \"written_by\": {\"durable_us\": 1234567}}", 1234567},
        {"{\"step\": 3, \"written_by\": {\"durable_us\": \"soon\"}}", 0},
        {"{\"step\": 3, \"written_by\": 7}", 0},
        {"{\"step\": 3}", 0},
        {"{}", 0},
    };
    struct one_rank o;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    for (size_t i = 0; i < COUNT(table); i++) {
        json_t *kv = json_loads(table[i].kv, 0, NULL);
        int64_t before_us = clock_wall_us();

        o.handover.durable_us = -1;
        o.handover.copy_us = 0;
        handover_follow_snapshot(&o.handover, kv);
        if (table[i].durable_us)
            assert_int_equal(o.handover.durable_us, table[i].durable_us);
        else
            assert_true(o.handover.durable_us >= before_us);
        assert_true(o.handover.copy_us > before_us); /* the disk has nothing as new */
        json_decref(kv);
    }
    one_rank_stop(&o);
}

int main(void)
{
#define FRESH(f) cmocka_unit_test_setup(f, one_rank_fresh)
    const struct CMUnitTest tests[] = {
        FRESH(the_next_generation_goes_on_from_what_was_left_and_it_is_taken_once),
        FRESH(what_another_layout_left_is_refused_in_words),
        FRESH(memory_that_was_cleared_or_dropped_is_not_gone_on_from),
        FRESH(moments_of_each_replica_coded_weights_and_no_folder_are_not_left),
        FRESH(state_is_in_memory_alone_for_a_while_only),
        FRESH(a_snapshot_tells_since_when_its_state_is_on_disk),
    };

    return cmocka_run_group_tests(tests, make_top, one_rank_remove);
}
