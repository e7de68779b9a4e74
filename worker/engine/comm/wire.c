#include "worker/engine/comm/wire.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/engine/comm/coded.h"
#include "worker/engine/comm/cost.h"
#include "worker/engine/comm/probe.h"

struct wire {
    struct comm_group *group;
    struct wire_codecs use;
    uint64_t seed;
    uint32_t place;
    uint32_t flags;
    bool automatic;
    size_t slice; /* values; 0: as coded.h has it */
    size_t tuned; /* values of a unit: what predicted_us is for; 0: never tuned */
    double predicted_us;
    double spent_us, units; /* since the last look */
    struct cost_watch watch;
    bool departs;
    char said[160];
};

/* What the words of compress.dp stand for; the others are names of codecs. */
static const struct {
    const char *word, *codec, *far, *weights;
} mixes[] = {
    {"sdp4bit", "hs8", "hs4", "qwd4"}, /* SDP4Bit, arXiv 2410.15526 */
    {"g8", "g8", "g8", "qwd8"},
};

int wire_find_codecs(const char *word, struct wire_codecs *ret, struct merr *err)
{
    struct wire_codecs c = {NULL, NULL, NULL};
    int r;

    *ret = c;
    if (!word || !*word || strcmp(word, "none") == 0)
        return 0;
    for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++) {
        if (strcmp(word, mixes[i].word) != 0)
            continue;
        r = codec_by_name(mixes[i].codec, &c.codec, err);
        if (r == 0)
            r = codec_by_name(mixes[i].far, &c.far, err);
        if (r == 0)
            r = codec_by_name(mixes[i].weights, &c.weights, err);
        if (r == 0)
            *ret = c;
        return r;
    }
    return codec_by_name(word, &ret->codec, err);
}

int wire_use(struct wire *w, const char *word, struct merr *err)
{
    int r = w->group ? wire_find_codecs(word, &w->use, err) : 0;

    if (r == 0 && w->group)
        comm_group_name_codec(w->group, w->use.codec ? word : "");
    return r;
}

