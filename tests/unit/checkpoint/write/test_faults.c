/* What goes wrong on disk is always seen, and never costs the last good checkpoint. */
#include "tests/unit/checkpoint/two.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "checkpoint/format/format.h"
#include "checkpoint/write/collect.h"

static int setup(void **state)
{
    (void)state;
    set_up_two(4711, 6, 600, 333, 251);
    return 0;
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t b;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &b, 1, at), 1);
    b ^= 0x10;
    assert_int_equal(pwrite(fd, &b, 1, at), 1);
    (void)close(fd);
}

static off_t length(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* Does the full check find fault with a step? */
static bool is_sound(uint64_t step)
{
    struct merr err = {.text = ""};
    struct mck *c;
    int r = mck_open(dir, step, &c, &err);

    if (r == 0) {
        r = mck_verify(c, NULL, &err);
        mck_free(c);
    }
    if (r) {
        assert_int_equal(r, -EBADMSG);
        assert_true(strlen(err.text) > 0);
    }
    return r == 0;
}

static void every_flipped_bit_of_meaning_is_found(void **state)
{
    static const char *const codecs[] = {"none", "plane", "zstd", "lz4"};

    (void)state;
    for (size_t k = 0; k < COUNT(codecs); k++) {
        uint64_t step = 10 * (k + 1);
        off_t data, manifest;

        save_two(1, step, codecs[k]);
        assert_true(is_sound(step));
        data = length(in_step(step, "rank-00001.mck"));
        manifest = length(in_step(step, "MANIFEST"));
        const struct {
            const char *file;
            off_t at;
        } at[] = {
            {"rank-00001.mck", 0},
            {"rank-00001.mck", 20},
            {"rank-00001.mck", 40},
            {"rank-00001.mck", 4096},
            {"rank-00001.mck", 5000},
            {"rank-00001.mck", 300000},
            {"rank-00001.mck", data - 1},
            {"rank-00001.mck", data - 4096},
            {"rank-00001.mck", data - 4096 + 20},
            {"rank-00001.mck", data - 2000},
            {"MANIFEST", 0},
            {"MANIFEST", 8},
            {"MANIFEST", 20},
            {"MANIFEST", 90},
            {"MANIFEST", 4096},
            {"MANIFEST", manifest / 2},
            {"MANIFEST", manifest - 30},
            {"MANIFEST", manifest - 1},
            {"MANIFEST", manifest - 12},
            {"MANIFEST", 4000},
        };

        for (size_t i = 0; i < COUNT(at); i++) {
            flip(in_step(step, at[i].file), at[i].at);
            if (is_sound(step))
                fail_msg("%s: a flipped bit at %lld of '%s' is not found", codecs[k], (long long)at[i].at, at[i].file);
            flip(in_step(step, at[i].file), at[i].at);
            assert_true(is_sound(step));
        }
    }
}

static void a_damaged_chunk_is_never_loaded(void **state)
{
    struct merr err = {.text = ""};
    struct mck *c;
    json_t *report = NULL;

    (void)state;
    save_two(1, 10, "none");
    flip(in_step(10, "rank-00000.mck"), 4096 + 1000);
    assert_int_equal(mck_open(dir, 10, &c, &err), 0);
    assert_int_equal(mck_load(c, two->buf[0], two->n[0], &err), -EBADMSG);
    assert_non_null(strstr(err.text, "chunk 0 fails its checksum: it holds 'layer.0.weight (master)'"));
    assert_int_equal(mck_verify(c, &report, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "layer.0.weight"));
    assert_int_equal(json_array_size(json_object_get(report, "faults")), 1);
    json_decref(report);
    mck_free(c);
}

static void a_bad_newest_checkpoint_gives_way_to_the_one_before(void **state)
{
    struct merr err = {.text = ""};
    char keep[300];
    json_t *skipped;
    uint64_t step;

    (void)state;
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
    save_two(1, 10, "none");
    save_two(1, 20, "none");
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 1);
    assert_int_equal(step, 20);
    (void)snprintf(keep, sizeof(keep), "%s.away", in_step(20, "rank-00001.mck"));
    assert_int_equal(rename(in_step(20, "rank-00001.mck"), keep), 0); /* missing */
    assert_int_equal(mck_latest(dir, &step, &skipped, &err), 1);
    assert_int_equal(step, 10);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(skipped, 0), "step")), 20);
    json_decref(skipped);
    (void)snprintf(keep, sizeof(keep), "%s", in_step(20, "rank-00000.mck"));
    assert_int_equal(rename(keep, in_step(10, "rank-00000.mck")), 0); /* swapped */
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
}

