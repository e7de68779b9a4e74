#include "worker/train/wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/comm/coded.h"

struct wire {
    struct comm_group *group;
    const struct codec *codec, *far, *weights; /* NULL: raw */
    uint64_t seed;
    uint32_t place;
    uint32_t flags;
};

/* What the words of compress.dp stand for; the others are names of codecs. */
static const struct {
    const char *word, *codec, *far, *weights;
} mixes[] = {
    {"sdp4bit", "hs8", "hs4", "qwd4"}, /* SDP4Bit, arXiv 2410.15526 */
    {"g8", "g8", "g8", "qwd8"},
};

static int find_codecs(struct wire *w, const char *word, struct merr *err)
{
    int r;

    if (!word || !*word || strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)
        return 0;
    for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++) {
        if (strcmp(word, mixes[i].word) != 0)
            continue;
        r = codec_by_name(mixes[i].codec, &w->codec, err);
        if (r == 0)
            r = codec_by_name(mixes[i].far, &w->far, err);
        return r == 0 ? codec_by_name(mixes[i].weights, &w->weights, err) : r;
    }
    return codec_by_name(word, &w->codec, err);
}

int wire_new(const struct wire_cfg *cfg, struct wire **ret, struct merr *err)
{
    struct wire *w = calloc(1, sizeof(*w));
    int r;

    assert(cfg->place < COMM_RANKS_MAX);
    if (!w)
        return merr_set(err, -ENOMEM, "no memory for a wire");
    *w = (struct wire){.group = cfg->group, .seed = cfg->seed, .place = cfg->place};
    r = cfg->group ? find_codecs(w, cfg->codec, err) : 0;
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
    return w && w->codec;
}

static bool alone(const struct wire *w)
{
    return !w || !w->group;
}

static struct coded how_to(const struct wire *w, unsigned part, uint64_t step)
{
    return (struct coded){
        .codec = w->codec, .far = w->far, .type = CODEC_F32,
        .site = {.seed = w->seed, .tensor = (part * COMM_RANKS_MAX + w->place) * CODED_TENSORS, .step = (uint32_t)step},
    };
}

int wire_all_reduce(struct wire *w, float *x, size_t n, struct merr *err)
{
    struct coded how;

    if (alone(w))
        return 0;
    if (!w->codec)
        return comm_all_reduce(w->group, x, n, COMM_F32, COMM_SUM, err);
    how = how_to(w, 0, 0);
    return coded_all_reduce(w->group, &how, x, n, &w->flags, err);
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

int wire_reduce_scatter(struct wire *w, const float *in, float *out, size_t n, struct merr *err)
{
    struct coded how;
    size_t *cut;
    int r;

    if (alone(w)) {
        if (n && in != out)
            memmove(out, in, n * sizeof(*in));
        return 0;
    }
    if (!w->codec)
        return comm_reduce_scatter(w->group, in, out, n, COMM_F32, err);
    cut = equal_cut(w, n, err);
    if (!cut)
        return -ENOMEM;
    how = how_to(w, 0, 0);
    r = coded_reduce_scatter(w->group, &how, in, cut, out, &w->flags, err);
    free(cut);
    return r;
}

int wire_all_gather(struct wire *w, const void *in, size_t n, size_t size, void *out, struct merr *err)
{
    char *own = (char *)out + (alone(w) ? 0 : (size_t)comm_group_index(w->group) * n * size);
    struct coded how;
    size_t *cut;
    int r;

    if (!alone(w) && !w->codec)
        return comm_all_gather(w->group, in, n * size, out, err);
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
    return r;
}

int wire_isend(struct wire *w, int peer, uint32_t tag, const float *x, size_t n, struct comm_request **ret,
               struct merr *err)
{
    struct coded how;

    if (!w->codec)
        return comm_isend(w->group, peer, tag, x, n * sizeof(*x), ret, err);
    how = how_to(w, 0, 0);
    return coded_isend(w->group, &how, peer, tag, x, n, ret, &w->flags, err);
}

int wire_irecv(struct wire *w, int peer, uint32_t tag, float *x, size_t n, struct comm_request **ret,
               struct merr *err)
{
    struct coded how;

    if (!w->codec)
        return comm_irecv(w->group, peer, tag, x, n * sizeof(*x), ret, err);
    how = how_to(w, 0, 0);
    return coded_irecv(w->group, &how, peer, tag, x, n, ret, &w->flags, err);
}

int wire_sum_shares(struct wire *w, unsigned part, uint64_t step, float *x, const size_t *cut, struct merr *err)
{
    struct coded how = how_to(w, part, step);

    return coded_reduce_scatter(w->group, &how, x, cut, x + cut[comm_group_index(w->group)], &w->flags, err);
}

int wire_move_replicas(struct wire *w, unsigned part, uint64_t step, const float *master, float *replica,
                       const size_t *cut, struct merr *err)
{
    struct coded how = how_to(w, part, step);

    how.codec = w->weights;
    return coded_gather_differences(w->group, &how, master, replica, cut, &w->flags, err);
}

bool wire_broken_take(struct wire *w)
{
    bool broken = w && (w->flags & CODEC_NONFINITE);

    if (w)
        w->flags = 0;
    return broken;
}
