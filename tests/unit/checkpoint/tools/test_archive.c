/* Checkpoints written anew in the background: smaller, the same to readers, and never in the way of one. */
#include "tests/unit/checkpoint/layouts.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sys/file.h>

#include "checkpoint/write/collect.h"

#define FLOATS (700u << 10)
#define WAIT_US (INT64_C(60) * 1000000)

struct box_of {
    char dir[64];
    float *memory;
    struct mck_buffer buf[2];
};

/* Floats whose exponents take some values, and small integers. */
static int set_up(void **state)
{
    struct box_of *b = calloc(1, sizeof(*b));

    assert_non_null(b);
    (void)snprintf(b->dir, sizeof(b->dir), "%s", temp_dir());
    b->memory = malloc(2 * FLOATS * sizeof(float));
    assert_non_null(b->memory);
    rng = 99;
    for (size_t i = 0; i < FLOATS; i++) {
        b->memory[i] = (float)((double)rnd(1u << 20) / (1 << 20) - 0.5) * 0.1f;
        memcpy(b->memory + FLOATS + i, &(int){(int)rnd(50000)}, sizeof(int));
    }
    b->buf[0] = (struct mck_buffer){.name = "w", .ndim = 1, .shape = {FLOATS}, .len = {FLOATS}, .data = b->memory};
    b->buf[1] = (struct mck_buffer){.name = "ids",
                                    .role = MCK_BUFFER,
                                    .dtype = MCK_I32,
                                    .ndim = 1,
                                    .shape = {FLOATS},
                                    .len = {FLOATS},
                                    .data = b->memory + FLOATS};
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct box_of *b = *state;

    assert_int_equal(io_remove_tree(b->dir, NULL), 0);
    free(b->memory);
    free(b);
    return 0;
}

static struct mck_writer *writer(const struct box_of *b, const char *archive)
{
    struct mck_cfg cfg = {.dir = b->dir, .size = 1, .generation = 1, .codec = "none", .keep = 20};
    struct merr err = {""};
    struct mck_writer *w;

    if (mck_writer_new(&cfg, b->buf, 2, &w, &err) || (archive && mck_archive_behind(w, archive, &err)))
        fail_msg("%s", err.text);
    return w;
}

static void save(struct box_of *b, struct mck_writer *w, uint64_t step)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);
    struct mck_done d;

    b->memory[0] = (float)step;
    assert_int_equal(mck_begin(w, step, kv, NULL), 0);
    assert_int_equal(mck_drain(w, clock_mono_us() + WAIT_US, NULL), 0);
    assert_int_equal(mck_next_done(w, &d), 1);
    if (d.code)
        fail_msg("%s", d.err.text);
    json_decref(kv);
}

static struct mck *opened(const struct box_of *b, uint64_t step)
{
    struct merr err = {""};
    struct mck *c;

    if (mck_open(b->dir, step, &c, &err))
        fail_msg("%s", err.text);
    return c;
}

struct look {
    bool archived;
    json_int_t stored, bytes;
};

static struct look look(const struct box_of *b, uint64_t step)
{
    struct mck *c = opened(b, step);
    json_t *doc = mck_inspect(c), *file = json_array_get(json_object_get(doc, "files"), 0);
    struct look l = {json_is_true(json_object_get(file, "archived")),
                     json_integer_value(json_object_get(file, "stored_bytes")),
                     json_integer_value(json_object_get(file, "bytes"))};

    json_decref(doc);
    mck_free(c);
    return l;
}

/* By the length of its file: opening it would keep it from being archived. */
static void wait_until_archived(const struct box_of *b, uint64_t step)
{
    int64_t deadline = clock_mono_us() + WAIT_US;
    struct stat before, now;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/step-%08llu/rank-00000.mck", b->dir, (unsigned long long)step + 1);
    assert_int_equal(stat(path, &before), 0); /* of the same state, and never archived: it is the newest */
    (void)snprintf(path, sizeof(path), "%s/step-%08llu/rank-00000.mck", b->dir, (unsigned long long)step);
    while (stat(path, &now) == 0 && now.st_size == before.st_size) {
        assert_true(clock_mono_us() < deadline);
        (void)poll(NULL, 0, 10);
    }
}

