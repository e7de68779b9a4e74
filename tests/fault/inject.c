/* Faults in muster-train itself, for tests: it is linked a second time with some of its functions wrapped.
 *
 * The file FAKE_INJECT names says "KIND RANK": the next step that this rank begins removes the file and has the fault.
 * KINDs are the entries of `kinds`. "poison STEP" stays: the numbers of that step are bad on each rank, each time.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/write/mio.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/group.h"
#include "worker/engine/data/data.h"
#include "worker/engine/optim/optim.h"

enum { NONE, SKIP, SWAP, SIZE, SPIN, LOCK, DATA, LINK, NUMBER, JUMP, FLIP, ASSERT, DISK, KINDS };
static const char *const kinds[KINDS] = {"",     "skip", "swap", "size", "spin",   "lock", "data",
                                         "link", "nan",  "jump", "flip", "assert", "disk"};

/* The function as it is, and what is called in its place. */
#define WRAPPED(type, name, ...)                                                                                       \
    type __real_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__)

static int fault, own_rank = -1;
static struct comm_group *tp;
static float *weights; /* of this rank */
static struct {        /* the call that SWAP makes after another */
    struct comm_group *g;
    void *buf;
    size_t count;
    enum comm_type type;
    enum comm_op op;
} later;

WRAPPED(int, comm_group_new, struct comm_world *w, const char *name, const int *ranks, int n, struct comm_group **ret,
        struct merr *err)
{
    int r = __real_comm_group_new(w, name, ranks, n, ret, err);

    if (r == 0 && strcmp(name, "world") == 0)
        own_rank = comm_group_index(*ret);
    if (r == 0 && strcmp(name, "tp") == 0)
        tp = *ret;
    return r;
}

static void stand_still(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&lock);
    for (volatile unsigned long i = 0; fault == SPIN; i++)
        ;
    (void)pthread_mutex_lock(&lock);
}

static void take_fault(uint64_t step)
{
    const char *path = getenv("FAKE_INJECT");
    char kind[16] = "";
    int rank = -1;
    FILE *f = path ? fopen(path, "re") : NULL;

    if (!f)
        return;
    if (fscanf(f, "%15s %d", kind, &rank) == 2 && strcmp(kind, "poison") == 0)
        fault = step == (uint64_t)rank ? NUMBER : NONE;
    else if (rank == own_rank && unlink(path) == 0)
        for (int i = 1; i < KINDS; i++)
            fault = strcmp(kind, kinds[i]) == 0 ? i : fault;
    (void)fclose(f);
}

WRAPPED(int, optim_new, const struct optim_cfg *cfg, struct optim **ret, struct merr *err)
{
    weights = cfg->weights;
    return __real_optim_new(cfg, ret, err);
}

/* One bit of the first weight is another one from now on. */
static void flip_bit(void)
{
    uint32_t bits;

    memcpy(&bits, weights, sizeof(bits));
    bits ^= UINT32_C(1) << 20;
    memcpy(weights, &bits, sizeof(bits));
    fault = NONE;
}

WRAPPED(int, optim_begin, struct optim *o, uint64_t step, struct merr *err)
{
    take_fault(step);
    if (fault == SPIN || fault == LOCK)
        stand_still();
    if (fault == FLIP)
        flip_bit();
    return __real_optim_begin(o, step, err);
}

WRAPPED(int, comm_all_reduce, struct comm_group *g, void *buf, size_t count, enum comm_type type, enum comm_op op,
        struct merr *err)
{
    int r;

    if (fault == SKIP && g == tp) {
        fault = NONE;
        return 0;
    }
    if (fault == SIZE && g == tp) {
        fault = NONE;
        count--;
    }
    if (fault == SWAP && g == tp) { /* the newest of them comes after the next call of another group */
        r = later.g ? __real_comm_all_reduce(later.g, later.buf, later.count, later.type, later.op, err) : 0;
        later.g = g;
        later.buf = buf;
        later.count = count;
        later.type = type;
        later.op = op;
        return r;
    }
    r = __real_comm_all_reduce(g, buf, count, type, op, err);
    if (r == 0 && later.g && g != tp) {
        fault = NONE;
        r = __real_comm_all_reduce(later.g, later.buf, later.count, later.type, later.op, err);
        later.g = NULL;
    }
    return r;
}

/* What is sent on a stuck link arrives nowhere, and who sends it is none the wiser. */
WRAPPED(struct comm_request *, message_send, struct message_channel *c, int to, const struct frame *head,
        const void *buf)
{
    static char nothing[64];
    struct frame lost = *head;

    if (fault != LINK || head->kind != FRAME_CALL)
        return __real_message_send(c, to, head, buf);
    lost.step += 1000000;
    lost.length = 0;
    return message_recv(c, to, &lost, nothing);
}

WRAPPED(unsigned, ucp_worker_progress, void *worker)
{
    if (fault == ASSERT)
        abort();
    return __real_ucp_worker_progress(worker);
}

WRAPPED(int, data_train, const struct data *d, uint64_t step, int first, int count, int32_t *tokens, int32_t *targets,
        struct merr *err)
{
    if (fault == DATA)
        stand_still();
    return __real_data_train(d, step, first, count, tokens, targets, err);
}

WRAPPED(int, optim_squares, struct optim *o, double *sums, struct merr *err)
{
    int r = __real_optim_squares(o, sums, err);

    if (r == 0 && (fault == NUMBER || fault == JUMP)) {
        sums[0] = fault == JUMP ? sums[0] + 1e6 : NAN;
        fault = NONE;
    }
    return r;
}

/* The disk takes what is given to it, and never says that it has it. */
WRAPPED(void, mio_submit, struct mio *m, struct mio_req *r)
{
    if (fault != DISK)
        __real_mio_submit(m, r);
}
