/* State in two files in turn: passes, seals, what a death at any moment leaves, what damage does. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "checkpoint/parts.h"

#define PLANE ((uint64_t)3 * MCK_CHUNK)
#define FLOATS (PLANE / sizeof(float))
#define TILES 3

static char root[64], dir[96], checkpoints[96];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/muster-tiles-XXXXXX");
    assert_non_null(mkdtemp(root));
    (void)snprintf(dir, sizeof(dir), "%s/c/.optimizer", root);
    (void)snprintf(checkpoints, sizeof(checkpoints), "%s/c", root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return io_remove_tree(root, NULL);
}

/* All of one tensor in a file's three planes. */
static struct tiles *opened_of(int rank, int size, uint64_t generation, unsigned unread)
{
    static const enum mck_role role[TILES_PLANES] = {MCK_MASTER, MCK_MOMENT1, MCK_MOMENT2};
    static char place[TILES_PLANES * PLANE]; /* its addresses */
    struct mck_buffer buf[TILES_PLANES];
    struct tiles_cfg cfg = {.dir = dir,
                            .rank = rank,
                            .size = size,
                            .generation = generation,
                            .buf = buf,
                            .n = TILES_PLANES,
                            .base = place,
                            .plane_bytes = PLANE,
                            .tile_bytes = MCK_CHUNK,
                            .unread = unread};
    struct tiles *s;
    struct merr err = {""};

    for (int p = 0; p < TILES_PLANES; p++)
        buf[p] = (struct mck_buffer){.name = "w",
                                     .role = role[p],
                                     .dtype = MCK_F32,
                                     .ndim = 2,
                                     .shape = {(uint64_t)size, FLOATS},
                                     .off = {(uint64_t)rank, 0},
                                     .len = {1, FLOATS},
                                     .data = place + p * PLANE};
    if (tiles_open(&cfg, &s, &err) != 0)
        fail_msg("%s", err.text);
    return s;
}

static struct tiles *opened(void)
{
    return opened_of(0, 1, 1, 0);
}

/* What stands in a plane after a step. */
static float value(uint64_t step, int plane, size_t i)
{
    return (float)(step * 10 + (uint64_t)plane) + (float)(i % 1000) / 1024;
}

static int told = -1; /* a pipe to the parent, in a child that is to be killed */

static void tell(uint64_t step)
{
    if (told >= 0 && write(told, &step, sizeof(step)) != sizeof(step))
        _exit(1);
}

/* One pass from a step to the next, which finds what the step before wrote. */
static void pass(struct tiles *s, uint64_t step, bool blank, unsigned unread)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);
    struct merr err = {""};

    assert_int_equal(tiles_begin(s, blank, &err), 0);
    for (size_t t = 0; t < TILES; t++) {
        void *at[TILES_PLANES];

        assert_int_equal(tiles_take(s, t, at, &err), 0);
        for (int p = 0; p < TILES_PLANES; p++) {
            float *x = at[p];

            for (size_t i = 0; i < MCK_CHUNK / sizeof(float); i++) {
                if (!(unread & 1u << p))
                    assert_true(x[i] == (blank ? 0 : value(step - 1, p, i)));
                x[i] = value(step, p, i);
            }
        }
        assert_int_equal(tiles_give(s, t, &err), 0);
        tell(0);
    }
    assert_int_equal(tiles_seal(s, step, kv, &err), 0);
    json_decref(kv);
}

/* The newest step there is a checkpoint of, all of whose values are that step's; 0: none. */
static uint64_t newest_checkpoint(void)
{
    static float got[FLOATS];
    struct mck_buffer b = {
        .name = "w", .dtype = MCK_F32, .ndim = 2, .shape = {1, FLOATS}, .len = {1, FLOATS}, .data = got};
    struct merr err = {""};
    uint64_t step;
    struct mck *c;

    if (mck_latest(checkpoints, &step, NULL, &err) != 1)
        return 0;
    assert_int_equal(mck_open(checkpoints, step, &c, &err), 0);
    for (int p = 0; p < TILES_PLANES; p++) {
        b.role = p == 0 ? MCK_MASTER : p == 1 ? MCK_MOMENT1 : MCK_MOMENT2;
        if (mck_load(c, &b, 1, &err) != 0)
            fail_msg("%s", err.text);
        for (size_t i = 0; i < FLOATS; i++)
            assert_true(got[i] == value(step, p, i % (MCK_CHUNK / sizeof(float))));
    }
    mck_free(c);
    return step;
}

static void each_pass_reads_what_the_one_before_wrote(void **state)
{
    struct tiles *s = opened();
    void *at[TILES_PLANES];
    struct merr err;

    (void)state;
    assert_int_equal(tiles_count(s), TILES);
    assert_int_equal(tiles_begin(s, false, &err), -EINVAL); /* there is nothing yet */
    pass(s, 1, true, 0);
    for (uint64_t step = 2; step < 6; step++)
        pass(s, step, false, 0);
    assert_int_equal(tiles_begin(s, false, &err), 0); /* one that is given up */
    assert_int_equal(tiles_take(s, 1, at, &err), -EINVAL);
    assert_int_equal(tiles_take(s, 0, at, &err), 0);
    assert_int_equal(tiles_give(s, 1, &err), -EINVAL);
    assert_int_equal(tiles_give(s, 0, &err), 0);
    pass(s, 6, false, 0);
    assert_int_equal(tiles_wait(s, &err), 0);
    tiles_close(s);
}

static void a_plane_that_the_caller_has_is_written_alone(void **state)
{
    struct tiles *s = opened_of(0, 1, 1, 1);
    uint64_t step;
    struct merr err;

    (void)state;
    pass(s, 1, true, 1);
    pass(s, 2, false, 1);
    tiles_close(s);
    assert_int_equal(tiles_commit(dir, checkpoints, 2, &step, &err), 0);
    assert_int_equal(step, 2);
    assert_int_equal(newest_checkpoint(), 2);
}

