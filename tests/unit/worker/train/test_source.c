/* test_source - which samples a step has, how evaluations are shared out, and sizes that cannot be */
#include "tests/unit/worker/train/one_rank.h"

#include <errno.h>

/* Spec and place of the rank are the test's; then the sizes. */
static void plan_as(struct one_rank *o, json_t *spec, int cp, int dp, int dp_index)
{
    one_rank_plan(o, spec);
    o->rank.run.mesh.cp = cp;
    o->rank.run.mesh.dp = dp;
    o->rank.run.mesh.dp_index = dp_index;
    one_rank_good(o, source_plan(&o->source, &o->err));
}

/* Of 1 to 100 bytes each. */
static json_t *documents(void)
{
    json_t *spec = one_rank_spec();
    char corpus[16384];
    size_t n = 0;

    for (int i = 0; n < sizeof(corpus) - 110; i++) {
        for (int k = 0; k <= i * 37 % 100; k++)
            corpus[n++] = (char)('a' + (i + k) % 26);
        memcpy(corpus + n, "\n%\n", 3);
        n += 3;
    }
    assert_int_equal(io_publish_file(at("corpus"), corpus, n, 0600, NULL), 0);
    one_rank_set(spec, "train/data/samples", json_string("documents"));
    one_rank_set(spec, "train/data/separator", json_string("percent"));
    one_rank_set(spec, "train/model/context", json_integer(128));
    one_rank_set(spec, "train/batch", json_pack("{s:i, s:i, s:i}", "sequences", 8, "length", 128, "capacity", 128));
    return spec;
}

static void a_streams_sizes_follow_from_batch_virtual_workers_and_replicas(void **state)
{
    static const struct {
        int micro, dp, dp_index;
        int begin, end, per_leaf, micros;
    } table[] = {
        {1, 1, 0, 0, 4, 2, 8}, {2, 1, 0, 0, 4, 1, 4}, {1, 2, 0, 0, 2, 2, 4},
        {1, 2, 1, 2, 4, 2, 4}, {1, 4, 3, 3, 4, 2, 2}, {2, 4, 0, 0, 1, 1, 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_t *spec = one_rank_spec();
        struct one_rank o;

        one_rank_set(spec, "train/batch/micro", json_integer(table[i].micro));
        plan_as(&o, spec, 1, table[i].dp, table[i].dp_index);
        assert_int_equal(o.source.leaf_begin, table[i].begin);
        assert_int_equal(o.source.leaf_end, table[i].end);
        assert_int_equal(o.source.per_leaf, table[i].per_leaf);
        assert_int_equal(o.source.micros, table[i].micros);
        assert_int_equal(o.source.schedule->micros, table[i].micros);
        assert_true(o.source.slots[0] >= 1 && o.source.slots[0] <= table[i].micros);
        assert_int_equal(source_docs(&o.source), 0);
        one_rank_good(&o, source_next(&o.source, 3, &o.err));
        assert_int_equal(o.source.tokens, 8 * 16);
        assert_int_equal(o.source.targets, 8 * 16);
        assert_null(source_rows(&o.source));
        one_rank_stop(&o);
    }
}

static void replicas_share_the_evaluation_without_gap_or_overlap(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 4; dp++)
        for (int of_documents = 0; of_documents < 2; of_documents++) {
            int next = 0, all = 0;

            for (int i = 0; i < dp; i++) {
                struct one_rank o;

                plan_as(&o, of_documents ? documents() : one_rank_spec(), 1, dp, i);
                all = o.source.heldout.micros;
                assert_int_equal(o.source.heldout.begin, next);
                next = o.source.heldout.end;
                assert_int_equal(o.source.heldout.schedule != NULL, o.source.heldout.end > o.source.heldout.begin);
                one_rank_stop(&o);
            }
            assert_true(all > 0);
            assert_int_equal(next, all);
        }
}