static void expect_good(struct box_of *b, uint64_t step)
{
    float *copy = malloc(2 * FLOATS * sizeof(float));
    struct mck *c = opened(b, step);
    struct merr err = {""};

    assert_non_null(copy);
    memcpy(copy, b->memory, 2 * FLOATS * sizeof(float));
    copy[0] = (float)step;
    if (mck_verify(c, NULL, &err) || mck_load(c, b->buf, 2, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(copy, b->memory, 2 * FLOATS * sizeof(float));
    mck_free(c);
    free(copy);
}

static bool there_is(const struct box_of *b, const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    return access(path, F_OK) == 0;
}

static void digest(const struct box_of *b, uint64_t step, char ret[33])
{
    struct mck *c = opened(b, step);

    assert_int_equal(mck_digest(c, ret, NULL), 0);
    mck_free(c);
}

static void all_but_the_newest_shrink_and_mean_the_same(void **state)
{
    static const char *const codecs[] = {"plane", "zstd", "lz4"};
    struct box_of *b = *state;
    struct mck_writer *w = writer(b, NULL);
    char before[33], after[33];
    int steps;

    for (uint64_t i = 0; i < COUNT(codecs); i++) {
        save(b, w, i + 1);
        digest(b, i + 1, before);
        save(b, w, i + 2);
        assert_int_equal(mck_archive(b->dir, codecs[i], NULL, &steps, NULL), 0);
        assert_int_equal(steps, 1); /* those before were archived already */
        digest(b, i + 1, after);
        assert_string_equal(before, after);
        assert_true(look(b, i + 1).archived);
        assert_true(look(b, i + 1).stored < look(b, i + 1).bytes * 97 / 100);
        assert_false(look(b, i + 2).archived);
    }
    mck_writer_free(w);
    for (uint64_t s = 1; s <= COUNT(codecs); s++)
        expect_good(b, s);
    assert_int_equal(mck_archive(b->dir, "none", NULL, &steps, NULL), -EINVAL);
}

static void one_that_is_read_stays_as_it_is(void **state)
{
    struct box_of *b = *state;
    struct mck_writer *w = writer(b, NULL);
    struct merr err = {""};
    struct mck *reader;
    int steps;

    save(b, w, 1);
    save(b, w, 2);
    reader = opened(b, 1);
    assert_int_equal(mck_archive(b->dir, "plane", NULL, &steps, &err), -EBUSY);
    assert_non_null(strstr(err.text, "is being read"));
    assert_false(there_is(b, ".archive-00000001"));
    assert_int_equal(mck_verify(reader, NULL, NULL), 0);
    mck_free(reader);
    assert_int_equal(mck_archive(b->dir, "plane", NULL, &steps, &err), 0);
    assert_int_equal(steps, 1);
    mck_writer_free(w);
    expect_good(b, 1);
}

static void a_damaged_one_is_neither_archived_nor_touched(void **state)
{
    struct box_of *b = *state;
    struct mck_writer *w = writer(b, NULL);
    struct merr err = {""};
    char path[128], byte = 0x5a;
    int steps, fd;

    save(b, w, 1);
    save(b, w, 2);
    (void)snprintf(path, sizeof(path), "%s/step-00000001/rank-00000.mck", b->dir);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &byte, 1, 4096 + 12345), 1);
    io_close(&fd);
    assert_int_equal(mck_archive(b->dir, "plane", NULL, &steps, &err), -EBADMSG);
    assert_false(look(b, 1).archived);
    assert_false(there_is(b, ".archive-00000001"));
    mck_writer_free(w);
}

