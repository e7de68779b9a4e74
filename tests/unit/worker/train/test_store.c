/* A rank whose optimizer is in files, from its start to its end, and what it leaves for the next one. */
#include "tests/unit/worker/train/one_rank.h"

#include "worker/engine/train/store.h"

static json_t *in_files(const char *place)
{
    json_t *spec = one_rank_spec();

    one_rank_set(spec, "memory", json_pack("{s:s}", "optimizer", place));
    return spec;
}

/* The digest of a run's last checkpoint. */
static void run_of(const char *place, char ret_hex[33])
{
    struct one_rank o;
    struct mck *c;

    assert_int_equal(one_rank_fresh(NULL), 0);
    one_rank_start(&o, in_files(place));
    assert_int_equal(store_wanted(&o.rank), strcmp(place, "files") == 0);
    assert_int_equal(!!o.shard.store, store_wanted(&o.rank));
    one_rank_good(&o, save_seal(&o.save, &o.err));
    one_rank_good(&o, step_loop(&o.step, &o.err));
    one_rank_stop(&o);
    assert_int_equal(mck_open(at("checkpoints"), 12, &c, NULL), 0);
    assert_int_equal(mck_digest(c, ret_hex, NULL), 0);
    mck_free(c);
}

static void a_run_ends_with_the_same_checkpoint_as_in_memory(void **state)
{
    char memory[33], files[33];

    (void)state;
    run_of("device", memory);
    run_of("files", files);
    assert_string_equal(memory, files);
}

static void what_is_sealed_is_a_checkpoint_for_the_next_run(void **state)
{
    struct one_rank o;
    uint64_t step;

    (void)state;
    one_rank_start(&o, in_files("files"));
    one_rank_good(&o, save_seal(&o.save, &o.err)); /* of step 0 */
    one_rank_stop(&o);
    assert_int_equal(mck_latest(at("checkpoints"), &step, NULL, NULL), 0);

    one_rank_start(&o, in_files("files"));
    assert_int_equal(mck_latest(at("checkpoints"), &step, NULL, NULL), 1);
    assert_int_equal(step, 0);
    assert_int_equal(one_rank_count("events.jsonl", "resumed"), 0); /* those are the run's */
    one_rank_stop(&o);
}

static void files_take_a_ring_of_tiles_of_memory(void **state)
{
    const uint64_t mib = 1 << 20;

    (void)state;
    assert_true(store_bytes(0) == 3 * mib);
    assert_true(store_bytes(mib / 4) == 3 * mib);
    assert_true(store_bytes(mib) == 12 * mib);
    assert_true(store_bytes(mib + 1) == 24 * mib);
    assert_true(store_bytes(100 * mib) == 48 * mib);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_run_ends_with_the_same_checkpoint_as_in_memory, one_rank_fresh),
        cmocka_unit_test_setup(what_is_sealed_is_a_checkpoint_for_the_next_run, one_rank_fresh),
        cmocka_unit_test(files_take_a_ring_of_tiles_of_memory),
    };

    return cmocka_run_group_tests(tests, make_top, one_rank_remove);
}
