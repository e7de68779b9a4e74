/* Checkpoints of what lies on a GPU: nobody reads it but the GPU's own queue, and no gate opens before that has run. */
#include "tests/unit/checkpoint/layouts.h"

#include "tests/unit/checkpoint/fake_gpu.h"

#define TENSORS 7
#define WAIT_US (INT64_C(20) * 1000000)

/* More than loading reads at once, odd ends, and one buffer of the host. */
static const uint64_t floats[TENSORS] = {900000, 1, 300001, 3500000, 1500, 1048576, 777};

struct job {
    char dir[64];
    char *copy, *host; /* of all in turn; the last tensor */
    size_t at[TENSORS];
    struct mck_buffer buf[TENSORS];
    struct mck_writer *w;
};

static char names[TENSORS][16];

static char *real(struct job *j, int i)
{
    return gpu_real(j->buf[i].data);
}

static int set_up(void **state)
{
    struct job *j = calloc(1, sizeof(*j));
    size_t bytes = 0;

    assert_non_null(j);
    (void)snprintf(j->dir, sizeof(j->dir), "%s", temp_dir());
    for (int i = 0; i < TENSORS; i++) {
        j->at[i] = bytes;
        bytes += floats[i] * 4;
    }
    assert_int_equal(gpu_memory_new(bytes), 0);
    j->copy = malloc(bytes);
    j->host = malloc(floats[TENSORS - 1] * 4);
    assert_true(j->copy && j->host);
    for (size_t k = 0; k < bytes; k++)
        j->copy[k] = (char)(k * 31 + (k >> 11));
    for (int i = 0; i < TENSORS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "t%d", i);
        j->buf[i] = (struct mck_buffer){.name = names[i],
                                        .ndim = 1,
                                        .shape = {floats[i]},
                                        .len = {floats[i]},
                                        .data = i == TENSORS - 1 ? j->host : gpu.seen + j->at[i],
                                        .bucket = i};
    }
    *state = j;
    return 0;
}

static int tear_down(void **state)
{
    struct job *j = *state;

    mck_writer_free(j->w);
    assert_int_equal(gpu.pinned + gpu.marks + gpu.queues, 0);
    assert_int_equal(io_remove_tree(j->dir, NULL), 0);
    gpu_memory_free();
    free(j->copy);
    free(j->host);
    free(j);
    gpu.late_ms = 0;
    atomic_store(&gpu.hung, false);
    return 0;
}

static void open_writer(struct job *j, const char *codec, enum mck_mode mode)
{
    struct mck_cfg cfg = {.dir = j->dir,
                          .size = 1,
                          .generation = 1,
                          .codec = codec,
                          .keep = 2,
                          .mode = mode,
                          .pool_bytes = 1,
                          .device = &fake_gpu};
    struct merr err = {""};

    mck_writer_free(j->w);
    j->w = NULL;
    if (mck_writer_new(&cfg, j->buf, TENSORS, &j->w, &err))
        fail_msg("%s", err.text);
}

static void begin(struct job *j, uint64_t step, bool sync)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);

    for (int i = 0; i < TENSORS; i++)
        memcpy(real(j, i), j->copy + j->at[i], floats[i] * 4);
    assert_int_equal((sync ? mck_begin_sync : mck_begin)(j->w, step, kv, NULL), 0);
    json_decref(kv);
}

/* The update of each tensor, as soon as its gate lets it. */
static void update(struct job *j)
{
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(mck_gate(j->w, i, NULL), 0);
        memset(real(j, i), 0x11, floats[i] * 4);
    }
}

static struct mck_done end(struct job *j)
{
    struct mck_done d;

    assert_int_equal(mck_drain(j->w, clock_mono_us() + WAIT_US, NULL), 0);
    assert_int_equal(mck_next_done(j->w, &d), 1);
    return d;
}

static void expect_saved(struct job *j, uint64_t step)
{
    struct merr err = {""};
    struct mck *c;
    int r = mck_open(j->dir, step, &c, &err);

    for (int i = 0; i < TENSORS; i++)
        memset(real(j, i), 0x55, floats[i] * 4);
    if (r == 0)
        r = mck_load_on(c, j->buf, TENSORS, &fake_gpu, 0, &err);
    if (r)
        fail_msg("%s", err.text);
    mck_free(c);
    for (int i = 0; i < TENSORS; i++)
        assert_memory_equal(real(j, i), j->copy + j->at[i], floats[i] * 4);
}

