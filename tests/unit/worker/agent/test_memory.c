#include "tests/unit/folder.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "worker/agent/memory.h"

static char root[PATH_MAX], job_dir[PATH_MAX], path[PATH_MAX];

static bool is_there(const char *name)
{
    char file[PATH_MAX + 32];

    (void)snprintf(file, sizeof(file), "%s/%s", path, name);
    return access(file, F_OK) == 0;
}

static int set_up(void **state)
{
    char file[PATH_MAX + 32];

    (void)state;
    memory_root(top, "/state", root);
    (void)snprintf(job_dir, sizeof(job_dir), "%s", at("j1"));
    assert_int_equal(io_mkdirs(job_dir, 0755, NULL), 0);
    assert_int_equal(memory_open(NULL, root, "j1", job_dir, path, NULL), 0);
    (void)snprintf(file, sizeof(file), "%s/snapshot", path);
    assert_int_equal(io_publish_file(file, "x", 1, 0600, NULL), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return io_remove_tree(root, NULL);
}

static void the_next_generation_of_a_job_finds_what_the_last_left(void **state)
{
    (void)state;
    memory_close(NULL, root, "j1", false);
    assert_int_equal(memory_open(NULL, root, "j1", job_dir, path, NULL), 0);
    assert_true(is_there("snapshot"));
}

static void a_job_that_is_done_leaves_nothing(void **state)
{
    (void)state;
    memory_close(NULL, root, "j1", true);
    assert_int_equal(access(path, F_OK), -1);
    memory_close(NULL, root, "j1", true); /* twice is fine */
}

static void another_job_of_the_same_name_does_not_inherit(void **state)
{
    char old[PATH_MAX + 8];

    (void)state;
    (void)snprintf(old, sizeof(old), "%s.old", job_dir);
    assert_int_equal(rename(job_dir, old), 0);
    assert_int_equal(io_mkdirs(job_dir, 0755, NULL), 0);
    assert_int_equal(memory_open(NULL, root, "j1", job_dir, path, NULL), 0);
    assert_false(is_there("snapshot"));
    assert_int_equal(io_remove_tree(old, NULL), 0);
}

static bool is_j1(const void *arg, const char *job)
{
    return *(const bool *)arg && strcmp(job, "j1") == 0;
}

static void memory_is_kept_for_a_while_after_its_last_run(void **state)
{
    static const struct {
        bool used;
        int seconds;
        bool stays;
    } table[] = {
        {false, 0, true},
        {false, MEMORY_KEEP_S - 1, true},
        {true, MEMORY_KEEP_S + 10, true},
        {false, MEMORY_KEEP_S + 10, false},
    };

    (void)state;
    memory_close(NULL, root, "j1", false);
    for (size_t i = 0; i < COUNT(table); i++) {
        memory_sweep(NULL, root, is_j1, &table[i].used, clock_wall_us() + table[i].seconds * INT64_C(1000000));
        assert_int_equal(is_there("snapshot"), table[i].stays);
    }
}

static void a_folder_that_others_can_write_to_is_refused(void **state)
{
    struct merr err = {""};

    (void)state;
    assert_int_equal(chmod(root, 0777), 0);
    assert_int_equal(memory_open(NULL, root, "j1", job_dir, path, &err), -EPERM);
    assert_non_null(strstr(err.text, root));
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_next_generation_of_a_job_finds_what_the_last_left), T(a_job_that_is_done_leaves_nothing),
        T(another_job_of_the_same_name_does_not_inherit),         T(memory_is_kept_for_a_while_after_its_last_run),
        T(a_folder_that_others_can_write_to_is_refused),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
