#include "worker/comm/probe.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/try.h"

#define SIZES 5
#define TIMES 5          /* of each size, the fastest counts */
#define VALUES 65536u    /* to try a codec on: they stay in the second cache, as slices do */

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

struct trade {
    struct comm_group *g;
    char *out, *in; /* room for all members' messages */
    size_t room;
    const void **send;
    void **recv;
    size_t *bytes;
};

static int trade_bytes(void *arg, size_t n, struct merr *err)
{
    struct trade *t = arg;

    for (int i = 0; i < comm_group_size(t->g); i++) {
        t->send[i] = t->out;
        t->recv[i] = t->in + (size_t)i * t->room;
        t->bytes[i] = i == comm_group_index(t->g) ? 0 : n;
    }
    return comm_all_to_all_v(t->g, t->send, t->bytes, t->recv, t->bytes, err);
}

int probe_link(struct comm_group *g, struct cost_line *ret, struct merr *err)
{
    static const size_t size[SIZES] = {256, 4096, 65536, 262144, 1048576};
    size_t n = (size_t)comm_group_size(g);
    struct trade t = {.g = g, .room = size[SIZES - 1]};
    double us[SIZES], bytes[SIZES];
    int r = -ENOMEM;

    t.out = calloc(1, t.room);
    t.in = malloc(n * t.room);
    t.send = calloc(n, sizeof(*t.send));
    t.recv = calloc(n, sizeof(*t.recv));
    t.bytes = calloc(n, sizeof(*t.bytes));
    if (t.out && t.in && t.send && t.recv && t.bytes)
        r = time_calls(g, trade_bytes, &t, size, SIZES, us, err);
    else
        (void)merr_set(err, r, "no memory to measure a link among %zu ranks", n);
    for (int i = 0; i < r; i++)
        bytes[i] = (double)size[i];
    if (r > 0)
        *ret = cost_fit(bytes, us, r);
    free(t.out);
    free(t.in);
    free(t.send);
    free(t.recv);
    free(t.bytes);
    return r < 0 ? r : 0;
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

static double us_a_value(int64_t began)
{
    return (double)(clock_mono_us() - began) / (double)VALUES;
}

int probe_codec(struct comm_group *g, const struct codec *c, enum codec_type type, struct cost_codec *ret,
                struct merr *err)
{
    size_t bytes = codec_size(c, VALUES);
    float *x = malloc(VALUES * sizeof(*x));
    char *block = calloc(1, bytes);
    double us[3] = {0};
    struct codec_site site = {.seed = 1};
    const void *const blocks[] = {block, block};
    struct codec_parts parts = {.blocks = blocks, .n = 2, .len = bytes};
    uint32_t flags = 0;
    int r = comm_barrier(g, err);

    for (size_t i = 0; x && i < VALUES; i++)
        x[i] = (float)(int32_t)((uint32_t)i * 2654435761u) * 0x1p-30f;
    for (int k = 0; k < TIMES && x && block && r == 0; k++) {
        double now[3];
        int64_t began = clock_mono_us();

        (void)codec_encode(c, &site, type, x, VALUES, block);
        now[0] = us_a_value(began);
        began = clock_mono_us();
        r = codec_decode(c, block, bytes, type, x, VALUES, &flags, err);
        now[1] = us_a_value(began);
        began = clock_mono_us();
        if (r == 0)
            r = codec_decode_reduce(c, &parts, type, x, VALUES, &flags, err);
        now[2] = us_a_value(began) / 2;
        for (int i = 0; i < 3; i++)
            us[i] = k == 0 || now[i] < us[i] ? now[i] : us[i];
    }
    if (!x || !block)
        r = merr_set(err, -ENOMEM, "no memory to try codec %s", codec_name(c));
    if (r == 0)
        r = slowest(g, us, 3, err);
    if (r == 0)
        *ret = (struct cost_codec){us[0], us[1], us[2], (double)bytes / VALUES};
    free(x);
    free(block);
    return r;
}
