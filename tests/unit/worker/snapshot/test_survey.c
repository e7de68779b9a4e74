/* What memories hold between them: which snapshot can be had, whose parts are lost, and what is not worth a look. */
#include "tests/unit/worker/snapshot_nodes.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "checkpoint/format/folder.h"
#include "worker/snapshot/stream.h"
#include "worker/snapshot/survey.h"

#define ALL 7u /* nodes as bits */

/* --- snapshots of three nodes ---------------------------------------------------------------------------- */

static const char *in_step(int node, uint64_t step, const char *name)
{
    char in[64];

    (void)snprintf(in, sizeof(in), "step-%08llu%s%s", (unsigned long long)step, *name ? "/" : "", name);
    return in_node(node, in);
}

static void describe(uint64_t step, struct parity *p)
{
    *p = (struct parity){
        .step = step, .nodes = NODES, .writers = NODES, .parts = NODES, .part = calloc(NODES, sizeof(*p->part))};
    folder_attempt(GENERATION, step, 0, p->id);
    assert_non_null(p->part);
    for (int i = 0; i < NODES; i++) {
        struct stat st;
        char name[32];

        (void)snprintf(name, sizeof(name), "rank-%05d.mck", i);
        assert_int_equal(stat(in_step(i, step, name), &st), 0);
        p->part[i] = (struct parity_part){.rank = (uint32_t)i, .bytes = (uint64_t)st.st_size};
        p->member[i] = (struct parity_member){.first = (uint32_t)i, .parts = 1, .bytes = (uint64_t)st.st_size};
    }
    p->segment = parity_segment(p);
    p->sum = calloc(parity_pieces(p), sizeof(*p->sum));
    assert_non_null(p->sum);
}

/* The parity of a step on every node; its bytes are of no matter here. */
static void protect(uint64_t step)
{
    char *piece = calloc(1, PARITY_PIECE);
    struct parity p;

    assert_non_null(piece);
    describe(step, &p);
    for (int i = 0; i < NODES; i++) {
        int fd;

        p.index = (uint32_t)i;
        assert_int_equal(parity_create(in_step(i, step, PARITY_NAME), &p, &fd, NULL), 0);
        for (uint32_t k = 0; k < parity_pieces(&p); k++)
            assert_int_equal(parity_write(fd, &p, k, piece, NULL), 0);
        assert_int_equal(parity_seal(fd, &p, NULL), 0);
        io_close(&fd);
    }
    parity_clear(&p);
    free(piece);
}

static int set_up(void **state)
{
    if (nodes_set_up(state) != 0)
        return -1;
    for (int i = 0; i < NODES; i++)
        save_rank(i, 6, 8);
    protect(6);
    protect(7); /* 8 was not committed */
    return 0;
}

/* What these nodes have; node numbers count them only. */
static struct survey *look(unsigned nodes)
{
    struct survey *s = survey_new(NODES);
    int n = 0;

    assert_non_null(s);
    for (int i = 0; i < NODES; i++) {
        struct buf b;

        buf_init(&b, SURVEY_BYTES_MAX);
        if (nodes >> i & 1) {
            assert_int_equal(survey_scan(in_node(i, ""), &b, NULL), 0);
            assert_int_equal(survey_add(s, n++, b.data, b.len, NULL), 0);
        }
        buf_clear(&b);
    }
    return s;
}

static void damage(const char *path, off_t from_end)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\x13\x57", 2, lseek(fd, 0, SEEK_END) - from_end), 2);
    io_close(&fd);
}

/* --- tests ----------------------------------------------------------------------------------------------- */

static void parts_leave_no_commit_of_their_own(void **state)
{
    uint64_t step;

    (void)state;
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(access(in_step(i, 8, "MANIFEST"), F_OK), -1);
        assert_int_equal(mck_latest(in_node(i, ""), &step, NULL, NULL), 0);
    }
}