static void a_cut_file_is_found_at_a_glance(void **state)
{
    struct merr err = {.text = ""};
    uint64_t step;

    (void)state;
    save_two(1, 10, "none");
    assert_int_equal(truncate(in_step(10, "rank-00000.mck"), length(in_step(10, "rank-00000.mck")) - 4096), 0);
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
}

static void a_lost_manifest_is_rebuilt(void **state)
{
    struct merr err = {.text = ""};
    struct mck *c;

    (void)state;
    save_two(1, 10, "plane");
    assert_int_equal(unlink(in_step(10, "MANIFEST")), 0);
    assert_int_equal(mck_open(dir, 10, &c, &err), -ENOENT);
    assert_int_equal(mck_repair(in_step(10, ""), &err), 1);
    assert_int_equal(mck_open(dir, 10, &c, &err), 0);
    wipe_layout(two);
    assert_int_equal(mck_load(c, two->buf[1], two->n[1], &err), 0);
    assert_int_equal(mck_load(c, two->buf[0], two->n[0], &err), 0);
    check_layout(&model, two, 1);
    mck_free(c);
}

static void a_gap_or_an_overlap_refuses_the_commit_by_name(void **state)
{
    struct merr err = {.text = ""};
    struct mck_buffer *b = &two->buf[1][0];
    uint64_t step;

    (void)state;
    b->replica = true;
    assert_true(save_layout(two, dir, 1, 10, "none", &err) < 0);
    assert_non_null(strstr(err.text, "layer."));
    assert_non_null(strstr(err.text, "elements are stored"));
    b->replica = false;
    two->buf[0][two->n[0]] = *b;
    two->n[0]++;
    assert_true(save_layout(two, dir, 1, 20, "none", &err) < 0);
    assert_non_null(strstr(err.text, "same elements"));
    two->n[0]--;
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
}

static void an_older_generation_never_commits(void **state)
{
    struct merr err = {.text = ""};
    struct mck_cfg cfg = {.dir = dir, .size = 1, .generation = 3, .codec = "none"};
    struct mck_writer *old, *young;
    struct mck_done done;
    struct mck_buffer b = two->buf[0][0];
    json_t *kv = json_pack("{s:i}", "step", 5);

    (void)state;
    b.off[0] = 0, b.len[0] = b.shape[0] = 10, b.sub_begin = b.sub_end = 0;
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &old, &err), 0);
    cfg.generation = 4;
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &young, &err), 0);
    assert_int_equal(mck_begin(old, 5, kv, &err), 0);
    assert_int_equal(mck_drain(old, clock_mono_us() + 10000000, &err), 0);
    assert_int_equal(mck_next_done(old, &done), 1);
    assert_int_equal(done.code, -ESTALE);
    assert_int_equal(mck_begin(young, 5, kv, &err), 0);
    assert_int_equal(mck_drain(young, clock_mono_us() + 10000000, &err), 0);
    assert_int_equal(mck_next_done(young, &done), 1);
    assert_int_equal(done.code, 0);
    assert_int_equal(mck_begin(young, 5, kv, &err), 0); /* committed: again is fine and does nothing */
    assert_int_equal(mck_drain(young, clock_mono_us() + 10000000, &err), 0);
    assert_int_equal(mck_next_done(young, &done), 1);
    assert_int_equal(done.code, 0);
    mck_writer_free(old);
    mck_writer_free(young);
    cfg.generation = 3;
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &old, &err), -ESTALE);
    json_decref(kv);
}

