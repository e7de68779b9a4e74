#include "worker/engine/train/sample.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "checkpoint/checkpoint.h"
#include "worker/engine/text/tokenizer.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/model.h"
#include "worker/engine/comm/mesh.h"
#include "worker/engine/model/param.h"
#include "worker/engine/model/site.h"
#include "worker/engine/model/stage.h"
#include "worker/engine/train/state.h"
#include "base/try.h"

#define BYTE_TOKENS 256

#define PROMPT_BYTES_MAX (1 << 20)
#define PREFILL 64 /* tokens of a prompt that go through the model together */

struct sampler {
    const struct sample_cfg *cfg;
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct model_cfg model;
    struct params params;
    struct mesh mesh;
    struct stage *stage;
    struct tokenizer *tokenizer; /* NULL: tokens are bytes, or numbers are wanted */
    float *weights, *logits;
    int32_t *token; /* all so far, end mark first when they are bytes */
    int n;
    int begin, done; /* tokens begin .. done - 1 are in the stage's cache */
};

static int likeliest(const float *z, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (z[i] > z[best])
            best = i;
    return best;
}

/* The greatest b so that the weights of at least b are many enough, or heavy enough together. Weights lie in [0, 1],
 * where floats are in the order of their bits. */
static float bound(const float *w, int n, bool weigh, double enough)
{
    uint32_t lo = 0, hi = 0x3f800000; /* 0 is low enough; 1.0f may be */
    float found;

    while (lo < hi) {
        uint32_t bits = lo + (hi - lo + 1) / 2;
        double sum = 0;
        float b;

        memcpy(&b, &bits, sizeof(b));
        for (int i = 0; i < n; i++)
            if (w[i] >= b)
                sum += weigh ? (double)w[i] : 1;
        if (sum >= enough)
            lo = bits;
        else
            hi = bits - 1;
    }
    memcpy(&found, &lo, sizeof(found));
    return found;
}

/* What is below b is out. Returns the sum of what is left. */
static double leave_out(float *w, int n, float b)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        if (w[i] < b)
            w[i] = 0;
        sum += (double)w[i];
    }
    return sum;
}

int sample_pick(float *logits, int n, double temperature, int top_k, double top_p, double unit)
{
    int best = likeliest(logits, n), last = best;
    double top = (double)logits[best], sum, at = 0;
    float *w = logits; /* from logits to weights in [0, 1], in place */

    if (temperature <= 0)
        return best;
    for (int i = 0; i < n; i++)
        w[i] = (float)exp(((double)logits[i] - top) / temperature);
    sum = leave_out(w, n, top_k > 0 && top_k < n ? bound(w, n, false, top_k) : 0);
    if (top_p < 1)
        sum = leave_out(w, n, bound(w, n, true, top_p * sum));
    for (int i = 0; i < n; i++) {
        if (w[i] <= 0)
            continue;
        at += (double)w[i];
        last = i;
        if (unit * sum < at)
            return i;
    }
    return last;
}

/* --- the model --------------------------------------------------------------------------------------------- */

/* Whether tokens are bytes: as the job's spec says, else by the size of the vocabulary. */
static bool over_bytes(const struct sampler *s, const struct mck *c)
{
    const json_t *data = json_object_get(json_object_get(mck_kv(c), "train"), "data");
    const char *format = json_string_value(json_object_get(data, "format"));
    const char *tokenizer = json_string_value(json_object_get(data, "tokenizer"));

    if (!format || !tokenizer)
        return s->model.vocab == BYTE_TOKENS || s->model.vocab == BYTE_TOKENS + 1;
    return s->model.vocab >= BYTE_TOKENS && strcmp(format, "tokens") != 0 && strcmp(tokenizer, "bytes") == 0;
}

/* The tokenizer that the job's spec names, if it names one. */
static int find_tokenizer(struct sampler *s, const struct mck *c, struct merr *err)
{
    const json_t *data = json_object_get(json_object_get(mck_kv(c), "train"), "data");
    const char *format = json_string_value(json_object_get(data, "format"));
    const char *kind = json_string_value(json_object_get(data, "tokenizer"));
    const char *path = json_string_value(json_object_get(data, "tokenizer_path"));

    if (!format || !kind || !path || strcmp(format, "tokens") == 0 || strcmp(kind, "bytes") == 0)
        return 0;
    TRY(tokenizer_open(path, &s->tokenizer, err));
    if (tokenizer_vocab(s->tokenizer) > s->model.vocab)
        return merr_set(err, -EINVAL, "the tokenizer '%s' has %d tokens and the model a vocabulary of %d", path,
                        tokenizer_vocab(s->tokenizer), s->model.vocab);
    return 0;
}