/* Rank 0 too: it commits nothing here, so whoever does must learn of it. */
static void a_part_that_cannot_be_written_leaves_words_for_who_commits(void **state)
{
    float *data = calloc((size_t)ROWS * 4, sizeof(*data));
    struct mck_buffer b = rows_of(0, data);
    struct mck_cfg cfg = {.dir = in_node(0, ""),
                          .size = NODES,
                          .generation = GENERATION,
                          .codec = "none",
                          .pool_bytes = 16 << 20,
                          .parts = true};
    struct rlimit old, low;
    struct mck_writer *w;
    struct mck_done d;
    json_t *kv = json_pack("{s:i}", "step", 20);
    char pattern[256];
    glob_t found;

    (void)state;
    assert_non_null(data);
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &w, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){.rlim_cur = 65536, .rlim_max = old.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(mck_begin(w, 20, kv, NULL), 0);
    assert_int_equal(mck_drain(w, clock_mono_us() + 60000000, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(mck_next_done(w, &d), 1);
    assert_true(d.code < 0);
    (void)snprintf(pattern, sizeof(pattern), "%s", in_step(0, 20, "rank-00000.*.failed"));
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    globfree(&found);
    mck_writer_free(w);
    json_decref(kv);
    free(data);
}

static void the_newest_step_of_which_all_is_there_can_be_had(void **state)
{
    struct survey *s = look(ALL);
    struct survey_plan p;
    struct merr lost;

    (void)state;
    for (uint64_t limit = UINT64_MAX, step = 8; step >= 6; limit = step--) {
        assert_int_equal(survey_newest(s, limit, &p, &lost, NULL), 1);
        assert_true(p.step == step && p.losses == 0 && p.writers == NODES && !lost.text[0]);
        for (int i = 0; i < NODES; i++)
            assert_int_equal(p.node[i], i);
        survey_plan_clear(&p);
    }
    assert_int_equal(survey_newest(s, 6, &p, &lost, NULL), 0);
    survey_free(s);
}

static void one_lost_node_is_a_loss_of_what_was_committed(void **state)
{
    (void)state;
    for (uint32_t gone = 0; gone < NODES; gone++) {
        struct survey *s = look(ALL & ~(1u << gone));
        struct survey_plan p;
        struct merr lost;

        assert_int_equal(survey_newest(s, UINT64_MAX, &p, &lost, NULL), 1);
        assert_true(p.step == 7 && p.losses == 1 && p.loss[0].member == gone && p.node[gone] == -1);
        assert_true(!lost.text[0]); /* nobody was told that there was a step 8 */
        for (uint32_t i = 0, node = 0; i < NODES; i++)
            assert_int_equal(p.loss[0].holder[i], i == gone ? -1 : (int)node++);
        survey_plan_clear(&p);
        survey_free(s);
    }
}

static void two_lost_nodes_are_too_many_and_words_say_so(void **state)
{
    (void)state;
    for (unsigned left = 0; left < NODES; left++) {
        struct survey *s = look(1u << left);
        struct survey_plan p;
        struct merr lost;

        assert_int_equal(survey_newest(s, UINT64_MAX, &p, &lost, NULL), 0);
        assert_non_null(strstr(lost.text, "step 7 was in the nodes' memory, but 2 of the 3 ranks' data is gone"));
        survey_free(s);
    }
}

static void a_damaged_file_counts_as_lost_and_a_damaged_parity_with_it_as_too_much(void **state)
{
    struct survey_plan p;
    struct survey *s;

    (void)state;
    damage(in_step(1, 8, "rank-00001.mck"), 100); /* footer */
    damage(in_step(1, 7, "rank-00001.mck"), 100);
    s = look(ALL);
    assert_int_equal(survey_newest(s, UINT64_MAX, &p, NULL, NULL), 1);
    assert_true(p.step == 7 && p.losses == 1 && p.loss[0].member == 1);
    survey_plan_clear(&p);
    survey_free(s);
    assert_int_equal(truncate(in_step(2, 7, PARITY_NAME), 5000), 0);
    s = look(ALL);
    assert_int_equal(survey_newest(s, UINT64_MAX, &p, NULL, NULL), 1);
    assert_true(p.step == 6 && p.losses == 0);
    survey_plan_clear(&p);
    survey_free(s);
}

static void a_cut_or_changed_piece_is_refused_or_harmless(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, SURVEY_BYTES_MAX);
    assert_int_equal(survey_scan(in_node(0, ""), &b, NULL), 0);
    for (size_t len = 0; len < b.len; len += len < 200 ? 1 : 97) {
        struct survey *s = survey_new(1);
        struct survey_plan p;

        assert_non_null(s);
        (void)survey_add(s, 0, b.data, len, NULL);
        b.data[len] ^= 0x40;
        (void)survey_add(s, 0, b.data, b.len, NULL);
        b.data[len] ^= 0x40;
        if (survey_newest(s, UINT64_MAX, &p, NULL, NULL) == 1)
            survey_plan_clear(&p);
        survey_free(s);
    }
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_leave_no_commit_of_their_own),
        cmocka_unit_test(a_part_that_cannot_be_written_leaves_words_for_who_commits),
        cmocka_unit_test(the_newest_step_of_which_all_is_there_can_be_had),
        cmocka_unit_test(one_lost_node_is_a_loss_of_what_was_committed),
        cmocka_unit_test(two_lost_nodes_are_too_many_and_words_say_so),
        cmocka_unit_test(a_cut_or_changed_piece_is_refused_or_harmless),
        cmocka_unit_test(a_damaged_file_counts_as_lost_and_a_damaged_parity_with_it_as_too_much), /* the last */
    };

    return cmocka_run_group_tests(tests, set_up, nodes_tear_down);
}
