#include "tests/unit/checkpoint/layouts.h"
#include "tests/unit/short.h"

#include <errno.h>

static const char *const codecs[] = {"none", "plane", "zstd", "lz4", "auto"};
static const char *const ways[] = {"uring", "threads", "buffered"};

static void load_all(struct mck *c, struct layout *l)
{
    struct merr err = {.text = ""};

    wipe_layout(l);
    for (int r = 0; r < l->ranks; r++)
        if (mck_load(c, l->buf[r], l->n[r], &err))
            fail_msg("rank %d: %s", r, err.text);
}

static void one_round(int i, uint64_t largest)
{
    struct merr err = {.text = ""};
    struct state s;
    struct layout *a, *b;
    char *dir = temp_dir(), first[33], second[33];
    struct mck *c;

    random_state(&s, largest);
    a = random_layout(&s, 1 + (int)rnd(RANKS_MAX));
    b = random_layout(&s, 1 + (int)rnd(RANKS_MAX));
    assert_int_equal(setenv("MUSTER_IO", ways[i % 3], 1), 0);
    fill_layout(&s, a, 1);
    if (save_layout(a, dir, 1, 10, codecs[i % 5], &err) || mck_open(dir, 10, &c, &err))
        fail_msg("%s", err.text);
    load_all(c, b);
    check_layout(&s, b, 1);
    if (mck_verify(c, NULL, &err) || mck_digest(c, first, &err))
        fail_msg("%s", err.text);
    mck_free(c);
    if (save_layout(b, dir, 2, 20, codecs[(i + 1) % 5], &err) || mck_open(dir, 20, &c, &err))
        fail_msg("%s", err.text);
    load_all(c, a);
    check_layout(&s, a, 1);
    assert_int_equal(mck_digest(c, second, &err), 0);
    assert_string_not_equal(first, second); /* the cursor is another step */
    mck_free(c);
    free_layout(a);
    free_layout(b);
    assert_int_equal(io_remove_tree(dir, NULL), 0);
}

static void any_layout_loads_what_any_other_saved(void **state)
{
    (void)state;
    seed_from_env();
    for (int i = 0; i < test_rounds(20); i++)
        one_round(i, 2000);
}

static void states_larger_than_the_pool_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < test_rounds(2); i++)
        one_round(i, 1200000);
}

static void the_digest_is_the_same_whatever_layout_and_codec_wrote(void **state)
{
    struct merr err = {.text = ""};
    char first[33] = "", hex[33];
    struct state s;

    (void)state;
    random_state(&s, 100000);
    for (int i = 0; i < 5; i++) {
        struct layout *l = random_layout(&s, 1 + i);
        char *dir = temp_dir();
        struct mck *c;

        fill_layout(&s, l, 5);
        if (save_layout(l, dir, 1, 7, codecs[i], &err) || mck_open(dir, 7, &c, &err) || mck_digest(c, hex, &err))
            fail_msg("%s", err.text);
        mck_free(c);
        if (!i)
            memcpy(first, hex, sizeof(hex));
        assert_string_equal(hex, first);
        free_layout(l);
        assert_int_equal(io_remove_tree(dir, NULL), 0);
    }
}

static void floats_convert_on_the_way(void **state)
{
    struct merr err = {.text = ""};
    float from[3000];
    uint16_t to[3000];
    struct mck_buffer b = {
        .name = "w", .dtype = MCK_F32, .ndim = 2, .shape = {30, 100}, .len = {30, 100}, .data = from};
    struct layout *l = calloc(1, sizeof(*l));
    char *dir = temp_dir();
    struct mck *c;

    (void)state;
    for (int i = 0; i < 3000; i++)
        from[i] = (float)(i - 1500) * 0.377f;
    l->ranks = 1;
    l->n[0] = 1;
    l->buf[0][0] = b;
    if (save_layout(l, dir, 1, 1, "plane", &err) || mck_open(dir, 1, &c, &err))
        fail_msg("%s", err.text);
    b.dtype = MCK_BF16;
    b.data = to;
    assert_int_equal(mck_load(c, &b, 1, &err), 0);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(to[i], bf16_from_float(from[i]));
    b.dtype = MCK_I32;
    assert_int_equal(mck_load(c, &b, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "does not convert"));
    b.dtype = MCK_F32;
    b.name = "nothing";
    assert_int_equal(mck_load(c, &b, 1, &err), -ENOENT);
    assert_non_null(strstr(err.text, "'nothing'"));
    mck_free(c);
    free(l);
    assert_int_equal(io_remove_tree(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_loads_what_any_other_saved),
        cmocka_unit_test(states_larger_than_the_pool_come_back),
        cmocka_unit_test(the_digest_is_the_same_whatever_layout_and_codec_wrote),
        cmocka_unit_test(floats_convert_on_the_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
