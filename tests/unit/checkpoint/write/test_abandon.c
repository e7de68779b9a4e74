/* What is held is committed once its gate has passed, and never where it was given up before. */
#include "tests/unit/checkpoint/two.h"

#include <dirent.h>
#include <poll.h>

#define WAIT_US (INT64_C(20) * 1000000)

static struct mck_writer *writer[2];
static struct merr err;

static int set_up(void **state)
{
    (void)state;
    set_up_two(99, 6, 600, 333, 251);
    for (int i = 0; i < 2; i++) {
        struct mck_cfg cfg = {
            .dir = dir, .rank = i, .size = 2, .generation = 1, .codec = "none", .keep = 2, .hold = true};

        if (mck_writer_new(&cfg, two->buf[i], two->n[i], &writer[i], &err))
            fail_msg("%s", err.text);
    }
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < 2; i++)
        mck_writer_free(writer[i]);
    return tear_down_two(state);
}

static void begin(uint64_t step)
{
    json_auto_t *kv = json_pack("{s:I}", "step", (json_int_t)step);

    for (int i = 0; i < 2; i++)
        assert_int_equal(mck_begin(writer[i], step, kv, &err), 0);
}

/* How the next attempt of a rank ends. */
static struct mck_done done(int rank)
{
    struct mck_done d = {0};

    assert_int_equal(mck_drain(writer[rank], clock_mono_us() + WAIT_US, &err), 0);
    assert_int_equal(mck_next_done(writer[rank], &d), 1);
    return d;
}

static int entries(uint64_t step, const char *ending)
{
    DIR *d = opendir(in_step(step, ""));
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strlen(e->d_name) >= strlen(ending) && !strcmp(e->d_name + strlen(e->d_name) - strlen(ending), ending);
    if (d)
        (void)closedir(d);
    return n;
}

static void nothing_is_committed_before_the_gate_of_each_rank(void **state)
{
    uint64_t step = 0;

    (void)state;
    begin(10);
    assert_int_equal(mck_gate(writer[0], 0, &err), 0); /* of one bucket: that says nothing of the others */
    assert_int_equal(mck_drain(writer[0], clock_mono_us() + 300000, &err), -ETIMEDOUT);
    assert_int_equal(entries(10, ".mck"), 0);
    assert_int_equal(mck_gate(writer[0], -1, &err), 0);
    assert_int_equal(mck_drain(writer[0], clock_mono_us() + 300000, &err), -ETIMEDOUT);
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
    assert_int_equal(mck_gate(writer[1], -1, &err), 0);
    assert_int_equal(done(0).code, 0);
    assert_int_equal(done(1).code, 0);
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 1);
    assert_int_equal(step, 10);
}

static void what_one_rank_gives_up_none_commits(void **state)
{
    uint64_t step = 0;
    struct mck_done d;

    (void)state;
    begin(10);
    assert_int_equal(mck_gate(writer[0], -1, &err), 0);
    for (int64_t end = clock_mono_us() + WAIT_US; !entries(10, "rank-00000.mck"); (void)poll(NULL, 0, 1))
        assert_true(clock_mono_us() < end); /* it is written, and waits for the other */
    assert_int_equal(mck_abandon(writer[1], 10, "'x' was changed", &err), 0);
    assert_int_equal(mck_abandon(writer[1], 10, "once more", &err), -ENOENT);
    d = done(1);
    assert_int_equal(d.code, -EAGAIN);
    assert_string_equal(d.err.text, "the checkpoint of step 10 was given up: 'x' was changed");
    d = done(0);
    assert_int_equal(d.code, -ECOMM);
    assert_non_null(strstr(d.err.text, "'x' was changed"));
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
    begin(10);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mck_gate(writer[i], -1, &err), 0);
    assert_int_equal(done(0).code, 0);
    assert_int_equal(done(1).code, 0);
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 1);
}

/* The failed rank has not even made the folder of the step when the other begins to wait for it. */
static void a_rank_that_fails_before_its_file_is_open_is_told_to_the_others(void **state)
{
    struct mck_done d;

    (void)state;
    begin(10);
    assert_int_equal(mck_abandon(writer[1], 10, "'x' was changed", &err), 0);
    assert_int_equal(done(1).code, -EAGAIN);
    assert_int_equal(mck_gate(writer[0], -1, &err), 0);
    d = done(0);
    assert_int_equal(d.code, -ECOMM);
    assert_non_null(strstr(d.err.text, "'x' was changed"));
}

static void what_is_over_is_not_given_up(void **state)
{
    (void)state;
    assert_int_equal(mck_abandon(writer[0], 10, "too early", &err), -ENOENT);
    begin(10);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mck_gate(writer[i], -1, &err), 0);
    assert_int_equal(done(0).code, 0);
    assert_int_equal(mck_abandon(writer[0], 10, "too late", &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_committed_before_the_gate_of_each_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_one_rank_gives_up_none_commits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_that_fails_before_its_file_is_open_is_told_to_the_others, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_over_is_not_given_up, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
