/* "One user against all": of a long log the first and the newest are kept, and the gap is named. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "server/store/spool_disk.h"
#include "tests/memory/spool_memory.h"
#include "server/store/spool_logs.h"
#include "server/store/spool_parts.h"
#include "server/store/spool_read.h"

#define BOTH(f)                                                                                                        \
    {#f "_on_disk", f, on_disk, leave, NULL},                                                                          \
    {                                                                                                                  \
#f "_in_memory", f, in_memory, leave, NULL                                                                     \
    }
#define MEMORY(f) cmocka_unit_test_setup_teardown(f, in_memory, leave)
#define LOG "rank-00000.g1.log"
#define MIB (1 << 20)

struct scene {
    struct spool spool;
    char folder[32], jobs[48], text[MIB];
    struct spool_disk *disk;
    struct spool_memory *memory;
};

static int on_disk(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/muster-spool-XXXXXX");
    if (!mkdtemp(s->folder))
        return -1;
    (void)snprintf(s->jobs, sizeof(s->jobs), "%s/jobs", s->folder);
    if (io_mkdirs(s->jobs, 0700, NULL) < 0 ||
        spool_disk_open(&(struct spool_disk_cfg){.jobs = s->jobs}, &s->disk, &s->spool, NULL) < 0)
        return -1;
    return spool_make_job(&s->spool, 1, NULL);
}

static int in_memory(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->memory = spool_memory_new(&s->spool);
    return s->memory ? spool_make_job(&s->spool, 1, NULL) : -1;
}

static int leave(void **state)
{
    struct scene *s = *state;
    int r = s->disk ? io_remove_tree(s->folder, NULL) : 0;

    spool_disk_close(s->disk);
    spool_memory_free(s->memory);
    free(s);
    return r;
}

/* The byte at an offset: each 8 of them say which 8 they are. */
static char byte_at(int64_t offset)
{
    return offset % 8 == 7 ? '\n' : "0123456789abcdef"[offset / 8 >> (4 * (6 - offset % 8)) & 15];
}

/* Returns what is acknowledged. */
static int64_t put(struct scene *s, int64_t offset, size_t n)
{
    bool is_new = false;
    int64_t at;

    for (size_t i = 0; i < n; i++)
        s->text[i] = byte_at(offset + (int64_t)i);
    at = spool_append(&s->spool, 1, LOG, offset, s->text, n, &is_new);
    assert_true(!is_new || at > offset);
    return at;
}

/* A log of so many bytes, in pieces of odd sizes that span the ends of parts. */
static void fill(struct scene *s, int64_t length)
{
    int64_t at = 0;

    while (at < length) {
        size_t n = at + 1000003 < length ? 1000003 : (size_t)(length - at);

        at = put(s, at, n);
        assert_int_equal(at % 1000003 == 0 || at == length, 1);
    }
}

/* What is read at an offset: it says where it is. */
static int64_t check(struct scene *s, int64_t offset, size_t n)
{
    int64_t at = offset;
    struct spool_extent e;
    ssize_t got;

    assert_int_equal(spool_measure(&s->spool, 1, LOG, &e), 0);
    got = spool_read(&s->spool, 1, LOG, &e, &at, s->text, n);
    assert_true(got > 0);
    for (ssize_t i = 0; i < got; i++)
        assert_int_equal(s->text[i], byte_at(at + i));
    return at;
}

