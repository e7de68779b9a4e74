/* two.h - what most tests of checkpoints save: tensors cut over two ranks, in a folder of the test's own */
#ifndef MUSTER_TESTS_UNIT_CHECKPOINT_TWO_H
#define MUSTER_TESTS_UNIT_CHECKPOINT_TWO_H

#include "tests/unit/checkpoint/layouts.h"

static struct state model;
static struct layout *two;
static char dir[64];

/* Tensors of rows x columns floats, three roles to a name, the rows below cut on rank 0 and the others on rank 1. */
static inline void set_up_two(uint64_t seed, int tensors, uint64_t rows, uint64_t columns, uint64_t cut)
{
    rng = seed;
    model = (struct state){.tensors = tensors};
    for (int i = 0; i < tensors; i++) {
        struct tensor *t = &model.tensor[i];

        *t = (struct tensor){.role = (enum mck_role)(i % 3),
                             .dtype = MCK_F32,
                             .ndim = 2,
                             .shape = {rows, columns},
                             .volume = rows * columns};
        (void)snprintf(t->name, sizeof(t->name), "layer.%d.weight", i / 3);
    }
    two = calloc(1, sizeof(*two));
    assert_non_null(two);
    two->ranks = 2;
    for (int i = 0; i < tensors; i++) {
        add_slice(&model, two, 0, i, 0, 0, cut);
        add_slice(&model, two, 1, i, 0, cut, rows);
    }
    fill_layout(&model, two, 1);
    (void)snprintf(dir, sizeof(dir), "%s", temp_dir());
}

static inline int tear_down_two(void **state)
{
    (void)state;
    free_layout(two);
    assert_int_equal(io_remove_tree(dir, NULL), 0);
    return 0;
}

/* Path of a file in the folder of a step ("": the folder), good until the call after the next. */
static inline char *in_step(uint64_t step, const char *name)
{
    static char path[2][256];
    static int turn;

    turn = !turn;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/step-%08llu%s%s", dir, (unsigned long long)step,
                   *name ? "/" : "", name);
    return path[turn];
}

static inline void save_two(uint64_t generation, uint64_t step, const char *codec)
{
    struct merr err = {.text = ""};

    if (save_layout(two, dir, generation, step, codec, &err))
        fail_msg("%s", err.text);
}

#endif
