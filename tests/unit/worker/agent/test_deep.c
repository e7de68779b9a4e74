#include "tests/unit/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/agent/deep.h"

/* Folders in folders below at("run"), each with a file; the path of the last is longer than any path may be. */
static void dig(int depth)
{
    static const char name[] = "a-folder-whose-name-is-long-enough-to-make-a-path-too-long-after-a-few-hundred-of-them";
    int fd = open(at("run"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; i < depth; i++) {
        int file, next;

        assert_int_equal(mkdirat(fd, name, 0700), 0);
        file = openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(file >= 0);
        (void)close(file);
        next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(fd);
        fd = next;
    }
    (void)close(fd);
}

static void what_lies_deeper_than_a_path_can_say_is_removed(void **state)
{
    (void)state;
    assert_int_equal(io_mkdirs(at("run/wide/one"), 0700, NULL), 0);
    assert_int_equal(io_mkdirs(at("run/deep-0/x"), 0700, NULL), 0); /* a name that is taken */
    assert_int_equal(io_mkdirs(at("run/closed/y"), 0700, NULL), 0);
    assert_int_equal(symlink("/etc", at("run/wide/one/link")), 0);
    assert_int_equal(chmod(at("run/closed"), 0), 0);
    dig(200);
    assert_true(io_remove_tree(at("run"), NULL) < 0);
    assert_int_equal(deep_empty(at("run")), 0);
    assert_int_equal(io_remove_tree(at("run"), NULL), 0);
    assert_int_equal(access(at("run"), F_OK), -1);
    assert_int_equal(access("/etc", F_OK), 0);
    assert_int_equal(deep_empty(at("run")), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_deeper_than_a_path_can_say_is_removed),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