static void of_a_log_of_100_mib_the_first_16_and_the_newest_48_are_kept(void **state)
{
    struct scene *s = *state;
    struct spool_extent e;
    json_t *logs, *log;

    fill(s, 100 * MIB + 5);
    assert_int_equal(spool_measure(&s->spool, 1, LOG, &e), 0);
    assert_int_equal(e.length, 100 * MIB + 5);
    assert_int_equal(e.gap_from, 16 * MIB);
    assert_true(e.gap_to <= e.length - 48 * MIB && e.gap_to > e.length - 48 * MIB - 2 * SPOOL_PART);
    for (int64_t at = 0; at < e.gap_from; at += 700001)
        assert_int_equal(check(s, at, 500), at);
    for (int64_t at = e.gap_to; at < e.length; at += 700001)
        assert_int_equal(check(s, at, 500), at);
    assert_int_equal(check(s, e.gap_from, 500), e.gap_to); /* what is gone is passed over, and told */
    assert_int_equal(check(s, e.gap_to - 1, 500), e.gap_to);
    assert_int_equal(check(s, SPOOL_PART - 3, 500), SPOOL_PART - 3); /* over the end of a part */
    logs = spool_read_logs(&s->spool, 1, 0, 1, 0, 3, 0, NULL);
    log = json_array_get(json_object_get(logs, "logs"), 0);
    assert_int_equal(json_integer_value(json_object_get(log, "size")), e.length);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(log, "left_out"), "from")), e.gap_from);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(log, "left_out"), "to")), e.gap_to);
    assert_int_equal(json_array_size(json_object_get(logs, "lines")), 3);
    json_decref(logs);
}

/* By the limit that its pieces tell: logs.max_mib of the spec. */
static void a_log_may_have_another_limit(void **state)
{
    static const struct {
        int mib;
        int64_t gap_from; /* 0: all is kept */
    } row[] = {{16, 4 * MIB}, {40, 8 * MIB}, {64, 0}};
    struct scene *s = *state;
    char *mib = calloc(1, MIB + 1);

    assert_non_null(mib);
    memset(mib, 'x', MIB);
    for (size_t i = 0; i < COUNT(row); i++) {
        json_t *acks = json_array(), *fresh = json_array();
        struct spool_extent e;

        spool_drop_generation(&s->spool, 1, 1);
        for (int64_t at = 0; at < 60 * MIB; at += MIB) {
            json_t *piece = json_pack("{s:s, s:i, s:i, s:I, s:s, s:i}", "job", "j1", "generation", 1, "rank", 0,
                                      "offset", (json_int_t)at, "text", mib, "max_mib", row[i].mib);

            assert_int_equal(spool_take_piece(&s->spool, piece, true, acks, fresh), 0);
            assert_null(json_object_get(json_array_get(fresh, 0), "max_mib")); /* its followers need not know */
            (void)json_array_clear(fresh);
            json_decref(piece);
        }
        assert_int_equal(spool_measure(&s->spool, 1, LOG, &e), 0);
        assert_int_equal(e.gap_from, row[i].gap_from);
        if (row[i].gap_from) {
            int64_t newest = e.length - e.gap_to, want = row[i].mib * MIB - row[i].gap_from;

            assert_true(newest > want - 2 * SPOOL_PART && newest <= want + SPOOL_PART);
        }
        json_decref(acks);
        json_decref(fresh);
    }
    free(mib);
}

static void pieces_that_come_again_are_told_where_to_go_on(void **state)
{
    static const int64_t length[] = {0,
                                     5,
                                     SPOOL_PART - 1,
                                     SPOOL_PART,
                                     SPOOL_PART + 1,
                                     5 * (int64_t)SPOOL_PART,
                                     17 * (int64_t)SPOOL_PART,
                                     18 * (int64_t)SPOOL_PART + 7};

    for (size_t i = 0; i < COUNT(length); i++) {
        struct scene *s = *state;

        spool_drop_generation(&s->spool, 1, 1);
        fill(s, length[i]);
        for (int64_t part = 0; part < 22; part++) { /* at the beginnings of parts and within them, kept ones or not */
            int64_t at = part * SPOOL_PART;

            if (at != length[i])
                assert_int_equal(put(s, at, 10), length[i]);
            if (at + 3 != length[i])
                assert_int_equal(put(s, at + 3, 10), length[i]);
        }
        assert_int_equal(put(s, length[i], 10), length[i] + 10);
    }
}

static void a_generation_goes_with_all_its_parts(void **state)
{
    struct scene *s = *state;
    struct spool_extent e;

    fill(s, 3 * SPOOL_PART);
    spool_drop_generation(&s->spool, 1, 1);
    assert_int_equal(spool_measure(&s->spool, 1, LOG, &e), -ENOENT);
    assert_int_equal(put(s, 0, 10), 10); /* nothing of it is left to be taken for a part of another */
    assert_int_equal(spool_measure(&s->spool, 1, LOG, &e), 0);
    assert_int_equal(e.length, 10);
}

