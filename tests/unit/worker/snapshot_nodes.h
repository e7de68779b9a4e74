/* snapshot_nodes.h - a job of three ranks on three nodes, each with a folder as its memory, and what they leave */
#ifndef MUSTER_TESTS_UNIT_WORKER_SNAPSHOT_NODES_H
#define MUSTER_TESTS_UNIT_WORKER_SNAPSHOT_NODES_H

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "checkpoint/checkpoint.h"

#define NODES 3
#define ROWS 70001 /* of each rank, of 4 floats: more than a chunk, and odd */
#define GENERATION 5

static char nodes_root[64];

static inline int nodes_set_up(void **state)
{
    (void)state;
    (void)snprintf(nodes_root, sizeof(nodes_root), "/tmp/muster-test-XXXXXX");
    return mkdtemp(nodes_root) ? 0 : -1;
}

static inline int nodes_tear_down(void **state)
{
    (void)state;
    return io_remove_tree(nodes_root, NULL);
}

/* A node's memory, or a file in it; good until the call after the next three. */
static inline const char *in_node(int node, const char *name)
{
    static char path[4][192];
    static int turn;

    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/node-%d%s%s", nodes_root, node, *name ? "/" : "", name);
    return path[turn];
}

static inline float value_of(uint64_t step, int rank, size_t i)
{
    return (float)(step * 1000003 + (uint64_t)rank * 7919 + i % 65521);
}

/* Rank's rows of the one tensor of the job. */
static inline struct mck_buffer rows_of(int rank, float *data)
{
    return (struct mck_buffer){.name = "weight",
                               .role = MCK_MASTER,
                               .dtype = MCK_F32,
                               .ndim = 2,
                               .shape = {NODES * ROWS, 4},
                               .off = {(uint64_t)rank * ROWS},
                               .len = {ROWS, 4},
                               .data = data};
}

/* Leave a rank's data files of some steps in its node's memory. */
static inline void save_rank(int rank, uint64_t first, uint64_t last)
{
    float *data = calloc((size_t)ROWS * 4, sizeof(*data));
    struct mck_buffer b = rows_of(rank, data);
    struct mck_cfg cfg = {.dir = in_node(rank, ""),
                          .rank = rank,
                          .size = NODES,
                          .generation = GENERATION,
                          .codec = "none",
                          .pool_bytes = 16 << 20,
                          .parts = true};
    struct merr err = {""};
    struct mck_writer *w;

    assert_non_null(data);
    assert_int_equal(io_mkdirs(cfg.dir, 0700, NULL), 0);
    assert_int_equal(mck_writer_new(&cfg, &b, 1, &w, &err), 0);
    for (uint64_t step = first; step <= last; step++) {
        struct mck_done d;
        json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);

        for (size_t i = 0; i < (size_t)ROWS * 4; i++)
            data[i] = value_of(step, rank, i);
        assert_int_equal(mck_begin(w, step, kv, &err), 0);
        assert_int_equal(mck_drain(w, clock_mono_us() + 60000000, &err), 0);
        assert_int_equal(mck_next_done(w, &d), 1);
        assert_int_equal(d.code, 0);
        json_decref(kv);
    }
    mck_writer_free(w);
    free(data);
}

#endif
