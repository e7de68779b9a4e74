/* test_save - when a checkpoint is begun, what it says of itself, and what happens when it cannot be written */
#include "tests/unit/worker/train/one_rank.h"

#include <errno.h>
#include <math.h>

#include "base/clock.h"

static const double nobody[SAVE_VOTES];

static json_t *saving_each(int steps)
{
    json_t *spec = one_rank_spec();

    one_rank_set(spec, "checkpoint/every_steps", json_integer(steps));
    return spec;
}

static void open_save(struct one_rank *o, json_t *spec)
{
    one_rank_start(o, spec);
    one_rank_good(o, save_open(&o->save, &o->err));
}

/* So many steps are done, and what ranks voted came to this. */
static void due(struct one_rank *o, uint64_t step, const double *votes)
{
    o->shard.step = step;
    one_rank_good(o, save_due(&o->save, votes, 0.1, false, &o->err));
}

static void wait_written(struct one_rank *o)
{
    one_rank_good(o, mck_drain(o->save.saver[SAVE_DISK].writer, clock_mono_us() + INT64_C(60000000), &o->err));
}

static void a_checkpoint_is_begun_at_each_multiple_of_the_specs_steps_and_once(void **state)
{
    struct one_rank o;
    uint64_t step;

    (void)state;
    open_save(&o, saving_each(4));
    for (uint64_t at_step = 1; at_step <= 9; at_step++) {
        due(&o, at_step, nobody);
        due(&o, at_step, nobody); /* of the same step there is one */
        assert_int_equal(o.save.saver[SAVE_DISK].saved_step, at_step < 4 ? UINT64_MAX : at_step / 4 * 4);
        wait_written(&o);
        due(&o, at_step, nobody); /* nor once it is written */
        wait_written(&o);
    }
    one_rank_good(&o, save_finish(&o.save, &o.err));
    assert_int_equal(one_rank_count("run/events.jsonl", "\"checkpoint\""), 2);
    assert_int_equal(mck_latest(at("checkpoints"), &step, NULL, NULL), 1);
    assert_int_equal(step, 8);
    one_rank_stop(&o);
}

static void votes_save_at_any_step_and_not_while_two_are_under_way(void **state)
{
    double wanted[SAVE_VOTES] = {[VOTE_WANTED + SAVE_DISK] = 1};
    double busy[SAVE_VOTES] = {[VOTE_WANTED + SAVE_DISK] = 1, [VOTE_BUSY + SAVE_DISK] = 1};
    struct one_rank o;

    (void)state;
    open_save(&o, saving_each(0));
    due(&o, 1, nobody);
    assert_int_equal(o.save.saver[SAVE_DISK].saved_step, UINT64_MAX);
    due(&o, 2, busy);
    assert_int_equal(o.save.saver[SAVE_DISK].saved_step, UINT64_MAX);
    assert_int_equal(o.save.saver[SAVE_DISK].dropped, 1);
    due(&o, 3, wanted);
    assert_int_equal(o.save.saver[SAVE_DISK].saved_step, 3);
    o.shard.step = 4;
    one_rank_good(&o, save_asked(&o.save, busy, &o.err)); /* also while no step is taken */
    assert_int_equal(o.save.saver[SAVE_DISK].saved_step, 3);
    wait_written(&o);
    one_rank_good(&o, save_asked(&o.save, wanted, &o.err));
    assert_int_equal(o.save.saver[SAVE_DISK].saved_step, 4);
    one_rank_stop(&o);
}

static void an_order_a_copy_that_is_due_and_the_cadence_of_rank_0_are_votes(void **state)
{
    struct one_rank o;
    struct mesh second;
    const struct mesh *first;
    double votes[SAVE_VOTES];

    (void)state;
    open_save(&o, saving_each(0));
    first = o.rank.mesh;
    second = *first;
    second.rank = 1;
    save_vote(&o.save, votes);
    assert_true(votes[VOTE_WANTED + SAVE_DISK] == 0 && votes[VOTE_BUSY + SAVE_DISK] == 0);
    flight_order_set(o.rank.flight, FLIGHT_SAVE);
    save_vote(&o.save, votes);
    assert_true(votes[VOTE_WANTED + SAVE_DISK] == 1 && votes[VOTE_WANTED + SAVE_MEMORY] == 0);
    due(&o, 1, votes); /* and the order is carried out */
    save_vote(&o.save, votes);
    assert_true(votes[VOTE_WANTED + SAVE_DISK] == 0);
    o.handover.copy_us = clock_wall_us() - 1;
    save_vote(&o.save, votes);
    assert_true(votes[VOTE_WANTED + SAVE_DISK] == 1);
    o.rank.mesh = &second;
    save_vote(&o.save, votes);
    assert_true(votes[VOTE_WANTED + SAVE_DISK] == 0);
    o.rank.mesh = first;
    wait_written(&o);
    due(&o, 2, votes);
    o.save.saver[SAVE_DISK].under_way = 2;
    save_vote(&o.save, votes);
    assert_true(votes[VOTE_BUSY + SAVE_DISK] == 1);
    one_rank_stop(&o);
}

