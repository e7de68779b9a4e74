/* Buffers that are written from where they lie: the same bytes on disk, and none changes under the writer's hands. */
#include "tests/unit/checkpoint/layouts.h"

#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "checkpoint/write/writer_priv.h"

#define PAGE 4096u
#define TENSORS 6
#define WAIT_US (INT64_C(20) * 1000000)

static const uint64_t floats[TENSORS] = {900000, 1, 300001, 2000000, 1500, 1048576};

struct arena {
    char dir[64];
    char *memory, *copy;
    size_t bytes;
    struct mck_buffer buf[TENSORS];
    struct plan plan;
};

static char names[TENSORS][16];

/* Tensors at pages of one arena, zeros between them. */
static int set_up(void **state)
{
    struct arena *a = calloc(1, sizeof(*a));
    struct merr err = {""};

    assert_non_null(a);
    (void)snprintf(a->dir, sizeof(a->dir), "%s", temp_dir());
    for (int i = 0; i < TENSORS; i++)
        a->bytes += (floats[i] * 4 + PAGE - 1) / PAGE * PAGE;
    a->memory = aligned_alloc(2u << 20, (a->bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20));
    a->copy = malloc(a->bytes);
    assert_non_null(a->memory);
    assert_non_null(a->copy);
    memset(a->memory, 0, a->bytes);
    for (size_t i = 0, at = 0; i < TENSORS; at += (floats[i] * 4 + PAGE - 1) / PAGE * PAGE, i++) {
        (void)snprintf(names[i], sizeof(names[i]), "t%zu", i);
        a->buf[i] = (struct mck_buffer){.name = names[i],
                                        .ndim = 1,
                                        .shape = {floats[i]},
                                        .len = {floats[i]},
                                        .data = a->memory + at,
                                        .bucket = (int)i};
        for (size_t k = 0; k < floats[i] * 4; k++)
            a->memory[at + k] = (char)(k * 31 + i + (k >> 11));
    }
    memcpy(a->copy, a->memory, a->bytes);
    assert_int_equal(plan_make(a->buf, TENSORS, 0, &a->plan, &err), 0);
    *state = a;
    return 0;
}

static int tear_down(void **state)
{
    struct arena *a = *state;

    assert_int_equal(io_remove_tree(a->dir, NULL), 0);
    plan_clear(&a->plan);
    free(a->memory);
    free(a->copy);
    free(a);
    return 0;
}

static struct mck_writer *writer(const struct arena *a, enum mck_mode mode)
{
    struct mck_cfg cfg = {.dir = a->dir, .size = 1, .generation = 1, .codec = "none", .keep = 2, .mode = mode};
    struct merr err = {""};
    struct mck_writer *w;

    if (mck_writer_new(&cfg, a->buf, TENSORS, &w, &err))
        fail_msg("%s", err.text);
    return w;
}

static void begin(struct mck_writer *w, uint64_t step)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);

    assert_int_equal(mck_begin(w, step, kv, NULL), 0);
    json_decref(kv);
}

static struct mck_done end(struct mck_writer *w)
{
    struct mck_done d;

    assert_int_equal(mck_drain(w, clock_mono_us() + WAIT_US, NULL), 0);
    assert_int_equal(mck_next_done(w, &d), 1);
    if (d.code)
        fail_msg("%s", d.err.text);
    return d;
}

/* What was saved as step is what the arena held then. */
static void expect_saved(struct arena *a, uint64_t step)
{
    struct merr err = {""};
    struct mck *c;

    memset(a->memory, 0x55, a->bytes);
    if (mck_open(a->dir, step, &c, &err) || mck_verify(c, NULL, &err) || mck_load(c, a->buf, TENSORS, &err))
        fail_msg("%s", err.text);
    mck_free(c);
    for (int i = 0; i < TENSORS; i++)
        assert_memory_equal(a->buf[i].data, a->copy + ((char *)a->buf[i].data - a->memory), floats[i] * 4);
}

static void what_lies_as_in_the_stream_needs_no_copy(void **state)
{
    struct arena *a = *state;
    struct mck_buffer apart[2] = {a->buf[0], a->buf[3]};
    struct plan p;

    assert_int_equal(a->plan.in_place_bytes, a->plan.stream_len / MCK_SLOT * MCK_SLOT);
    assert_true(a->plan.in_place_bytes > MCK_SLOT);
    apart[1].data = (char *)apart[1].data + 64; /* not at a page */
    assert_int_equal(plan_make(apart, 2, 0, &p, NULL), 0);
    assert_int_equal(p.in_place_bytes, 0);
    plan_clear(&p);
}