static void tensors_may_change_once_their_gate_has_opened(void **state)
{
    static const struct {
        const char *codec;
        enum mck_mode mode;
        int late_ms;
    } way[] = {{"none", MCK_STAGED, 2}, {"none", MCK_ZEROCOPY, 1}, {"plane", MCK_AUTO, 1}, {"none", MCK_AUTO, 0}};
    struct job *j = *state;

    for (uint64_t i = 0; i < COUNT(way); i++) {
        struct mck_done d;

        gpu.late_ms = way[i].late_ms;
        open_writer(j, way[i].codec, way[i].mode);
        begin(j, i + 1, false);
        update(j);
        d = end(j);
        assert_int_equal(d.code, 0);
        assert_int_equal(d.mode, MCK_STAGED); /* a disk cannot read there */
        expect_saved(j, i + 1);
    }
}

static void two_at_once_and_one_that_is_waited_for_hold_what_was_there(void **state)
{
    struct job *j = *state;

    gpu.late_ms = 1;
    open_writer(j, "none", MCK_AUTO);
    begin(j, 1, false);
    update(j);
    begin(j, 2, false);
    update(j);
    assert_int_equal(end(j).code, 0);
    begin(j, 3, true);
    update(j);
    assert_int_equal(end(j).code, 0);
    expect_saved(j, 2);
    expect_saved(j, 3);
}

static void a_copy_that_fails_ends_the_attempt_with_words_and_opens_the_gate(void **state)
{
    struct job *j = *state;

    gpu.late_ms = 1;
    open_writer(j, "none", MCK_AUTO);
    for (int n = 1; n <= 7; n += 2) {
        struct mck_done d;

        atomic_store(&gpu.fail, n);
        begin(j, 1, false);
        update(j);
        d = end(j);
        assert_int_equal(d.code, -EIO);
        assert_non_null(strstr(d.err.text, "a copy failed on the GPU"));
    }
    begin(j, 1, false);
    update(j);
    assert_int_equal(end(j).code, 0);
    atomic_store(&gpu.fail, 2);
    {
        struct merr err = {""};
        struct mck *c;

        assert_int_equal(mck_open(j->dir, 1, &c, &err), 0);
        assert_int_equal(mck_load_on(c, j->buf, TENSORS, &fake_gpu, 0, &err), -EIO);
        mck_free(c);
    }
    expect_saved(j, 1);
}

/* What hangs may write yet, when it has been given up: nothing may begin after it. */
static void a_gpu_that_hangs_ends_this_attempt_and_all_to_come(void **state)
{
    struct job *j = *state;
    int copies = 0;

    open_writer(j, "none", MCK_AUTO);
    atomic_store(&gpu.hung, true);
    for (uint64_t step = 1; step <= 2; step++) {
        struct mck_done d;

        begin(j, step, false);
        update(j);
        d = end(j);
        assert_int_equal(d.code, -ETIMEDOUT);
        assert_non_null(strstr(d.err.text, "a copy between the GPU and a checkpoint: the fake GPU did not end within"));
        assert_true(step == 1 || atomic_load(&gpu.copies) == copies);
        copies = atomic_load(&gpu.copies);
    }
}

static void a_writer_may_end_in_the_middle(void **state)
{
    struct job *j = *state;

    gpu.late_ms = 3;
    open_writer(j, "none", MCK_AUTO);
    begin(j, 1, false);
    assert_int_equal(mck_gate(j->w, 0, NULL), 0);
    mck_writer_free(j->w);
    j->w = NULL;
    assert_int_equal(gpu.pinned + gpu.marks + gpu.queues, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_may_change_once_their_gate_has_opened, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_at_once_and_one_that_is_waited_for_hold_what_was_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copy_that_fails_ends_the_attempt_with_words_and_opens_the_gate, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_gpu_that_hangs_ends_this_attempt_and_all_to_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_writer_may_end_in_the_middle, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
