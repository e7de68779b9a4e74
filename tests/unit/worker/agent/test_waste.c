/* test_waste - folders set aside and removed by a thread, which may end at any point */
#include "tests/unit/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "worker/agent/waste.h"

#define MANY 25000 /* files: more than are removed at once */

static const struct account own = {.helper = 0};

/* A folder of many files (names of one), some of them in folders of it. */
static void fill(const char *name_of, int files)
{
    int fd, at_fd;

    assert_int_equal(io_mkdirs(at(name_of), 0700, NULL), 0);
    at_fd = open(at(name_of), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(at_fd >= 0);
    fd = openat(at_fd, "one", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(mkdirat(at_fd, "in", 0700), 0);
    for (int i = 0; i < files; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "%s%d", i % 2 ? "in/" : "", i);
        assert_int_equal(linkat(at_fd, "one", at_fd, name, 0), 0);
    }
    (void)close(at_fd);
}

/* Folders that lie there under other names. */
static int set_aside(void)
{
    DIR *d = opendir(at("root"));
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += strncmp(e->d_name, ".gone-", 6) == 0;
    (void)closedir(d);
    return n;
}

static void wait_until_gone(void)
{
    int64_t deadline_us = clock_mono_us() + INT64_C(60000000);

    while (set_aside() > 0 && clock_mono_us() < deadline_us)
        (void)poll(NULL, 0, 5);
    assert_int_equal(set_aside(), 0);
}

static int clear(void **state)
{
    (void)state;
    return io_remove_tree(at("root"), NULL);
}

static void a_folder_of_many_files_is_set_aside_at_once_and_then_goes(void **state)
{
    struct waste *w = waste_new(&own, at("root"), NULL);

    (void)state;
    fill("root/j1-g1", MANY);
    assert_int_equal(waste_take(w, at("root/j1-g1"), NULL), 0);
    assert_int_equal(access(at("root/j1-g1"), F_OK), -1);
    assert_int_equal(waste_take(w, at("root/j1-g1"), NULL), 0); /* twice is fine */
    fill("root/j1-g1", 3);                                      /* so is another of its name */
    assert_int_equal(waste_take(w, at("root/j1-g1"), NULL), 0);
    wait_until_gone();
    waste_free(w);
}

static void the_next_agent_goes_on_where_one_ended(void **state)
{
    struct waste *w = waste_new(&own, at("root"), NULL);

    (void)state;
    fill("root/j1-g1", MANY);
    assert_int_equal(waste_take(w, at("root/j1-g1"), NULL), 0);
    waste_free(w); /* most often in the middle of it; what follows is as if so */
    fill("root/.gone-j3-g1~0", 10);
    fill("root/.gone-j2-g1~0", 10);
    w = waste_new(&own, at("root"), NULL);
    waste_begin(w);
    wait_until_gone();
    waste_free(w);
}

static void no_more_wait_than_there_may(void **state)
{
    struct waste *w = waste_new(&own, at("root"), NULL);
    struct merr err;
    int r = 0;

    (void)state;
    for (int turn = 0; turn < 20 && r == 0; turn++) { /* until the thread is behind */
        fill("root/j0-g1", MANY);
        r = waste_take(w, at("root/j0-g1"), &err);
        for (int i = 0; i <= WASTE_MAX && r == 0; i++) {
            char name[32];

            (void)snprintf(name, sizeof(name), "root/j1-g%d", i);
            assert_int_equal(io_mkdirs(at(name), 0700, NULL), 0);
            r = waste_take(w, at(name), &err);
            assert_int_equal(access(at(name), F_OK), r == 0 ? -1 : 0);
        }
    }
    assert_int_equal(r, -EBUSY);
    wait_until_gone();
    fill("root/j1-g1", 1);
    assert_int_equal(waste_take(w, at("root/j1-g1"), &err), 0);
    waste_free(w);
}

static void what_cannot_be_removed_holds_up_nothing_else(void **state)
{
    struct waste *w = waste_new(&own, at("root"), NULL);

    (void)state;
    fill("root/j1-g1", 0);
    assert_int_equal(symlink("/etc", at("root/.gone-link")), 0); /* no folder, and what it names is not ours */
    assert_int_equal(waste_take(w, at("root/j1-g1"), NULL), 0);
    for (int64_t deadline_us = clock_mono_us() + INT64_C(60000000); set_aside() > 1 && clock_mono_us() < deadline_us;)
        (void)poll(NULL, 0, 5);
    assert_int_equal(set_aside(), 1);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    waste_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_folder_of_many_files_is_set_aside_at_once_and_then_goes, clear),
        cmocka_unit_test_teardown(the_next_agent_goes_on_where_one_ended, clear),
        cmocka_unit_test_teardown(no_more_wait_than_there_may, clear),
        cmocka_unit_test_teardown(what_cannot_be_removed_holds_up_nothing_else, clear),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
