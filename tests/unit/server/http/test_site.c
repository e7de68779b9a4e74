/* test_site - which files of a folder are pages, and what is left out or refused */
#include "server/http/site.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/muster-test-site-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    struct merr err;

    (void)state;
    return io_remove_tree(folder, &err);
}

static const char *at(const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put(const char *name, size_t len)
{
    FILE *f = fopen(at(name), "w");

    assert_non_null(f);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(putc('x', f), 'x');
    assert_int_equal(fclose(f), 0);
}

static void plain_files_of_known_forms_are_pages_and_nothing_else_is(void **state)
{
    struct site *s;
    struct merr err;

    (void)state;
    put("index.html", 10);
    put("empty.css", 0);
    put(".hidden.html", 1);
    put("notes.txt", 1);
    put("noext", 1);
    assert_int_equal(mkdir(at("images"), 0755), 0);
    put("images/a.svg", 3);
    assert_int_equal(mkdir(at("images/deeper"), 0755), 0);
    put("images/deeper/b.svg", 3);
    assert_int_equal(symlink("/etc/passwd", at("link.html")), 0);
    assert_int_equal(symlink("/etc", at("etc")), 0);
    assert_int_equal(mkfifo(at("pipe.html"), 0644), 0); /* would be waited for without end */
    assert_int_equal(mkdir(at("folder.html"), 0755), 0);
    assert_int_equal(site_load(folder, &s, &err), 0);
    assert_int_equal(site_files(s), 3); /* index.html, empty.css, images/a.svg */
    site_free(s);
    site_free(NULL);
}

static void a_folder_that_is_missing_or_too_large_is_refused_by_name(void **state)
{
    struct site *s = NULL;
    struct merr err;
    char name[32];

    (void)state;
    assert_int_equal(site_load(at("none"), &s, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/none'"));
    for (int i = 0; i < SITE_FILES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "p%d.html", i);
        put(name, 1);
    }
    assert_int_equal(site_load(folder, &s, &err), 0);
    assert_int_equal(site_files(s), SITE_FILES_MAX);
    site_free(s);
    put("one-more.html", 1);
    assert_int_equal(site_load(folder, &s, &err), -E2BIG);
    assert_non_null(strstr(err.text, "more than 1000 files"));
    assert_int_equal(unlink(at("one-more.html")), 0);
    assert_int_equal(unlink(at("p7.html")), 0);
    put("p7.html", 0);
    assert_int_equal(truncate(at("p7.html"), SITE_BYTES_MAX), 0);
    assert_int_equal(site_load(folder, &s, &err), -E2BIG);
    assert_non_null(strstr(err.text, "more than 64 MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_files_of_known_forms_are_pages_and_nothing_else_is, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_is_missing_or_too_large_is_refused_by_name, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