static void a_file_of_before_parts_stays_whole_and_grows(void **state)
{
    struct scene *s = *state;
    bool is_new = false;
    int64_t at = 0;

    while (at < SPOOL_PART + MIB) { /* as an older server wrote it */
        for (size_t i = 0; i < MIB; i++)
            s->text[i] = byte_at(at + (int64_t)i);
        at = s->spool.ops->append(s->spool.self, 1, LOG, at, s->text, MIB, &is_new);
    }
    assert_int_equal(put(s, at, 100), at + 100);
    assert_int_equal(check(s, SPOOL_PART - 50, 100), SPOOL_PART - 50);
    assert_int_equal(check(s, at + 50, 100), at + 50);
    assert_int_equal(put(s, 0, 100), at + 100);
}

static void a_job_keeps_no_more_than_its_quota_and_the_oldest_attempts_go_first(void **state)
{
    struct scene *s = *state;
    struct spool_extent e;
    bool is_new = false;

    s->spool.job_bytes = 7 * (int64_t)SPOOL_PART;
    for (int generation = 1; generation <= 4; generation++) {
        char name[SPOOL_NAME_MAX];

        spool_log_name(0, generation, name);
        for (int64_t at = 0; at < 3 * SPOOL_PART; at += MIB)
            assert_int_equal(spool_append(&s->spool, 1, name, at, s->text, MIB, &is_new), at + MIB);
        assert_int_equal(spool_measure(&s->spool, 1, name, &e), 0);
        assert_int_equal(e.length - (e.gap_to - e.gap_from), 3 * SPOOL_PART); /* the newest is whole */
    }
    assert_int_equal(spool_measure(&s->spool, 1, "rank-00000.g1.log", &e), -ENOENT);
    assert_int_equal(spool_measure(&s->spool, 1, "rank-00000.g2.log", &e), -ENOENT);
    assert_int_equal(spool_measure(&s->spool, 1, "rank-00000.g3.log", &e), 0);
}

static void a_log_above_the_quota_keeps_its_beginning_and_its_end(void **state)
{
    struct scene *s = *state;
    struct spool_extent e;

    s->spool.job_bytes = 3 * (int64_t)SPOOL_PART;
    fill(s, 20 * SPOOL_PART + 9);
    assert_int_equal(spool_measure(&s->spool, 1, LOG, &e), 0);
    assert_int_equal(e.length, 20 * SPOOL_PART + 9);
    assert_int_equal(e.gap_from, SPOOL_PART);
    assert_true(e.gap_to >= 18 * SPOOL_PART && e.gap_to <= 19 * SPOOL_PART);
    assert_int_equal(check(s, e.length - 500, 500), e.length - 500);
    assert_int_equal(put(s, 5 * SPOOL_PART, 10), e.length); /* in the gap: go on from the end */
    assert_int_equal(put(s, SPOOL_PART, 10), e.length);
}

static void on_a_disk_that_is_nearly_full_nothing_is_appended(void **state)
{
    struct scene *s = *state;
    struct spool_disk_cfg cfg = {.jobs = s->jobs, .min_free = INT64_MAX / 2};
    struct spool_disk *disk;
    struct spool full;
    bool is_new = false;

    assert_int_equal(spool_disk_open(&cfg, &disk, &full, NULL), 0);
    assert_int_equal(spool_append(&full, 1, LOG, 0, "one\n", 4, &is_new), -ENOSPC);
    assert_false(is_new);
    spool_disk_close(disk);
    assert_int_equal(spool_append(&s->spool, 1, LOG, 0, "one\n", 4, &is_new), 4); /* there is room again */
}

static void logs_are_removed_from_a_disk_that_is_nearly_full(void **state)
{
    struct scene *s = *state;
    struct spool_disk_cfg cfg = {.jobs = s->jobs, .min_free = INT64_MAX / 2};
    struct spool_disk *disk;
    struct spool full;
    bool is_new = false;

    assert_int_equal(spool_append(&s->spool, 1, LOG, 0, "one\n", 4, &is_new), 4);
    assert_int_equal(spool_disk_open(&cfg, &disk, &full, NULL), 0);
    assert_int_equal(spool_remove_logs(&full, 1), 0);
    assert_true(spool_logs_removed(&full, 1));
    assert_int_equal(spool_logs_bytes(&full, 1), 0);
    spool_disk_close(disk);
}

