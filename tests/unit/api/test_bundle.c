/* Bundles: written and read the same, and whatever would leave its folder is refused. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/bundle.h"

static void add(struct buf *b, char kind, const char *path, const char *data)
{
    size_t n = strlen(path), size = strlen(data);
    unsigned char head[11] = {(unsigned char)kind, (unsigned char)n, (unsigned char)(n >> 8), (unsigned char)size};

    (void)buf_add(b, head, sizeof(head));
    (void)buf_addstr(b, path);
    (void)buf_addstr(b, data);
}

static void what_is_written_is_read_again(void **state)
{
    static const struct {
        char kind;
        const char *path, *data;
    } row[] = {{'f', "a", "1"}, {'x', "a/b", ""}, {'f', "a.b", "3"}, {'l', "d/e/f", "../../a.b"}, {'l', "g", "d/./e"}};
    struct bundle_reader r;
    struct bundle_entry e;
    char name[BUNDLE_NAME_BYTES];
    struct merr err;
    struct buf b;

    (void)state;
    buf_init(&b, 4096);
    assert_int_equal(bundle_begin(&b), 0);
    for (size_t i = 1; i < sizeof(row) / sizeof(row[0]); i++) {
        struct bundle_entry one = {(enum bundle_kind)row[i].kind, "", row[i].data, strlen(row[i].data)};

        (void)snprintf(one.path, sizeof(one.path), "%s", row[i].path);
        assert_int_equal(bundle_add(&b, &one, &err), 0);
    }
    assert_int_equal(bundle_open(&r, b.data, b.len, &err), 0);
    for (size_t i = 1; i < sizeof(row) / sizeof(row[0]); i++) {
        assert_int_equal(bundle_next(&r, &e, &err), 1);
        assert_int_equal(e.kind, row[i].kind);
        assert_string_equal(e.path, row[i].path);
        assert_int_equal(e.size, strlen(row[i].data));
        assert_memory_equal(e.data, row[i].data, e.size);
    }
    assert_int_equal(bundle_next(&r, &e, &err), 0);
    for (size_t cut = 8; cut < b.len; cut++) { /* a part of it may be a shorter one, or is refused */
        assert_int_equal(bundle_open(&r, b.data, cut, &err), 0);
        while (bundle_next(&r, &e, &err) > 0)
            assert_true(e.data + e.size <= b.data + cut);
    }
    assert_string_equal(bundle_name("abc", 3, name),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(bundle_is_name(name) && !bundle_is_name("BA") && !bundle_is_name(""));
    buf_clear(&b);
}

static void what_would_leave_its_folder_is_refused(void **state)
{
    static const struct {
        const char *kinds; /* of the entries, in order */
        const char *entries[4];
    } row[] = {
        {"f", {"/etc/passwd", "x"}},
        {"f", {"../x", "x"}},
        {"f", {"a/../../x", "x"}},
        {"f", {"a//b", "x"}},
        {"f", {"a/", "x"}},
        {"f", {".", "x"}},
        {"f", {"./a", "x"}},
        {"d", {"a", ""}},
        {"p", {"a", ""}},
        {"b", {"dev", ""}},
        {"ff", {"a", "1", "a", "2"}},
        {"ff", {"b", "1", "a", "2"}},
        {"ff", {"a", "1", "a/b", "2"}},
        {"lf", {"a", ".", "a/b", "2"}},
        {"l", {"a", ""}},
        {"l", {"a", "/etc"}},
        {"l", {"a", ".."}},
        {"l", {"a/b", "../.."}},
        {"l", {"a/b", "c/../../.."}},
        {"l", {"d/m", "l/.."}}, /* through a link that climbs */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct merr err = {""};
        struct buf b;

        buf_init(&b, 4096);
        (void)bundle_begin(&b);
        for (size_t k = 0; row[i].kinds[k]; k++)
            add(&b, row[i].kinds[k], row[i].entries[2 * k], row[i].entries[2 * k + 1]);
        if (bundle_check(b.data, b.len, &err) != -EBADMSG || !err.text[0])
            fail_msg("row %zu is taken", i);
        buf_clear(&b);
    }
}

static void sizes_and_counts_that_lie_are_refused(void **state)
{
    struct merr err;
    struct buf b;
    char path[16];

    (void)state;
    buf_init(&b, 4 << 20);
    (void)bundle_begin(&b);
    for (int i = 0; i <= BUNDLE_FILES_MAX; i++) {
        (void)snprintf(path, sizeof(path), "%07d", i);
        if (i == BUNDLE_FILES_MAX)
            assert_int_equal(bundle_check(b.data, b.len, &err), 0);
        add(&b, 'f', path, "");
    }
    assert_int_equal(bundle_check(b.data, b.len, &err), -EBADMSG);
    buf_reset(&b);
    (void)bundle_begin(&b);
    (void)buf_add(&b, "f\1\0\377\377\377\377\377\377\377\377a", 12); /* 2^64 - 1 bytes */
    assert_int_equal(bundle_check(b.data, b.len, &err), -EBADMSG);
    buf_reset(&b);
    (void)bundle_begin(&b);
    (void)buf_add(&b, "f\3\0\0\0\0\0\0\0\0\0a\0b", 14);
    assert_int_equal(bundle_check(b.data, b.len, &err), -EBADMSG);
    assert_int_equal(bundle_check("MUSTER", 6, &err), -EBADMSG);
    buf_clear(&b);
}

static void users_with_like_names_have_folders_of_their_own(void **state)
{
    static const char *const users[] = {"ann", "..", ".", "a/b", "a%2fb", "", "ann@lab"};
    char path[sizeof(users) / sizeof(users[0])][PATH_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
        assert_int_equal(bundle_path("/jobs", users[i], "n", path[i]), 0);
        assert_int_equal(strncmp(path[i], "/jobs/.bundles/u", 16), 0);
        assert_null(strchr(path[i] + 15, '.'));
        assert_string_equal(strrchr(path[i], '/'), "/n");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(path[i], path[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(what_would_leave_its_folder_is_refused),
        cmocka_unit_test(sizes_and_counts_that_lie_are_refused),
        cmocka_unit_test(users_with_like_names_have_folders_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