static void a_full_disk_costs_only_the_attempt(void **state)
{
    struct rlimit was, small = {.rlim_cur = 1 << 20};
    struct merr err = {.text = ""};
    static const char *const codecs[] = {"none", "plane"}, *const ways[] = {"uring", "threads", "buffered"};
    uint64_t step;

    (void)state;
    save_two(1, 10, "none");
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(setenv("MUSTER_IO", ways[i % 3], 1), 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        assert_int_equal(save_layout(two, dir, 1, 20, codecs[i / 3], &err) < 0, 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_int_equal(access(in_step(20, "MANIFEST"), F_OK), -1);
        assert_int_equal(access(in_step(20, "rank-00000.mck"), F_OK), -1);
        assert_int_equal(mck_latest(dir, &step, NULL, &err), 1);
        assert_int_equal(step, 10);
    }
    assert_int_equal(unsetenv("MUSTER_IO"), 0);
    save_two(1, 20, "none"); /* the same step, once there is space */
    assert_true(is_sound(20));
}

static void a_missing_rank_ends_in_a_timeout_that_names_it(void **state)
{
    struct merr err = {.text = ""};
    struct mck_cfg cfg = {.dir = dir, .size = 2, .generation = 1, .codec = "none", .timeout_us = 300000};
    json_t *kv = json_pack("{s:i}", "step", 5);
    struct mck_writer *w;
    struct mck_done done;

    (void)state;
    assert_int_equal(mck_writer_new(&cfg, two->buf[0], two->n[0], &w, &err), 0);
    assert_int_equal(mck_begin(w, 5, kv, &err), 0);
    assert_int_equal(mck_begin(w, 6, kv, &err), 0);
    assert_int_equal(mck_begin(w, 7, kv, &err), -EBUSY);
    assert_int_equal(mck_drain(w, clock_mono_us() + 1000, &err), -ETIMEDOUT);
    assert_int_equal(mck_drain(w, clock_mono_us() + 10000000, &err), 0);
    assert_int_equal(mck_next_done(w, &done), 1);
    assert_int_equal(done.code, -ETIMEDOUT);
    assert_non_null(strstr(done.err.text, "rank 1"));
    assert_int_equal(access(in_step(5, ""), F_OK), -1); /* nothing left behind */
    mck_writer_free(w);
    json_decref(kv);
}

/* Rank 1 fails after rank 0 has given up, so its words stay: they are not about the next try. */
static void a_failure_of_an_earlier_try_is_not_taken_for_one_of_the_next(void **state)
{
    struct merr err = {.text = ""};
    struct mck_cfg cfg = {.dir = dir, .size = 2, .generation = 1, .codec = "none"};
    json_t *kv = json_pack("{s:i}", "step", 5);
    struct rlimit was, small = {.rlim_cur = 1 << 20};
    struct mck_writer *w[2];
    struct mck_done done;

    (void)state;
    for (int i = 0; i < 2; i++) {
        cfg.rank = i;
        cfg.timeout_us = i ? 20000000 : 500000;
        assert_int_equal(mck_writer_new(&cfg, two->buf[i], two->n[i], &w[i], &err), 0);
    }
    assert_int_equal(mck_begin(w[0], 5, kv, &err), 0);
    assert_int_equal(mck_drain(w[0], clock_mono_us() + 10000000, &err), 0);
    assert_int_equal(mck_next_done(w[0], &done), 1);
    assert_int_equal(done.code, -ETIMEDOUT);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(mck_begin(w[1], 5, kv, &err), 0);
    assert_int_equal(mck_drain(w[1], clock_mono_us() + 10000000, &err), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(mck_next_done(w[1], &done), 1);
    assert_true(done.code < 0);

    assert_int_equal(mck_begin(w[0], 5, kv, &err), 0);
    assert_int_equal(mck_drain(w[0], clock_mono_us() + 200000, &err), -ETIMEDOUT); /* it waits for rank 1 */
    assert_int_equal(mck_begin(w[1], 5, kv, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mck_drain(w[i], clock_mono_us() + 10000000, &err), 0);
        assert_int_equal(mck_next_done(w[i], &done), 1);
        assert_int_equal(done.code, 0);
        mck_writer_free(w[i]);
    }
    assert_true(is_sound(5));
    json_decref(kv);
}

static void what_is_kept_is_never_fewer_than_two(void **state)
{
    struct merr err = {.text = ""};
    json_t *list;

    (void)state;
    for (uint64_t step = 10; step <= 50; step += 10)
        save_two(1, step, "none");
    assert_int_equal(mck_list(dir, &list, &err), 0);
    assert_int_equal(json_array_size(list), 3);
    json_decref(list);
    flip(in_step(40, "rank-00000.mck"), 0); /* a damaged one does not count */
    assert_int_equal(mkdir(in_step(45, ""), 0755), 0);
    assert_int_equal(mkdir(in_step(60, ""), 0755), 0);
    assert_int_equal(collect_folder(dir, 1, 0, &err), 0);
    assert_int_equal(mck_list(dir, &list, &err), 0);
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "step")), 30);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "step")), 50);
    assert_int_equal(access(in_step(45, ""), F_OK), -1);
    assert_int_equal(access(in_step(60, ""), F_OK), 0); /* somebody may be writing it */
    json_decref(list);
}

