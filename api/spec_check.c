/* What must fit together in a spec, the defaults that depend on others, and what this version does not do. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_read.h"
#include "api/hf.h"
#include "base/clock.h"

#define DOCUMENT_WORKERS_MAX 1024 /* as scheduler/sequence/plan.h has them */
#define DOCUMENTS_MAX 65536
#define CAPACITY_MAX (1 << 30) /* tokens of a micro-batch over all ranks of cp */

static enum read_state state_of(const struct reading *r, const char *path)
{
    assert(spec_fields_n <= SPEC_FIELDS_MAX);
    for (size_t i = 0; i < spec_fields_n; i++)
        if (strcmp(spec_fields[i].path, path) == 0)
            return r->state[i];
    abort(); /* no such field: a mistake in this file */
}

static bool absent(const struct reading *r, const char *path)
{
    return state_of(r, path) == READ_ABSENT;
}

static int given_cp(const struct job_spec *spec)
{
    return spec->parallel.cp == SPEC_AUTO ? 1 : spec->parallel.cp;
}

int spec_replica_devices(const struct job_spec *spec)
{
    int tp = spec->parallel.tp ? spec->parallel.tp : 1, pp = spec->parallel.pp ? spec->parallel.pp : 1;

    return spec->kind == JOB_TRAIN ? tp * pp * given_cp(spec) : 1;
}

/* None of the paths, up to NULL, was bad. */
static bool sound(const struct reading *r, ...) __attribute__((sentinel));
static bool sound(const struct reading *r, ...)
{
    bool all = true;
    const char *path;
    va_list ap;

    va_start(ap, r);
    while ((path = va_arg(ap, const char *)))
        all = all && state_of(r, path) != READ_BAD;
    va_end(ap);
    return all;
}

static void fill(const struct reading *r, const char *path, int *field, int value)
{
    if (state_of(r, path) != READ_GIVEN)
        *field = value;
}

static void fill_number(const struct reading *r, const char *path, double *field, double value)
{
    if (state_of(r, path) != READ_GIVEN)
        *field = value;
}

static void need(struct reading *r, const char *path, const char *what)
{
    if (absent(r, path))
        faults_add(r->f, path, "%s", what);
}

static void complete_model(struct reading *r)
{
    typeof(r->spec->train.model) *m = &r->spec->train.model;
    const struct preset *p = NULL;
    static const char needed[] = "is needed; give it, or a preset such as {\"preset\": \"gpt2-124m\"}";

    for (size_t i = 0; i < spec_presets_n; i++)
        if (strcmp(m->preset, spec_presets[i].name) == 0)
            p = &spec_presets[i];
    if (absent(r, "/train/model/family"))
        m->family = p ? p->family : MODEL_GPT2;
    if (!p && state_of(r, "/train/model/preset") != READ_BAD) {
        need(r, "/train/model/layers", needed);
        need(r, "/train/model/hidden", needed);
        need(r, "/train/model/heads", needed);
    }
    fill(r, "/train/model/layers", &m->layers, p ? p->layers : 1);
    fill(r, "/train/model/hidden", &m->hidden, p ? p->hidden : 1);
    fill(r, "/train/model/heads", &m->heads, p ? p->heads : 1);
    /* A preset's derived sizes follow a width or number of heads that was given instead of its own. */
    fill(r, "/train/model/kv_heads", &m->kv_heads, p && absent(r, "/train/model/heads") ? p->kv_heads : m->heads);
    fill(r, "/train/model/ffn", &m->ffn,
         p && absent(r, "/train/model/hidden") ? p->ffn
         : m->family == MODEL_GPT2             ? 4 * m->hidden
                                               : (8 * m->hidden / 3 + 63) / 64 * 64);
    fill(r, "/train/model/context", &m->context, p ? p->context : 1024);
    fill(r, "/train/model/vocab", &m->vocab,
         p                                                                                               ? p->vocab
         : r->spec->train.data.format != DATA_TOKENS && r->spec->train.data.tokenizer == TOKENIZER_BYTES ? 256
                                                                                                         : 50257);
    if (absent(r, "/train/model/tie_embeddings"))
        m->tie_embeddings = p ? p->tie_embeddings : m->family == MODEL_GPT2;
    if (absent(r, "/train/model/qkv_bias"))
        m->qkv_bias = p && p->qkv_bias;
    if (absent(r, "/train/model/qk_norm"))
        m->qk_norm = p && p->qk_norm;
    if (absent(r, "/train/model/fused"))
        m->fused = p && p->fused;
    fill(r, "/train/model/head_dim", &m->head_dim,
         p && absent(r, "/train/model/heads") && absent(r, "/train/model/hidden") ? p->head_dim : 0);
    fill(r, "/train/model/window", &m->window, p ? p->window : 0);
    fill_number(r, "/train/model/norm_eps", &m->norm_eps, p ? p->norm_eps : 0);
    fill_number(r, "/train/model/rope_theta", &m->rope_theta, p ? p->rope_theta : 0);
    fill_number(r, "/train/model/rope_factor", &m->rope_factor, p && p->rope_factor > 0 ? p->rope_factor : 1);
    if (state_of(r, "/train/model/rope_scaling") != READ_GIVEN)
        (void)snprintf(m->rope_scaling, sizeof(m->rope_scaling), "%s", p && p->rope_scaling ? p->rope_scaling : "auto");
}

