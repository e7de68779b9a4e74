/* A rank that trains and two source nodes, as processes: what lies in three memories is read from one, or written to
 * disk. */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "checkpoint/parts.h"
#include "tests/unit/worker/test_comm_team.inc"
#include "tests/unit/worker/snapshot_nodes.h"
#include "worker/engine/recover/sources.h"

#define STEP 7

struct play {
    bool without; /* the rank that trains has no memory */
};

static struct mck_buffer rows[NODES];
static float *data;

static int set_up(void **state)
{
    char from[192];
    int r = nodes_set_up(state);

    for (int i = 0; i < NODES && r == 0; i++)
        save_rank(i, STEP - 1, STEP);
    /* of the step, all of the rank that trains lies elsewhere: it has but what is older */
    (void)snprintf(from, sizeof(from), "%s", in_node(0, "step-00000007/rank-00000.mck"));
    return r == 0 ? rename(from, in_node(1, "step-00000007/rank-00000.mck")) : r;
}

static int all_rows(void *arg, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk), void *take_arg,
                    struct merr *err)
{
    (void)arg;
    return mck_needed(c, rows, NODES, take, take_arg, err);
}

/* The whole tensor from a folder that reads as a checkpoint. */
static int read_rows(struct comm_world *w, const char *path)
{
    struct mck *c;

    GOOD(mck_open_path(path, &c, &err));
    NEED(mck_step(c) == STEP);
    GOOD(mck_load(c, rows, NODES, &err));
    mck_free(c);
    for (int i = 0; i < NODES; i++)
        for (size_t k = 0; k < (size_t)ROWS * 4; k++)
            NEED(data[(size_t)i * ROWS * 4 + k] == value_of(STEP, i, k));
    return 0;
}

static int take_to_disk(struct comm_world *w, struct sources *g, const struct sources_cfg *cfg)
{
    char folder[192];
    struct merr why = {""};
    uint64_t step;
    int own;

    NEED(mck_latest(cfg->disk, &step, NULL, NULL) != 1);
    GOOD(sources_flush(g, STEP + 1, &own, &why, &err));
    NEED(own == 0);
    NEED(mck_latest(cfg->disk, &step, NULL, NULL) == 1 && step == STEP);
    (void)snprintf(folder, sizeof(folder), "%s/step-00000007", cfg->disk);
    return read_rows(w, folder);
}

static int train(struct comm_world *w, const struct sources_cfg *cfg, const struct play *p)
{
    struct merr why = {""};
    struct sources *g;
    const char *path;
    uint64_t step;
    int own;

    GOOD(sources_open(cfg, &g, &err));
    NEED(recover_newest(sources_recover(g), UINT64_MAX, &step, NULL, NULL) == 1 && step == STEP);
    GOOD(sources_gather(g, STEP + 1, all_rows, NULL, &path, &own, &why, &err));
    NEED((own != 0) == p->without);
    if (p->without)
        NEED(strstr(why.text, "no memory") && take_to_disk(w, g, cfg) == 0);
    else
        NEED(read_rows(w, path) == 0 &&
             recover_stats(sources_recover(g))->fetched_bytes >= (uint64_t)NODES * ROWS * 16);
    sources_end(g, true);
    sources_free(g);
    NEED(access(in_node(0, ".view"), F_OK) != 0);
    return 0;
}

static int part(struct team *t, struct comm_world *w)
{
    static const int node_of[1];
    struct sources_cfg cfg = {.dir = in_node(comm_rank(w), ""),
                              .rendezvous = t->folder,
                              .node_of = node_of,
                              .size = 1,
                              .source_nodes = NODES - 1,
                              .rank = comm_rank(w),
                              .generation = GENERATION + 1,
                              .flight = t->flight[comm_rank(w)]};
    char disk[192];
    bool loaded = false;

    (void)snprintf(disk, sizeof(disk), "%s/disk/checkpoints", nodes_root);
    cfg.disk = disk;
    data = calloc((size_t)NODES * ROWS * 4, sizeof(*data));
    NEED(data);
    for (int i = 0; i < NODES; i++)
        rows[i] = rows_of(i, data + (size_t)i * ROWS * 4);
    if (comm_rank(w) == 0) {
        cfg.dir = ((const struct play *)t->arg)->without ? "" : cfg.dir;
        return train(w, &cfg, t->arg);
    }
    GOOD(sources_serve(&cfg, &loaded, &err));
    NEED(loaded);
    return 0;
}

static void a_rank_reads_what_nodes_hold_that_it_has_left(void **state)
{
    static const struct play p = {0};

    (void)state;
    team_run(NODES, TEAM_UCX, 0, part, &p);
}

static void for_a_rank_without_memory_they_write_it_to_disk(void **state)
{
    static const struct play p = {.without = true};

    (void)state;
    team_run(NODES, TEAM_UCX, 0, part, &p);
}

/* --- source nodes that nobody comes to, or that are not let end --- */

static int leave_early(struct team *t, struct comm_world *w)
{
    static const int node_of[1];
    struct sources_cfg cfg = {.dir = in_node(comm_rank(w), ""),
                              .rendezvous = t->folder,
                              .node_of = node_of,
                              .size = 1,
                              .source_nodes = 1,
                              .rank = comm_rank(w),
                              .generation = GENERATION + 1,
                              .disk = "/nowhere",
                              .flight = t->flight[comm_rank(w)]};
    bool loaded = false;
    struct merr why;
    struct sources *g;

    if (comm_rank(w) == 1) {
        NEED(sources_serve(&cfg, &loaded, &why) != 0 && !loaded);
        return 0;
    }
    GOOD(sources_open(&cfg, &g, &err));
    sources_free(g);
    return 0;
}

static void a_source_node_whose_rank_leaves_ends_and_nothing_was_loaded(void **state)
{
    (void)state;
    team_run(2, TEAM_UCX, 0, leave_early, NULL);
}

static int told_to_end(struct team *t, struct comm_world *w)
{
    static const int node_of[1];
    struct sources_cfg cfg = {.dir = "",
                              .rendezvous = t->folder,
                              .node_of = node_of,
                              .size = 1,
                              .source_nodes = 1,
                              .rank = 1,
                              .generation = GENERATION + 1,
                              .disk = "/nowhere",
                              .flight = t->flight[0]};
    bool loaded = false;
    struct merr why;

    (void)w;
    flight_order_set(t->flight[0], FLIGHT_ABORT);
    NEED(sources_serve(&cfg, &loaded, &why) == -ECANCELED && !loaded);
    return 0;
}

static void a_source_node_that_waits_for_a_rank_can_be_stopped(void **state)
{
    (void)state;
    team_run(1, TEAM_UCX, 0, told_to_end, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_reads_what_nodes_hold_that_it_has_left),
        cmocka_unit_test(for_a_rank_without_memory_they_write_it_to_disk),
        cmocka_unit_test(a_source_node_whose_rank_leaves_ends_and_nothing_was_loaded),
        cmocka_unit_test(a_source_node_that_waits_for_a_rank_can_be_stopped),
    };

    return cmocka_run_group_tests(tests, set_up, nodes_tear_down);
}