static void a_file_that_is_saved_stays_as_it_is(void **state)
{
    struct tiles *s = opened();
    struct mck_cfg cfg = {.dir = checkpoints, .size = 1, .generation = 1, .codec = "none", .keep = 2};
    struct mck_writer *w;
    struct mck_file_of file;
    struct mck_done done;
    struct merr err = {""};

    (void)state;
    assert_int_equal(mck_writer_new(&cfg, NULL, 0, &w, &err), 0);
    pass(s, 1, true, 0);
    assert_int_equal(tiles_save(s, &file, &err), 0);
    assert_int_equal(mck_begin_file(w, 1, &file, &err), 0);
    for (uint64_t step = 2; step < 6; step++) /* over both files, twice */
        pass(s, step, false, 0);
    assert_int_equal(mck_drain(w, clock_mono_us() + 60000000, &err), 0);
    assert_int_equal(mck_next_done(w, &done), 1);
    assert_int_equal(done.code, 0);
    assert_true(done.bytes == TILES_PLANES * PLANE);
    assert_int_equal(newest_checkpoint(), 1);
    assert_true(access(file.path, F_OK) != 0); /* that name was the writer's */
    mck_writer_free(w);
    tiles_close(s);
}

/* A rank that has sealed one step more than another: what both have is committed. */
static void only_what_all_ranks_have_is_committed(void **state)
{
    struct tiles *a = opened_of(0, 2, 1, 0), *b = opened_of(1, 2, 1, 0);
    uint64_t step;
    struct merr err;

    (void)state;
    pass(a, 1, true, 0);
    pass(b, 1, true, 0);
    assert_int_equal(tiles_wait(b, &err), 0);
    pass(a, 2, false, 0);
    tiles_close(a);
    assert_int_equal(tiles_commit(dir, checkpoints, 2, &step, &err), 0);
    assert_int_equal(step, 1);
    pass(b, 2, false, 0);
    tiles_close(b);
    assert_int_equal(tiles_commit(dir, checkpoints, 3, &step, &err), 0);
    assert_int_equal(step, 2);
    assert_int_equal(tiles_commit(dir, checkpoints, 3, &step, &err), 0);
    assert_int_equal(step, 0); /* it is there */
    tiles_clear(dir);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(tiles_commit(dir, checkpoints, 3, &step, &err), 0);
}

/* Passes until it is killed; each tile that is given, and each step that is safe, is told. */
static void live(void)
{
    struct tiles *s = opened();
    struct merr err;

    for (uint64_t step = 1;; step++) {
        pass(s, step, step == 1, 0);
        if (tiles_wait(s, &err) != 0)
            _exit(1);
        tell(step);
    }
}

static void a_death_at_any_moment_costs_no_step_that_was_safe(void **state)
{
    (void)state;
    for (int kill_at = 3; kill_at < 12; kill_at++) { /* things told before it */
        uint64_t safe = 0, got;
        struct merr err = {""};
        int pipes[2], status;
        pid_t child;

        assert_int_equal(pipe(pipes), 0);
        child = fork();
        if (child == 0) {
            told = pipes[1];
            live();
        }
        (void)close(pipes[1]);
        for (int n = 0; read(pipes[0], &got, sizeof(got)) == sizeof(got);) {
            safe = got > safe ? got : safe;
            if (++n == kill_at)
                (void)kill(child, SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        (void)close(pipes[0]);
        if (tiles_commit(dir, checkpoints, 2, &got, &err) != 0)
            fail_msg("%s", err.text);
        got = newest_checkpoint();
        assert_true(got == safe || got == safe + 1);
        assert_int_equal(tear_down(NULL), 0);
        (void)set_up(NULL);
    }
}

static void damage_is_named(void **state)
{
    struct tiles *s = opened();
    void *at[TILES_PLANES];
    char path[128];
    struct merr err = {""};
    int fd;

    (void)state;
    pass(s, 1, true, 0);
    assert_int_equal(tiles_wait(s, &err), 0);
    (void)snprintf(path, sizeof(path), "%s/rank-00000.a", dir);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, MCK_ALIGN + MCK_CHUNK + 7), 1);
    assert_int_equal(fsync(fd), 0);
    (void)close(fd);
    assert_int_equal(tiles_begin(s, false, &err), 0);
    for (size_t t = 0; t < 2; t++)
        if (tiles_take(s, t, at, &err) < 0 || tiles_give(s, t, &err) < 0)
            break;
    assert_int_equal(tiles_wait(s, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "rank-00000.a' is damaged at byte"));
    assert_int_equal(tiles_begin(s, false, &err), -EBADMSG); /* the first failure answers all */
    tiles_close(s);
}

static void a_disk_without_space_refuses(void **state)
{
    char small[96];
    struct tiles_cfg cfg = {.dir = small, .size = 1, .plane_bytes = PLANE, .tile_bytes = MCK_CHUNK + 1};
    struct tiles *s;
    struct merr err;

    (void)state;
    (void)snprintf(small, sizeof(small), "%s/x", root);
    assert_int_equal(tiles_open(&cfg, &s, &err), -EINVAL);
    cfg.tile_bytes = MCK_CHUNK;
    cfg.plane_bytes = (uint64_t)1 << 46;
    cfg.base = small;
    assert_true(tiles_open(&cfg, &s, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_pass_reads_what_the_one_before_wrote, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_plane_that_the_caller_has_is_written_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_is_saved_stays_as_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_what_all_ranks_have_is_committed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_death_at_any_moment_costs_no_step_that_was_safe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_without_space_refuses, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