/* The largest V up to 8 that divides B and, when a micro-batch is given, leaves whole micro-batches. */
static int default_workers(int sequences, int micro)
{
    for (int v = 8; v > 1; v--)
        if (sequences % v == 0 && (micro == SPEC_AUTO || sequences / v % micro == 0))
            return v;
    return 1;
}

int spec_workers(const struct job_spec *spec)
{
    return spec->parallel.virtual_workers == SPEC_AUTO
               ? default_workers(spec->train.batch.sequences, spec->train.batch.micro)
               : spec->parallel.virtual_workers;
}

/* Tokens of a longest document that each of cp ranks holds: two of 2·cp equal pieces, which is how
 * scheduler/sequence/zigzag.h cuts it; no floor leads there from here. */
static int share_of(int length, int cp)
{
    return cp > 1 ? 2 * ((length + 2 * cp - 1) / (2 * cp)) : length;
}

/* What "auto" can only mean. */
static void complete_parallel(struct job_spec *s)
{
    bool documents = s->train.data.samples == SAMPLES_DOCUMENTS;

    if (s->parallel.zero == SPEC_AUTO_SWITCH)
        s->parallel.zero = 1;
    if (s->parallel.cp == SPEC_AUTO && (documents || s->parallel.exact == EXACT_STRICT ||
                                        strcmp(s->memory.policy, "mimose") == 0 || strcmp(s->compress.dp, "none") != 0))
        s->parallel.cp = 1;
    if (s->parallel.sequence_parallel == SPEC_AUTO_SWITCH && documents)
        s->parallel.sequence_parallel = 0;
    if (s->parallel.virtual_workers == SPEC_AUTO && documents)
        s->parallel.virtual_workers = spec_workers(s);
}

int spec_complete(struct reading *r)
{
    struct job_spec *s = r->spec;

    if (s->kind == JOB_TRAIN) {
        complete_model(r);
        need(r, "/train/data/path", "is needed; name the corpus");
        fill(r, "/train/batch/length", &s->train.batch.length, s->train.model.context);
        fill(r, "/train/batch/capacity", &s->train.batch.capacity, share_of(s->train.batch.length, given_cp(s)));
        if (absent(r, "/sequence/policy"))
            (void)snprintf(s->sequence.policy, sizeof(s->sequence.policy), "%s",
                           s->train.data.samples == SAMPLES_DOCUMENTS ? "sweep" : "pad");
        fill(r, "/train/optimizer/warmup", &s->train.optimizer.warmup,
             s->train.steps / 10 < 50 ? s->train.steps / 10 : 50);
        fill(r, "/parallel/virtual_workers", &s->parallel.virtual_workers,
             default_workers(s->train.batch.sequences, s->train.batch.micro));
        complete_parallel(s);
    } else {
        need(r, "/command/argv", "is needed; name the program and its arguments");
        s->parallel.virtual_workers = 1;
        if (!s->command.env && !(s->command.env = calloc(1, sizeof(*s->command.env))))
            return -ENOMEM;
    }
    fill(r, "/devices/min", &s->devices.min, spec_replica_devices(s));
    fill(r, "/devices/max", &s->devices.max, s->devices.min);
    return 0;
}

