/* The audit file: lines that are appended, a file that is moved away, a disk that is full, and what is no file. */
#include "server/control/audit_file.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

static char folder[] = "/tmp/audit-file-XXXXXX";
static char path[64], old[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/audit", folder);
    (void)snprintf(old, sizeof(old), "%s/audit.1", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return io_remove_tree(folder, NULL);
}

static const char *content(const char *of)
{
    static struct buf b;

    buf_clear(&b);
    buf_init(&b, 1 << 20);
    assert_int_equal(io_read_file(of, &b, NULL), 0);
    return buf_text(&b);
}

static void a_file_that_was_moved_away_is_opened_anew(void **state)
{
    struct audit_file *f;
    struct merr err;
    struct stat st;

    (void)state;
    assert_int_equal(audit_file_open(path, &f, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    audit_file_write(f, "{\"a\": 1}\n", 9);
    assert_int_equal(rename(path, old), 0);
    audit_file_write(f, "{\"a\": 2}\n", 9);
    audit_file_reopen(f);
    audit_file_write(f, "{\"a\": 3}\n", 9);
    audit_file_close(f);
    assert_string_equal(content(old), "{\"a\": 1}\n{\"a\": 2}\n");
    assert_string_equal(content(path), "{\"a\": 3}\n");
    assert_int_equal(unlink(path), 0);
}

/* As with a full disk, a file may not grow beyond some bytes. */
static void a_full_disk_loses_lines_and_they_are_counted(void **state)
{
    struct rlimit was, now;
    struct audit_file *f;
    struct merr err;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(audit_file_open(path, &f, &err), 0);
    audit_file_write(f, "{\"a\": 1}\n", 9);
    now = (struct rlimit){.rlim_cur = 12, .rlim_max = was.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    audit_file_write(f, "{\"a\": 2}\n{\"a\": 3}\n", 18);
    audit_file_write(f, "{\"a\": 4}\n", 9);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(audit_file_lost(f), 3);
    audit_file_write(f, "{\"a\": 5}\n", 9);
    audit_file_close(f);
    assert_string_equal(content(path), "{\"a\": 1}\n{\"a\n{\"type\": \"left-out\", \"lines\": 3}\n{\"a\": 5}\n");
    assert_int_equal(unlink(path), 0);
}

static void what_is_no_plain_file_is_refused_and_nobody_waits_for_it(void **state)
{
    struct audit_file *f = NULL;
    struct merr err;

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(audit_file_open(path, &f, &err) < 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_true(audit_file_open(path, &f, &err) < 0);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(unlink(path), 0);
    assert_true(audit_file_open("/no/such/folder/audit", &f, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_was_moved_away_is_opened_anew),
        cmocka_unit_test(a_full_disk_loses_lines_and_they_are_counted),
        cmocka_unit_test(what_is_no_plain_file_is_refused_and_nobody_waits_for_it),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