static int read_config(struct sampler *s, const struct mck *c, struct merr *err)
{
    const json_t *model = json_object_get(mck_kv(c), "model");

    if (!model)
        return merr_set(err, -EINVAL, "'%s' does not say what model it holds; is its config.json missing?",
                        s->cfg->checkpoint);
    TRY(model_from_config(model, &s->model, err));
    if (!s->cfg->prompt_tokens)
        TRY(find_tokenizer(s, c, err));
    if (!s->cfg->prompt_tokens && !s->tokenizer && !over_bytes(s, c))
        return merr_set(err, -EINVAL, "the model's %d tokens are not bytes: give the prompt by --prompt-tokens",
                        s->model.vocab);
    return 0;
}

static int load_model(struct sampler *s, struct mck *c, struct merr *err)
{
    struct state_view view = {.params = &s->params, .mesh = &s->mesh, .device = s->k->device};
    int all = s->n + s->cfg->tokens, cache = all < s->model.context ? all : s->model.context;
    struct stage_cfg stage = {
        .k = s->k,
        .stream = s->stream,
        .model = &s->model,
        .params = &s->params,
        .sizes = {.micro = 1, .slots = 1, .length = cache < PREFILL ? cache : PREFILL, .cache = cache},
        .part = {.first = true, .last = true, .layers = {0, s->model.layers}}};

    mesh_init(&s->mesh, 1, 1, 1, 1, 0);
    TRY(params_init(&s->params, &s->model, &stage.part.layers, 1, true, true, err));
    TRY(s->k->mem_alloc(s->stream, s->params.weight_n * sizeof(float), (void **)&s->weights, err));
    view.weights = s->weights;
    TRY(state_load(&view, c, err));
    stage.weights = s->weights;
    return stage_new(&stage, &s->stage, err);
}

/* --- the prompt -------------------------------------------------------------------------------------------- */

static void prompt_bytes(struct sampler *s)
{
    s->token[s->n++] = s->model.vocab > BYTE_TOKENS ? BYTE_TOKENS : 0;
    for (const char *p = s->cfg->prompt; *p; p++)
        s->token[s->n++] = (unsigned char)*p;
}

static int prompt_numbers(struct sampler *s, struct merr *err)
{
    const char *p = s->cfg->prompt_tokens;

    for (p += strspn(p, " ,"); *p; p += strspn(p, " ,")) {
        size_t len = strcspn(p, " ,");
        char *end;
        long token;

        errno = 0;
        token = strtol(p, &end, 10);
        if (errno || end != p + len || token < 0 || token >= s->model.vocab)
            return merr_set(err, -EINVAL, "prompt token '%.*s' is not a number from 0 to %d", (int)len, p,
                            s->model.vocab - 1);
        s->token[s->n++] = (int32_t)token;
        p += len;
    }
    return s->n > 0 ? 0 : merr_set(err, -EINVAL, "there is no prompt: give at least one token");
}

static int prompt_text(struct sampler *s, const struct buf *tokens, struct merr *err)
{
    if (tokenizer_end(s->tokenizer) >= 0)
        s->token[s->n++] = tokenizer_end(s->tokenizer);
    if (tokens->len > 0)
        memcpy(s->token + s->n, tokens->data, tokens->len);
    s->n += (int)(tokens->len / sizeof(*s->token));
    return s->n > 0 ? 0 : merr_set(err, -EINVAL, "there is no prompt, and the tokenizer has no token to begin with");
}