/* What Llama's kinds have, and what of it none has together. */
static void check_kind(struct reading *r)
{
    typeof(r->spec->train.model) m = r->spec->train.model;
    const struct hf_model kind = {
        .family = m.family, .qkv_bias = m.qkv_bias, .qk_norm = m.qk_norm, .fused = m.fused, .window = m.window};
    const struct {
        const char *path;
        bool given;
    } of_llama[] = {{"/train/model/qk_norm", m.qk_norm},
                    {"/train/model/fused", m.fused},
                    {"/train/model/head_dim", m.head_dim > 0},
                    {"/train/model/window", m.window > 0}};
    int tp = r->spec->parallel.tp ? r->spec->parallel.tp : 1;

    for (size_t i = 0; i < sizeof(of_llama) / sizeof(*of_llama); i++)
        if (m.family == MODEL_GPT2 && of_llama[i].given && sound(r, of_llama[i].path, NULL))
            faults_add(r->f, of_llama[i].path, "is for family 'llama'; gpt2 has none: leave it out");
    if (m.family != MODEL_GPT2 && hf_model_fault(&kind) &&
        sound(r, "/train/model/qkv_bias", "/train/model/qk_norm", "/train/model/fused", NULL))
        faults_add(r->f, m.fused ? "/train/model/fused" : "/train/model/qk_norm", "%s: no known model has both",
                   hf_model_fault(&kind));
    if (m.family != MODEL_GPT2 && m.head_dim % 2 && sound(r, "/train/model/head_dim", NULL))
        faults_add(r->f, "/train/model/head_dim", "heads of %d cannot be rotated; want an even number", m.head_dim);
    if (m.fused && tp > m.kv_heads && sound(r, "/train/model/fused", "/parallel/tp", "/train/model/kv_heads", NULL))
        faults_add(r->f, "/parallel/tp",
                   "%d kv_heads in one tensor with the queries cannot be shared by %d ranks; "
                   "want a tp that divides them",
                   m.kv_heads, tp);
}

static void check_model(struct reading *r)
{
    const struct job_spec *s = r->spec;
    typeof(s->train.model) m = s->train.model;
    bool gpt2 = m.family == MODEL_GPT2;

    if (sound(r, "/train/model/hidden", "/train/model/heads", NULL) && m.head_dim == 0 && m.hidden % m.heads)
        faults_add(r->f, "/train/model/heads", "hidden %d cannot be split over %d heads; want a divisor of hidden",
                   m.hidden, m.heads);
    if (sound(r, "/train/model/heads", "/train/model/kv_heads", NULL)) {
        if (gpt2 && m.kv_heads != m.heads)
            faults_add(r->f, "/train/model/kv_heads", "gpt2 has as many kv_heads as heads: want %d, got %d", m.heads,
                       m.kv_heads);
        else if (m.heads % m.kv_heads)
            faults_add(r->f, "/train/model/kv_heads", "%d heads cannot share %d kv_heads; want a divisor of heads",
                       m.heads, m.kv_heads);
    }
    if (!gpt2 && sound(r, "/train/model/hidden", "/train/model/heads", NULL) && m.head_dim == 0 &&
        m.hidden % m.heads == 0 && m.hidden / m.heads % 2)
        faults_add(r->f, "/train/model/heads", "heads of %d cannot be rotated: hidden / heads must be even",
                   m.hidden / m.heads);
    if (gpt2 && m.qkv_bias && sound(r, "/train/model/qkv_bias", NULL))
        faults_add(r->f, "/train/model/qkv_bias", "gpt2 has its own biases; leave it out");
    check_kind(r);
    if (gpt2 && (m.rope_theta > 0 || strcmp(m.rope_scaling, "auto") != 0) &&
        sound(r, "/train/model/rope_theta", "/train/model/rope_scaling", NULL))
        faults_add(r->f, m.rope_theta > 0 ? "/train/model/rope_theta" : "/train/model/rope_scaling",
                   "gpt2 learns its positions and rotates nothing; leave it out");
    if (sound(r, "/train/batch/length", "/train/model/context", NULL) && s->train.batch.length > m.context)
        faults_add(r->f, "/train/batch/length", "%d is longer than the model's context of %d", s->train.batch.length,
                   m.context);
    if (s->train.data.format != DATA_TOKENS && s->train.data.tokenizer == TOKENIZER_BYTES && m.vocab < 256 &&
        sound(r, "/train/model/vocab", NULL))
        faults_add(r->f, "/train/model/vocab", "text as bytes needs at least 256, got %d", m.vocab);
    if (s->train.data.format != DATA_TOKENS && s->train.data.tokenizer != TOKENIZER_BYTES &&
        !s->train.data.tokenizer_path)
        faults_add(r->f, "/train/data/tokenizer_path", "is needed with the tokenizer '%s'",
                   s->train.data.tokenizer == TOKENIZER_GPT2 ? "gpt2" : "file");
    if (s->train.init.resume && !s->train.init.from && sound(r, "/train/init/resume", "/train/init/from", NULL))
        faults_add(r->f, "/train/init/resume", "wants a checkpoint in train.init.from to go on from");
    if (s->train.optimizer.warmup > s->train.steps && sound(r, "/train/optimizer/warmup", "/train/steps", NULL))
        faults_add(r->f, "/train/optimizer/warmup", "%d is more than the %d steps", s->train.optimizer.warmup,
                   s->train.steps);
}

