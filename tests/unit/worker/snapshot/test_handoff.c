#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/snapshot/handoff.h"

#define WEIGHTS ((size_t)3000)
#define ARENA ((size_t)8 * 4096)

static char memory[64];

/* A folder in memory; every system that Muster runs on has this one. */
static int make_memory(void **state)
{
    (void)state;
    (void)snprintf(memory, sizeof(memory), "/dev/shm/test-handoff-XXXXXX");
    return mkdtemp(memory) ? 0 : -1;
}

static int drop_memory(void **state)
{
    (void)state;
    return io_remove_tree(memory, NULL);
}

/* cp fastest, as in mesh.h */
static struct handoff *opened_with_cp(int cp, int dp, int rank, bool used)
{
    struct handoff_cfg cfg = {
        .memory = memory, .cp_index = rank % cp, .dp_index = rank / cp % dp, .weight_n = WEIGHTS, .arena_bytes = ARENA};
    struct handoff *k;
    struct merr err = {""};

    if (handoff_open(&cfg, &k, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(handoff_was_used(k), used);
    return k;
}

static struct handoff *opened(int dp, int index, bool used)
{
    return opened_with_cp(1, dp, index, used);
}

static float *arena_of(const struct handoff *k)
{
    float *p = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, handoff_arena(k), 0);

    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

static void what_one_generation_leaves_the_next_finds(void **state)
{
    struct handoff *k = opened(1, 0, false), *other;
    float *weights = arena_of(k);

    (void)state;
    weights[WEIGHTS - 1] = 1.5F;
    handoff_m(k)[7] = 2.5F;
    handoff_v(k)[WEIGHTS - 1] = 3.5F;
    (void)munmap(weights, ARENA);
    handoff_close(k);

    k = opened(2, 0, true);
    other = opened(2, 1, true); /* the moments are there, and those of all replicas */
    weights = arena_of(k);
    assert_true(weights[WEIGHTS - 1] == 1.5F);
    assert_true(handoff_m(other)[7] == 2.5F && handoff_v(k)[WEIGHTS - 1] == 3.5F);
    handoff_v(other)[0] = 4.5F;
    assert_true(handoff_v(k)[0] == 4.5F);
    assert_true(handoff_bytes(memory) >= 2 * ARENA + 2 * WEIGHTS * sizeof(float));
    (void)munmap(weights, ARENA);
    handoff_close(other);
    handoff_close(k);
    handoff_close(NULL);
}

static void replicas_that_are_no_more_give_their_memory_back(void **state)
{
    uint64_t two;

    (void)state;
    handoff_close(opened(2, 0, false));
    handoff_close(opened(2, 1, true));
    two = handoff_bytes(memory);
    handoff_trim(memory, 2);
    assert_int_equal(handoff_bytes(memory), two);
    handoff_trim(memory, 1);
    assert_int_equal(handoff_bytes(memory), two - ARENA);
    handoff_trim(memory, 0);
    assert_int_equal(handoff_bytes(memory), 0);
    handoff_close(opened(1, 0, false));
}

/* Each makes the same update: in one file they would make it twice. */
static void ranks_that_share_sequences_have_files_of_their_own(void **state)
{
    struct handoff *k[4];
    uint64_t all;

    (void)state;
    for (int r = 0; r < 4; r++)
        k[r] = opened_with_cp(2, 2, r, r >= 2); /* the second replica finds the moments */
    handoff_m(k[0])[7] = 1.5F;
    assert_true(handoff_m(k[2])[7] == 1.5F && handoff_m(k[1])[7] == 0 && handoff_m(k[3])[7] == 0);
    all = handoff_bytes(memory);
    handoff_trim(memory, 1);
    assert_int_equal(handoff_bytes(memory), all - 2 * ARENA);
    for (int r = 0; r < 4; r++)
        handoff_close(k[r]);
}

static void a_mark_is_there_whole_or_not_at_all(void **state)
{
    struct handoff_mark m = {.generation = 3,
                             .step = 41,
                             .tokens = 6,
                             .durable_us = 5,
                             .weight_n = WEIGHTS,
                             .tp = 1,
                             .cp = 5,
                             .pp = 2,
                             .dp = 3,
                             .chunks = 4},
                        got;
    char path[128], byte = 0;
    struct stat st;
    int fd;

    (void)state;
    assert_int_equal(handoff_mark_get(memory, &got), 0);
    assert_int_equal(handoff_mark_drop(memory, NULL), 0);
    handoff_close(opened(1, 0, false));
    assert_int_equal(handoff_mark_put(memory, &m, NULL), 0);
    assert_int_equal(handoff_mark_get(memory, &got), 1);
    assert_true(got.generation == 3 && got.step == 41 && got.tokens == 6 && got.durable_us == 5);
    assert_true(got.weight_n == WEIGHTS);
    assert_true(got.tp == 1 && got.cp == 5 && got.pp == 2 && got.dp == 3 && got.chunks == 4);

    (void)snprintf(path, sizeof(path), "%s/keep/mark", memory);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) { /* each byte damaged in turn */
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(handoff_mark_get(memory, &got), 0);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(handoff_mark_get(memory, &got), 1);
    assert_int_equal(ftruncate(fd, st.st_size - 1), 0);
    assert_int_equal(handoff_mark_get(memory, &got), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(handoff_mark_drop(memory, NULL), 0);
    assert_int_equal(handoff_mark_get(memory, &got), 0);
}

static void a_folder_that_is_not_in_memory_is_refused_by_name(void **state)
{
    struct handoff_cfg cfg = {.memory = "/proc", .weight_n = WEIGHTS, .arena_bytes = ARENA};
    struct merr err = {""};
    struct handoff *k = NULL;

    (void)state;
    assert_int_equal(handoff_open(&cfg, &k, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "'/proc' is not in memory"));
    assert_null(k);
}

static void too_little_room_is_an_error_and_leaves_no_file(void **state)
{
    struct handoff_cfg cfg = {.memory = memory, .weight_n = WEIGHTS, .arena_bytes = (size_t)1 << 46};
    struct merr err = {""};
    struct handoff *k = NULL;

    (void)state;
    assert_true(handoff_open(&cfg, &k, &err) < 0);
    assert_non_null(strstr(err.text, memory));
    assert_null(k);
    assert_int_equal(handoff_bytes(memory), 0);
}

static void masters_lie_behind_the_moments(void **state)
{
    struct handoff_cfg cfg = {.memory = memory, .weight_n = WEIGHTS, .masters = true, .arena_bytes = ARENA};
    struct handoff *k;

    (void)state;
    assert_int_equal(handoff_open(&cfg, &k, NULL), 0);
    assert_ptr_equal(handoff_master(k), handoff_v(k) + WEIGHTS);
    handoff_master(k)[WEIGHTS - 1] = 5.5F;
    handoff_close(k);
    assert_int_equal(handoff_open(&cfg, &k, NULL), 0);
    assert_true(handoff_master(k)[WEIGHTS - 1] == 5.5F);
    handoff_close(k);
    cfg.masters = false;
    assert_int_equal(handoff_open(&cfg, &k, NULL), 0);
    assert_null(handoff_master(k));
    handoff_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_one_generation_leaves_the_next_finds, make_memory, drop_memory),
        cmocka_unit_test_setup_teardown(masters_lie_behind_the_moments, make_memory, drop_memory),
        cmocka_unit_test_setup_teardown(replicas_that_are_no_more_give_their_memory_back, make_memory, drop_memory),
        cmocka_unit_test_setup_teardown(ranks_that_share_sequences_have_files_of_their_own, make_memory, drop_memory),
        cmocka_unit_test_setup_teardown(a_mark_is_there_whole_or_not_at_all, make_memory, drop_memory),
        cmocka_unit_test(a_folder_that_is_not_in_memory_is_refused_by_name),
        cmocka_unit_test_setup_teardown(too_little_room_is_an_error_and_leaves_no_file, make_memory, drop_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
