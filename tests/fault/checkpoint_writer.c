/* checkpoint_writer - writes checkpoints as fast as it can until it is killed, or checks what it left
 *
 *   checkpoint_writer write DIR GENERATION CODEC   goes on from the newest; prints each step once committed
 *   checkpoint_writer check DIR                    loads and verifies the newest; prints its step (0: none)
 *
 * Two ranks, each with its own writer; the value of each element follows from the step.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"

#define RANKS 2
#define TENSORS 3
#define ROWS 1200
#define COLUMNS 400

static float memory[TENSORS][ROWS * COLUMNS];
static struct mck_buffer buffer[RANKS][TENSORS];

static void make_buffers(void)
{
    static const char *const names[TENSORS] = {"a.weight", "b.weight", "c.weight"};

    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < TENSORS; i++) {
            uint64_t from = r ? 500 : 0, to = r ? ROWS : 500;

            buffer[r][i] = (struct mck_buffer){.name = names[i], .role = (enum mck_role)(i ? i + 1 : 0), .ndim = 2,
                                               .shape = {ROWS, COLUMNS}, .off = {from, 0}, .len = {to - from, COLUMNS},
                                               .data = &memory[i][from * COLUMNS], .bucket = i};
        }
}

static float value(uint64_t step, int tensor, int i)
{
    return (float)((step * 131 + (uint64_t)tensor * 31 + (uint64_t)i * 7) % 100003) * 0.001f;
}

static void fill(uint64_t step)
{
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < ROWS * COLUMNS; i++)
            memory[t][i] = value(step, t, i);
}

static int check(const char *dir, uint64_t *ret_step, struct merr *err)
{
    struct mck *c = NULL;
    int r = mck_latest(dir, ret_step, NULL, err);

    if (r <= 0) {
        *ret_step = 0;
        return r;
    }
    r = mck_open(dir, *ret_step, &c, err);
    if (!r)
        r = mck_verify(c, NULL, NULL, NULL, err);
    for (int k = 0; k < RANKS && !r; k++)
        r = mck_load(c, buffer[k], TENSORS, err);
    mck_free(c);
    for (int t = 0; t < TENSORS && !r; t++)
        for (int i = 0; i < ROWS * COLUMNS && !r; i++)
            if (memory[t][i] != value(*ret_step, t, i))
                r = merr_set(err, -1, "step %" PRIu64 ": element %d of tensor %d is of another step", *ret_step, i, t);
    return r;
}

static int write_step(struct mck_writer *const w[RANKS], uint64_t step, struct merr *err)
{
    json_t *kv = json_pack("{s:I}", "step", (json_int_t)step);
    struct mck_done done;
    int r = 0;

    fill(step);
    for (int k = 0; k < RANKS && !r; k++)
        r = mck_begin(w[k], step, kv, err);
    for (int k = RANKS; k-- > 0 && !r;)
        r = mck_drain(w[k], clock_mono_us() + 30000000, err);
    while (!r && mck_next_done(w[0], &done)) {
        r = done.code;
        *err = done.err;
    }
    while (mck_next_done(w[1], &done))
        ;
    json_decref(kv);
    return r;
}

static int write_on(const char *dir, uint64_t generation, const char *codec, struct merr *err)
{
    struct mck_writer *w[RANKS];
    uint64_t step;
    int r = check(dir, &step, err);

    for (int k = 0; k < RANKS && !r; k++) {
        struct mck_cfg cfg = {.dir = dir, .rank = k, .size = RANKS, .generation = generation, .codec = codec,
                              .keep = 2};

        r = mck_writer_new(&cfg, buffer[k], TENSORS, &w[k], err);
    }
    while (!r) {
        r = write_step(w, ++step, err);
        if (!r && (printf("%" PRIu64 "\n", step) < 0 || fflush(stdout)))
            r = -1;
    }
    return r;
}

int main(int argc, char **argv)
{
    struct merr err = {.text = ""};
    uint64_t step = 0;
    int r = -1;

    make_buffers();
    if (argc == 5 && !strcmp(argv[1], "write"))
        r = write_on(argv[2], strtoull(argv[3], NULL, 10), argv[4], &err);
    else if (argc == 3 && !strcmp(argv[1], "check"))
        r = check(argv[2], &step, &err);
    if (r)
        (void)fprintf(stderr, "checkpoint_writer: %s\n", err.text);
    else
        (void)printf("%" PRIu64 "\n", step);
    return r ? 1 : 0;
}
