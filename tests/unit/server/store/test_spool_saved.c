/* What lies on the disk of a job's checkpoints is told by names and sizes, whatever its user has left there. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "server/store/spool_saved.h"

static char folder[] = "/tmp/spool-saved-XXXXXX";

static const char *at(const char *path)
{
    static char full[256];

    (void)snprintf(full, sizeof(full), "%s/%s", folder, path);
    return full;
}

static void put(const char *path, size_t bytes)
{
    char *text = calloc(1, bytes + 1);
    struct merr err = {""};

    assert_int_equal(io_write_file(at(path), text, bytes, 0644, &err), 0);
    free(text);
}

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) && mkdir(at("checkpoints"), 0755) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    return io_remove_tree(folder, NULL);
}

static const json_t *step(const json_t *all, int number)
{
    const json_t *one;
    size_t i;

    json_array_foreach (all, i, one)
        if (json_integer_value(json_object_get(one, "step")) == number)
            return one;
    return NULL;
}

static json_int_t value(const json_t *one, const char *name)
{
    return json_integer_value(json_object_get(one, name));
}

static void test_a_step_with_a_manifest_is_complete_and_its_files_are_counted(void **state)
{
    json_auto_t *all = NULL;

    (void)state;
    assert_int_equal(mkdir(at("checkpoints/step-00000020"), 0755), 0);
    put("checkpoints/step-00000020/MANIFEST", 100);
    put("checkpoints/step-00000020/rank-00000.mck", 5000);
    assert_int_equal(mkdir(at("checkpoints/step-00000040"), 0755), 0);
    put("checkpoints/step-00000040/rank-00000.mck", 7);
    assert_int_equal(mkdir(at("checkpoints/.trash-00000010-7"), 0755), 0);
    put("checkpoints/step-00000050", 1); /* no folder */
    assert_int_equal(spool_saved_scan(folder, "checkpoints", &all), 0);
    assert_int_equal(json_array_size(all), 2);
    assert_true(json_is_true(json_object_get(step(all, 20), "complete")));
    assert_int_equal(value(step(all, 20), "disk_bytes"), 5100);
    assert_int_equal(value(step(all, 20), "files"), 2);
    assert_true(json_is_false(json_object_get(step(all, 40), "complete")));
}

static void test_links_are_not_followed_and_what_is_no_file_does_not_count(void **state)
{
    json_auto_t *all = NULL, *none = NULL;

    (void)state;
    assert_int_equal(mkdir(at("hostile"), 0755), 0);
    assert_int_equal(symlink("/etc", at("hostile/step-00000001")), 0);
    assert_int_equal(mkdir(at("hostile/step-00000002"), 0755), 0);
    assert_int_equal(mkfifo(at("hostile/step-00000002/MANIFEST"), 0644), 0);
    assert_int_equal(symlink("/etc/passwd", at("hostile/step-00000002/rank-00000.mck")), 0);
    assert_int_equal(spool_saved_scan(folder, "hostile", &all), 0);
    assert_int_equal(json_array_size(all), 1);
    assert_true(json_is_false(json_object_get(step(all, 2), "complete")));
    assert_int_equal(value(step(all, 2), "disk_bytes"), 0);
    assert_int_equal(symlink("/", at("away")), 0);
    assert_true(spool_saved_scan(folder, "away", &none) < 0);
    assert_true(spool_saved_scan(folder, "away/tmp", &none) < 0);
    assert_true(spool_saved_scan(folder, "../", &none) < 0);
    assert_true(spool_saved_scan(folder, "/etc", &none) < 0);
}

static void test_no_folder_is_no_checkpoint(void **state)
{
    json_auto_t *all = NULL, *none = NULL;

    (void)state;
    assert_int_equal(spool_saved_scan(folder, "nowhere", &all), 0);
    assert_int_equal(json_array_size(all), 0);
    assert_int_equal(spool_saved_scan("/tmp/there/is/no/such/folder", "checkpoints", &none), 0);
    assert_int_equal(json_array_size(none), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_with_a_manifest_is_complete_and_its_files_are_counted),
        cmocka_unit_test(test_links_are_not_followed_and_what_is_no_file_does_not_count),
        cmocka_unit_test(test_no_folder_is_no_checkpoint),
    };

    return cmocka_run_group_tests(tests, enter, leave);
}
