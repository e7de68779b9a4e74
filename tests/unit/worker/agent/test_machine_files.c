/* Files of a run that its programs may have put other things in place of. */
#include "tests/unit/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/agent/machine.h"

static void a_file_is_read_from_where_one_is_and_nothing_else_is_read(void **state)
{
    static const struct {
        const char *name;
        int rank;
        off_t offset;
        ssize_t got;
        const char *text;
    } table[] = {
        {"metrics.jsonl", -1, 0, 6, "line\n2"},
        {"metrics.jsonl", -1, 5, 1, "2"},
        {"metrics.jsonl", -1, 6, 0, ""},
        {"metrics.jsonl", -1, 1000, 0, ""},
        {"none", -1, 0, -ENOENT, ""},
        {"link", -1, 0, -ELOOP, ""},
        {"fifo", -1, 0, -EMEDIUMTYPE, ""},
        {"dir", -1, 0, -EMEDIUMTYPE, ""},
        {"log", 3, 0, 3, "out"},
        {"log", 4, 0, -ENOENT, ""},
    };

    (void)state;
    assert_int_equal(io_publish_file(at("metrics.jsonl"), "line\n2", 6, 0600, NULL), 0);
    assert_int_equal(io_publish_file(at("rank-00003.log"), "out", 3, 0600, NULL), 0);
    assert_int_equal(symlink("/etc/passwd", at("link")), 0);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(mkdir(at("dir"), 0700), 0);
    for (size_t i = 0; i < COUNT(table); i++) {
        char text[64] = "";
        off_t size = 0;
        ssize_t got =
            machine_run_read(NULL, top, table[i].name, table[i].rank, table[i].offset, text, sizeof(text) - 1, &size);

        if (got != table[i].got || strcmp(text, table[i].text) != 0)
            fail_msg("row %zu: %zd, %s", i, got, text);
    }
}

/* A link to another's file, by a name or by a second one of it, must not let the agent cut that. */
static void only_a_log_of_its_own_loses_what_is_at_its_head(void **state)
{
    static char mib[1 << 20];
    struct stat before, after;
    char path[64];

    (void)state;
    memset(mib, 'x', sizeof(mib));
    assert_int_equal(io_publish_file(at("rank-00000.log"), mib, sizeof(mib), 0600, NULL), 0);
    assert_int_equal(link(at("rank-00000.log"), (snprintf(path, sizeof(path), "%s/other", top), path)), 0);
    assert_int_equal(stat(path, &before), 0);
    machine_log_drop(NULL, top, 0, 1 << 19); /* which has two names */
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    assert_int_equal(unlink(path), 0);
    machine_log_drop(NULL, top, 0, 1 << 19);
    assert_int_equal(stat(at("rank-00000.log"), &after), 0);
    assert_int_equal(after.st_size, sizeof(mib)); /* its later bytes keep their offsets */
    assert_true(after.st_blocks <= before.st_blocks);
    machine_log_drop(NULL, top, 9, 1); /* which is not there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_from_where_one_is_and_nothing_else_is_read),
        cmocka_unit_test(only_a_log_of_its_own_loses_what_is_at_its_head),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
