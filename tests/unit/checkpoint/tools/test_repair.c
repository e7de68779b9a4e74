/* Damaged chunks are written anew from other checkpoints that hold the same, and from nothing else. */
#include "tests/unit/checkpoint/two.h"
#include "tests/unit/hurt.h"

static char donor[300], spare[80];

static int setup(void **state)
{
    (void)state;
    set_up_two(7, 3, 900, 500, 450);
    (void)snprintf(spare, sizeof(spare), "%s", temp_dir());
    (void)snprintf(donor, sizeof(donor), "%s/step-00000010", spare);
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(io_remove_tree(spare, NULL), 0);
    return tear_down_two(state);
}

static void save_in(struct layout *l, const char *folder, const char *codec)
{
    struct merr err = {.text = ""};

    if (save_layout(l, folder, 1, 10, codec, &err))
        fail_msg("%s", err.text);
}

static int heal_from(const char *const *from, size_t n, json_t **ret_report, struct merr *err)
{
    struct mck *c;
    int r;

    assert_int_equal(mck_open(dir, 10, &c, err), 0);
    r = mck_heal(c, from, n, ret_report, err);
    mck_free(c);
    return r;
}

static int heal(const char *from, json_t **ret_report, struct merr *err)
{
    return heal_from(&from, 1, ret_report, err);
}

static bool is_sound(struct merr *err)
{
    struct mck *c;
    int r = mck_open(dir, 10, &c, err);

    assert_int_equal(r, 0);
    r = mck_verify(c, NULL, err);
    mck_free(c);
    return r == 0;
}

static size_t count(const json_t *report, const char *what)
{
    return json_array_size(json_object_get(report, what));
}

static void chunks_are_repaired_whatever_codec_wrote_either(void **state)
{
    static const char *const codec[][2] = {
        {"none", "none"}, {"none", "plane"}, {"plane", "none"}, {"zstd", "lz4"}, {"lz4", "zstd"}};
    struct merr err = {.text = ""};

    (void)state;
    for (size_t i = 0; i < COUNT(codec); i++) {
        json_t *report = NULL;

        assert_int_equal(io_remove_tree(in_step(10, ""), NULL), 0);
        assert_int_equal(io_remove_tree(donor, NULL), 0);
        save_two(1, 10, codec[i][0]);
        save_in(two, spare, codec[i][1]);
        hurt(in_step(10, "rank-00000.mck"), 4096 + 1000);
        hurt(in_step(10, "rank-00001.mck"), 4096);
        assert_false(is_sound(&err));
        if (heal(i % 2 ? donor : spare, &report, &err))
            fail_msg("%s from %s: %s", codec[i][0], codec[i][1], err.text);
        assert_true(count(report, "healed") >= 2);
        assert_int_equal(count(report, "left"), 0);
        json_decref(report);
        assert_true(is_sound(&err));
        assert_int_equal(heal(donor, &report, &err), 0); /* nothing is wrong any more */
        assert_int_equal(count(report, "healed"), 0);
        json_decref(report);
    }
}

static void a_snapshot_of_one_node_without_a_manifest_repairs_that_nodes_files(void **state)
{
    struct merr err = {.text = ""};
    char path[320];
    json_t *report = NULL;

    (void)state;
    save_two(1, 10, "none");
    save_in(two, spare, "none");
    (void)snprintf(path, sizeof(path), "%s/MANIFEST", donor);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/rank-00000.mck", donor);
    assert_int_equal(unlink(path), 0);
    hurt(in_step(10, "rank-00000.mck"), 4096);
    hurt(in_step(10, "rank-00001.mck"), 4096);
    assert_int_equal(heal(spare, &report, &err), -EBADMSG);
    assert_int_equal(count(report, "healed"), 1);
    assert_int_equal(count(report, "left"), 1);
    assert_non_null(
        strstr(json_string_value(json_object_get(json_array_get(json_object_get(report, "left"), 0), "file")),
               "rank-00000.mck"));
    json_decref(report);
}

