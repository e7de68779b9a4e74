#include "api/cli/family.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static int make_folder(void **state)
{
    static char folder[64];

    (void)snprintf(folder, sizeof(folder), "/dev/shm/muster-family-XXXXXX");
    *state = mkdtemp(folder);
    return *state ? 0 : -1;
}

static int drop_folder(void **state)
{
    return io_remove_tree(*state, NULL);
}

static void write_process(const char *proc, int pid, int parent, char what)
{
    char path[128];
    FILE *out;

    (void)snprintf(path, sizeof(path), "%s/%d", proc, pid);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/%d/stat", proc, pid);
    out = fopen(path, "we");
    assert_non_null(out);
    (void)fprintf(out, "%d (a ) b) %c %d 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0\n", pid, what, parent, 1000 + pid);
    assert_int_equal(fclose(out), 0);
}

static void descendants_are_found_among_very_many_processes(void **state)
{
    const struct process first[] = {{.pid = 7, .parent = 1, .start = 1007}, {.pid = 9, .parent = 7, .start = 1009}};
    struct family f;
    bool seen[6000] = {false};

    for (int pid = 1; pid < 4200; pid++)
        write_process(*state, pid, pid == 1 ? 0 : pid == 9 ? 7 : 1, 'S');
    write_process(*state, 5900, 5901, 'S'); /* its parent comes after it */
    write_process(*state, 5901, 5902, 'S');
    write_process(*state, 5902, 9, 'S');
    write_process(*state, 5903, 9, 'Z'); /* only its remains */
    write_process(*state, 5904, 5903, 'S');
    assert_int_equal(family_gather(*state, first, 2, &f, NULL), 0);
    assert_int_equal(f.n, 5);
    assert_int_equal(f.v[0].pid, 7);
    assert_int_equal(f.v[1].pid, 9);
    for (size_t i = 0; i < f.n; i++) {
        assert_false(seen[f.v[i].pid]);
        seen[f.v[i].pid] = true;
        assert_int_equal(f.v[i].start, 1000 + f.v[i].pid);
    }
    assert_true(seen[5900] && seen[5901] && seen[5902]);
    family_clear(&f);
}

static void where_no_processes_can_be_seen_that_is_said(void **state)
{
    struct merr err;
    struct family f;
    char none[96];

    (void)snprintf(none, sizeof(none), "%s/none", (const char *)*state);
    assert_int_equal(family_gather(none, NULL, 0, &f, &err), -ENOENT);
    assert_non_null(strstr(err.text, none));
}

static void a_process_is_known_by_its_start(void **state)
{
    struct process me;

    (void)state;
    assert_true(family_look_up(getpid(), &me));
    assert_int_equal(me.parent, getppid());
    assert_true(family_alive(&me));
    me.start++;
    assert_false(family_alive(&me));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(descendants_are_found_among_very_many_processes, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(where_no_processes_can_be_seen_that_is_said, make_folder, drop_folder),
        cmocka_unit_test(a_process_is_known_by_its_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
