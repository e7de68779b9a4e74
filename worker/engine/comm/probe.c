#include "worker/engine/comm/probe.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/try.h"
#include "worker/engine/comm/coded_priv.h"
#include "worker/engine/comm/gpu.h"

#define SIZES 5
#define TIMES 5            /* of each size, the fastest counts */
#define HOST_VALUES 65536u /* to try a codec on: they stay in the second cache, as slices do */
#define GPU_CALLS 8        /* queued at once: as with slices, the host is not waited for after each */

/* The slowest member's time. */
static int slowest(struct comm_group *g, double *us, int n, struct merr *err)
{
    return comm_all_reduce(g, us, (size_t)n, COMM_F64, COMM_MAX, err);
}

/* How long a call takes the slowest member. */
static int time_call(struct comm_group *g, probe_call call, void *arg, size_t n, double *ret_us, struct merr *err)
{
    int r = comm_barrier(g, err);
    int64_t began = clock_mono_us();

    if (r == 0)
        r = call(arg, n, err);
    *ret_us = (double)(clock_mono_us() - began);
    return r < 0 ? r : slowest(g, ret_us, 1, err);
}

/* Time calls on growing parts, of size[i] units each. Returns how many sizes were tried, or an error. */
static int time_calls(struct comm_group *g, probe_call call, void *arg, const size_t *size, int sizes, double *us,
                      struct merr *err)
{
    int r = call(arg, size[sizes / 2], err); /* opens connections, warms caches */

    for (int i = 0; i < sizes && r == 0; i++) {
        double best = 0;

        for (int k = 0; k < TIMES && (k < 2 || best < PROBE_LONG_US / TIMES); k++) {
            double took;

            r = time_call(g, call, arg, size[i], &took, err);
            if (r < 0)
                return r;
            best = k == 0 || took < best ? took : best;
        }
        us[i] = best;
        if (best >= PROBE_LONG_US)
            return i + 1;
    }
    return r < 0 ? r : sizes;
}

struct hop_like {
    struct comm_group *g;
    const void *like;
};

static int hop(void *arg, size_t n, struct merr *err)
{
    const struct hop_like *h = arg;

    return coded_hop(h->g, h->like, n, err);
}

static const size_t message_bytes[SIZES] = {256, 4096, 65536, 262144, 1048576};

/* Time calls with messages of at most so many bytes. */
static int fit_messages(struct comm_group *g, probe_call call, void *arg, size_t most, struct cost_line *ret,
                        struct merr *err)
{
    double us[SIZES], bytes[SIZES];
    int sizes = SIZES, r;

    while (sizes > 1 && message_bytes[sizes - 1] > most)
        sizes--;
    r = time_calls(g, call, arg, message_bytes, sizes, us, err);
    for (int i = 0; i < r; i++)
        bytes[i] = (double)message_bytes[i];
    if (r > 0)
        *ret = cost_fit(bytes, us, r);
    return r < 0 ? r : 0;
}

int probe_link(struct comm_group *g, const void *like, struct cost_line *ret, struct merr *err)
{
    struct hop_like h = {.g = g, .like = like};

    return fit_messages(g, hop, &h, CODED_ROOM_MAX / (size_t)comm_group_size(g), ret, err);
}

struct ring {
    struct comm_group *g;
    char *out, *in;
};

/* To the next member, and from the one before. */
static int pass_on(void *arg, size_t n, struct merr *err)
{
    const struct ring *x = arg;
    int members = comm_group_size(x->g), me = comm_group_index(x->g), r, also;
    struct comm_request *in, *out;

    TRY(comm_irecv(x->g, (me + members - 1) % members, 0, x->in, n, &in, err));
    r = comm_isend(x->g, (me + 1) % members, 0, x->out, n, &out, err);
    if (r == 0)
        r = comm_wait(out, err);
    also = comm_wait(in, r < 0 ? NULL : err);
    return r < 0 ? r : also;
}

int probe_messages(struct comm_group *g, void *at, struct cost_line *ret, struct merr *err)
{
    struct ring x = {.g = g, .out = at, .in = (char *)at + PROBE_MESSAGES_BYTES / 2};

    return fit_messages(g, pass_on, &x, PROBE_MESSAGES_BYTES / 2, ret, err);
}

int probe_raw(struct comm_group *g, probe_call call, void *arg, size_t count, double *ret_us, struct merr *err)
{
    const size_t size[] = {(count + 63) / 64, (count + 15) / 16, (count + 3) / 4, count};
    struct cost_line l;
    double us[4], values[4];
    int n = time_calls(g, call, arg, size, 4, us, err);

    if (n < 0)
        return n;
    for (int i = 0; i < n; i++)
        values[i] = (double)size[i];
    l = cost_fit(values, us, n);
    *ret_us = n == 4 ? us[3] : l.fixed_us + l.byte_us * (double)count;
    return 0;
}

int probe_turns(struct comm_group *g, const probe_call *call, int calls, void *arg, size_t n, int times, double *ret_us,
                struct merr *err)
{
    double us[PROBE_CALLS_MAX][COST_TRIALS_MAX], unused;

