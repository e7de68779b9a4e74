#include "tests/unit/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n - 2;
}

static void a_written_file_reads_back_with_its_mode(void **state)
{
    struct stat st;
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(io_write_file(at("secret"), "hello", 5, 0600, NULL), 0);
    assert_int_equal(io_read_file(at("secret"), &b, NULL), 0);
    assert_string_equal(buf_text(&b), "hello");
    assert_int_equal(stat(at("secret"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    buf_clear(&b);
}

static void a_failed_write_leaves_the_old_file_and_no_other(void **state)
{
    struct buf b;
    struct merr err;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(io_mkdirs(at("one/two/three"), 0755, NULL), 0);
    assert_int_equal(io_write_file(at("one/file"), "old", 3, 0644, NULL), 0);
    assert_int_equal(io_write_file(at("one/two"), "new", 3, 0644, &err), -EISDIR);
    assert_non_null(strstr(err.text, "one/two"));
    assert_int_equal(entries(at("one")), 2);
    assert_int_equal(io_read_file(at("one/file"), &b, NULL), 0);
    assert_string_equal(buf_text(&b), "old");
    buf_clear(&b);
}

static void only_a_plain_file_is_opened_as_one_and_nothing_is_waited_for(void **state)
{
    static const struct {
        const char *name;
        int want; /* 0: it is opened */
    } row[] = {{"plain", 0},       {"pipe", -EMEDIUMTYPE}, {"folder", -EMEDIUMTYPE},
               {"device", -ELOOP}, {"link", -ELOOP},       {"none", -ENOENT}};
    static const int ways[] = {O_RDONLY, O_WRONLY | O_APPEND, O_RDWR};
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(io_write_file(at("plain"), "hello", 5, 0600, NULL), 0);
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(mkdir(at("folder"), 0700), 0);
    assert_int_equal(symlink("/dev/zero", at("device")), 0);
    assert_int_equal(symlink("plain", at("link")), 0);
    for (size_t i = 0; i < COUNT(row); i++)
        for (size_t k = 0; k < COUNT(ways); k++) {
            IO_CLOSE_AUTO int fd = io_open_plain(at(row[i].name), ways[k]);

            if (row[i].want == 0)
                assert_true(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
            else if (strcmp(row[i].name, "pipe") == 0 && ways[k] == O_RDWR)
                assert_int_equal(fd, -EMEDIUMTYPE);
            else
                assert_int_equal(fd, row[i].want);
        }
    assert_int_equal(io_read_plain(at("plain"), &b, NULL), 0);
    assert_string_equal(buf_text(&b), "hello");
    assert_int_equal(io_read_plain(at("pipe"), &b, NULL), -EMEDIUMTYPE);
    buf_clear(&b);
}

static void reading_past_the_limit_says_so(void **state)
{
    struct buf b;
    struct merr err;

    (void)state;
    buf_init(&b, 4);
    assert_int_equal(io_publish_file(at("five"), "12345", 5, 0644, NULL), 0);
    assert_int_equal(io_read_file(at("five"), &b, &err), -EMSGSIZE);
    assert_non_null(strstr(err.text, "limit of 4 bytes"));
    buf_clear(&b);
}

static void a_missing_file_is_named(void **state)
{
    struct buf b;
    struct merr err;

    (void)state;
    buf_init(&b, 4);
    assert_int_equal(io_read_file(at("nowhere"), &b, &err), -ENOENT);
    assert_non_null(strstr(err.text, "nowhere': No such file"));
}

static void folders_are_made_once_and_a_file_in_the_way_is_named(void **state)
{
    struct merr err;

    (void)state;
    assert_int_equal(io_mkdirs(at("a/b/c"), 0755, NULL), 0);
    assert_int_equal(io_mkdirs(at("a/b/c"), 0755, NULL), 0);
    assert_int_equal(io_publish_file(at("a/file"), "", 0, 0644, NULL), 0);
    assert_int_equal(io_mkdirs(at("a/file"), 0755, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, "in the way"));
    assert_int_equal(io_mkdirs("", 0755, &err), -EINVAL);
}

static void removing_a_tree_follows_no_links(void **state)
{
    struct stat st;

    (void)state;
    assert_int_equal(io_mkdirs(at("keep"), 0755, NULL), 0);
    assert_int_equal(io_publish_file(at("keep/me"), "x", 1, 0644, NULL), 0);
    assert_int_equal(io_mkdirs(at("gone/deep"), 0755, NULL), 0);
    assert_int_equal(symlink("../keep", at("gone/link")), 0);
    assert_int_equal(io_remove_tree(at("gone"), NULL), 0);
    assert_int_equal(stat(at("gone"), &st), -1);
    assert_int_equal(stat(at("keep/me"), &st), 0);
    assert_int_equal(io_remove_tree(at("gone"), NULL), 0);
}

static void whole_transfers_cross_a_small_pipe(void **state)
{
    enum { N = 1 << 18 };
    char *out = malloc(N), *in = calloc(1, N);
    int fd[2];
    pid_t pid;

    (void)state;
    assert_non_null(out);
    assert_non_null(in);
    for (int i = 0; i < N; i++)
        out[i] = (char)(i * 7);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0)
        _exit(io_write_all(fd[1], out, N) == 0 ? 0 : 1);
    (void)close(fd[1]);
    assert_int_equal(io_read_full(fd[0], in, N), N);
    assert_memory_equal(in, out, N);
    assert_int_equal(io_read_full(fd[0], in, 1), 0); /* the end */
    io_close(&fd[0]);
    assert_int_equal(fd[0], -1);
    free(in);
    free(out);
}

static void a_lock_is_waited_for_until_a_deadline(void **state)
{
    int a = open(at("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600), b = open(at("lock"), O_RDWR | O_CLOEXEC);
    int64_t began = clock_mono_us();

    (void)state;
    assert_true(a >= 0 && b >= 0);
    assert_int_equal(io_lock(a, LOCK_SH, 0), 0); /* a free one needs no time */
    assert_int_equal(io_lock(b, LOCK_SH, 0), 0);
    assert_int_equal(io_lock(a, LOCK_EX, began + 20000), -ETIMEDOUT);
    assert_true(clock_mono_us() >= began + 20000);
    io_close(&b);
    assert_int_equal(io_lock(a, LOCK_EX, 0), 0);
    io_close(&a);
    assert_int_equal(io_lock(a, LOCK_SH, INT64_MAX), -EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_reads_back_with_its_mode),
        cmocka_unit_test(a_failed_write_leaves_the_old_file_and_no_other),
        cmocka_unit_test(only_a_plain_file_is_opened_as_one_and_nothing_is_waited_for),
        cmocka_unit_test(reading_past_the_limit_says_so),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(folders_are_made_once_and_a_file_in_the_way_is_named),
        cmocka_unit_test(removing_a_tree_follows_no_links),
        cmocka_unit_test(whole_transfers_cross_a_small_pipe),
        cmocka_unit_test(a_lock_is_waited_for_until_a_deadline),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
