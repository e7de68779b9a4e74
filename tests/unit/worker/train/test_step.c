/* test_step - the loop of steps of a whole rank: to its end, by orders, and past numbers that are not finite */
#include "tests/unit/worker/train/one_rank.h"

#include <errno.h>
#include <math.h>

static void a_run_takes_all_its_steps_and_saves_the_last(void **state)
{
    struct one_rank o;
    uint64_t step;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    assert_int_equal(step_loop(&o.step, &o.err), 0);
    assert_int_equal(o.shard.step, 12);
    assert_int_equal(o.shard.tokens, 12 * 8 * 16);
    assert_int_equal(one_rank_count("metrics.jsonl", "\"loss\""), 12);
    assert_int_equal(one_rank_count("run/events.jsonl", "\"finished\""), 1);
    assert_int_equal(mck_latest(at("checkpoints"), &step, NULL, NULL), 1);
    assert_int_equal(step, 12);
    one_rank_stop(&o);

    one_rank_start(&o, one_rank_spec()); /* once more: there is nothing left to do, and nothing is done twice */
    assert_int_equal(o.shard.step, 12);
    assert_int_equal(step_loop(&o.step, &o.err), 0);
    assert_int_equal(one_rank_count("metrics.jsonl", "\"loss\""), 12);
    one_rank_stop(&o);
}

/* A rank that obeys an order after its next step. */
static int until_told(struct one_rank *o, enum flight_order order)
{
    flight_order_set(o->rank.flight, order);
    return step_loop(&o->step, &o->err);
}

static void a_drain_ends_after_one_step_on_disk_and_the_next_run_goes_on_from_there(void **state)
{
    struct one_rank o;
    uint64_t step;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    assert_int_equal(until_told(&o, FLIGHT_DRAIN), 1);
    assert_int_equal(o.shard.step, 1);
    assert_int_equal(mck_latest(at("checkpoints"), &step, NULL, NULL), 1);
    assert_int_equal(step, 1);
    one_rank_stop(&o);

    one_rank_start(&o, one_rank_spec());
    assert_int_equal(o.shard.step, 1);
    assert_int_equal(o.shard.tokens, 8 * 16);
    assert_int_equal(step_loop(&o.step, &o.err), 0);
    assert_int_equal(one_rank_count("metrics.jsonl", "\"loss\""), 12);
    one_rank_stop(&o);
}

static void a_hand_over_writes_nothing_to_disk_and_the_next_run_has_the_same_bytes(void **state)
{
    struct one_rank o;
    uint64_t step;
    float *weights;
    size_t n;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    assert_int_equal(until_told(&o, FLIGHT_HAND_OVER), 1);
    n = o.rank.params.weight_n;
    weights = malloc(n * sizeof(*weights));
    assert_non_null(weights);
    memcpy(weights, o.shard.weights, n * sizeof(*weights));
    assert_int_equal(mck_latest(at("checkpoints"), &step, NULL, NULL), 0);
    one_rank_stop(&o);

    one_rank_start(&o, one_rank_spec());
    assert_int_equal(o.shard.step, 1);
    assert_memory_equal(weights, o.shard.weights, n * sizeof(*weights));
    free(weights);
    one_rank_stop(&o);
}

static void the_same_steps_in_two_runs_or_in_one_give_the_same_weights(void **state)
{
    struct one_rank o;
    float *weights = NULL;
    size_t n = 0;

    for (int parts = 1; parts <= 2; parts++) {
        (void)one_rank_fresh(state);
        for (int part = 0; part < parts; part++) {
            one_rank_start(&o, one_rank_spec());
            assert_int_equal(part < parts - 1 ? until_told(&o, FLIGHT_DRAIN) : step_loop(&o.step, &o.err),
                             part < parts - 1);
            if (part < parts - 1)
                one_rank_stop(&o);
        }
        n = o.rank.params.weight_n;
        if (!weights) {
            weights = malloc(n * sizeof(*weights));
            assert_non_null(weights);
            memcpy(weights, o.shard.weights, n * sizeof(*weights));
        }
        assert_memory_equal(weights, o.shard.weights, n * sizeof(*weights));
        one_rank_stop(&o);
    }
    free(weights);
}

/* A weight of the last block. */
static void poison(struct one_rank *o)
{
    o->shard.weights[o->rank.params.layer[1].at] = NAN;
    assert_int_equal(shard_weights_changed(&o->shard, &o->err), 0);
}

static void a_number_that_is_not_finite_ends_the_run_in_words_that_name_the_rank(void **state)
{
    struct one_rank o;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    poison(&o);
    assert_int_equal(step_loop(&o.step, &o.err), -EDOM);
    assert_non_null(strstr(o.err.text, "step 0: "));
    assert_non_null(strstr(o.err.text, "is not finite"));
    assert_non_null(strstr(o.err.text, "a lower learning rate"));
    assert_int_equal(o.step.fault_rank, 0);
    assert_int_equal(o.shard.step, 0);
    one_rank_stop(&o);
}

static void updates_that_are_not_finite_are_left_out_as_often_as_the_spec_allows(void **state)
{
    struct one_rank o;
    json_t *spec = one_rank_spec();

    (void)state;
    one_rank_set(spec, "train/on_nonfinite", json_string("skip"));
    one_rank_set(spec, "train/nonfinite_limit", json_integer(3));
    one_rank_start(&o, spec);
    poison(&o);
    assert_int_equal(step_loop(&o.step, &o.err), -EDOM);
    assert_int_equal(o.shard.step, 3); /* three went by without an update, the fourth was one too many */
    assert_int_equal(one_rank_count("run/events.jsonl", "is not finite"), 3);
    one_rank_stop(&o);
}

int main(void)
{
#define FRESH(f) cmocka_unit_test_setup(f, one_rank_fresh)
    const struct CMUnitTest tests[] = {
        FRESH(a_run_takes_all_its_steps_and_saves_the_last),
        FRESH(a_drain_ends_after_one_step_on_disk_and_the_next_run_goes_on_from_there),
        FRESH(a_hand_over_writes_nothing_to_disk_and_the_next_run_has_the_same_bytes),
        FRESH(the_same_steps_in_two_runs_or_in_one_give_the_same_weights),
        FRESH(a_number_that_is_not_finite_ends_the_run_in_words_that_name_the_rank),
        FRESH(updates_that_are_not_finite_are_left_out_as_often_as_the_spec_allows),
    };

    return cmocka_run_group_tests(tests, make_top, one_rank_remove);
}