/* Documents, or a stream of samples of one length. */
static void check_samples(struct reading *r)
{
    const struct job_spec *s = r->spec;
    bool documents = s->train.data.samples == SAMPLES_DOCUMENTS, tokens = s->train.data.format == DATA_TOKENS;
    const char *policy = s->sequence.policy;

    if (!sound(r, "/train/data/samples", "/train/data/format", NULL))
        return;
    if (!documents && strcmp(policy, "pad") != 0 && sound(r, "/sequence/policy", NULL))
        faults_add(r->f, "/sequence/policy",
                   "'%s' is for documents, and the samples of a stream all have one length; "
                   "set train.data.samples to 'documents', or leave it out",
                   policy);
    if (documents && strcmp(policy, "chunk") == 0 &&
        (s->parallel.chunks > 1 || s->parallel.schedule == PIPELINE_ZB_H1 || s->parallel.sequence_parallel == 1 ||
         strcmp(s->memory.policy, "mimose") == 0))
        faults_add(r->f, "/sequence/policy",
                   "'chunk' is not built for parallel.chunks above 1, schedule 'zb-h1', "
                   "sequence_parallel and memory.policy 'mimose'; leave them out, or use 'sweep'");
    if (documents && s->train.batch.capacity < share_of(s->train.batch.length, given_cp(s)) &&
        sound(r, "/train/batch/capacity", "/train/batch/length", "/parallel/cp", NULL))
        faults_add(r->f, "/train/batch/capacity",
                   "a micro-batch of %d tokens%s cannot hold a document of batch.length "
                   "%d; want at least %d",
                   s->train.batch.capacity, s->parallel.cp > 1 ? " a rank" : "", s->train.batch.length,
                   share_of(s->train.batch.length, given_cp(s)));
    if (s->train.batch.capacity > CAPACITY_MAX / given_cp(s) && sound(r, "/train/batch/capacity", "/parallel/cp", NULL))
        faults_add(r->f, "/train/batch/capacity", "%d tokens on each of the %d ranks of cp are more than %d together",
                   s->train.batch.capacity, s->parallel.cp, CAPACITY_MAX);
    if (documents && tokens && !s->train.data.index)
        faults_add(r->f, "/train/data/index",
                   "is needed for documents of format tokens: the file that says where each "
                   "ends");
    if (s->train.data.index && !(documents && tokens) && sound(r, "/train/data/index", NULL))
        faults_add(r->f, "/train/data/index", "is for format 'tokens' with samples 'documents'; leave it out");
}

