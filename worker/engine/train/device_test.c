#include "worker/engine/train/device_test.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"

#define SIDE 256
#define SIDE_GPU 2048
#define COPY_BYTES ((size_t)16 << 20)
#define ROUNDS 5 /* of which the median counts */
#define PRODUCTS_US 40000
#define COPIES_US 5000

enum part { PRODUCTS, COPIES, PARTS };

/* A processor that others use, too, is no slower: the time that this thread had one counts. */
static int64_t now_us(const struct rank *rank)
{
    return rank->k->device ? clock_mono_us() : clock_thread_us();
}

static int do_one(const struct rank *rank, const struct kern_gemm *g, enum part part, struct merr *err)
{
    if (part == PRODUCTS)
        TRY(rank->k->gemm(rank->stream, g, err));
    else
        TRY(rank->k->copy(rank->stream, g->c, g->a, COPY_BYTES, err));
    return rank->k->stream_sync(rank->stream, err);
}

/* Microseconds of one. */
static int measure(const struct rank *rank, const struct kern_gemm *g, enum part part, double *ret, struct merr *err)
{
    int64_t long_us = part == PRODUCTS ? PRODUCTS_US : COPIES_US;
    double us[ROUNDS];

    TRY(do_one(rank, g, part, err)); /* the first makes what the others use again */
    for (int i = 0; i < ROUNDS; i++) {
        int64_t began_us = now_us(rank), took_us;
        int n = 0, at = i;

        do {
            TRY(do_one(rank, g, part, err));
            took_us = now_us(rank) - began_us;
            n++;
        } while (took_us < long_us);
        for (; at > 0 && us[at - 1] > (double)took_us / n; at--)
            us[at] = us[at - 1];
        us[at] = (double)took_us / n;
    }
    *ret = us[ROUNDS / 2];
    return 0;
}

bool device_test_wanted(const struct rank *rank, uint32_t done)
{
    uint32_t wanted = flight_trial_get(rank->flight);

    return wanted != 0 && wanted != done;
}

int device_test_run(const struct rank *rank, uint32_t *done, struct merr *err)
{
    int side = rank->k->device ? SIDE_GPU : SIDE;
    struct kern_gemm g = {
        .type = rank_type(rank), .m = side, .n = side, .k = side, .lda = side, .ldb = side, .ldc = side};
    uint32_t number = flight_trial_get(rank->flight);
    double us[PARTS];
    char *memory;
    int r;

    if (!device_test_wanted(rank, *done))
        return 0;
    *done = number;
    r = rank->k->mem_alloc(rank->stream, 3 * COPY_BYTES, (void **)&memory, err);
    if (r < 0) {
        log_warn("rank %d: its device is not tested: %s", rank->mesh->rank, err->text);
        return r == -ENOMEM ? 0 : r;
    }
    g.a = memory;
    g.b = memory + COPY_BYTES;
    g.c = memory + 2 * COPY_BYTES;
    r = measure(rank, &g, PRODUCTS, &us[PRODUCTS], err);
    if (r == 0)
        r = measure(rank, &g, COPIES, &us[COPIES], err);
    rank->k->mem_free(rank->stream, memory);
    TRY(r);
    return report_event_take(rank->report,
                             json_pack("{s:s, s:I, s:f, s:f}", "type", "device-test", "number", (json_int_t)number,
                                       "product_us", us[PRODUCTS], "copy_us", us[COPIES]),
                             err);
}
