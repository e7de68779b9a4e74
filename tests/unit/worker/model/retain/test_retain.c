/* What each policy lets stay, block by block. That no bit depends on it: test_stage_memory.c. */
#include "worker/engine/model/retain/retain.h"

#include <string.h>

#include "tests/unit/test.h"
#include "worker/engine/model/retain/retain_priv.h"

#define BLOCKS 7
#define BUDGET 1000

/* A letter for each block: everything stays (-), what is cheap is made again (c), all (w), or all of it together with
 * the blocks of the same digit. */
static const struct {
    struct retain_cfg cfg;
    const char *blocks;
    enum retain_again most;
    int together;
    bool plans;
} table[] = {
    {{.policy = NULL}, "-------", AGAIN_NOTHING, 0, false},
    {{.policy = "none", .kept = 2, .run = 3, .keep_bytes = 5}, "-------", AGAIN_NOTHING, 0, false},
    {{.policy = "selective"}, "ccccccc", AGAIN_CHEAP, 1, false},
    {{.policy = "selective", .kept = 2}, "ccccc--", AGAIN_CHEAP, 1, false},
    {{.policy = "full"}, "wwwwwww", AGAIN_WHOLE, 1, false},
    {{.policy = "full", .kept = 7, .run = 3}, "-------", AGAIN_WHOLE, 1, false},
    {{.policy = "all", .kept = 1}, "wwwwww-", AGAIN_WHOLE, 1, false},
    {{.policy = "sqrt", .run = 1}, "wwwwww-", AGAIN_WHOLE, 1, false},
    {{.policy = "sqrt", .run = 2}, "001122-", AGAIN_WHOLE, 2, false},
    {{.policy = "sqrt", .run = 3}, "000111-", AGAIN_WHOLE, 3, false},
    {{.policy = "sqrt", .run = 4}, "0000---", AGAIN_WHOLE, 4, false},
    {{.policy = "sqrt", .run = 7}, "-------", AGAIN_WHOLE, 7, false},
    {{.policy = "mimose", .keep_bytes = BUDGET}, "wwwwwww", AGAIN_WHOLE, 1, true},
};

static char letter(const struct retain_cfg *cfg, const struct retain_stay *stay, int i)
{
    if (stay->again != AGAIN_WHOLE)
        return stay->again == AGAIN_CHEAP ? 'c' : '-';
    assert_true(stay->first <= i && i <= stay->last);
    if (stay->first == stay->last)
        return 'w';
    assert_int_equal(stay->last - stay->first + 1, retain_together(cfg));
    return (char)('0' + stay->first / cfg->run);
}

static void each_policy_says_what_stays_of_each_block(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(table); t++) {
        const struct retain_cfg *cfg = &table[t].cfg;
        char blocks[BLOCKS + 1] = {0};

        for (int i = 0; i < BLOCKS; i++) {
            struct retain_stay stay = retain_block(cfg, BLOCKS, i);

            assert_true(stay.again <= retain_most(cfg));
            blocks[i] = letter(cfg, &stay, i);
        }
        assert_string_equal(blocks, table[t].blocks);
        assert_int_equal(retain_most(cfg), table[t].most);
        assert_int_equal(retain_together(cfg), table[t].together);
        assert_int_equal(retain_plans(cfg), table[t].plans);
    }
}

static void policies_are_found_by_the_names_that_jobs_give_them(void **state)
{
    (void)state;
    for (size_t t = 1; t < COUNT(table); t++)
        assert_true(retain_known(table[t].cfg.policy));
    assert_false(retain_known("square"));
    assert_false(retain_known(""));
    assert_string_equal(retain_recompute(RECOMPUTE_NONE), "none");
    assert_string_equal(retain_recompute(RECOMPUTE_SELECTIVE), "selective");
    assert_string_equal(retain_recompute(RECOMPUTE_FULL), "full");
}

static void stages_share_places_where_the_policy_has_as_many(void **state)
{
    static const struct retain_cfg all = {.policy = "all"}, full = {.policy = "full", .kept = 2},
                                   two = {.policy = "sqrt", .run = 2}, three = {.policy = "sqrt", .run = 3};

    (void)state;
    assert_true(retain_alike(&all, &full));
    assert_true(retain_alike(&two, &two));
    assert_false(retain_alike(&two, &three));
    assert_false(retain_alike(&two, &full));
}

/* A micro-batch of so many rows, of which a block takes so many bytes. Its blocks go to ret: ! where no room was. */
static void micro(struct retain *r, int rows, const struct retain_bytes *each, bool train, char ret[BLOCKS + 1])
{
    memset(ret, 0, BLOCKS + 1);
    assert_int_equal(retain_begin(r, rows, each, train, NULL), 0);
    for (int i = 0; i < BLOCKS; i++) {
        struct retain_stay stay = retain_next(r, i);

        ret[i] = stay.lacked ? '!' : stay.again == AGAIN_WHOLE ? 'w' : stay.again == AGAIN_CHEAP ? 'c' : '-';
        assert_int_equal(stay.lacked && stay.again != AGAIN_WHOLE, 0);
    }
    assert_int_equal(retain_end(r, train, NULL), 0);
}

/* A row of a block takes 1 byte of what is cheap and 4 others. */
static void mimose_learns_then_drops_as_little_as_its_budget_asks_for(void **state)
{
    static const struct retain_cfg cfg = {.policy = "mimose", .keep_bytes = BUDGET};
    char blocks[BLOCKS + 1];
    struct retain *r;

    (void)state;
    assert_int_equal(retain_new(&cfg, BLOCKS, &r, NULL), 0);
    for (int i = 0; i < MIMOSE_SAMPLES_MIN; i++) { /* sheltered */
        int rows = 10 + 3 * i;

        micro(r, rows, &(struct retain_bytes){(size_t)rows, 4 * (size_t)rows}, true, blocks);
        assert_string_equal(blocks, "wwwwwww");
    }
    micro(r, 20, &(struct retain_bytes){20, 80}, true, blocks); /* 700 bytes */
    assert_string_equal(blocks, "-------");
    micro(r, 32, &(struct retain_bytes){32, 128}, true, blocks); /* 1120, 896 without what is cheap */
    assert_null(strchr(blocks, 'w'));
    assert_non_null(strchr(blocks, 'c'));
    micro(r, 20, &(struct retain_bytes){20, 80}, false, blocks); /* no training: nothing is kept */
    assert_string_equal(blocks, "wwwwwww");
    micro(r, 20, &(struct retain_bytes){40, 160}, true, blocks); /* twice of what was learned */
    assert_string_equal(blocks, "-----!!");
    retain_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_policy_says_what_stays_of_each_block),
        cmocka_unit_test(policies_are_found_by_the_names_that_jobs_give_them),
        cmocka_unit_test(stages_share_places_where_the_policy_has_as_many),
        cmocka_unit_test(mimose_learns_then_drops_as_little_as_its_budget_asks_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