/* With ulysses ranks of cp take the same number of heads of keys and values each. */
static void check_heads(struct reading *r)
{
    const struct job_spec *s = r->spec;
    int tp = s->parallel.tp ? s->parallel.tp : 1, cp = given_cp(s), kv = s->train.model.kv_heads;
    int here = kv > tp ? kv / tp : 1;

    if (s->parallel.cp_mode == CP_ULYSSES && here % cp &&
        sound(r, "/parallel/cp_mode", "/parallel/tp", "/train/model/kv_heads", NULL))
        faults_add(r->f, "/parallel/cp_mode",
                   "'ulysses' cannot share the %d kv_heads that a rank of tp %d has among "
                   "cp %d; want a cp that divides them, or 'zigzag'",
                   here, tp, cp);
}

/* What sequences that are cut over ranks do not go with. */
static void check_context(struct reading *r)
{
    const struct job_spec *s = r->spec;
    const char *policy = s->sequence.policy;
    int cp = given_cp(s), length = s->train.batch.length;

    if (cp == 1 || !sound(r, "/parallel/cp", "/sequence/policy", "/memory/policy", "/compress/dp", NULL))
        return;
    if (s->train.data.samples == SAMPLES_STREAM && length % (2 * cp) && sound(r, "/train/batch/length", NULL))
        faults_add(r->f, "/parallel/cp",
                   "samples of %d tokens cannot be cut into the %d equal pieces of cp %d; want a "
                   "batch.length that is a multiple of %d",
                   length, 2 * cp, cp, 2 * cp);
    if (strcmp(policy, "chunk") == 0 || strcmp(policy, "dynamic") == 0)
        faults_add(r->f, "/sequence/policy", "'%s' is not built for parallel.cp above 1; use 'sweep', or cp 1", policy);
    if (strcmp(s->memory.policy, "mimose") == 0)
        faults_add(r->f, "/memory/policy",
                   "'mimose' is not built for parallel.cp above 1, whose ranks must make the "
                   "same blocks again; use 'sqrt', 'all' or 'none', or cp 1");
    if (strcmp(s->compress.dp, "none") != 0)
        faults_add(r->f, "/compress/dp", "'%s' is not built for parallel.cp above 1; use 'none', or cp 1",
                   s->compress.dp);
    check_heads(r);
}

/* As many numbers as there are stages, all layers in them. */
static void check_layers(struct reading *r, int stages)
{
    const struct spec_counts *given = &r->spec->parallel.layers;
    int all = 0;

    if (given->n == 0 || !sound(r, "/parallel/layers", NULL))
        return;
    for (int i = 0; i < given->n; i++)
        all += given->v[i];
    if (given->n != stages)
        faults_add(r->f, "/parallel/layers", "pp x chunks makes %d stages, got the layers of %d", stages, given->n);
    else if (all != r->spec->train.model.layers)
        faults_add(r->f, "/parallel/layers", "the stages have %d layers together, the model %d", all,
                   r->spec->train.model.layers);
}

/* As many numbers as there are stages, with a recompute that they are of. stages 0: not given. */
static void check_recompute_layers(struct reading *r, int stages)
{
    static const char path[] = "/parallel/recompute_layers";
    const struct job_spec *s = r->spec;
    int n = s->parallel.recompute_layers.n;

    if (n == 0 || !sound(r, path, "/parallel/recompute", NULL))
        return;
    if (s->parallel.recompute == RECOMPUTE_NONE || s->parallel.recompute == RECOMPUTE_AUTO)
        faults_add(r->f, path, "are those that make activations again; want parallel.recompute 'selective' or 'full'");
    else if (stages == 0)
        faults_add(r->f, path, "are of pp x chunks stages, so both must be given, not \"auto\"");
    else if (n != stages)
        faults_add(r->f, path, "pp x chunks makes %d stages, got the layers of %d", stages, n);
}