static void all_parts_of_all_logs_of_a_job_are_removed_and_of_no_other(void **state)
{
    struct scene *s = *state;
    bool is_new = false;

    assert_int_equal(spool_make_job(&s->spool, 2, NULL), 0);
    fill(s, SPOOL_PART + 10);
    assert_int_equal(spool_append(&s->spool, 1, "rank-00007.g3.log", 0, "one\n", 4, &is_new), 4);
    assert_int_equal(spool_append(&s->spool, 1, "metrics.g1.jsonl", 0, "{}\n", 3, &is_new), 3);
    assert_int_equal(spool_append(&s->spool, 2, LOG, 0, "one\n", 4, &is_new), 4);
    assert_int_equal(spool_logs_bytes(&s->spool, 1), SPOOL_PART + 14);
    assert_int_equal(spool_remove_logs(&s->spool, 1), 0);
    assert_int_equal(spool_remove_logs(&s->spool, 1), 0); /* and again */
    assert_int_equal(spool_logs_bytes(&s->spool, 1), 0);
    assert_true(spool_logs_removed(&s->spool, 1));
    assert_int_equal(spool_logs_bytes(&s->spool, 2), 4);
    assert_false(spool_logs_removed(&s->spool, 2));
}

static void what_an_older_server_kept_is_found(void **state)
{
    struct scene *s = *state;
    struct spool_disk_cfg cfg = {.jobs = s->jobs};
    char before[64], path[96], here[64];
    struct spool_extent e;
    struct spool_disk *disk;
    struct spool spool;

    (void)snprintf(here, sizeof(here), "%s/.spool", s->jobs);
    (void)snprintf(before, sizeof(before), "%s/spool", s->folder);
    (void)snprintf(path, sizeof(path), "%s/j1/" LOG, here);
    assert_int_equal(io_write_file(path, "one\n", 4, 0600, NULL), 0);
    assert_int_equal(rename(here, before), 0);
    cfg.before = before;
    assert_int_equal(spool_disk_open(&cfg, &disk, &spool, NULL), 0);
    assert_int_equal(spool_measure(&spool, 1, LOG, &e), 0);
    assert_int_equal(e.length, 4);
    spool_disk_close(disk);
}

static void a_file_that_is_none_is_not_written_to(void **state)
{
    struct scene *s = *state;
    char path[96];
    bool is_new = false;

    (void)snprintf(path, sizeof(path), "%s/.spool/j1/" LOG, s->jobs);
    assert_int_equal(symlink("/etc/motd", path), 0);
    assert_true(spool_append(&s->spool, 1, LOG, 0, "one\n", 4, &is_new) < 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(spool_append(&s->spool, 1, LOG, 0, "one\n", 4, &is_new) < 0); /* and nobody hangs */
    assert_false(is_new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(all_parts_of_all_logs_of_a_job_are_removed_and_of_no_other),
        BOTH(of_a_log_of_100_mib_the_first_16_and_the_newest_48_are_kept),
        MEMORY(a_log_may_have_another_limit),
        MEMORY(pieces_that_come_again_are_told_where_to_go_on),
        BOTH(a_job_keeps_no_more_than_its_quota_and_the_oldest_attempts_go_first),
        MEMORY(a_log_above_the_quota_keeps_its_beginning_and_its_end),
        cmocka_unit_test_setup_teardown(on_a_disk_that_is_nearly_full_nothing_is_appended, on_disk, leave),
        cmocka_unit_test_setup_teardown(logs_are_removed_from_a_disk_that_is_nearly_full, on_disk, leave),
        cmocka_unit_test_setup_teardown(what_an_older_server_kept_is_found, on_disk, leave),
        cmocka_unit_test_setup_teardown(a_file_that_is_none_is_not_written_to, on_disk, leave),
        BOTH(a_generation_goes_with_all_its_parts),
        BOTH(a_file_of_before_parts_stays_whole_and_grows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