    assert(calls <= PROBE_CALLS_MAX && times <= COST_TRIALS_MAX);
    for (int k = 0; k < calls; k++)
        TRY(time_call(g, call[k], arg, n, &unused, err));
    for (int i = 0; i < calls * times; i++)
        TRY(time_call(g, call[i % calls], arg, n, &us[i % calls][i / calls], err));
    for (int k = 0; k < calls; k++)
        ret_us[k] = cost_median(us[k], times);
    return 0;
}

enum { ENCODE, DECODE, REDUCE, WORKS };

/* A codec at work on n values, often enough at once that waiting for the end does not count. */
struct work {
    struct coding x;
    char *values, *block;
    size_t n;
    int calls;
};

static int ask_for(struct work *t, int what)
{
    const struct codec_site site = {.seed = 1};
    const void *const blocks[] = {t->block, t->block};
    struct coded_sum sum = {.parts = {.blocks = blocks, .n = 2, .len = codec_size(t->x.codec, t->n)}, .n = t->n};

    switch (what) {
    case ENCODE:
        return t->x.way->encode(&t->x, &site, t->values, t->n, t->block);
    case DECODE:
        return t->x.way->decode(&t->x, t->x.g->index, t->block, t->values, t->n);
    default:
        return t->x.way->reduce(&t->x, &sum, CODEC_F32, t->values);
    }
}

static int time_work(struct work *t, int what, double *ret_us)
{
    int64_t began = clock_mono_us();

    for (int i = 0; i < t->calls; i++)
        TRY(ask_for(t, what));
    TRY(t->x.way->run(&t->x));
    *ret_us = (double)(clock_mono_us() - began) / t->calls;
    return 0;
}

/* The shortest time of each call. */
static int time_works(struct work *t, double us[WORKS])
{
    int64_t long_us = clock_mono_us() + PROBE_LONG_US;

    for (int k = 0; k < TIMES && (k == 0 || clock_mono_us() < long_us); k++) {
        for (int i = 0; i < WORKS; i++) {
            double now;

            TRY(time_work(t, i, &now));
            us[i] = k == 0 || now < us[i] ? now : us[i];
        }
    }
    return 0;
}

/* A processor begins at once. */
static int work_here(struct work *t, struct cost_line line[WORKS])
{
    double us[WORKS];

    t->n = HOST_VALUES;
    t->calls = 1;
    TRY(time_works(t, us));
    for (int i = 0; i < WORKS; i++)
        line[i] = (struct cost_line){0, us[i] / HOST_VALUES};
    return 0;
}

static int work_on_gpu(struct work *t, struct cost_line line[WORKS])
{
    static const double values[] = {CODED_ALIGN, CODED_SLICE};
    double us[2][WORKS];

    t->calls = GPU_CALLS;
    for (size_t k = 0; k < 2; k++) {
        t->n = (size_t)values[k];
        TRY(time_works(t, us[k]));
    }
    for (int i = 0; i < WORKS; i++)
        line[i] = cost_fit(values, (const double[]){us[0][i], us[1][i]}, 2);
    return 0;
}

/* Memory for values and a block, where the way has its own. */
static int put_values(struct work *t, float *x, size_t n)
{
    struct comm_group *g = t->x.g;
    bool host = t->x.way == &coded_by_host;

    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)((uint32_t)i * 2654435761u) * 0x1p-30f;
    t->values = (char *)x;
    t->block = (char *)(x + n);
    if (host)
        return 0;
    TRY(gpu_stage(g, &t->values));
    t->block = t->values + n * sizeof(*x);
    return coded_gpu_copy(g, t->values, x, n * sizeof(*x));
}

/* Alone, beside the others who do the same: 0, or the world's failure. */
static int work(struct work *t, float *x, size_t n, struct cost_line line[WORKS])
{
    bool host = t->x.way == &coded_by_host;
    int r = put_values(t, x, n);

    if (r == 0)
        r = host ? work_here(t, line) : work_on_gpu(t, line);
    return t->x.way->end(&t->x, r);
}

int probe_codec(struct comm_group *g, const struct codec *c, const void *like, struct cost_codec *ret, struct merr *err)
{
    const struct coded how = {.codec = c, .type = CODEC_F32};
    struct work t = {.x = {.g = g, .how = &how, .way = coded_place(g, like), .codec = c, .far = c}};
    size_t n = t.x.way == &coded_by_host ? HOST_VALUES : CODED_SLICE;
    struct cost_line line[WORKS];
    double us[WORKS + 1] = {0};
    float *x;
    int r;

    if (!t.x.way)
        return failure_tell(&g->wait->failure, err);
    TRY(comm_barrier(g, err));
    x = calloc(1, n * sizeof(*x) + codec_size(c, n));
    if (!x)
        return merr_set(err, -ENOMEM, "no memory to try codec %s", codec_name(c));
    r = work(&t, x, n, line);
    free(x);
    if (r < 0)
        return failure_tell(&g->wait->failure, err);
    for (int i = 0; i < WORKS; i++) {
        us[i] = line[i].byte_us;
        us[WORKS] = line[i].fixed_us > us[WORKS] ? line[i].fixed_us : us[WORKS];
    }
    TRY(slowest(g, us, WORKS + 1, err));
    *ret = (struct cost_codec){.encode_us = us[ENCODE],
                               .decode_us = us[DECODE],
                               .reduce_us = us[REDUCE] / 2,
                               .bytes = (double)codec_size(c, HOST_VALUES) / HOST_VALUES,
                               .start_us = us[WORKS]};
    return 0;
}