int wire_new(const struct wire_cfg *cfg, struct wire **ret, struct merr *err)
{
    struct wire *w = calloc(1, sizeof(*w));
    int r;

    assert(cfg->place < COMM_RANKS_MAX);
    if (!w)
        return merr_set(err, -ENOMEM, "no memory for a wire");
    *w = (struct wire){.group = cfg->group,
                       .seed = cfg->seed,
                       .place = cfg->place,
                       .automatic = cfg->codec && strcmp(cfg->codec, "auto") == 0};
    r = w->automatic ? 0 : wire_use(w, cfg->codec, err);
    if (r < 0) {
        wire_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void wire_free(struct wire *w)
{
    free(w);
}

bool wire_coded(const struct wire *w)
{
    return w && w->use.codec;
}

static bool alone(const struct wire *w)
{
    return !w || !w->group;
}

void wire_spent(struct wire *w, int64_t began_us, size_t n)
{
    if (!w)
        return;
    w->spent_us += (double)(clock_mono_us() - began_us);
    w->units += w->tuned ? 0.5 * (double)n / (double)w->tuned : 0;
}

void wire_times_take(struct wire *w, struct wire_times *ret)
{
    *ret = (struct wire_times){w->spent_us * 1e-3, w->units * w->predicted_us * 1e-3};
    w->departs |= w->tuned && cost_watch_step(&w->watch, w->spent_us, w->units * w->predicted_us);
    w->spent_us = w->units = 0;
}

static struct coded how_to(const struct wire *w, unsigned part, uint64_t step)
{
    return (struct coded){
        .codec = w->use.codec,
        .far = w->use.far,
        .type = CODEC_F32,
        .slice = w->slice,
        .site = {.seed = w->seed, .tensor = (part * COMM_RANKS_MAX + w->place) * CODED_TENSORS, .step = (uint32_t)step},
    };
}

/* Equal shares of n floats; NULL: no memory. The caller's. */
static size_t *equal_cut(const struct wire *w, size_t n, struct merr *err)
{
    int members = comm_group_size(w->group);
    size_t *cut = calloc((size_t)members + 1, sizeof(*cut));

    if (!cut)
        (void)merr_set(err, -ENOMEM, "no memory for the shares of %d ranks", members);
    for (int i = 0; cut && i <= members; i++)
        cut[i] = (size_t)i * n;
    return cut;
}

/* --- auto --------------------------------------------------------------------------------------------------------- */

struct tuning {
    struct wire *wire;
    enum wire_use use;
    float *x;
    size_t slice; /* the best, as predicted */
};

/* The raw way of n values. */
static int raw_call(void *arg, size_t n, struct merr *err)
{
    const struct tuning *t = arg;
    struct comm_group *g = t->wire->group;
    size_t share = n / (size_t)comm_group_size(g);
    float *own = t->x + share * (size_t)comm_group_index(g);
    int r;

    if (t->use == WIRE_SUMS)
        return comm_all_reduce(g, t->x, n, COMM_F32, COMM_SUM, err);
    r = comm_reduce_scatter(g, t->x, own, share, COMM_F32, err);
    return r < 0 ? r : comm_all_gather(g, own, share * sizeof(float), t->x, err);
}

/* What auto takes where coding pays. */
static const char *const automatic[] = {[WIRE_SUMS] = "r8", [WIRE_SHARES] = "sdp4bit", [WIRE_PIPE] = "r8"};
static const char *const what[] = {"compress.tp", "compress.dp", "compress.pp"};

/* Raw messages of GPUs go other ways than blocks: what they take is measured, too, where all members have a GPU. */
static int measure_pipe(struct tuning *t, size_t n, struct cost_line *link, double *raw_us, struct merr *err)
{
    struct comm_group *g = t->wire->group;
    int64_t absent = t->x == NULL;
    struct cost_line raw;

    link->byte_us /= comm_group_size(g) - 1; /* of one message at a time */
    raw = *link;
    TRY(comm_all_reduce(g, &absent, 1, COMM_I64, COMM_MAX, err));
    if (!absent)
        TRY(probe_messages(g, t->x, &raw, err));
    *raw_us = raw.fixed_us + raw.byte_us * (double)(n * sizeof(float));
    return 0;
}

static int measure(struct tuning *t, size_t n, struct cost_line *link, double *raw_us, struct merr *err)
{
    struct comm_group *g = t->wire->group;
    int r = probe_link(g, t->x, link, err), members = comm_group_size(g);
    double bytes = (double)(n * sizeof(float)) / members;

    if (r < 0)
        return r;
    if (t->use == WIRE_PIPE)
        return measure_pipe(t, n, link, raw_us, err);
    r = probe_raw(g, raw_call, t, n, raw_us, err);
    if (r < 0 || comm_group_nodes(g) == 1) /* raw values need no messages inside a node */
        return r;
    if (*raw_us < 2 * bytes * link->byte_us) /* two hops of raw values measure the link as well */
        link->byte_us = *raw_us / (2 * bytes);
    return 0;
}

const char *wire_said(const struct wire *w)
{
    return w ? w->said : "";
}

bool wire_departs(const struct wire *w)
{
    return w && w->departs && comm_group_index(w->group) == 0;
}

struct prediction { /* for n floats */
    double raw_us, coded_us;
    struct cost_line link;
    size_t slice; /* the best for codecs */
};

static int predict(struct tuning *t, const struct wire_codecs *c, size_t n, struct prediction *ret, struct merr *err)
{
    static const enum cost_shape shape[] = {COST_ALL_REDUCE, COST_REDUCE_SCATTER, COST_SEND};
    struct comm_group *g = t->wire->group;
    const struct codec *sums = c->far && comm_group_nodes(g) > 1 ? c->far : c->codec;
    int members = comm_group_size(g), r = measure(t, n, &ret->link, &ret->raw_us, err);
    struct cost_codec codec, back;
    size_t any;

    if (r == 0)
        r = probe_codec(g, sums, t->x, &codec, err);
    if (r == 0 && c->weights)
        r = probe_codec(g, c->weights, t->x, &back, err);
    if (r < 0)
        return r;
    ret->coded_us = cost_best_us(shape[t->use], members, n, &ret->link, &codec, &ret->slice);
    if (c->weights)
        ret->coded_us += cost_best_us(COST_ALL_GATHER, members, n, &ret->link, &back, &any);
    return 0;
}

/* The coded way of n values, by the codecs that the wire uses. */
static int coded_call(const struct tuning *t, size_t slice, size_t n, struct merr *err)
{
    struct wire *w = t->wire;
    size_t *cut;
    int r;

    w->slice = slice;
    if (t->use == WIRE_SUMS)
        return wire_all_reduce(w, t->x, n, err);
    cut = equal_cut(w, n / (size_t)comm_group_size(w->group) / CODED_ALIGN * CODED_ALIGN, err);
    if (!cut)
        return -ENOMEM;
    cut[comm_group_size(w->group)] = n;
    r = wire_sum_shares(w, 0, 0, t->x, cut, err);
    if (r == 0)
        r = wire_move_replicas(w, 1, 0, t->x + cut[comm_group_index(w->group)], t->x, cut, err);
    free(cut);
    return r;
}

static int usual_call(void *arg, size_t n, struct merr *err)
{
    return coded_call(arg, 0, n, err);
}

static int sliced_call(void *arg, size_t n, struct merr *err)
{
    const struct tuning *t = arg;

    return coded_call(t, t->slice, n, err);
}

/* Where the predictions of both ways are near each other, put measured times in their place. Slices other than the
 * usual ones must then be worth it, too. */
static int try_ways(struct tuning *t, const struct wire_codecs *c, size_t n, struct prediction *p, struct merr *err)
{
    static const probe_call ways[] = {raw_call, usual_call, sliced_call};
    int times = t->use == WIRE_PIPE ? 0 : cost_trials(p->raw_us, p->coded_us), r;
    int calls = p->slice == CODED_SLICE ? 2 : 3;
    struct wire *w = t->wire;
    const struct wire before = *w;
    double us[3];

    if (times == 0)
        return 0;
    w->use = *c;
    t->slice = p->slice;
    r = probe_turns(w->group, ways, calls, t, n, times, us, err);
    *w = before; /* trials neither count as spent nor raise flags */
    if (r < 0)
        return r;
    p->raw_us = us[0];
    p->coded_us = us[1];
    if (calls == 3 && cost_worth(us[1], us[2]))
        p->coded_us = us[2];
    else
        p->slice = CODED_SLICE;
    return 0;
}

int wire_tune(struct wire *w, enum wire_use use, float *x, size_t n, struct merr *err)
{
    struct tuning t = {.wire = w, .use = use, .x = x};
    struct prediction p = {.slice = 0};
    struct wire_codecs c;
    bool was, is;
    int r;

    if (alone(w) || !w->automatic || n == 0)
        return 0;
    was = w->use.codec != NULL;
    r = wire_find_codecs(automatic[use], &c, err);
    if (r == 0)
        r = predict(&t, &c, n, &p, err);
    if (r == 0)
        r = try_ways(&t, &c, n, &p, err);
    if (r < 0)
        return r;
    is = w->tuned ? cost_worth_still(was, p.raw_us, p.coded_us) : cost_worth(p.raw_us, p.coded_us);
    cost_watch_start(&w->watch, w->tuned && is == was);
    w->departs = false;
    w->tuned = n;
    w->slice = p.slice;
    w->predicted_us = is ? p.coded_us : p.raw_us;
    w->use = is ? c : (struct wire_codecs){NULL, NULL, NULL};
    comm_group_name_codec(w->group, is ? automatic[use] : "");
    (void)snprintf(w->said, sizeof(w->said),
                   "%s: %s, for %zu KiB take %.2f ms raw and %.2f ms as %s (messages: %.0f "
                   "us + %.1f MB/s)",
                   what[use], is ? "coded" : "raw", n * sizeof(float) >> 10, p.raw_us * 1e-3, p.coded_us * 1e-3,
                   automatic[use], p.link.fixed_us, p.link.byte_us > 0 ? 1 / p.link.byte_us : 0.0);
    if (comm_group_index(w->group) == 0)
        log_info("%s", w->said);
    return 0;
}

int wire_all_reduce(struct wire *w, float *x, size_t n, struct merr *err)
{
    int64_t began_us = clock_mono_us();
    struct coded how;
    int r;

    if (alone(w))
        return 0;
    how = how_to(w, 0, 0);
    r = w->use.codec ? coded_all_reduce(w->group, &how, x, n, &w->flags, err)
                     : comm_all_reduce(w->group, x, n, COMM_F32, COMM_SUM, err);
    wire_spent(w, began_us, 2 * n); /* there and back */
    return r;
}

int wire_reduce_scatter(struct wire *w, const float *in, float *out, size_t n, struct merr *err)
{
    int64_t began_us = clock_mono_us();
    struct coded how;
    size_t *cut;
    int r;

    if (alone(w)) {
        if (n && in != out)
            memmove(out, in, n * sizeof(*in));
        return 0;
    }
    cut = equal_cut(w, n, err);
    if (!cut)
        return -ENOMEM;
    how = how_to(w, 0, 0);
    r = w->use.codec ? coded_reduce_scatter(w->group, &how, in, cut, out, &w->flags, err)
                     : comm_reduce_scatter(w->group, in, out, n, COMM_F32, err);
    free(cut);
    wire_spent(w, began_us, n * (size_t)comm_group_size(w->group));
    return r;
}

int wire_all_gather(struct wire *w, const void *in, size_t n, size_t size, void *out, struct merr *err)
{
    char *own = (char *)out + (alone(w) ? 0 : (size_t)comm_group_index(w->group) * n * size);
    int64_t began_us = clock_mono_us();
    struct coded how;
    size_t *cut;
    int r;

    if (!alone(w) && !w->use.codec) {
        r = comm_all_gather(w->group, in, n * size, out, err);
        wire_spent(w, began_us, n * (size_t)comm_group_size(w->group));
        return r;
    }
    if (n && in != own)
        memmove(own, in, n * size);
    if (alone(w))
        return 0;
    cut = equal_cut(w, n, err);
    if (!cut)
        return -ENOMEM;
    how = how_to(w, 0, 0);
    how.type = size == sizeof(float) ? CODEC_F32 : CODEC_BF16;
    r = coded_all_gather(w->group, &how, out, cut, &w->flags, err);
    free(cut);
    wire_spent(w, began_us, n * (size_t)comm_group_size(w->group));
    return r;
}

int wire_isend(struct wire *w, int peer, uint32_t tag, const float *x, size_t n, struct comm_request **ret,
               struct merr *err)
{
    struct coded how;

    if (!w->use.codec)
        return comm_isend(w->group, peer, tag, x, n * sizeof(*x), ret, err);
    how = how_to(w, 0, 0);
    return coded_isend(w->group, &how, peer, tag, x, n, ret, &w->flags, err);
}

int wire_irecv(struct wire *w, int peer, uint32_t tag, float *x, size_t n, struct comm_request **ret, struct merr *err)
{
    struct coded how;

    if (!w->use.codec)
        return comm_irecv(w->group, peer, tag, x, n * sizeof(*x), ret, err);
    how = how_to(w, 0, 0);
    return coded_irecv(w->group, &how, peer, tag, x, n, ret, &w->flags, err);
}

int wire_wait(struct wire *w, struct comm_request *req, bool received, struct merr *err)
{
    int64_t began_us = clock_mono_us();
    int r = comm_wait(req, err);

    if (w && req && received)
        wire_spent(w, began_us, 2 * w->tuned); /* one message is a unit */
    return r;
}

int wire_sum_shares(struct wire *w, unsigned part, uint64_t step, float *x, const size_t *cut, struct merr *err)
{
    int64_t began_us = clock_mono_us();
    struct coded how = how_to(w, part, step);
    int r = coded_reduce_scatter(w->group, &how, x, cut, x + cut[comm_group_index(w->group)], &w->flags, err);

    wire_spent(w, began_us, cut[comm_group_size(w->group)]);
    return r;
}

int wire_move_replicas(struct wire *w, unsigned part, uint64_t step, const float *master, float *replica,
                       const size_t *cut, struct merr *err)
{
    int64_t began_us = clock_mono_us();
    struct coded how = how_to(w, part, step);
    int r;

    how.codec = w->use.weights;
    r = coded_gather_differences(w->group, &how, master, replica, cut, &w->flags, err);
    wire_spent(w, began_us, cut[comm_group_size(w->group)]);
    return r;
}

bool wire_broken_take(struct wire *w)
{
    bool broken = w && (w->flags & CODEC_NONFINITE);

    if (w)
        w->flags = 0;
    return broken;
}
