/* Files and folders that others have a hand in are refused by name. */
#include "base/private.h"

#include "tests/unit/folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_it(const char *path, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf b;

    buf_init(&b, 64);
    return private_read_file(path, &b, err);
}

static void a_file_that_others_can_read_or_write_is_refused(void **state)
{
    static const struct {
        mode_t mode;
        int want;
    } cases[] = {{0600, 0}, {0400, 0}, {0604, -EPERM}, {0644, -EPERM}, {0660, -EPERM}, {0602, -EPERM}, {0601, -EPERM}};
    char file[PATH_MAX];
    struct merr err;

    (void)state;
    (void)snprintf(file, sizeof(file), "%s", at("token"));
    assert_int_equal(io_write_file(file, "x", 1, 0600, NULL), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(chmod(file, cases[i].mode), 0);
        assert_int_equal(read_it(file, &err), cases[i].want);
        if (cases[i].want < 0)
            assert_non_null(strstr(err.text, file));
    }
}

static void a_link_a_pipe_and_a_folder_are_no_tokens(void **state)
{
    char file[PATH_MAX], other[PATH_MAX];
    struct merr err;

    (void)state;
    (void)snprintf(file, sizeof(file), "%s", at("token"));
    (void)snprintf(other, sizeof(other), "%s", at("other"));
    (void)unlink(file);
    assert_int_equal(io_write_file(file, "x", 1, 0600, NULL), 0);
    assert_int_equal(symlink(file, other), 0);
    assert_int_equal(read_it(other, &err), -EPERM);
    assert_non_null(strstr(err.text, "symbolic link"));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(read_it(other, &err), -EPERM);
    assert_int_equal(read_it(top, &err), -EPERM);
    assert_int_equal(read_it("/nowhere/token", &err), -ENOENT);
}

static void a_file_of_another_user_is_refused_but_for_root(void **state)
{
    char file[PATH_MAX];
    struct merr err;
    int r;

    if (geteuid() != 0) {
        print_message("only root can give a file away\n");
        skip();
    }
    (void)state;
    (void)snprintf(file, sizeof(file), "%s", at("token"));
    assert_int_equal(io_write_file(file, "x", 1, 0644, NULL), 0);
    assert_int_equal(chown(file, 12345, 0), 0);
    assert_int_equal(chmod(file, 0600), 0);
    assert_int_equal(read_it(file, &err), 0); /* root has it anyway */
    assert_int_equal(chmod(top, 0711), 0);
    assert_int_equal(chown(file, 0, 0) | chmod(file, 0640) | read_it(file, &err), 0); /* a credential of systemd's */
    assert_int_equal(chown(file, 54321, 12345), 0);
    assert_int_equal(setegid(12345), 0);
    assert_int_equal(seteuid(12345), 0);
    r = read_it(file, &err);
    assert_int_equal(seteuid(0) | setegid(0), 0);
    assert_int_equal(r, -EPERM);
    assert_non_null(strstr(err.text, "54321"));
}

static void a_folder_that_others_can_write_to_is_refused(void **state)
{
    struct merr err;

    (void)state;
    assert_int_equal(chmod(top, 0755) | private_check_folder(top, &err), 0);
    assert_int_equal(chmod(top, 0770), 0);
    assert_int_equal(private_check_folder(top, &err), -EPERM);
    assert_int_equal(chmod(top, 01777), 0);
    assert_int_equal(private_check_folder(top, &err), -EPERM);
    assert_non_null(strstr(err.text, top));
    assert_int_equal(chmod(top, 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_others_can_read_or_write_is_refused),
        cmocka_unit_test(a_link_a_pipe_and_a_folder_are_no_tokens),
        cmocka_unit_test(a_file_of_another_user_is_refused_but_for_root),
        cmocka_unit_test(a_folder_that_others_can_write_to_is_refused),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
