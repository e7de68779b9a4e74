/* Three nodes, a process each: snapshots committed with parity, and put together again when a node is lost. */
#include "tests/unit/hurt.h"
#include "tests/unit/worker/test_comm.h"
#include "tests/unit/worker/snapshot_nodes.h"

#include <sys/stat.h>

#include "checkpoint/parts.h"
#include "worker/engine/recover/guard.h"
#include "worker/snapshot/parity.h"
#include "worker/engine/recover/recover.h"

#include "tests/unit/worker/test_comm_team.inc"

#define WAIT_US INT64_C(60000000)

static const int node_of[NODES] = {0, 1, 2};

static int guard_at(struct team *t, struct comm_world *w, uint64_t step, struct guard **ret)
{
    struct guard_cfg cfg = {.dir = in_node(comm_rank(w), ""),
                            .rendezvous = t->folder,
                            .node_of = node_of,
                            .rank = comm_rank(w),
                            .size = NODES,
                            .generation = GENERATION,
                            .step = step};

    GOOD(guard_open(&cfg, ret, &err));
    return 0;
}

/* --- committing ------------------------------------------------------------------------------------------ */

static int commit_rank(struct team *t, struct comm_world *w)
{
    struct guard_done d;
    struct guard *g;

    NEED(guard_at(t, w, 8, &g) == 0);
    GOOD(guard_begin(g, 6, &err));
    GOOD(guard_begin(g, 7, &err));
    NEED(guard_begin(g, 8, NULL) == -EBUSY || guard_under_way(g) <= GUARD_AT_ONCE);
    GOOD(guard_drain(g, clock_mono_us() + WAIT_US, &err));
    for (uint64_t step = 6; step <= 7; step++) {
        NEED(guard_next_done(g, &d) == 1);
        NEED(d.step == step && d.code == 0 && d.bytes > 0);
        NEED(d.parity_bytes >= d.bytes / 2 && d.parity_bytes < d.bytes);
    }
    guard_free(g);
    return 0;
}

/* Node 1 says that it could not write its part of step 9: nobody commits it, and what was committed stays. */
static int fail_rank(struct team *t, struct comm_world *w)
{
    char folder[MCK_PATH_MAX];
    struct guard_done d;
    struct guard *g;
    uint8_t id[16];

    NEED(guard_at(t, w, 8, &g) == 0);
    if (comm_rank(w) == 1) {
        folder_attempt(GENERATION, 9, 0, id);
        GOOD(folder_step_path(in_node(1, ""), 9, NULL, folder, &err));
        GOOD(io_mkdirs(folder, 0700, &err));
        coordinate_report_failure(folder, id, 1, "the memory is full");
    } else {
        save_rank(comm_rank(w), 9, 9);
    }
    GOOD(guard_begin(g, 9, &err));
    GOOD(guard_drain(g, clock_mono_us() + WAIT_US, &err));
    NEED(guard_next_done(g, &d) == 1);
    NEED(d.step == 9 && d.code == -ECOMM);
    NEED(strstr(d.err.text, comm_rank(w) == 1 ? "the memory is full" : "1 other nodes cannot have it"));
    guard_free(g);
    return 0;
}

static bool there(int node, const char *name)
{
    return access(in_node(node, name), F_OK) == 0;
}

static void all_nodes_commit_or_none_and_the_two_newest_are_kept(void **state)
{
    (void)state;
    for (int i = 0; i < NODES; i++)
        save_rank(i, 5, 7);
    team_run(NODES, TEAM_UCX, 0, commit_rank, NULL);
    for (int i = 0; i < NODES; i++) {
        assert_true(there(i, "step-00000006/PARITY") && there(i, "step-00000007/PARITY"));
        assert_false(there(i, "step-00000005"));
    }
    team_run(NODES, TEAM_UCX, 0, fail_rank, NULL);
    for (int i = 0; i < NODES; i++) {
        assert_false(there(i, "step-00000009/PARITY") || there(i, "step-00000009/PARITY.tmp"));
        assert_true(there(i, "step-00000007/PARITY"));
    }
}

/* --- going on -------------------------------------------------------------------------------------------- */

struct wanted {
    struct mck_buffer b[NODES];
};

static int all_rows(void *arg, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk), void *take_arg,
                    struct merr *err)
{
    return mck_needed(c, ((struct wanted *)arg)->b, NODES, take, take_arg, err);
}

/* Every rank reads the rows of all. */
static int read_all(struct recover *r, struct comm_world *w, uint64_t limit)
{
    float *data = malloc((size_t)NODES * ROWS * 4 * sizeof(*data));
    struct merr why = {""};
    struct wanted want;
    const char *path;
    struct mck *c;
    int own;

    NEED(data);
    for (int i = 0; i < NODES; i++)
        want.b[i] = rows_of(i, data + (size_t)i * ROWS * 4);
    GOOD(recover_gather(r, limit, all_rows, &want, &path, &own, &why, &err));
    NEED(own == 0);
    GOOD(mck_open_path(path, &c, &err));
    NEED(mck_step(c) == 7);
    GOOD(mck_load(c, want.b, NODES, &err));
    for (int i = 0; i < NODES; i++)
        for (size_t k = 0; k < (size_t)ROWS * 4; k++)
            NEED(want.b[i].data && ((float *)want.b[i].data)[k] == value_of(7, i, k));
    mck_free(c);
    free(data);
    return 0;
}