static void expect_steps(const uint64_t *want, size_t n)
{
    struct merr err = {.text = ""};
    json_t *list;

    assert_int_equal(mck_list(dir, &list, &err), 0);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_integer_value(json_object_get(json_array_get(list, i), "step")), want[i]);
    json_decref(list);
}

static void every_nth_checkpoint_outlives_the_newest(void **state)
{
    struct mck_cfg cfg = {.dir = dir, .size = 1, .generation = 1, .codec = "none", .keep = 2, .keep_every = 20};
    struct mck_buffer b = two->buf[0][0];
    struct merr err = {.text = ""};
    struct mck_writer *w;

    (void)state;
    b.off[0] = 0, b.len[0] = b.shape[0] = 10, b.sub_begin = b.sub_end = 0;
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &w, &err), 0);
    for (uint64_t step = 10; step <= 80; step += 10) {
        json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);

        assert_int_equal(mck_begin(w, step, kv, &err), 0);
        assert_int_equal(mck_drain(w, clock_mono_us() + 10000000, &err), 0);
        json_decref(kv);
    }
    mck_writer_free(w);
    expect_steps((const uint64_t[]){20, 40, 60, 70, 80}, 5);
    flip(in_step(40, "rank-00000.mck"), 0); /* a damaged one is not worth its space */
    assert_int_equal(collect_folder(dir, 2, 20, &err), 0);
    expect_steps((const uint64_t[]){20, 60, 70, 80}, 4);
    assert_int_equal(collect_folder(dir, 2, 0, &err), 0);
    expect_steps((const uint64_t[]){70, 80}, 2);
}

static void bad_buffers_and_settings_are_refused_by_name(void **state)
{
    struct merr err = {.text = ""};
    struct mck_cfg cfg = {.dir = dir, .size = 1, .codec = "none"};
    struct mck_buffer b = {.name = "w", .ndim = 1, .shape = {4}, .len = {5}, .data = &err};
    struct mck_writer *w;

    (void)state;
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &w, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'w'"));
    b.len[0] = 4;
    cfg.codec = "rar";
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &w, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'rar'"));
    cfg.codec = "none";
    assert_int_equal(setenv("MUSTER_IO", "pigeon", 1), 0);
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &w, &err), -EINVAL);
    assert_non_null(strstr(err.text, "pigeon"));
    assert_int_equal(unsetenv("MUSTER_IO"), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, tear_down_two)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_flipped_bit_of_meaning_is_found),
        T(a_damaged_chunk_is_never_loaded),
        T(a_bad_newest_checkpoint_gives_way_to_the_one_before),
        T(a_cut_file_is_found_at_a_glance),
        T(a_lost_manifest_is_rebuilt),
        T(a_gap_or_an_overlap_refuses_the_commit_by_name),
        T(an_older_generation_never_commits),
        T(a_full_disk_costs_only_the_attempt),
        T(a_missing_rank_ends_in_a_timeout_that_names_it),
        T(a_failure_of_an_earlier_try_is_not_taken_for_one_of_the_next),
        T(what_is_kept_is_never_fewer_than_two),
        T(every_nth_checkpoint_outlives_the_newest),
        T(bad_buffers_and_settings_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
