#include "tests/fault/checkpoint_model.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

#define TENSORS 3
#define ROWS_MAX 1200
#define COLUMNS_MAX 240
#define WAIT_US 30000000

static float memory[TENSORS][ROWS_MAX * COLUMNS_MAX];
static int elements; /* of each tensor */
static int keep = 2;
static uint64_t keep_every;
static uint32_t removed;
static int64_t stuck_us;
static struct mck_buffer buffer[MODEL_RANKS][TENSORS];

void model_make(int rows, int columns, int cut, bool apart)
{
    static const char *const names[TENSORS] = {"a.weight", "b.weight", "c.weight"};

    assert(rows <= ROWS_MAX && columns <= COLUMNS_MAX && cut < rows);
    elements = rows * columns;
    for (int r = 0; r < MODEL_RANKS; r++)
        for (int i = 0; i < TENSORS; i++) {
            uint64_t from = r ? (uint64_t)cut : 0, to = (uint64_t)(r ? rows : cut), width = (uint64_t)columns;

            buffer[r][i] = (struct mck_buffer){.name = names[i],
                                               .role = (enum mck_role)(i && apart ? i + 1 : 0),
                                               .ndim = 2,
                                               .shape = {(uint64_t)rows, width},
                                               .off = {from, 0},
                                               .len = {to - from, width},
                                               .data = &memory[i][from * width],
                                               .bucket = i};
        }
}

static float value(uint64_t step, int tensor, int i)
{
    return (float)((step * 131 + (uint64_t)tensor * 31 + (uint64_t)i * 7) % 100003) * 0.001f;
}

void model_fill(uint64_t step)
{
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < elements; i++)
            memory[t][i] = value(step, t, i);
}

int model_check_step(const char *dir, uint64_t step, struct merr *err)
{
    struct mck *c = NULL;
    int r = mck_open(dir, step, &c, err);

    if (!r)
        r = mck_verify(c, NULL, err);
    for (int k = 0; k < MODEL_RANKS && !r; k++)
        r = mck_load(c, buffer[k], TENSORS, err);
    mck_free(c);
    for (int t = 0; t < TENSORS && !r; t++)
        for (int i = 0; i < elements && !r; i++)
            if (memory[t][i] != value(step, t, i))
                r = merr_set(err, -1, "step %" PRIu64 ": element %d of tensor %d is of another step", step, i, t);
    return r;
}

int model_check(const char *dir, uint64_t *ret_step, struct merr *err)
{
    int r = mck_latest(dir, ret_step, NULL, err);

    if (r > 0)
        return model_check_step(dir, *ret_step, err);
    *ret_step = 0;
    return r;
}

int model_load_columns(const char *dir, int columns, struct merr *err)
{
    struct mck_buffer some[TENSORS];
    struct mck *c = NULL;
    uint64_t step;
    int r = mck_latest(dir, &step, NULL, err);

    r = r > 0 ? mck_open(dir, step, &c, err) : -1;
    for (int i = 0; i < TENSORS; i++) {
        some[i] = buffer[0][i];
        some[i].off[0] = 0;
        some[i].len[0] = some[i].shape[0];
        some[i].len[1] = (uint64_t)columns;
        some[i].data = memory[i];
    }
    if (!r)
        r = mck_load(c, some, TENSORS, err);
    mck_free(c);
    return r;
}

void model_keep(int n, uint64_t every)
{
    keep = n;
    keep_every = every;
}

void model_stuck(int64_t us)
{
    stuck_us = us;
}

uint32_t model_removed(void)
{
    return removed;
}

bool model_archives(const char *codec)
{
    return strcmp(codec, "archive") == 0;
}

int model_open(const char *dir, uint64_t generation, const char *codec, struct mck_writer *ret[MODEL_RANKS],
               struct merr *err)
{
    for (int k = 0; k < MODEL_RANKS; k++) {
        struct mck_cfg cfg = {.dir = dir,
                              .rank = k,
                              .size = MODEL_RANKS,
                              .generation = generation,
                              .codec = model_archives(codec) ? "none" : codec,
                              .keep = keep,
                              .keep_every = keep_every,
                              .timeout_us = 10000000,
                              .stuck_us = stuck_us,
                              .pool_bytes = MODEL_POOL_BYTES};
        int r = mck_writer_new(&cfg, buffer[k], TENSORS, &ret[k], err);

        if (r == 0 && k == 0 && model_archives(codec) && generation > 1 &&
            (r = mck_archive_behind(ret[0], "plane", err)) < 0)
            mck_writer_free(ret[0]);
        if (r) {
            while (k-- > 0)
                mck_writer_free(ret[k]);
            return r;
        }
    }
    return 0;
}

int model_begin(struct mck_writer *w, uint64_t step, struct merr *err)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);
    int r = mck_begin(w, step, kv, err);

    json_decref(kv);
    return r;
}

int model_write(struct mck_writer *const w[MODEL_RANKS], uint64_t step, struct merr *err)
{
    struct mck_done done;
    int r = 0;

    model_fill(step);
    for (int k = 0; k < MODEL_RANKS && !r; k++)
        r = model_begin(w[k], step, err);
    for (int k = MODEL_RANKS; k-- > 0 && !r;)
        r = mck_drain(w[k], clock_mono_us() + WAIT_US, err);
    while (!r && mck_next_done(w[0], &done)) {
        r = done.code;
        *err = done.err;
        removed += done.removed;
    }
    while (mck_next_done(w[1], &done))
        removed += done.removed;
    return r;
}
