/* checkpoint_power - the power fails while checkpoints are written: what is on the disk then is a whole checkpoint, not
 * older than the last that was said to be saved; the one before it, which is kept, too, and archived in the end
 *
 *   checkpoint_power DIR SEED CASES   saves some steps in new folders, one of a step begun by a process that died,
 *                                     and archives them below DIR, which is empty, then looks at so many of the states
 *                                     that a power loss on the way may leave (disk_log.h); prints how many of them
 *                                     hold a step later than what was said to be saved
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "tests/fault/checkpoint_model.h"
#include "tests/fault/disk_log.h"

#define STEPS 4
#define BEGUN 3 /* by a process that died when it had made the folder */
#define FOLDER "/job/checkpoints"
#define GO_ON_EVERY 100 /* cases in which saving goes on */

static int save_some(const char *root, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    char dir[PATH_MAX], begun[PATH_MAX];
    int steps, r;

    (void)snprintf(dir, sizeof(dir), "%.4000s" FOLDER, root);
    (void)snprintf(begun, sizeof(begun), "%.4050s/step-%08d", dir, BEGUN);
    disk_log_begin(root);
    r = model_open(dir, 1, "none", w, err);
    for (uint64_t step = 1; step <= STEPS && !r; step++) {
        if (step == BEGUN && mkdir(begun, 0755))
            return merr_errno(err, -errno, "cannot make '%s'", begun);
        r = model_write(w, step, err);
        disk_log_mark(step);
    }
    if (r)
        return r;
    for (int k = 0; k < MODEL_RANKS; k++)
        mck_writer_free(w[k]);
    r = mck_archive(dir, "plane", NULL, &steps, err);
    disk_log_end();
    return r;
}

/* After it all, the next generation saves a step. */
static int go_on(const char *dir, uint64_t step, struct merr *err)
{
    struct mck_writer *w[MODEL_RANKS];
    uint64_t found;
    int r = model_open(dir, 2, "none", w, err);

    if (r)
        return r;
    r = model_write(w, step, err);
    for (int k = 0; k < MODEL_RANKS; k++)
        mck_writer_free(w[k]);
    if (!r)
        r = model_check(dir, &found, err);
    return r < 0 || found == step ? r : merr_set(err, -1, "step %" PRIu64 " is not there after it was saved", step);
}

static int look(const char *root, size_t at, uint64_t seed, bool goes_on, bool *ret_later, struct merr *err)
{
    uint64_t said = disk_log_marked(at), found;
    int r = io_mkdirs(root, 0755, err);
    char dir[PATH_MAX];

    (void)snprintf(dir, sizeof(dir), "%.4000s" FOLDER, root);
    if (!r)
        r = disk_log_replay(at, seed, root, err);
    if (!r)
        r = model_check(dir, &found, err);
    if (!r && found > 1) /* that one goes when the next is saved */
        r = model_check_step(dir, found - 1, err);
    if (r >= 0)
        r = found < said
                ? merr_set(err, -1, "the newest is step %" PRIu64 ", but %" PRIu64 " was said to be saved", found, said)
            : found > STEPS ? merr_set(err, -1, "step %" PRIu64 " was never begun", found)
                            : 0;
    if (!r && goes_on)
        r = go_on(dir, found + 1, err);
    *ret_later = !r && found > said;
    return r < 0 ? r : io_remove_tree(root, err);
}

static int run(const char *dir, uint64_t seed, uint64_t cases, struct merr *err)
{
    char saved[PATH_MAX], left[PATH_MAX];
    uint64_t later = 0;
    int r;

    if (snprintf(saved, sizeof(saved), "%s/saved", dir) >= (int)sizeof(saved) ||
        snprintf(left, sizeof(left), "%s/left", dir) >= (int)sizeof(left))
        return merr_set(err, -1, "'%s' is too long", dir);
    r = io_mkdirs(saved, 0755, err);
    if (!r)
        r = save_some(saved, err);
    for (uint64_t i = 0; i < cases && !r; i++) {
        size_t at = (size_t)((seed + i) % (disk_log_length() + 1));
        bool is_later;

        r = look(left, at, seed + i, i % GO_ON_EVERY == 0, &is_later, err);
        if (r)
            return merr_prefix(err, r, "power loss after %zu of %zu changes, seed %" PRIu64, at, disk_log_length(),
                               seed + i);
        later += is_later;
    }
    if (!r)
        (void)printf("%" PRIu64 "\n", later);
    return r;
}

int main(int argc, char **argv)
{
    struct merr err = {.text = "want DIR SEED CASES"};
    char dir[PATH_MAX];

    model_make(60, 64, 20, false);
    if (argc != 4 || !realpath(argv[1], dir) ||
        run(dir, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), &err)) {
        (void)fprintf(stderr, "checkpoint_power: %s\n", err.text);
        return 1;
    }
    return 0;
}
