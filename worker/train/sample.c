#include "worker/train/sample.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "checkpoint/checkpoint.h"
#include "worker/kernels/kernels.h"
#include "worker/train/model.h"
#include "worker/train/mesh.h"
#include "worker/train/param.h"
#include "worker/train/site.h"
#include "worker/train/stage.h"
#include "worker/train/state.h"
#include "worker/train/try.h"

#define BYTE_TOKENS 256

struct sampler {
    const struct sample_cfg *cfg;
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct model_cfg model;
    struct params params;
    struct mesh mesh;
    struct stage *stage;
    float *weights, *logits;
    int32_t *token; /* all so far, end mark first */
    int n;
};

/* Which of the logits is the k-th largest: everything below it is out. */
static float kth_largest(const float *z, int n, int k)
{
    float bound = INFINITY;

    for (int found = 0; found < k;) {
        float best = -INFINITY;
        int same = 0;

        for (int i = 0; i < n; i++)
            if (z[i] < bound && z[i] > best)
                best = z[i];
        if (best == -INFINITY)
            return bound;
        for (int i = 0; i < n; i++)
            same += z[i] == best;
        found += same;
        bound = best;
    }
    return bound;
}

static int likeliest(const float *z, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (z[i] > z[best])
            best = i;
    return best;
}

int sample_pick(float *logits, int n, double temperature, int top_k, double unit)
{
    int best = likeliest(logits, n), last = best;
    double sum = 0, at = 0, top = (double)logits[best];
    float bound;

    if (temperature <= 0)
        return best;
    bound = top_k > 0 && top_k < n ? kth_largest(logits, n, top_k) : -INFINITY;
    for (int i = 0; i < n; i++)
        if (logits[i] >= bound)
            sum += exp(((double)logits[i] - top) / temperature);
    for (int i = 0; i < n; i++) {
        if (logits[i] < bound)
            continue;
        at += exp(((double)logits[i] - top) / temperature);
        last = i;
        if (unit * sum < at)
            return i;
    }
    return last;
}

static int load_model(struct sampler *s, struct mck *c, struct merr *err)
{
    struct state_view view = {.params = &s->params, .mesh = &s->mesh};
    struct stage_cfg stage = {
        .k = s->k, .stream = s->stream, .model = &s->model, .params = &s->params, .micro = 1, .slots = 1, .first = true,
        .last = true,
    };
    const json_t *model = json_object_get(mck_kv(c), "model");

    if (!model)
        return merr_set(err, -EINVAL, "'%s' does not say what model it holds", s->cfg->checkpoint);
    TRY(model_from_config(model, &s->model, err));
    if (s->model.vocab < BYTE_TOKENS)
        return merr_set(err, -EINVAL, "the model's vocabulary of %d is not bytes: only such text can be sampled",
                        s->model.vocab);
    mesh_init(&s->mesh, 1, 1, 1, 0);
    TRY(params_init(&s->params, &s->model, 0, s->model.layers, true, true, err));
    TRY(s->k->mem_alloc(s->stream, s->params.weight_n * sizeof(float), (void **)&s->weights, err));
    view.weights = s->weights;
    TRY(state_load(&view, c, err));
    stage.weights = s->weights;
    stage.length = s->model.context;
    return stage_new(&stage, &s->stage, err);
}

static int take_prompt(struct sampler *s, struct merr *err)
{
    size_t len = strlen(s->cfg->prompt);

    if (len > 1 << 20)
        return merr_set(err, -EINVAL, "the prompt is longer than 1 MiB");
    s->token = calloc(1 + len + s->cfg->tokens, sizeof(*s->token));
    s->logits = calloc(s->model.vocab_local, sizeof(*s->logits));
    if (!s->token || !s->logits)
        return merr_set(err, -ENOMEM, "no memory for %zu tokens", len + s->cfg->tokens);
    s->token[s->n++] = s->model.vocab > BYTE_TOKENS ? BYTE_TOKENS : 0;
    for (size_t i = 0; i < len; i++)
        s->token[s->n++] = (unsigned char)s->cfg->prompt[i];
    return 0;
}

/* The whole window again for each token, at one size: what follows the last token is not looked at. */
static int next_token(struct sampler *s, struct merr *err)
{
    struct stage_slot *slot = stage_slot(s->stage, 0);
    int window = s->n < s->model.context ? s->n : s->model.context;
    uint32_t key[2], word[4], ctr[4] = {(uint32_t)s->n, 0, 0, 0};

    memset(slot->tokens, 0, sizeof(*slot->tokens) * s->model.context);
    memcpy(slot->tokens, s->token + s->n - window, sizeof(*slot->tokens) * window);
    for (int i = 0; i < s->model.context; i++)
        slot->targets[i] = -1;
    TRY(stage_forward(s->stage, slot, NULL, 0, err));
    TRY(stage_logits(s->stage, slot, window - 1, s->logits, err));
    philox_key(s->cfg->seed, SITE_SAMPLE, 0, 0, key);
    philox4x32(ctr, key, word);
    s->token[s->n++] = sample_pick(s->logits, s->model.vocab, s->cfg->temperature, s->cfg->top_k,
                                   (double)philox_unit(word[0]));
    return 0;
}

static int generate(struct sampler *s, FILE *out, struct merr *err)
{
    for (int i = 0; i < s->cfg->tokens; i++) {
        int token;

        TRY(next_token(s, err));
        token = s->token[s->n - 1];
        /* an end mark ends a document: a line of its own; other tokens past the bytes have no text */
        if (token == 0 || token == BYTE_TOKENS)
            (void)fputs("\n", out);
        else if (token < BYTE_TOKENS)
            (void)fputc(token, out);
        if (fflush(out) != 0)
            return merr_errno(err, -errno, "cannot write the text");
    }
    return 0;
}

int sample_text(const struct sample_cfg *cfg, FILE *out, struct merr *err)
{
    struct sampler s = {.cfg = cfg, .k = kern_find("auto")};
    struct kern_cfg kc = {.threads = cfg->threads};
    struct mck *c = NULL;
    int r = state_open(cfg->checkpoint, &c, err);

    if (r == 0)
        r = s.k->stream_new(&kc, &s.stream, err);
    if (r == 0)
        r = load_model(&s, c, err);
    if (r == 0)
        r = take_prompt(&s, err);
    if (r == 0)
        r = generate(&s, out, err);
    stage_free(s.stage);
    if (s.weights)
        s.k->mem_free(s.stream, s.weights);
    if (s.stream)
        s.k->stream_free(s.stream);
    params_clear(&s.params);
    free(s.token);
    free(s.logits);
    mck_free(c);
    return r;
}