static void buffers_may_change_once_their_gate_has_opened(void **state)
{
    static const char *const ways[] = {"uring", "threads", "buffered"};
    struct arena *a = *state;

    for (uint64_t i = 0; i < 6; i++) {
        struct mck_writer *w;
        struct mck_done d;

        assert_int_equal(setenv("MUSTER_IO", ways[i / 2], 1), 0);
        w = writer(a, i % 2 ? MCK_ZEROCOPY : MCK_STAGED);
        memcpy(a->memory, a->copy, a->bytes);
        begin(w, i + 1);
        for (int b = 0; b < TENSORS; b++) {
            assert_int_equal(mck_gate(w, b, NULL), 0);
            memset(a->buf[b].data, (int)i, floats[b] * 4);
        }
        d = end(w);
        assert_int_equal(d.mode, i % 2 ? MCK_ZEROCOPY : MCK_STAGED);
        assert_true(d.stall_us >= 0 && d.stall_us <= mck_stall_us(w));
        expect_saved(a, i + 1);
        mck_writer_free(w);
    }
    assert_int_equal(unsetenv("MUSTER_IO"), 0);
}

static void gaps_that_hold_something_are_written_as_zeros(void **state)
{
    struct arena *a = *state;
    struct mck_writer *w = writer(a, MCK_ZEROCOPY);

    for (int i = 0; i < TENSORS; i++)
        for (size_t at = floats[i] * 4; at % PAGE; at++)
            ((char *)a->buf[i].data)[at] = 0x77;
    begin(w, 1);
    assert_int_equal(mck_gate(w, -1, NULL), 0);
    (void)end(w);
    expect_saved(a, 1);
    mck_writer_free(w);
}

static void the_mode_follows_from_what_was_seen(void **state)
{
    struct arena *a = *state;
    struct mck_writer *w = writer(a, MCK_AUTO);
    uint64_t step = 1;

    begin(w, step++);
    for (int64_t from = clock_mono_us(), took = 0; !took || clock_mono_us() < from + 6 * took;) {
        if (!took) {
            assert_int_equal(end(w).mode, MCK_STAGED); /* nothing is known yet */
            took = clock_mono_us() - from;
        }
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(mck_gate(w, -1, NULL), 0); /* the disk took a sixth of the time */
    begin(w, step++);
    assert_int_equal(mck_gate(w, -1, NULL), 0); /* this time there was none */
    assert_int_equal(end(w).mode, MCK_ZEROCOPY);
    for (int i = 0;; i++) { /* some six, more where this process is held up between the two */
        begin(w, step++);
        assert_int_equal(mck_gate(w, -1, NULL), 0);
        if (end(w).mode == MCK_STAGED)
            break;
        assert_true(i < 60);
    }
    mck_writer_free(w);
}

static void a_gate_of_a_sync_save_opens_after_its_commit(void **state)
{
    struct arena *a = *state;
    struct mck_writer *w = writer(a, MCK_STAGED);
    json_t *kv = json_pack("{s:i}", "step", 7);
    uint64_t step;

    assert_int_equal(mck_begin_sync(w, 7, kv, NULL), 0);
    assert_int_equal(mck_gate(w, 0, NULL), 0);
    assert_int_equal(mck_latest(a->dir, &step, NULL, NULL), 1);
    assert_int_equal(step, 7);
    assert_int_equal(end(w).mode, MCK_SYNC);
    assert_true(mck_stall_us(w) > 0);
    expect_saved(a, 7);
    json_decref(kv);
    mck_writer_free(w);
}

static void digest(const char *dir, uint64_t step, char ret[33])
{
    struct merr err = {""};
    struct mck *c;

    if (mck_open(dir, step, &c, &err) || mck_digest(c, ret, &err))
        fail_msg("%s", err.text);
    mck_free(c);
}

static void expect_done(struct mck_writer *w)
{
    struct mck_done d;

    assert_int_equal(mck_drain(w, clock_mono_us() + WAIT_US, NULL), 0);
    assert_int_equal(mck_next_done(w, &d), 1);
    if (d.code)
        fail_msg("step %llu: %s", (unsigned long long)d.step, d.err.text);
}

/* The arena as it is after some updates, bucket by bucket. */
static void update(struct arena *a, int bucket, uint64_t step)
{
    char *p = a->buf[bucket].data;

    for (size_t k = 0; k < floats[bucket] * 4; k += 61)
        p[k] = (char)(p[k] * 5 + (char)step);
}

/* One writer trains on while it saves each step, of which it may leave out some; another stands still for each of
 * those that it did not. */
static void updates_behind_their_gates_save_what_standing_still_saves(void **state)
{
    static const enum mck_mode modes[] = {MCK_STAGED, MCK_ZEROCOPY, MCK_AUTO};
    struct arena *a = *state;

    for (size_t m = 0; m < COUNT(modes); m++) {
        struct mck_cfg cfg = {.dir = a->dir,
                              .size = 1,
                              .generation = 1,
                              .codec = m == 2 ? "auto" : "none",
                              .keep = 100,
                              .mode = modes[m],
                              .pool_bytes = 2 * MCK_SLOT};
        struct merr err = {""};
        struct mck_writer *moving, *still;
        char still_dir[96], one[33], other[33];
        int saved = 0;

        (void)snprintf(still_dir, sizeof(still_dir), "%s/still", a->dir);
        assert_int_equal(mck_writer_new(&cfg, a->buf, TENSORS, &moving, &err), 0);
        cfg.dir = still_dir;
        assert_int_equal(mck_writer_new(&cfg, a->buf, TENSORS, &still, &err), 0);
        for (uint64_t step = 10 * m + 1; step < 10 * m + 4; step++) {
            json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);
            int r = mck_begin(moving, step, kv, &err);

            assert_true(r == 0 || r == -EBUSY);
            if (r == 0) {
                assert_int_equal(mck_begin_sync(still, step, kv, NULL), 0);
                expect_done(still);
                saved++;
            }
            json_decref(kv);
            for (int b = 0; b < TENSORS; b++) {
                assert_int_equal(mck_gate(moving, b, NULL), 0);
                update(a, b, step);
            }
        }
        assert_int_equal(mck_drain(moving, clock_mono_us() + WAIT_US, NULL), 0);
        assert_true(saved >= 2);
        for (struct mck_done d; mck_next_done(moving, &d) == 1; saved--) {
            assert_int_equal(d.code, 0);
            digest(a->dir, d.step, one);
            digest(still_dir, d.step, other);
            assert_string_equal(one, other);
        }
        assert_int_equal(saved, 0);
        mck_writer_free(moving);
        mck_writer_free(still);
    }
}