static void a_checkpoint_tells_the_run_that_wrote_it(void **state)
{
    struct one_rank o;
    struct mck *reader;
    const json_t *kv, *layout;
    json_t *spec = saving_each(3);

    (void)state;
    open_save(&o, spec);
    o.shard.tokens = 777;
    due(&o, 3, nobody);
    one_rank_good(&o, save_finish(&o.save, &o.err));
    one_rank_good(&o, mck_open(at("checkpoints"), 3, &reader, &o.err));
    kv = mck_kv(reader);
    layout = json_object_get(kv, "layout");
    assert_int_equal(json_integer_value(json_object_get(kv, "step")), 3);
    assert_int_equal(json_integer_value(json_object_get(kv, "tokens")), 777);
    assert_int_equal(json_integer_value(json_object_get(kv, "seed")), 7);
    assert_int_equal(json_integer_value(json_object_get(kv, "virtual_workers")), 4);
    assert_int_equal(json_integer_value(json_object_get(kv, "generation")), 1);
    assert_int_equal(json_integer_value(json_object_get(layout, "dp")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kv, "train"), "steps")), 12);
    mck_free(reader);
    one_rank_stop(&o);
}

static void what_must_be_saved_is_on_disk_when_it_returns_to_finish(void **state)
{
    struct one_rank o;
    uint64_t step;

    (void)state;
    open_save(&o, saving_each(0));
    o.shard.step = 6;
    one_rank_good(&o, save_due(&o.save, nobody, 0.1, true, &o.err));
    one_rank_good(&o, save_finish(&o.save, &o.err));
    assert_int_equal(mck_latest(at("checkpoints"), &step, NULL, NULL), 1);
    assert_int_equal(step, 6);
    assert_true(clock_wall_us() - o.handover.durable_us < INT64_C(60000000));
    one_rank_stop(&o);
}

static void a_last_checkpoint_that_cannot_be_written_is_a_fault_and_an_event(void **state)
{
    struct one_rank o;
    int r;

    (void)state;
    open_save(&o, saving_each(0));
    assert_int_equal(io_remove_tree(at("checkpoints"), NULL), 0);
    assert_int_equal(io_publish_file(at("checkpoints"), "in the way", 10, 0600, NULL), 0);
    o.shard.step = 6;
    one_rank_good(&o, save_due(&o.save, nobody, 0.1, true, &o.err));
    r = save_finish(&o.save, &o.err);
    assert_true(r < 0);
    assert_non_null(strstr(o.err.text, "the checkpoint of step 6 could not be written"));
    assert_int_equal(one_rank_count("run/events.jsonl", "\"error\""), 1);
    one_rank_stop(&o);
}

static void a_snapshot_left_in_memory_says_since_when_the_disk_has_the_state(void **state)
{
    struct one_rank o;
    struct mck *reader;
    const json_t *by;
    json_t *spec = one_rank_spec();
    bool left;

    (void)state;
    one_rank_set(spec, "checkpoint/memory_every_steps", json_integer(0));
    open_save(&o, spec);
    one_rank_good(&o, save_leave(&o.save, &left, &o.err));
    assert_false(left); /* no snapshots are made */
    one_rank_stop(&o);
    open_save(&o, one_rank_spec());
    o.shard.step = 5;
    o.handover.durable_us = 4242;
    one_rank_good(&o, save_leave(&o.save, &left, &o.err));
    assert_true(left);
    one_rank_good(&o, mck_open(o.rank.run.memory, 5, &reader, &o.err));
    by = json_object_get(mck_kv(reader), "written_by");
    assert_int_equal(json_integer_value(json_object_get(by, "durable_us")), 4242);
    mck_free(reader);
    one_rank_stop(&o);
}

int main(void)
{
#define FRESH(f) cmocka_unit_test_setup(f, one_rank_fresh)
    const struct CMUnitTest tests[] = {
        FRESH(a_checkpoint_is_begun_at_each_multiple_of_the_specs_steps_and_once),
        FRESH(votes_save_at_any_step_and_not_while_two_are_under_way),
        FRESH(an_order_a_copy_that_is_due_and_the_cadence_of_rank_0_are_votes),
        FRESH(a_checkpoint_tells_the_run_that_wrote_it),
        FRESH(what_must_be_saved_is_on_disk_when_it_returns_to_finish),
        FRESH(a_last_checkpoint_that_cannot_be_written_is_a_fault_and_an_event),
        FRESH(a_snapshot_left_in_memory_says_since_when_the_disk_has_the_state),
    };

    return cmocka_run_group_tests(tests, make_top, one_rank_remove);
}