static void bytes_of_another_state_are_not_written(void **state)
{
    struct merr err = {.text = ""};
    json_t *report = NULL;
    struct buf was, is;

    (void)state;
    buf_init(&was, 64u << 20);
    buf_init(&is, 64u << 20);
    save_two(1, 10, "none");
    fill_layout(&model, two, 2);
    save_in(two, spare, "none");
    fill_layout(&model, two, 1);
    hurt(in_step(10, "rank-00001.mck"), 4096);
    assert_int_equal(io_read_file(in_step(10, "rank-00001.mck"), &was, NULL), 0);
    assert_int_equal(heal(donor, &report, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "held other bytes"));
    assert_int_equal(count(report, "left"), 1);
    json_decref(report);
    assert_int_equal(io_read_file(in_step(10, "rank-00001.mck"), &is, NULL), 0);
    assert_int_equal(is.len, was.len);
    assert_memory_equal(is.data, was.data, is.len);
    buf_clear(&was);
    buf_clear(&is);
}

static void a_file_hurt_outside_its_chunks_is_left_and_named(void **state)
{
    struct merr err = {.text = ""};
    json_t *report = NULL;

    (void)state;
    save_two(1, 10, "none");
    save_in(two, spare, "none");
    hurt(in_step(10, "rank-00001.mck"), 0);
    assert_int_equal(heal(donor, &report, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "super block"));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(report, "left"), 0), "chunk")),
                     -1);
    json_decref(report);
}

/* Two copies whose ranks have half of the columns each, where a chunk of ours has whole rows: what is damaged in one is
 * in the other. */
static void what_no_copy_has_whole_comes_from_several(void **state)
{
    struct layout *columns = calloc(1, sizeof(*columns));
    char folder[2][96], file[160];
    const char *from[2] = {folder[0], folder[1]};
    struct merr err = {.text = ""};
    json_t *report = NULL;

    (void)state;
    assert_non_null(columns);
    columns->ranks = 2;
    for (int i = 0; i < model.tensors; i++) {
        add_slice(&model, columns, 0, i, 1, 0, 170);
        add_slice(&model, columns, 1, i, 1, 170, 500);
    }
    fill_layout(&model, columns, 1);
    save_two(1, 10, "plane");
    hurt(in_step(10, "rank-00000.mck"), 4096);
    for (int k = 0; k < 2; k++) {
        (void)snprintf(folder[k], sizeof(folder[k]), "%s/%d", spare, k);
        save_in(columns, folder[k], k ? "none" : "lz4");
        (void)snprintf(file, sizeof(file), "%s/step-00000010/rank-%05d.mck", folder[k], k);
        hurt(file, 4096);
        assert_int_equal(heal(folder[k], &report, &err), -EBADMSG);
        assert_non_null(strstr(err.text, "whole nowhere else"));
        assert_int_equal(count(report, "left"), 1);
        json_decref(report);
        if (k == 0) { /* a copy that is not committed, too, and one file of it */
            assert_int_equal(unlink(file), 0);
            (void)snprintf(file, sizeof(file), "%s/step-00000010/MANIFEST", folder[k]);
            assert_int_equal(unlink(file), 0);
        }
    }
    assert_int_equal(heal_from(from, 2, &report, &err), 0);
    assert_int_equal(count(report, "healed"), 1);
    json_decref(report);
    assert_true(is_sound(&err));
    free_layout(columns);
}

static void a_copy_of_another_state_does_not_hide_the_right_one(void **state)
{
    struct merr err = {.text = ""};
    const char *from[2] = {spare, donor};
    json_t *report = NULL;

    (void)state;
    save_two(1, 10, "none");
    hurt(in_step(10, "rank-00001.mck"), 4096);
    (void)snprintf(donor, sizeof(donor), "%s/right", spare);
    save_in(two, donor, "none");
    fill_layout(&model, two, 2);
    save_in(two, spare, "none");
    fill_layout(&model, two, 1);
    assert_int_equal(heal_from(from, 2, &report, &err), 0);
    assert_int_equal(count(report, "healed"), 1);
    json_decref(report);
    assert_true(is_sound(&err));
}

static void where_nothing_is_there_it_says_so(void **state)
{
    struct merr err = {.text = ""};
    json_t *report = NULL;

    (void)state;
    save_two(1, 10, "none");
    assert_int_equal(heal("/nowhere", &report, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere"));
    assert_null(report);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(chunks_are_repaired_whatever_codec_wrote_either),
        T(a_snapshot_of_one_node_without_a_manifest_repairs_that_nodes_files),
        T(bytes_of_another_state_are_not_written),
        T(a_file_hurt_outside_its_chunks_is_left_and_named),
        T(what_no_copy_has_whole_comes_from_several),
        T(a_copy_of_another_state_does_not_hide_the_right_one),
        T(where_nothing_is_there_it_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
