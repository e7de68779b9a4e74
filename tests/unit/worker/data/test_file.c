/* The files of a corpus: what is no file is refused, and one that shrinks is an error with words. */
#include "tests/unit/folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/engine/data/file.h"

static void only_a_file_with_something_in_it_is_opened(void **state)
{
    static const struct {
        const char *name;
        int r;
        const char *says;
    } table[] = {
        {"good", 0, ""},
        {"none", -ENOENT, "cannot open the corpus"},
        {"empty", -EINVAL, "is empty"},
        {".", -EISDIR, "is a directory"},
        {"fifo", -EINVAL, "is not a regular file"}, /* and nobody waits for who writes to it */
    };

    (void)state;
    assert_int_equal(io_publish_file(at("good"), "abc", 3, 0600, NULL), 0);
    assert_int_equal(io_publish_file(at("empty"), "", 0, 0600, NULL), 0);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    for (size_t i = 0; i < COUNT(table); i++) {
        struct merr err = {""};
        uint64_t size = 77;
        int fd = -7, r = file_open("the corpus", at(table[i].name), &fd, &size, &err);

        if (r != table[i].r || !strstr(err.text, table[i].says))
            fail_msg("%s: %d, %s", table[i].name, r, err.text);
        if (r == 0) {
            assert_int_equal(size, 3);
            io_close(&fd);
        } else {
            assert_true(fd == -7 && size == 77);
        }
    }
}

static void a_relative_path_is_explained_and_a_spec_without_a_corpus_refused(void **state)
{
    static struct job_spec spec;
    struct merr err;
    uint64_t size;
    char *path;
    int fd;

    (void)state;
    assert_int_equal(file_open("the corpus", "nowhere/corpus", &fd, &size, &err), -ENOENT);
    assert_non_null(strstr(err.text, "working directory"));
    assert_int_equal(file_open_corpus(&spec, &path, &fd, &size, &err), -EINVAL);
    assert_non_null(strstr(err.text, "train.data.path"));
    spec.train.data.path = (char *)at("good");
    assert_int_equal(file_open_corpus(&spec, &path, &fd, &size, &err), 0);
    assert_string_equal(path, at("good"));
    free(path);
    io_close(&fd);
}

static void a_file_that_has_shrunk_is_said_to_have(void **state)
{
    struct merr err;
    uint64_t size;
    char text[4];
    int fd;

    (void)state;
    assert_int_equal(file_open("it", at("good"), &fd, &size, &err), 0);
    assert_int_equal(file_read(fd, at("good"), 1, text, 2, &err), 0);
    assert_memory_equal(text, "bc", 2);
    assert_int_equal(file_read(fd, at("good"), 3, text, 0, &err), 0);
    assert_int_equal(truncate(at("good"), 2), 0);
    assert_int_equal(file_read(fd, at("good"), 0, text, 3, &err), -EIO);
    assert_non_null(strstr(err.text, "ends at byte 2: it has shrunk"));
    io_close(&fd);
    assert_int_equal(file_read(-1, "it", 0, text, 1, &err), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_file_with_something_in_it_is_opened),
        cmocka_unit_test(a_relative_path_is_explained_and_a_spec_without_a_corpus_refused),
        cmocka_unit_test(a_file_that_has_shrunk_is_said_to_have),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
