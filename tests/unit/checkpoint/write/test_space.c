/* What goes when a disk is full: the oldest, never the two newest whole ones, nor what somebody needs. */
#include "tests/unit/checkpoint/two.h"

#include <fcntl.h>

#include "checkpoint/write/space.h"

#define STEPS 6
#define TOO_MUCH (UINT64_C(1) << 62)

static int setup(void **state)
{
    struct mck_cfg cfg = {.dir = dir, .size = 1, .generation = 7, .codec = "none", .keep = STEPS};
    struct merr err = {.text = ""};
    struct mck_writer *w;
    struct mck_buffer b;

    (void)state;
    set_up_two(99, 1, 100, 10, 50);
    b = two->buf[0][0];
    b.off[0] = 0, b.len[0] = b.shape[0] = 10, b.sub_begin = b.sub_end = 0;
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &w, &err), 0);
    for (int i = 1; i <= STEPS; i++) {
        json_t *kv = json_pack("{s:i}", "step", 10 * i);

        assert_int_equal(mck_begin(w, 10u * (unsigned)i, kv, &err), 0);
        assert_int_equal(mck_drain(w, clock_mono_us() + 10000000, &err), 0);
        json_decref(kv);
    }
    mck_writer_free(w);
    return 0;
}

static void expect_steps(const char *want)
{
    struct merr err = {.text = ""};
    char got[200] = "";
    json_t *list;

    assert_int_equal(mck_list(dir, &list, &err), 0);
    for (size_t i = 0; i < json_array_size(list); i++)
        (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), " %lld",
                       json_integer_value(json_object_get(json_array_get(list, i), "step")));
    json_decref(list);
    assert_string_equal(got, want);
}

static void hurt(uint64_t step)
{
    assert_int_equal(truncate(in_step(step, "rank-00000.mck"), 4096), 0);
}

static void one_goes_after_another_down_to_two(void **state)
{
    static const char *const left[] = {" 20 30 40 50 60", " 30 40 50 60", " 40 50 60", " 50 60"};
    struct space m = {.dir = dir, .generation = 7};
    struct merr err = {.text = ""};

    (void)state;
    for (uint32_t i = 0; i < COUNT(left); i++) {
        assert_int_equal(space_make(&m, 1, true, &err), 1);
        assert_int_equal(m.removed, i + 1);
        expect_steps(left[i]);
    }
    assert_int_equal(space_make(&m, 1, true, &err), 0);
    expect_steps(" 50 60");
}

static void nothing_goes_where_there_is_room(void **state)
{
    struct space m = {.dir = dir, .generation = 7};
    struct merr err = {.text = ""};

    (void)state;
    assert_true(space_has(dir, 1));
    assert_int_equal(space_make(&m, 1, false, &err), 1);
    assert_int_equal(m.removed, 0);
    expect_steps(" 10 20 30 40 50 60");
}

static void nothing_goes_for_what_would_not_fit_all_the_same(void **state)
{
    struct space m = {.dir = dir, .generation = 7};
    struct merr err = {.text = ""};

    (void)state;
    assert_false(space_has(dir, TOO_MUCH));
    assert_int_equal(space_make(&m, TOO_MUCH, false, &err), 0);
    assert_int_equal(space_make(&m, TOO_MUCH, true, &err), 0);
    expect_steps(" 10 20 30 40 50 60");
}

static void what_is_kept_for_good_or_read_or_under_way_stays(void **state)
{
    struct space m = {.dir = dir, .generation = 7, .keep_every = 20};
    struct merr err = {.text = ""};
    struct mck *c;

    (void)state;
    assert_int_equal(mkdir(in_step(5, ""), 0755), 0); /* of a job that began anew */
    assert_int_equal(mck_open(dir, 10, &c, &err), 0);
    assert_int_equal(space_make(&m, 1, true, &err), 1);
    expect_steps(" 10 20 40 50 60");
    assert_int_equal(space_make(&m, 1, true, &err), 0);
    mck_free(c);
    assert_int_equal(space_make(&m, 1, true, &err), 1);
    expect_steps(" 20 40 50 60");
    assert_int_equal(access(in_step(5, ""), F_OK), 0);
}

static void damaged_ones_do_not_count_for_the_two(void **state)
{
    struct space m = {.dir = dir, .generation = 7};
    struct merr err = {.text = ""};

    (void)state;
    hurt(60);
    hurt(40);
    for (int i = 0; i < 2; i++)
        assert_int_equal(space_make(&m, 1, true, &err), 1);
    assert_int_equal(space_make(&m, 1, true, &err), 0);
    expect_steps(" 30 50");
}

static void nothing_goes_for_a_generation_that_is_over(void **state)
{
    struct space m = {.dir = dir, .generation = 6};
    struct merr err = {.text = ""};

    (void)state;
    assert_int_equal(space_make(&m, 1, true, &err), -ESTALE);
    expect_steps(" 10 20 30 40 50 60");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, tear_down_two)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_goes_after_another_down_to_two),
        T(nothing_goes_where_there_is_room),
        T(nothing_goes_for_what_would_not_fit_all_the_same),
        T(what_is_kept_for_good_or_read_or_under_way_stays),
        T(damaged_ones_do_not_count_for_the_two),
        T(nothing_goes_for_a_generation_that_is_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