/* Chunks, and what each holds. */
static void check_pipeline(struct reading *r)
{
    const struct job_spec *s = r->spec;
    int layers = s->train.model.layers, pp = s->parallel.pp ? s->parallel.pp : 1, chunks = s->parallel.chunks;
    enum pipeline_schedule schedule = s->parallel.schedule;
    bool open = s->parallel.pp == SPEC_AUTO || chunks == SPEC_AUTO; /* the planner heeds what is given */

    if (!sound(r, "/parallel/pp", "/parallel/chunks", "/parallel/schedule", "/train/model/layers", NULL))
        return;
    if (layers < pp)
        faults_add(r->f, "/parallel/pp", "%d layers cannot be split over pp %d; want at most %d", layers, pp, layers);
    else if (chunks > 1 && schedule == PIPELINE_1F1B)
        faults_add(r->f, "/parallel/chunks", "'1f1b' has one chunk a rank; want the schedule 'interleaved'");
    else if (chunks == 1 && schedule == PIPELINE_INTERLEAVED && !open)
        faults_add(r->f, "/parallel/chunks", "'interleaved' wants 2 chunks a rank or more, got 1");
    else if (chunks > 1 && pp == 1 && !open)
        faults_add(r->f, "/parallel/chunks", "%d chunks a rank want a pipeline: pp of 2 or more", chunks);
    else if (layers / pp < chunks)
        faults_add(r->f, "/parallel/chunks",
                   "%d layers cannot be split over pp %d with %d chunks each; want at most "
                   "%d",
                   layers, pp, chunks, layers / pp);
    else if (!open)
        check_layers(r, pp * chunks);
    else if (s->parallel.layers.n > 0)
        faults_add(r->f, "/parallel/layers", "are of pp x chunks stages, so both must be given, not \"auto\"");
    check_recompute_layers(r, open ? 0 : pp * chunks);
}

static void check_parallel(struct reading *r)
{
    const struct job_spec *s = r->spec;
    typeof(s->train.model) m = s->train.model;
    int tp = s->parallel.tp ? s->parallel.tp : 1, pp = s->parallel.pp ? s->parallel.pp : 1;
    int b = s->train.batch.sequences, v = spec_workers(s), micro = s->train.batch.micro;

    if (sound(r, "/parallel/tp", "/train/model/heads", NULL) && m.heads % tp)
        faults_add(r->f, "/parallel/tp", "%d heads cannot be split over tp %d; want a divisor of heads", m.heads, tp);
    else if (sound(r, "/parallel/tp", "/train/model/heads", "/train/model/kv_heads", NULL) && m.kv_heads % tp &&
             tp % m.kv_heads)
        faults_add(r->f, "/parallel/tp", "%d kv_heads cannot be split over tp %d; want a divisor or a multiple",
                   m.kv_heads, tp);
    if (sound(r, "/parallel/tp", "/train/model/ffn", NULL) && m.ffn % tp)
        faults_add(r->f, "/parallel/tp", "ffn %d cannot be split over tp %d; want a divisor of ffn", m.ffn, tp);
    check_pipeline(r);
    if (s->parallel.recompute != RECOMPUTE_NONE && s->parallel.recompute != RECOMPUTE_AUTO &&
        s->parallel.schedule == PIPELINE_ZB_H1)
        faults_add(r->f, "/parallel/recompute",
                   "does not go with schedule 'zb-h1', whose second half of a backward "
                   "needs the activations too; want 'none', or schedule '1f1b' or 'interleaved'");
    if (sound(r, "/train/batch/sequences", "/parallel/virtual_workers", NULL)) {
        bool documents = s->train.data.samples == SAMPLES_DOCUMENTS; /* any number of them goes to any worker */

        if (documents && v > (b < DOCUMENT_WORKERS_MAX ? b : DOCUMENT_WORKERS_MAX))
            faults_add(r->f, "/parallel/virtual_workers",
                       "%d are too many for the %d documents of a step; want at "
                       "most as many, and at most %d",
                       v, b, DOCUMENT_WORKERS_MAX);
        else if (documents && b > DOCUMENTS_MAX)
            faults_add(r->f, "/train/batch/sequences", "a step takes at most %d documents, got %d", DOCUMENTS_MAX, b);
        else if (b % v && !documents)
            faults_add(r->f, "/parallel/virtual_workers",
                       "a batch of %d sequences cannot be split over %d virtual workers; want a divisor of "
                       "batch.sequences",
                       b, v);
        else if (!documents && micro != SPEC_AUTO && b / v % micro && sound(r, "/train/batch/micro", NULL))
            faults_add(r->f, "/train/batch/micro",
                       "micro-batches of %d cannot make up the %d sequences of a virtual worker; want a divisor of %d",
                       micro, b / v, b / v);
    }
    if (sound(r, "/parallel/tp", "/parallel/pp", "/parallel/cp", NULL) && spec_replica_devices(s) > SPEC_DEVICES_MAX)
        faults_add(r->f, "/parallel/tp", "tp %d x pp %d x cp %d makes %d devices, more than the %d of a job", tp, pp,
                   given_cp(s), spec_replica_devices(s), SPEC_DEVICES_MAX);
    else if (sound(r, "/parallel/tp", "/parallel/pp", "/parallel/cp", "/devices/min", NULL) &&
             s->devices.min < spec_replica_devices(s))
        faults_add(r->f, "/devices/min", "%d is fewer than the %d devices of tp %d x pp %d x cp %d", s->devices.min,
                   spec_replica_devices(s), tp, pp, given_cp(s));
}