static void padding_that_is_said_to_be_there_keeps_tensors_in_place(void **state)
{
    struct arena *a = *state;
    struct mck_buffer two[2] = {a->buf[0], a->buf[3]};
    uint64_t first = floats[0] * 4;
    struct plan p;

    two[1].data = a->memory + (first / PAGE + 3) * PAGE; /* two whole pages of zeros between them */
    assert_int_equal(plan_make(two, 2, 0, &p, NULL), 0);
    assert_int_equal(p.in_place_bytes, MCK_SLOT); /* only the second one's own */
    plan_clear(&p);
    two[0].pad = (uint32_t)((first / PAGE + 3) * PAGE - first);
    assert_int_equal(plan_make(two, 2, 0, &p, NULL), 0);
    assert_int_equal(p.in_place_bytes, 2 * MCK_SLOT);
    assert_int_equal(p.stream_len, (first / PAGE + 3) * PAGE + floats[3] * 4);
    plan_clear(&p);
    two[0].pad = MCK_PAD_MAX + 1;
    assert_int_equal(plan_make(two, 2, 0, &p, NULL), -EINVAL);
}

static void a_failed_attempt_opens_its_gate(void **state)
{
    struct arena *a = *state;
    struct mck_writer *w = writer(a, MCK_ZEROCOPY);
    struct mck_done d;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/step-00000001", a->dir);
    assert_int_equal(io_publish_file(path, "", 0, 0644, NULL), 0); /* a file where the folder must be */
    begin(w, 1);
    assert_int_equal(mck_gate(w, -1, NULL), 0);
    memset(a->memory, 0, a->bytes);
    assert_int_equal(mck_drain(w, clock_mono_us() + WAIT_US, NULL), 0);
    assert_int_equal(mck_next_done(w, &d), 1);
    assert_true(d.code < 0);
    mck_writer_free(w);
}

static void the_pool_is_touched_before_it_is_needed(void **state)
{
    struct mck_writer *w;
    unsigned char *there;
    size_t pages;

    assert_int_equal(setenv("MUSTER_IO", "threads", 1), 0); /* nothing registers it, which would touch it too */
    w = writer(*state, MCK_STAGED);
    pages = w->pool_bytes / PAGE;
    there = malloc(pages);
    assert_non_null(there);
    assert_int_equal(mincore(w->pool, w->pool_bytes, there), 0);
    for (size_t i = 0; i < pages; i++)
        assert_true(there[i] & 1);
    free(there);
    mck_writer_free(w);
    assert_int_equal(unsetenv("MUSTER_IO"), 0);
}

/* Threads of this process that yield to this one. */
static int yielding(void)
{
    int own = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += e->d_name[0] != '.' && getpriority(PRIO_PROCESS, (id_t)strtoul(e->d_name, NULL, 10)) > own;
    (void)closedir(d);
    return n;
}

static void copying_and_encoding_yield_to_the_trainer(void **state)
{
    int before = yielding();
    struct mck_writer *w = writer(*state, MCK_STAGED);

    begin(w, 1);
    (void)end(w); /* both threads have begun */
    assert_int_equal(yielding(), before + 2);
    mck_writer_free(w);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_lies_as_in_the_stream_needs_no_copy),
        T(buffers_may_change_once_their_gate_has_opened),
        T(gaps_that_hold_something_are_written_as_zeros),
        T(the_mode_follows_from_what_was_seen),
        T(a_gate_of_a_sync_save_opens_after_its_commit),
        T(updates_behind_their_gates_save_what_standing_still_saves),
        T(padding_that_is_said_to_be_there_keeps_tensors_in_place),
        T(a_failed_attempt_opens_its_gate),
        T(the_pool_is_touched_before_it_is_needed),
        T(copying_and_encoding_yield_to_the_trainer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