static int take_prompt(struct sampler *s, struct merr *err)
{
    size_t len = strlen(s->cfg->prompt_tokens ? s->cfg->prompt_tokens : s->cfg->prompt);
    struct buf tokens;
    int r = 0;

    if (len > PROMPT_BYTES_MAX)
        return merr_set(err, -EINVAL, "the prompt is longer than %d bytes", PROMPT_BYTES_MAX);
    buf_init(&tokens, (2 * PROMPT_BYTES_MAX + 1) * sizeof(*s->token));
    if (s->tokenizer)
        r = tokenizer_encode(s->tokenizer, s->cfg->prompt, len, &tokens, err);
    if (r != 0) {
        buf_clear(&tokens);
        return merr_prefix(err, r == -EILSEQ ? -EINVAL : r, "the prompt");
    }
    len = s->tokenizer ? tokens.len / sizeof(*s->token) : len;
    s->token = calloc(1 + len + s->cfg->tokens, sizeof(*s->token));
    s->logits = calloc(s->model.vocab_local, sizeof(*s->logits));
    if (!s->token || !s->logits)
        r = merr_set(err, -ENOMEM, "no memory for %zu tokens", len + s->cfg->tokens);
    else if (s->cfg->prompt_tokens)
        r = prompt_numbers(s, err);
    else if (s->tokenizer)
        r = prompt_text(s, &tokens, err);
    else
        prompt_bytes(s);
    buf_clear(&tokens);
    return r;
}

/* --- generation -------------------------------------------------------------------------------------------- */

static int next_token(struct sampler *s, struct merr *err)
{
    uint32_t key[2], word[4], ctr[4] = {(uint32_t)s->n, 0, 0, 0};

    if (s->n - s->begin > s->model.context) {
        stage_forget(s->stage);
        s->begin = s->done = s->n - (s->model.context + 1) / 2;
    }
    TRY(stage_decode(s->stage, s->token + s->done, s->n - s->done, s->logits, err));
    s->done = s->n;
    philox_key(s->cfg->seed, SITE_SAMPLE, 0, 0, key);
    philox4x32(ctr, key, word);
    s->token[s->n++] = sample_pick(s->logits, s->model.vocab, s->cfg->temperature, s->cfg->top_k, s->cfg->top_p,
                                   (double)philox_unit(word[0]));
    return 0;
}

static void print_token(const struct sampler *s, int token, bool first, FILE *out)
{
    size_t len;
    const char *text = s->tokenizer ? tokenizer_text(s->tokenizer, token, &len) : NULL;
    bool end = s->tokenizer ? token == tokenizer_end(s->tokenizer) : token == 0 || token == BYTE_TOKENS;

    if (s->cfg->prompt_tokens)
        (void)fprintf(out, "%s%d", first ? "" : " ", token);
    else if (end) /* of a document: a line of its own */
        (void)fputs("\n", out);
    else if (text)
        (void)fwrite(text, 1, len, out);
    else if (s->tokenizer)
        return;                   /* a token past the tokenizer's has no text */
    else if (token < BYTE_TOKENS) /* tokens past the bytes have no text */
        (void)fputc(token, out);
}

static int generate(struct sampler *s, FILE *out, struct merr *err)
{
    for (int i = 0; i < s->cfg->tokens; i++) {
        TRY(next_token(s, err));
        print_token(s, s->token[s->n - 1], i == 0, out);
        if (fflush(out) != 0)
            return merr_errno(err, -errno, "cannot write the text");
    }
    /* A file gets the text alone; on a terminal the shell's prompt shall not stand at its end. */
    if ((s->cfg->prompt_tokens || isatty(fileno(out))) && (fputs("\n", out) == EOF || fflush(out) != 0))
        return merr_errno(err, -errno, "cannot end the last line");
    return 0;
}

static int sample(struct sampler *s, struct mck **c, FILE *out, struct merr *err)
{
    struct kern_cfg cfg = {.threads = s->cfg->threads};

    TRY(state_open(s->cfg->checkpoint, c, err));
    TRY(s->k->stream_new(&cfg, &s->stream, err));
    TRY(read_config(s, *c, err));
    TRY(take_prompt(s, err));
    TRY(load_model(s, *c, err));
    return generate(s, out, err);
}

int sample_text(const struct sample_cfg *cfg, FILE *out, struct merr *err)
{
    struct sampler s = {.cfg = cfg, .k = kern_cpu()};
    struct mck *c = NULL;
    int r = sample(&s, &c, out, err);

    stage_free(s.stage);
    tokenizer_free(s.tokenizer);
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