/* What is part of a spec's language but not of this version. */
static void spec_unbuilt(struct reading *r)
{
    const struct job_spec *s = r->spec;

    if (s->parallel.exact == EXACT_STRICT && s->parallel.cp > 1)
        faults_add(r->f, "/parallel/exact", "'strict' with cp above 1 is not built yet in this version; use 'relaxed'");
}

/* What memory.optimizer 'files' does not go with. */
static void check_optimizer(struct reading *r)
{
    const struct job_spec *s = r->spec;

    if (strcmp(s->memory.optimizer, "files") != 0)
        return;
    if (!s->parallel.zero)
        faults_add(r->f, "/memory/optimizer", "'files' hold what a rank alone updates: want parallel.zero 1");
    if (s->parallel.cp > 1)
        faults_add(r->f, "/memory/optimizer", "'files' with cp above 1 is not built yet in this version; use 'device'");
    if (strcmp(s->compress.dp, "none") != 0)
        faults_add(r->f, "/memory/optimizer",
                   "'files' with compress.dp is not built yet in this version; use 'device', or no codec");
    if (strcmp(s->compress.checkpoint, "none") != 0)
        faults_add(r->f, "/memory/optimizer",
                   "'files' are checkpoints as they are: want compress.checkpoint 'none'; checkpoint.archive may "
                   "write older ones smaller");
    if (s->checkpoint.memory_every_steps > 0)
        faults_add(r->f, "/checkpoint/memory_every_steps",
                   "memory.optimizer 'files' leaves no snapshots in memory, and loses at most the step under way "
                   "without them; want 0 or auto");
}

/* What memory.policy does not go with, and what it needs. */
static void check_memory(struct reading *r)
{
    const struct job_spec *s = r->spec;
    const char *policy = s->memory.policy;

    if (strcmp(policy, "none") == 0)
        return;
    if (s->parallel.recompute != RECOMPUTE_NONE)
        faults_add(r->f, "/memory/policy",
                   "'%s' decides by itself what is made again; want parallel.recompute 'none', "
                   "or policy 'none'",
                   policy);
    if (s->parallel.schedule == PIPELINE_ZB_H1)
        faults_add(r->f, "/memory/policy",
                   "'%s' does not go with schedule 'zb-h1', whose second half of a backward "
                   "needs the activations too; want 'none', or schedule '1f1b' or 'interleaved'",
                   policy);
    if (strcmp(policy, "mimose") == 0 && s->memory.activation_budget_mib == 0)
        faults_add(r->f, "/memory/activation_budget_mib", "policy 'mimose' keeps within a budget: want one");
}