static void the_collector_takes_what_a_dead_archiver_left(void **state)
{
    struct box_of *b = *state;
    char path[128];
    int living;

    (void)snprintf(path, sizeof(path), "%s/.archive-00000001", b->dir);
    assert_int_equal(mkdir(path, 0755), 0);
    living = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(living, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(collect_folder(b->dir, 2, 0, NULL), 0);
    assert_true(there_is(b, ".archive-00000001"));
    io_close(&living);
    assert_int_equal(collect_folder(b->dir, 2, 0, NULL), 0);
    assert_false(there_is(b, ".archive-00000001"));
}

static void a_thread_archives_beside_the_writer(void **state)
{
    struct box_of *b = *state;
    struct mck_writer *w = writer(b, "plane");
    struct look l;

    save(b, w, 1);
    save(b, w, 2);
    wait_until_archived(b, 1);
    l = look(b, 1);
    assert_true(l.archived && l.stored < l.bytes * 97 / 100);
    assert_false(look(b, 2).archived);
    assert_int_equal(mck_next_archive_failure(w, &(struct merr){""}), 0);
    mck_writer_free(w);
    for (uint64_t s = 1; s <= 2; s++)
        expect_good(b, s);
}

/* --- moments ------------------------------------------------------------------------------------- */

#define OTHERS 270001u /* elements: two chunks, the second not full */

struct trained { /* weights and their moments */
    float *w, *m, *v;
    struct mck_buffer buf[3];
};

static void make_state(struct trained *s, int role_of_v)
{
    rng = 7;
    s->w = malloc(3 * OTHERS * sizeof(float));
    assert_non_null(s->w);
    s->m = s->w + OTHERS;
    s->v = s->m + OTHERS;
    for (size_t i = 0; i < OTHERS; i++) {
        float size = 1e-4f * exp2f((float)rnd(1000) / 250), near = (float)rnd(2001) / 1000 - 1;

        s->w[i] = near;
        s->v[i] = i % 50 ? size * size : 0;
        s->m[i] = i % 50 ? 0.3f * near * size : 0;
    }
    s->v[1] = -1; /* no encoding has that: it stays */
    s->m[1] = NAN;
    for (int i = 0; i < 3; i++)
        s->buf[i] = (struct mck_buffer){.name = "w",
                                        .role = i == 2   ? (enum mck_role)role_of_v
                                                : i == 1 ? MCK_MOMENT1
                                                         : MCK_MASTER,
                                        .ndim = 1,
                                        .shape = {OTHERS},
                                        .len = {OTHERS},
                                        .data = s->w + i * OTHERS};
}

/* Steps 1 and 2 of the state, 1 archived with optq; what is then read of 1. */
static void archive_state(struct box_of *b, const struct trained *s, const struct mck_bounds *bounds,
                          struct trained *ret)
{
    struct mck_cfg cfg = {.dir = b->dir, .size = 1, .generation = 1, .codec = "none", .keep = 20};
    struct mck_writer *w;
    struct merr err = {""};
    struct mck *c;
    int steps;

    assert_int_equal(mck_writer_new(&cfg, s->buf, 3, &w, &err), 0);
    save(b, w, 1);
    save(b, w, 2);
    mck_writer_free(w);
    if (mck_archive(b->dir, "optq", bounds, &steps, &err))
        fail_msg("%s", err.text);
    assert_int_equal(steps, 1);
    assert_int_equal(mck_archive(b->dir, "optq", bounds, &steps, &err), 0);
    assert_int_equal(steps, 0); /* what was coded is not coded again */
    make_state(ret, (int)s->buf[2].role);
    memset(ret->w, 0x5a, 3 * OTHERS * sizeof(float));
    c = opened(b, 1);
    if (mck_load(c, ret->buf, 3, &err))
        fail_msg("%s", err.text);
    mck_free(c);
}

static void moments_are_archived_within_bounds_and_weights_as_they_are(void **state)
{
    static const struct mck_bounds bounds[] = {{0, 0}, {0.05f, 0x1p-5f}};
    static const double rho[] = {0.01, 0.05}, eb[] = {0x1p-7, 0x1p-5};
    struct box_of *b = *state;
    json_int_t stored[2];

    for (size_t k = 0; k < COUNT(bounds); k++) {
        struct trained s, got;

        make_state(&s, MCK_MOMENT2);
        archive_state(b, &s, k ? &bounds[k] : NULL, &got);
        assert_memory_equal(s.w, got.w, OTHERS * sizeof(float));
        assert_memory_equal(&s.m[1], &got.m[1], sizeof(float));
        assert_true(got.v[1] == -1);
        for (size_t i = 2; i < OTHERS; i++) {
            assert_true(fabs((double)got.v[i] - (double)s.v[i]) <= rho[k] * (double)s.v[i]);
            if (s.v[i] == 0)
                assert_true(got.m[i] == 0);
            else
                assert_true(fabs((double)got.m[i] / sqrt((double)got.v[i]) - (double)s.m[i] / sqrt((double)s.v[i])) <=
                            eb[k] * (1 + 0x1p-20));
        }
        stored[k] = look(b, 1).stored;
        assert_true(look(b, 1).archived && stored[k] < look(b, 1).bytes * 6 / 10);
        free(s.w);
        free(got.w);
        assert_int_equal(io_remove_tree(b->dir, NULL), 0);
    }
    assert_true(stored[1] < stored[0]);
}

static void first_moments_without_second_ones_stay_as_they_are(void **state)
{
    struct box_of *b = *state;
    struct trained s, got;

    make_state(&s, MCK_OPTIMIZER);
    archive_state(b, &s, NULL, &got);
    assert_memory_equal(s.w, got.w, 3 * OTHERS * sizeof(float));
    free(s.w);
    free(got.w);
}

static void bounds_out_of_range_are_refused(void **state)
{
    static const struct mck_bounds wrong[] = {{0.6f, 0}, {1e-4f, 0}, {NAN, 0}, {-1, 0}, {0, 2}, {0, 1e-7f}, {0, NAN}};
    struct box_of *b = *state;
    struct merr err = {""};
    int steps;

    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(mck_archive(b->dir, "optq", &wrong[i], &steps, &err), -EINVAL);
    assert_non_null(strstr(err.text, "learning rate"));
}

static void damaged_moments_are_named_and_not_made_up(void **state)
{
    struct box_of *b = *state;
    char path[128], byte = 0x5a;
    struct trained s, got;
    struct merr err = {""};
    struct mck *c;
    json_t *report = NULL;
    int fd;

    make_state(&s, MCK_MOMENT2);
    archive_state(b, &s, NULL, &got);
    (void)snprintf(path, sizeof(path), "%s/step-00000001/rank-00000.mck", b->dir);
    c = opened(b, 1);
    report = mck_inspect(c);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    for (size_t i = 2; i < 4; i++) { /* the stream: two chunks of weights, two of first, two of second moments */
        json_t *chunks = json_object_get(json_array_get(json_object_get(report, "files"), 0), "chunks");
        json_int_t at = json_integer_value(json_object_get(json_array_get(chunks, i), "offset"));

        assert_string_equal(json_string_value(json_object_get(json_array_get(chunks, i), "codec")), "optq-m");
        assert_string_equal(json_string_value(json_object_get(json_array_get(chunks, i + 2), "codec")), "optq-v");
        assert_int_equal(json_integer_value(json_object_get(json_array_get(chunks, i + 2), "offset")), at);
        if (i == 2)
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)at + 100), 1);
    }
    io_close(&fd);
    json_decref(report);
    assert_int_equal(mck_verify(c, &report, &err), -EBADMSG);
    assert_int_equal(json_array_size(json_object_get(report, "faults")), 2);
    json_decref(report);
    (void)snprintf(path, sizeof(path), "%s/step-00000001", b->dir);
    assert_int_equal(mck_heal(c, (const char *[]){path}, 1, &report, &err), -EBADMSG);
    mck_free(c);
    assert_non_null(strstr(err.text, "left damaged"));
    json_decref(report);
    free(s.w);
    free(got.w);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(all_but_the_newest_shrink_and_mean_the_same),
        T(one_that_is_read_stays_as_it_is),
        T(a_damaged_one_is_neither_archived_nor_touched),
        T(the_collector_takes_what_a_dead_archiver_left),
        T(a_thread_archives_beside_the_writer),
        T(moments_are_archived_within_bounds_and_weights_as_they_are),
        T(first_moments_without_second_ones_stay_as_they_are),
        T(bounds_out_of_range_are_refused),
        T(damaged_moments_are_named_and_not_made_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