static int open_rank(struct comm_world *w, struct comm_group **ret_all, struct recover **ret)
{
    struct recover_cfg cfg = {.dir = in_node(comm_rank(w), ""),
                              .world = w,
                              .all = team_all(w, "all"),
                              .node_of = node_of,
                              .rank = comm_rank(w),
                              .size = NODES};

    NEED(cfg.all);
    *ret_all = cfg.all;
    GOOD(recover_open(&cfg, ret, &err));
    return 0;
}

static int recover_rank(struct team *t, struct comm_world *w)
{
    const char *source = t->arg;
    struct comm_group *all;
    struct recover *r;
    struct merr lost;
    uint64_t step;

    NEED(open_rank(w, &all, &r) == 0);
    NEED(recover_newest(r, 9, &step, &lost, NULL) == 1);
    NEED(step == 7 && !lost.text[0]);
    NEED(read_all(r, w, 9) == 0);
    NEED(strcmp(recover_stats(r)->source, source) == 0);
    NEED((recover_stats(r)->rebuilt_bytes > 0) == (strcmp(source, "parity") == 0));
    GOOD(comm_barrier(all, &err)); /* the view is other ranks' too */
    recover_free(r);
    return 0;
}

static void what_the_others_have_is_sent_and_a_lost_node_is_made_again(void **state)
{
    (void)state;
    team_run(NODES, TEAM_UCX, 0, recover_rank, "peers");
    for (int lost = 0; lost < NODES; lost++) { /* each time from what was made again before */
        char path[192];

        (void)snprintf(path, sizeof(path), "%s", in_node(lost, "step-00000007/rank-00000.mck"));
        path[strlen(path) - 5] = (char)('0' + lost);
        assert_int_equal(unlink(path), 0);
        team_run(NODES, TEAM_UCX, 0, recover_rank, "parity");
        assert_int_equal(access(path, F_OK), 0);
        assert_false(there(lost, ".view"));
    }
    assert_int_equal(io_remove_tree(in_node(1, ""), NULL), 0);
    assert_int_equal(mkdir(in_node(1, ""), 0700), 0);
    team_run(NODES, TEAM_UCX, 0, recover_rank, "parity");
    assert_true(there(1, "step-00000007/rank-00001.mck"));
}

/* --- damage ---------------------------------------------------------------------------------------------- */

/* Can the tensor be read as a whole from what there is? */
static bool is_whole(struct recover *r, struct comm_world *w)
{
    static float data[NODES * ROWS * 4];
    struct wanted want;
    struct merr why, e;
    const char *path;
    struct mck *c;
    int own;
    bool whole;

    for (int i = 0; i < NODES; i++)
        want.b[i] = rows_of(i, data + (size_t)i * ROWS * 4);
    if (recover_gather(r, 9, all_rows, &want, &path, &own, &why, &e) != 0 || own != 0 ||
        mck_open_path(path, &c, &e) != 0)
        return false;
    whole = mck_load(c, want.b, NODES, &e) == 0;
    mck_free(c);
    return whole && comm_rank(w) < NODES;
}

/* arg: how many chunks parity makes again; none: the snapshot stays as it is. */
static int repair_rank(struct team *t, struct comm_world *w)
{
    const uint64_t *want = t->arg;
    struct merr why = {""};
    struct comm_group *all;
    struct recover *r;
    uint64_t chunks;
    int own;

    NEED(open_rank(w, &all, &r) == 0);
    NEED(!is_whole(r, w));
    GOOD(recover_repair(r, 9, &chunks, &own, &why, &err));
    NEED(own == 0 && chunks == *want);
    if (*want)
        NEED(read_all(r, w, 9) == 0);
    GOOD(comm_barrier(all, &err));
    recover_free(r);
    return 0;
}

static const char *file_of(int node)
{
    return in_node(node, node ? node == 1 ? "step-00000007/rank-00001.mck" : "step-00000007/rank-00002.mck"
                              : "step-00000007/rank-00000.mck");
}

static bool parity_is_whole(int node)
{
    const char *path = in_node(node, "step-00000007/PARITY");
    static char piece[PARITY_PIECE];
    struct parity p;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool whole;

    assert_true(fd >= 0);
    assert_int_equal(parity_read(path, &p, NULL), 0);
    whole = parity_read_piece(fd, &p, 0, piece, NULL) == 0;
    parity_clear(&p);
    (void)close(fd);
    return whole;
}

static void damaged_chunks_are_made_again_from_parity_where_that_and_the_others_are_whole(void **state)
{
    uint64_t none = 0, one = 1, two = 2;

    (void)state;
    hurt(file_of(0), 700 << 10);
    hurt(file_of(1), 700 << 10); /* both are in the same piece of parity */
    team_run(NODES, TEAM_UCX, 0, repair_rank, &none);
    hurt(file_of(0), 700 << 10);
    hurt(file_of(2), 4096 + (1 << 20)); /* while the second chunk of node 2 is in another's than the first of node 1 */
    team_run(NODES, TEAM_UCX, 0, repair_rank, &two);
    hurt(in_node(0, "step-00000007/PARITY"), 8192);
    assert_false(parity_is_whole(0));
    hurt(file_of(2), 4096 + (1 << 20));
    team_run(NODES, TEAM_UCX, 0, repair_rank, &one);
    assert_true(parity_is_whole(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_nodes_commit_or_none_and_the_two_newest_are_kept),
        cmocka_unit_test(damaged_chunks_are_made_again_from_parity_where_that_and_the_others_are_whole),
        cmocka_unit_test(what_the_others_have_is_sent_and_a_lost_node_is_made_again), /* of what the first left */
    };

    return cmocka_run_group_tests(tests, nodes_set_up, nodes_tear_down);
}