static void leaves_as_the_server_shared_them_out_are_taken(void **state)
{
    int share[2] = {3, 1};
    struct one_rank o;

    (void)state;
    one_rank_plan(&o, one_rank_spec());
    o.rank.run.mesh.dp = 2;
    o.rank.run.mesh.dp_index = 1;
    o.rank.run.share = share;
    one_rank_good(&o, source_plan(&o.source, &o.err));
    assert_int_equal(o.source.leaf_begin, 3);
    assert_int_equal(o.source.leaf_end, 4);
    assert_int_equal(o.source.micros, 2);
    o.rank.run.share = NULL;
    one_rank_stop(&o);
}

static void rows_that_tp_cannot_share_are_refused_before_anything_is_made(void **state)
{
    struct one_rank o;

    (void)state;
    one_rank_plan(&o, one_rank_spec());
    o.rank.run.mesh.tp = 3;
    o.rank.model.sequence_parallel = true;
    assert_int_equal(source_plan(&o.source, &o.err), -EINVAL);
    assert_non_null(strstr(o.err.text, "16 tokens among tp 3"));
    one_rank_stop(&o);
}

static void fill(struct one_rank *o, uint64_t step, int micro, int32_t tokens[16], int32_t targets[16])
{
    struct stage_slot *slot = stage_slot(o->shard.stage[0], 0);

    one_rank_good(o, source_next(&o->source, step, &o->err));
    one_rank_good(o, source_load(&o->source, micro, true, slot, &o->err));
    memcpy(tokens, slot->tokens, 16 * sizeof(*tokens));
    memcpy(targets, slot->targets, 16 * sizeof(*targets));
}

static void what_a_step_reads_follows_from_its_number_alone(void **state)
{
    int32_t first[2][16], again[2][16], other[2][16];
    struct one_rank o;

    (void)state;
    one_rank_start(&o, one_rank_spec());
    fill(&o, 2, 1, first[0], first[1]);
    fill(&o, 7, 0, other[0], other[1]);
    fill(&o, 2, 1, again[0], again[1]);
    assert_memory_equal(first, again, sizeof(first));
    assert_memory_not_equal(first, other, sizeof(first));
    for (int i = 0; i < 15; i++)
        assert_int_equal(first[0][i + 1], first[1][i]); /* each token's target is the next one */
    one_rank_stop(&o);
}

static void documents_fill_micro_batches_and_all_their_targets_count(void **state)
{
    struct one_rank o;
    uint64_t targets = 0;

    (void)state;
    one_rank_start(&o, documents());
    assert_true(source_docs(&o.source) > 1);
    one_rank_good(&o, source_next(&o.source, 0, &o.err));
    assert_int_equal(o.source.micros, (o.source.leaf_end - o.source.leaf_begin) * o.source.per_leaf);
    for (int micro = 0; micro < o.source.micros; micro++) {
        struct stage_slot *slot = stage_slot(o.shard.stage[0], 0);

        one_rank_good(&o, source_load(&o.source, micro, true, slot, &o.err));
        assert_int_equal(slot->rows, source_rows(&o.source)[micro]);
        assert_true(slot->rows <= o.source.length);
        for (int i = 0; i < slot->rows; i++)
            targets += slot->targets[i] >= 0;
    }
    assert_int_equal(targets, o.source.targets);
    assert_true(source_work(&o.source) > 0 && source_length(&o.source) > 0);
    one_rank_stop(&o);
}

int main(void)
{
#define FRESH(f) cmocka_unit_test_setup(f, one_rank_fresh)
    const struct CMUnitTest tests[] = {
        FRESH(a_streams_sizes_follow_from_batch_virtual_workers_and_replicas),
        FRESH(replicas_share_the_evaluation_without_gap_or_overlap),
        FRESH(leaves_as_the_server_shared_them_out_are_taken),
        FRESH(rows_that_tp_cannot_share_are_refused_before_anything_is_made),
        FRESH(what_a_step_reads_follows_from_its_number_alone),
        FRESH(documents_fill_micro_batches_and_all_their_targets_count),
    };

    return cmocka_run_group_tests(tests, make_top, one_rank_remove);
}