/* What codecs of messages do not go with. */
static void check_compress(struct reading *r)
{
    const struct job_spec *s = r->spec;
    const struct {
        const char *group, *codec, *others;
    } rows[] = {
        {"tp", s->compress.tp, "'r8', 'r6', 't8'"},
        {"pp", s->compress.pp, "'r8', 'r4'"},
        {"dp", s->compress.dp, "'sdp4bit', 'g8'"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && s->parallel.exact == EXACT_STRICT; i++) {
        if (strcmp(rows[i].codec, "auto") == 0)
            faults_add(r->f, "/parallel/exact",
                       "'strict' does not go with compress.%s 'auto', which decides by "
                       "measurement; name the codec: %s or 'none'",
                       rows[i].group, rows[i].others);
    }
    if (s->parallel.exact == EXACT_STRICT && strcmp(s->compress.pp, "none") != 0 && s->parallel.pp == SPEC_AUTO)
        faults_add(r->f, "/parallel/exact",
                   "'strict' with compress.pp '%s', which rounds where stages meet, needs a "
                   "number as parallel.pp",
                   s->compress.pp);
    if (s->parallel.zero == 0 && strcmp(s->compress.dp, "none") != 0)
        faults_add(r->f, "/compress/dp",
                   "'%s' needs parallel.zero 1: owners keep the exact weights; use zero 1 or "
                   "'none'",
                   s->compress.dp);
}

static void check_notify(struct reading *r)
{
    static const char *const words[] = {"started",    "succeeded", "failed", "cancelled",
                                        "recovering", "suspended", "hung",   "slow"};
    const struct spec_names *on = &r->spec->notify.on;
    char pointer[32];

    for (size_t i = 0, k; i < on->n; i++) {
        (void)snprintf(pointer, sizeof(pointer), "/notify/on/%zu", i);
        for (k = 0; k < sizeof(words) / sizeof(words[0]) && strcmp(words[k], on->v[i]) != 0;)
            k++;
        if (k == sizeof(words) / sizeof(words[0]))
            faults_add_unknown(r->f, pointer, "notice", on->v[i], words, k);
    }
    if (on->n > 0 && absent(r, "/notify/webhook"))
        faults_add(r->f, "/notify/webhook", "is needed: on says of what, and this says who is told");
}

void spec_check(struct reading *r)
{
    const struct job_spec *s = r->spec;
    int64_t time_us;

    if (sound(r, "/devices/min", "/devices/max", NULL) && s->devices.min > s->devices.max)
        faults_add(r->f, "/devices/max", "%d is less than min, which is %d", s->devices.max, s->devices.min);
    if (s->limits.finish_by && clock_read_rfc3339(s->limits.finish_by, &time_us) < 0)
        faults_add(r->f, "/limits/finish_by", "want a time such as 2026-11-21T06:00:00Z");
    if (sound(r, "/notify/on", NULL))
        check_notify(r);
    if (s->kind != JOB_TRAIN) {
        spec_check_source(r);
        return;
    }
    check_model(r);
    check_samples(r);
    check_parallel(r);
    check_context(r);
    check_compress(r);
    check_optimizer(r);
    check_memory(r);
    spec_unbuilt(r);
}

/* Whether some part of a path is "..". */
static bool climbs(const char *path)
{
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (n == 2 && path[0] == '.' && path[1] == '.')
            return true;
    }
    return false;
}

void spec_check_paths(const json_t *doc, struct faults *f)
{
    const json_t *train = json_object_get(doc, "train"), *command = json_object_get(doc, "command");
    const struct {
        const char *pointer;
        const json_t *path;
    } all[] = {
        {"/train/data/path", json_object_get(json_object_get(train, "data"), "path")},
        {"/train/data/tokenizer_path", json_object_get(json_object_get(train, "data"), "tokenizer_path")},
        {"/train/data/index", json_object_get(json_object_get(train, "data"), "index")},
        {"/train/init/from", json_object_get(json_object_get(train, "init"), "from")},
        {"/command/workdir", spec_has_source(command) ? NULL : json_object_get(command, "workdir")},
    };

    const char *dir = json_string_value(json_object_get(json_object_get(doc, "checkpoint"), "dir"));

    if (dir && climbs(dir))
        faults_add(f, "/checkpoint/dir",
                   "'%s' leaves the job's folder by '..'; want a path below it, or an absolute one without '..'", dir);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const char *path = json_string_value(all[i].path);

        if (path && path[0] != '/')
            faults_add(f, all[i].pointer, "'%s' is relative; the server needs an absolute path", path);
    }
}
