/* The table of a spec's fields: reading, the JSON schema and docs/spec.md all come from it. */
#include <string.h>

#include "api/bundle.h"
#include "api/spec_array.h"
#include "api/spec_priv.h"

static const char *const families[] = {"gpt2", "llama", NULL};
static const char *const formats[] = {"text", "jsonl", "tokens", NULL};
static const char *const separators[] = {"none", "blank", "percent", NULL};
static const char *const tokenizers[] = {"bytes", "gpt2", "file", NULL};
static const char *const sample_kinds[] = {"stream", "documents", NULL};
static const char *const overlongs[] = {"fail", "cut", "drop", NULL};
static const char *const orders[] = {"shuffle", "sequential", NULL};
static const char *const precisions[] = {"f32", "bf16", NULL};
static const char *const optimizers[] = {"adamw", NULL};
static const char *const lr_schedules[] = {"cosine", "linear", "constant", NULL};
static const char *const on_fails[] = {"continue", "stop", NULL};
static const char *const searches[] = {"grid", "random", "asha", NULL};
static const char *const goals[] = {"min", "max", NULL};
static const char *const launchers[] = {"none", "torchrun", NULL};
static const char *const nonfinites[] = {"fail", "skip", "roll-back", NULL};
static const char *const cp_modes[] = {"zigzag", "ulysses", NULL};
static const char *const withins[] = {"any", "rack", NULL};
static const char *const class_changes[] = {"auto", "never", "at_checkpoint", NULL};
static const char *const exactnesses[] = {"relaxed", "strict", NULL};
static const char *const pipelines[] = {"1f1b", "interleaved", "zb-h1", "auto", NULL};
static const char *const recomputes[] = {"none", "selective", "full", "auto", NULL};
static const char *const codecs_tp[] = {"none", "t8", "r8", "r6", "auto", NULL};
static const char *const codecs_pp[] = {"none", "r8", "r4", "auto", NULL};
static const char *const codecs_dp[] = {"none", "sdp4bit", "g8", "auto", NULL};
static const char *const codecs_ckpt[] = {"none", "plane", "zstd", "lz4", "auto", NULL};
static const char *const codecs_archive[] = {"none", "plane", "zstd", "lz4", "optq", NULL};
static const char *const policies[] = {"pad",     "static", "sorted", "pack",  "pack-lpt", "round-robin",
                                       "dynamic", "skrull", "sweep",  "chunk", NULL};
static const char *const memories[] = {"none", "all", "sqrt", "mimose", NULL};
static const char *const optimizer_places[] = {"device", "files", NULL};
static const char *const on_brokens[] = {"cancel", "hold", NULL};
static const char *const signals[] = {"none", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", NULL};
static const char *const rope_scalings[] = {"auto", "none", "linear", "llama3", NULL};
static const char *const preset_names[] = {"gpt2-tiny",    "gpt2-124m",  "gpt2-350m",  "gpt2-774m", "gpt2-1.5b",
                                           "llama-tiny",   "llama-1b",   "llama-3b",   "llama-8b",  "qwen2.5-0.5b",
                                           "qwen2.5-1.5b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b",  "qwen3-8b",
                                           "mistral-7b",   "phi-3-mini", NULL};

#define LLAMA3(factor) .norm_eps = 1e-5, .rope_theta = 500000, .rope_scaling = "llama3", .rope_factor = (factor)
#define QWEN25 .norm_eps = 1e-6, .rope_theta = 1000000, .qkv_bias = true
#define QWEN3 .norm_eps = 1e-6, .rope_theta = 1000000, .qk_norm = true, .head_dim = 128

const struct preset spec_presets[] = {
    {"gpt2-tiny", MODEL_GPT2, 4, 128, 4, 4, 512, 128, 256, true, .norm_eps = 0},
    {"gpt2-124m", MODEL_GPT2, 12, 768, 12, 12, 3072, 1024, 50257, true, .norm_eps = 0},
    {"gpt2-350m", MODEL_GPT2, 24, 1024, 16, 16, 4096, 1024, 50257, true, .norm_eps = 0},
    {"gpt2-774m", MODEL_GPT2, 36, 1280, 20, 20, 5120, 1024, 50257, true, .norm_eps = 0},
    {"gpt2-1.5b", MODEL_GPT2, 48, 1600, 25, 25, 6400, 1024, 50257, true, .norm_eps = 0},
    {"llama-tiny", MODEL_LLAMA, 4, 128, 4, 2, 384, 128, 256, true, .norm_eps = 0},
    {"llama-1b", MODEL_LLAMA, 16, 2048, 32, 8, 8192, 131072, 128256, true, LLAMA3(32)},
    {"llama-3b", MODEL_LLAMA, 28, 3072, 24, 8, 8192, 131072, 128256, true, LLAMA3(32)},
    {"llama-8b", MODEL_LLAMA, 32, 4096, 32, 8, 14336, 131072, 128256, false, LLAMA3(8)},
    {"qwen2.5-0.5b", MODEL_LLAMA, 24, 896, 14, 2, 4864, 32768, 151936, true, QWEN25},
    {"qwen2.5-1.5b", MODEL_LLAMA, 28, 1536, 12, 2, 8960, 131072, 151936, true, QWEN25},
    {"qwen3-0.6b", MODEL_LLAMA, 28, 1024, 16, 8, 3072, 40960, 151936, true, QWEN3},
    {"qwen3-1.7b", MODEL_LLAMA, 28, 2048, 16, 8, 6144, 40960, 151936, true, QWEN3},
    {"qwen3-4b", MODEL_LLAMA, 36, 2560, 32, 8, 9728, 40960, 151936, true, QWEN3},
    {"qwen3-8b", MODEL_LLAMA, 36, 4096, 32, 8, 12288, 40960, 151936, false, QWEN3},
    {"mistral-7b", MODEL_LLAMA, 32, 4096, 32, 8, 14336, 32768, 32000, false, .norm_eps = 1e-5, .window = 4096},
    {"phi-3-mini", MODEL_LLAMA, 32, 3072, 32, 32, 8192, 4096, 32064, false, .norm_eps = 1e-5, .window = 2047,
     .fused = true},
};
const size_t spec_presets_n = sizeof(spec_presets) / sizeof(spec_presets[0]);

#define AT(member) offsetof(struct job_spec, member)

const struct field spec_fields[] = {
    {"/name", FIELD_NAME, SCOPE_ALL, AT(name), .def = "\"job\"", .help = "what people call the job"},
    {"/project", FIELD_NAME, SCOPE_ALL, AT(project), .def = "\"default\"", .help = "whose quota it counts against"},
    {"/priority", FIELD_INT, SCOPE_ALL, AT(priority), .lo = 0, .hi = 100, .def = "50", .help = "higher goes first"},
    {"/labels", FIELD_LABELS, SCOPE_ALL, AT(labels), .def = "{}",
     .help = "by which jobs are found and cancelled together"},
    {"/devices/min", FIELD_INT, SCOPE_ALL, AT(devices.min), .lo = 1, .hi = SPEC_DEVICES_MAX, .computed = "tp x pp x cp",
     .help = "fewest devices it starts on"},
    {"/devices/max", FIELD_INT, SCOPE_ALL, AT(devices.max), .lo = 1, .hi = SPEC_DEVICES_MAX, .computed = "min",
     .help = "most devices it is given"},
    {"/devices/classes", FIELD_NAMES, SCOPE_ALL, AT(devices.classes), .def = "[]",
     .help = "device classes it may run on; none: any"},
    {"/devices/exclude", FIELD_NAMES, SCOPE_ALL, AT(devices.exclude), .def = "[]",
     .help = "nodes that it never runs on"},
    {"/devices/prefer", FIELD_NAMES, SCOPE_ALL, AT(devices.prefer), .def = "[]",
     .help = "classes, racks or nodes that it would rather have than others; it waits for none of them"},
    {"/devices/within", FIELD_ENUM, SCOPE_ALL, AT(devices.within), .words = withins, .def = "\"any\"",
     .help = "rack: all its devices are of one rack, as agents tell it (`muster-agent --rack`); any: of one rack where "
             "that has room, else of several"},
    {"/devices/hetero_ok", FIELD_BOOL, SCOPE_ALL, AT(devices.hetero_ok), .def = "true",
     .help = "it may run on devices of two classes at a time and go on on others; false: all its devices are of one "
             "class, that which it began on"},
    {"/devices/class_change", FIELD_ENUM, SCOPE_ALL, AT(devices.class_change), .words = class_changes,
     .def = "\"auto\"",
     .help =
         "at_checkpoint: between two runs it may go on on devices of another class, and keeps the same bits within a "
         "class only; never: it stays on the class that it began on; auto: at_checkpoint for training with hetero_ok "
         "and exact relaxed"},
    {"/train/model/preset", FIELD_WORD, SCOPE_TRAIN, AT(train.model.preset), .words = preset_names, .computed = "none",
     .help = "a known model, whose sizes hold where none is given here"},
    {"/train/model/family", FIELD_ENUM, SCOPE_TRAIN, AT(train.model.family), .words = families,
     .computed = "the preset's, else gpt2", .help = "architecture"},
    {"/train/model/layers", FIELD_INT, SCOPE_TRAIN, AT(train.model.layers), .lo = 1, .hi = 1024,
     .computed = "the preset's; needed without one", .help = "transformer blocks"},
    {"/train/model/hidden", FIELD_INT, SCOPE_TRAIN, AT(train.model.hidden), .lo = 1, .hi = 65536,
     .computed = "the preset's; needed without one", .help = "width"},
    {"/train/model/heads", FIELD_INT, SCOPE_TRAIN, AT(train.model.heads), .lo = 1, .hi = 1024,
     .computed = "the preset's; needed without one", .help = "attention heads"},
    {"/train/model/kv_heads", FIELD_INT, SCOPE_TRAIN, AT(train.model.kv_heads), .lo = 1, .hi = 1024,
     .computed = "the preset's, else heads", .help = "heads of keys and values (llama)"},
    {"/train/model/ffn", FIELD_INT, SCOPE_TRAIN, AT(train.model.ffn), .lo = 1, .hi = 1 << 20,
     .computed = "the preset's, else 4 x hidden (gpt2) or 8/3 x hidden rounded up to 64 (llama)",
     .help = "inner width of a block's feed-forward part"},
    {"/train/model/context", FIELD_INT, SCOPE_TRAIN, AT(train.model.context), .lo = 1, .hi = 1 << 20,
     .computed = "the preset's, else 1024", .help = "longest sequence it can see, tokens"},
    {"/train/model/vocab", FIELD_INT, SCOPE_TRAIN, AT(train.model.vocab), .lo = 2, .hi = 1 << 24,
     .computed = "the preset's, else 256 for tokenizer bytes and 50257 for others",
     .help = "number of different tokens"},
    {"/train/model/dropout", FIELD_NUMBER, SCOPE_TRAIN, AT(train.model.dropout), .lo = 0, .hi = 1, .below_hi = true,
     .def = "0.0", .help = "share of activations dropped in training"},
    {"/train/model/tie_embeddings", FIELD_BOOL, SCOPE_TRAIN, AT(train.model.tie_embeddings),
     .computed = "the preset's, else true for gpt2", .help = "the output layer is the token embedding"},
    {"/train/model/norm_eps", FIELD_NUMBER, SCOPE_TRAIN, AT(train.model.norm_eps), .lo = 0, .hi = 1,
     .computed = "the preset's, else 0", .help = "added to the variance in norms; 0: that of init.from, else 1e-5"},
    {"/train/model/qkv_bias", FIELD_BOOL, SCOPE_TRAIN, AT(train.model.qkv_bias), .computed = "the preset's, else false",
     .help = "queries, keys and values have biases, as in Qwen2 (llama)"},
    {"/train/model/qk_norm", FIELD_BOOL, SCOPE_TRAIN, AT(train.model.qk_norm), .computed = "the preset's, else false",
     .help = "queries and keys are normed head by head, as in Qwen3 (llama; on processors)"},
    {"/train/model/fused", FIELD_BOOL, SCOPE_TRAIN, AT(train.model.fused), .computed = "the preset's, else false",
     .help = "queries, keys and values are one tensor, as are gate and up: the files of Phi-3 (llama)"},
    {"/train/model/head_dim", FIELD_INT, SCOPE_TRAIN, AT(train.model.head_dim), .lo = 0, .hi = 1024,
     .computed = "the preset's, else 0", .help = "width of a head; 0: that of init.from, else hidden / heads (llama)"},
    {"/train/model/window", FIELD_INT, SCOPE_TRAIN, AT(train.model.window), .lo = 0, .hi = 1 << 20,
     .computed = "the preset's, else 0",
     .help = "tokens that a token sees, itself among them, as in Mistral; 0: all before it (llama; on processors)"},
    {"/train/model/rope_theta", FIELD_NUMBER, SCOPE_TRAIN, AT(train.model.rope_theta), .lo = 0, .hi = 1e12,
     .computed = "the preset's, else 0",
     .help = "base of the rotation of positions; 0: that of init.from, else 10000 "
             "(llama)"},
    {"/train/model/rope_scaling", FIELD_WORD, SCOPE_TRAIN, AT(train.model.rope_scaling), .words = rope_scalings,
     .computed = "the preset's, else auto",
     .help = "how the rotation is slowed for long contexts; auto: as init.from "
             "says, else none (llama)"},
    {"/train/model/rope_factor", FIELD_NUMBER, SCOPE_TRAIN, AT(train.model.rope_factor), .lo = 1, .hi = 1e6,
     .computed = "the preset's, else 1", .help = "by how much, for linear and llama3 (llama)"},
    {"/train/model/rope_original", FIELD_INT, SCOPE_TRAIN, AT(train.model.rope_original), .lo = 1, .hi = 1 << 24,
     .def = "8192", .help = "the context before it was scaled, for llama3 (llama)"},
    {"/train/init/seed", FIELD_U64, SCOPE_TRAIN, AT(train.init.seed), .lo = 0, .hi = 9007199254740992.0, .def = "1234",
     .help = "of weights, order of samples and dropout"},
    {"/train/init/from", FIELD_TEXT, SCOPE_TRAIN, AT(train.init.from), .computed = "fresh weights",
     .help = "weights to start from: a .safetensors file or folder, or a checkpoint"},
    {"/train/init/resume", FIELD_BOOL, SCOPE_TRAIN, AT(train.init.resume), .def = "false",
     .help =
         "go on from the checkpoint in from: its step, its state of the optimizer and its place in the corpus, too"},
    {"/train/data/path", FIELD_TEXT, SCOPE_TRAIN, AT(train.data.path),
     .help = "the corpus, one file; absolute, the CLI makes it so"},
    {"/train/data/format", FIELD_ENUM, SCOPE_TRAIN, AT(train.data.format), .words = formats, .def = "\"text\"",
     .help = "text: plain text; jsonl: an object a line, with \"text\" or, for samples documents, with \"prompt\" and "
             "\"completion\", of which the completion is learnt; tokens: flat little-endian uint16 (vocab up "
             "to 65536) or uint32"},
    {"/train/data/separator", FIELD_ENUM, SCOPE_TRAIN, AT(train.data.separator), .words = separators, .def = "\"none\"",
     .help = "where a document of text ends: nowhere, at blank lines, at lines of %"},
    {"/train/data/tokenizer", FIELD_ENUM, SCOPE_TRAIN, AT(train.data.tokenizer), .words = tokenizers,
     .def = "\"bytes\"",
     .help = "how text becomes tokens: byte values, or byte-level BPE from tokenizer_path (gpt2: vocab.json and "
             "merges.txt; file: tokenizer.json)"},
    {"/train/data/tokenizer_path", FIELD_TEXT, SCOPE_TRAIN, AT(train.data.tokenizer_path), .computed = "none",
     .help = "the tokenizer's folder or file, for tokenizer file or gpt2"},
    {"/train/data/samples", FIELD_ENUM, SCOPE_TRAIN, AT(train.data.samples), .words = sample_kinds, .def = "\"stream\"",
     .help = "stream: the corpus as one text, cut every batch.length tokens; documents: each "
             "document by itself, whatever its length (sequence.policy says how they go together)"},
    {"/train/data/overlong", FIELD_ENUM, SCOPE_TRAIN, AT(train.data.overlong), .words = overlongs, .def = "\"fail\"",
     .help = "documents longer than batch.length: fail the job, are cut, or are left out"},
    {"/train/data/index", FIELD_TEXT, SCOPE_TRAIN, AT(train.data.index), .computed = "none",
     .help = "where documents of format tokens end: little-endian uint64, for each the number of the token after its "
             "last"},
    {"/train/data/order", FIELD_ENUM, SCOPE_TRAIN, AT(train.data.order), .words = orders, .def = "\"shuffle\"",
     .help = "shuffle: anew each epoch by the seed; sequential: as they lie in the file"},
    {"/train/data/holdout", FIELD_NUMBER, SCOPE_TRAIN, AT(train.data.holdout), .lo = 0, .hi = 0.5, .def = "0.0",
     .help = "share of the data kept for evaluation"},
    {"/train/batch/sequences", FIELD_INT, SCOPE_TRAIN, AT(train.batch.sequences), .lo = 1, .hi = 1 << 20, .def = "8",
     .help = "sequences or documents a step over all replicas (B)"},
    {"/train/batch/micro", FIELD_AUTO, SCOPE_TRAIN, AT(train.batch.micro), .lo = 1, .hi = 1 << 20, .def = "\"auto\"",
     .help = "sequences a micro-batch; divides B / V. Of documents for the policies pad and sorted; auto: as many as "
             "capacity holds of length"},
    {"/train/batch/length", FIELD_INT, SCOPE_TRAIN, AT(train.batch.length), .lo = 1, .hi = 1 << 20,
     .computed = "the model's context", .help = "tokens a sequence; most tokens of a document"},
    {"/train/batch/capacity", FIELD_INT, SCOPE_TRAIN, AT(train.batch.capacity), .lo = 1, .hi = 1 << 24,
     .computed = "length, or what cp leaves a rank of it",
     .help = "most tokens of a micro-batch of documents that a rank holds: what memory is taken for"},
    {"/train/steps", FIELD_INT, SCOPE_TRAIN, AT(train.steps), .lo = 1, .hi = 1000000000, .def = "1000",
     .help = "optimizer steps"},
    {"/train/precision", FIELD_ENUM, SCOPE_TRAIN, AT(train.precision), .words = precisions, .def = "\"f32\"",
     .help = "of matrix products: bf16 rounds what goes into them; sums, the residual stream, gradients and master "
             "weights stay f32"},
    {"/train/optimizer/name", FIELD_FIXED, SCOPE_TRAIN, AT(train.optimizer.lr), .words = optimizers, .def = "\"adamw\"",
     .help = "the optimizer"},
    {"/train/optimizer/lr", FIELD_NUMBER, SCOPE_TRAIN, AT(train.optimizer.lr), .lo = 0, .hi = 1000, .above_lo = true,
     .def = "6e-4", .help = "highest learning rate"},
    {"/train/optimizer/betas", FIELD_PAIR, SCOPE_TRAIN, AT(train.optimizer.beta1), .lo = 0, .hi = 1, .below_hi = true,
     .def = "[0.9, 0.95]", .help = "decay of the first and second moment"},
    {"/train/optimizer/eps", FIELD_NUMBER, SCOPE_TRAIN, AT(train.optimizer.eps), .lo = 0, .hi = 1, .above_lo = true,
     .def = "1e-8", .help = "added to the root of the second moment"},
    {"/train/optimizer/weight_decay", FIELD_NUMBER, SCOPE_TRAIN, AT(train.optimizer.weight_decay), .lo = 0, .hi = 1000,
     .def = "0.1", .help = "decoupled; not on biases, norms and 1-D tensors"},
    {"/train/optimizer/clip", FIELD_NUMBER, SCOPE_TRAIN, AT(train.optimizer.clip), .lo = 0, .hi = 1000000000,
     .def = "1.0", .help = "largest global norm of the gradient; 0: no clipping"},
    {"/train/optimizer/schedule", FIELD_ENUM, SCOPE_TRAIN, AT(train.optimizer.schedule), .words = lr_schedules,
     .def = "\"cosine\"", .help = "of the learning rate after warmup"},
    {"/train/optimizer/warmup", FIELD_INT, SCOPE_TRAIN, AT(train.optimizer.warmup), .lo = 0, .hi = 1000000000,
     .computed = "a tenth of steps, at most 50", .help = "steps over which the learning rate grows"},
    {"/train/optimizer/min_lr_ratio", FIELD_NUMBER, SCOPE_TRAIN, AT(train.optimizer.min_lr_ratio), .lo = 0, .hi = 1,
     .def = "0.1", .help = "share of lr that is left at the end"},
    {"/train/eval/every_steps", FIELD_INT, SCOPE_TRAIN, AT(train.eval.every_steps), .lo = 0, .hi = 1000000000,
     .def = "0", .help = "steps between evaluations; 0: before the first and after the last step only"},
    {"/train/eval/sequences", FIELD_INT, SCOPE_TRAIN, AT(train.eval.sequences), .lo = 1, .hi = 1000000, .def = "64",
     .help = "most held-out sequences looked at each time"},
    {"/train/on_nonfinite", FIELD_ENUM, SCOPE_TRAIN, AT(train.on_nonfinite), .words = nonfinites,
     .def = "\"roll-back\"",
     .help = "a step whose loss or gradient is not finite fails the job, is skipped, or has the job go on from a "
             "checkpoint further back, three times"},
    {"/train/nonfinite_limit", FIELD_INT, SCOPE_TRAIN, AT(train.nonfinite_limit), .lo = 1, .hi = 1000000, .def = "10",
     .help = "steps skipped in a row before the job fails"},
    {"/command/argv", FIELD_ARGV, SCOPE_COMMAND, AT(command.argv),
     .help = "the program and its arguments; a plain string for command is run by /bin/sh -c"},
    {"/command/env", FIELD_ENV, SCOPE_COMMAND, AT(command.env), .def = "{}",
     .help = "variables added to the environment"},
    {"/command/workdir", FIELD_TEXT, SCOPE_COMMAND, AT(command.workdir),
     .computed = "the folder that `muster submit` is called in; over REST the job's folder",
     .help = "folder that it runs in, on every node; with bundle a folder of that"},
    {"/command/bundle", FIELD_TEXT, SCOPE_COMMAND, AT(command.bundle), .hi = BUNDLE_NAME_BYTES - 1, .computed = "none",
     .help = "SHA-256 of files that the user has uploaded, as `muster submit --upload DIR` does: the job runs in a "
             "copy of them, `work` in its folder"},
    {"/command/git/url", FIELD_TEXT, SCOPE_COMMAND, AT(command.git.url), .computed = "none",
     .help = "https://, ssh:// or an absolute path, without a password; `work` in the job's folder is then its commit"},
    {"/command/git/ref", FIELD_TEXT, SCOPE_COMMAND, AT(command.git.ref), .computed = "HEAD",
     .help = "branch, tag or commit that `muster submit` looks up as it submits"},
    {"/command/git/commit", FIELD_TEXT, SCOPE_COMMAND, AT(command.git.commit),
     .computed = "what `muster submit` finds for ref", .help = "what is checked out, in full"},
    {"/command/image", FIELD_TEXT, SCOPE_COMMAND, AT(command.image), .hi = 512, .computed = "none",
     .help = "docker://NAME, or the absolute path of a file: what its program runs in, by the node's podman or "
             "apptainer ([programs.md](programs.md))"},
    {"/command/grace_s", FIELD_INT, SCOPE_COMMAND, AT(command.grace_s), .lo = 0, .hi = 3600, .def = "10",
     .help = "seconds from SIGTERM to SIGKILL"},
    {"/command/ranks", FIELD_INT, SCOPE_COMMAND, AT(command.ranks), .lo = 1, .hi = SPEC_RANKS_MAX, .def = "1",
     .help = "processes that share a device, each a rank; with launcher none"},
    {"/command/launcher", FIELD_ENUM, SCOPE_COMMAND, AT(command.launcher), .words = launchers, .def = "\"none\"",
     .help = "torchrun: it starts the processes of a node, each a rank; none: the agent does"},
    {"/command/elastic", FIELD_BOOL, SCOPE_COMMAND, AT(command.elastic), .def = "false",
     .help = "it obeys orders to save and end, and goes on with another number of devices between devices.min and max "
             "([programs.md](programs.md))"},
    {"/command/stop_s", FIELD_INT, SCOPE_COMMAND, AT(command.stop_s), .lo = 0, .hi = 3600, .def = "120",
     .help = "seconds that an elastic one has to obey before SIGTERM, after which grace_s begins"},
    {"/command/ports", FIELD_NAMES, SCOPE_COMMAND, AT(command.ports), .def = "[]",
     .help =
         "names, at most 8: for each a run has a port of its own, `MUSTER_PORT_NAME`, on which its program may listen "
         "and which `muster port-forward JOB NAME` reaches"},
    {"/parallel/tp", FIELD_AUTO, SCOPE_TRAIN, AT(parallel.tp), .lo = 1, .hi = 1024, .def = "1",
     .help = "tensor parallel: ranks that share each layer"},
    {"/parallel/pp", FIELD_AUTO, SCOPE_TRAIN, AT(parallel.pp), .lo = 1, .hi = 1024, .def = "1",
     .help = "pipeline parallel: ranks that each hold some layers"},
    {"/parallel/cp", FIELD_AUTO, SCOPE_TRAIN, AT(parallel.cp), .lo = 1, .hi = 1024, .def = "1",
     .help = "context parallel: ranks that share each sequence"},
    {"/parallel/cp_mode", FIELD_ENUM, SCOPE_TRAIN, AT(parallel.cp_mode), .words = cp_modes, .def = "\"zigzag\"",
     .help = "what they exchange for attention: zigzag, keys and values; ulysses, heads, with a cp that divides the "
             "kv_heads of a rank of tp"},
    {"/parallel/virtual_workers", FIELD_AUTO, SCOPE_TRAIN, AT(parallel.virtual_workers), .lo = 1, .hi = 65536,
     .computed = "the largest number up to 8 that divides B (and B / micro)",
     .help = "fixed leaves of the gradient tree (V), so that results do not depend on devices; divides B"},
    {"/parallel/sequence_parallel", FIELD_SWITCH, SCOPE_TRAIN, AT(parallel.sequence_parallel), .def = "false",
     .help = "with tp: each rank has norms and dropout of a part of the tokens, which saves memory"},
    {"/parallel/zero", FIELD_AUTO, SCOPE_TRAIN, AT(parallel.zero), .lo = 0, .hi = 1, .auto_value = SPEC_AUTO_SWITCH,
     .def = "1",
     .help = "1: the optimizer's state is split over replicas, which takes no more time or memory in any layout; so "
             "auto is 1"},
    {"/parallel/exact", FIELD_ENUM, SCOPE_TRAIN, AT(parallel.exact), .words = exactnesses, .def = "\"relaxed\"",
     .help = "strict: the same bits for any number of replicas, also with codecs"},
    {"/parallel/schedule", FIELD_ENUM, SCOPE_TRAIN, AT(parallel.schedule), .words = pipelines, .def = "\"1f1b\"",
     .help = "of the pipeline"},
    {"/parallel/chunks", FIELD_AUTO, SCOPE_TRAIN, AT(parallel.chunks), .lo = 1, .hi = 64, .def = "1",
     .help = "pieces of the model that each pipeline rank holds, for interleaved and zb-h1"},
    {"/parallel/layers", FIELD_COUNTS, SCOPE_TRAIN, AT(parallel.layers), .lo = 1, .hi = 1024, .def = "[]",
     .help = "of each of the pp x chunks stages, in the model's order; empty: even, fewer where the head is"},
    {"/parallel/recompute", FIELD_ENUM, SCOPE_TRAIN, AT(parallel.recompute), .words = recomputes, .def = "\"none\"",
     .help = "activations the backward pass makes again instead of keeping them, with the same results: selective, "
             "outputs of norms and activations; full, all but each block's input. Not with zb-h1"},
    {"/parallel/recompute_layers", FIELD_COUNTS, SCOPE_TRAIN, AT(parallel.recompute_layers), .lo = 0, .hi = 1024,
     .def = "[]",
     .help = "how many layers of each of the pp x chunks stages recompute is for, in the model's order; the others "
             "keep their activations. Empty: it is for all"},
    {"/compress/tp", FIELD_WORD, SCOPE_TRAIN, AT(compress.tp), .words = codecs_tp, .def = "\"none\"",
     .help = "codec of tensor-parallel messages"},
    {"/compress/pp", FIELD_WORD, SCOPE_TRAIN, AT(compress.pp), .words = codecs_pp, .def = "\"none\"",
     .help = "codec of pipeline messages"},
    {"/compress/dp", FIELD_WORD, SCOPE_TRAIN, AT(compress.dp), .words = codecs_dp, .def = "\"none\"",
     .help = "codec of gradients between replicas"},
    {"/compress/checkpoint", FIELD_WORD, SCOPE_TRAIN, AT(compress.checkpoint), .words = codecs_ckpt, .def = "\"none\"",
     .help = "codec of checkpoints; lossless"},
    {"/sequence/policy", FIELD_WORD, SCOPE_TRAIN, AT(sequence.policy), .words = policies,
     .computed = "sweep for documents, pad for a stream",
     .help = "how documents become micro-batches (docs/sequence.md)"},
    {"/sequence/chunk_tokens", FIELD_INT, SCOPE_TRAIN, AT(sequence.chunk_tokens), .lo = 1, .hi = 1 << 20, .def = "2048",
     .help = "tokens a chunk, for policy chunk"},
    {"/sequence/keep_chunks", FIELD_INT, SCOPE_TRAIN, AT(sequence.keep_chunks), .lo = 1, .hi = 1024, .def = "2",
     .help = "chunks whose activations are kept, for policy chunk"},
    {"/resources/memory_mib", FIELD_INT, SCOPE_ALL, AT(resources.memory_mib), .lo = 0, .hi = 1 << 24, .def = "0",
     .help = "memory that each rank may take, MiB; more ends it, with the job's fault. 0: the share of its device"},
    {"/resources/cpus", FIELD_NUMBER, SCOPE_ALL, AT(resources.cpus), .lo = 0, .hi = 4096, .def = "0",
     .help = "processors that each rank may take; 0: the share of its device"},
    {"/resources/pids", FIELD_INT, SCOPE_ALL, AT(resources.pids), .lo = 0, .hi = 1 << 22, .def = "0",
     .help = "processes and threads that each rank may have; 0: the share of its device"},
    {"/memory/activation_budget_mib", FIELD_INT, SCOPE_TRAIN, AT(memory.activation_budget_mib), .lo = 0, .hi = 1 << 24,
     .def = "0",
     .help = "most memory for activations a rank, MiB: a job that would take more does not "
             "start; 0: no limit"},
    {"/memory/optimizer", FIELD_WORD, SCOPE_TRAIN, AT(memory.optimizer), .words = optimizer_places, .def = "\"device\"",
     .help = "where the optimizer's masters and moments are: device, in its memory; files, beside the checkpoints, "
             "read and written each step (docs/training.md)"},
    {"/memory/policy", FIELD_WORD, SCOPE_TRAIN, AT(memory.policy), .words = memories, .def = "\"none\"",
     .help = "which blocks' activations are dropped and made again, with the same results: all; sqrt, runs of as many "
             "blocks as there are runs; mimose, in each micro-batch as few as keep the budget. Not with recompute or "
             "zb-h1"},
    {"/checkpoint/dir", FIELD_TEXT, SCOPE_TRAIN, AT(checkpoint.dir), .computed = "checkpoints in the job's folder",
     .help = "where checkpoints go: a path below the job's folder, or an absolute one; a folder of your own, without "
             "'..'"},
    {"/checkpoint/every_steps", FIELD_AUTO, SCOPE_TRAIN, AT(checkpoint.every_steps), .lo = 0, .hi = 1000000000,
     .auto_value = SPEC_EVERY_AUTO, .def = "100",
     .help = "steps between checkpoints; 0: only at the end and when "
             "asked; auto: from what one is seen to cost and mtbf_hours"},
    {"/checkpoint/keep", FIELD_INT, SCOPE_TRAIN, AT(checkpoint.keep), .lo = 2, .hi = 10000, .def = "3",
     .help = "newest checkpoints kept"},
    {"/checkpoint/keep_every", FIELD_INT, SCOPE_TRAIN, AT(checkpoint.keep_every), .lo = 0, .hi = 1000000000, .def = "0",
     .help = "checkpoints of a step that this divides are kept too; 0: none"},
    {"/checkpoint/archive", FIELD_WORD, SCOPE_TRAIN, AT(checkpoint.archive), .words = codecs_archive, .def = "\"none\"",
     .help =
         "codec with which all checkpoints but the newest are written anew, in the "
         "background; lossless, but for AdamW's moments with optq (docs/compression.md); none: they stay as they are"},
    {"/checkpoint/memory_every_steps", FIELD_AUTO, SCOPE_TRAIN, AT(checkpoint.memory_every_steps), .lo = 0,
     .hi = 1000000000, .auto_value = SPEC_EVERY_AUTO, .def = "\"auto\"",
     .help = "steps between snapshots in the "
             "nodes' memory, from which the job goes on when a rank dies or a node is lost; 0: none; auto: as for "
             "every_steps"},
    {"/checkpoint/mtbf_hours", FIELD_NUMBER, SCOPE_TRAIN, AT(checkpoint.mtbf_hours), .lo = 0, .hi = 1e6,
     .above_lo = true, .def = "24.0", .help = "mean time between failures of a node, for auto"},
    {"/retry/max", FIELD_INT, SCOPE_ALL, AT(retry.max), .lo = 0, .hi = 1000, .def = "3",
     .help = "restarts after faults of the system or a node"},
    {"/retry/user", FIELD_INT, SCOPE_ALL, AT(retry.user), .lo = 0, .hi = 1000, .def = "0",
     .help = "restarts after the job's own faults"},
    {"/logs/max_mib", FIELD_INT, SCOPE_ALL, AT(logs.max_mib), .lo = 16, .hi = 1024, .def = "64",
     .help = "MiB that the server keeps of each rank's output in an attempt: the first quarter and the newest three, "
             "with a note of what is left out between them"},
    {"/array/index", FIELD_TEXT, SCOPE_ARRAY, AT(array.index), .hi = SPEC_INDEX_BYTES, .computed = "0, 1, ...",
     .help = "which tasks there are: numbers and ranges that grow, `0-99:2,120`; with a matrix, which of its "
             "combinations, from 0"},
    {"/array/count", FIELD_INT, SCOPE_ARRAY, AT(array.count), .lo = 1, .hi = SPEC_TASKS_MAX,
     .computed = "the indices, or the combinations of matrix", .help = "how many tasks there are"},
    {"/array/max_running", FIELD_INT, SCOPE_ARRAY, AT(array.max_running), .lo = 1, .hi = SPEC_TASKS_MAX,
     .computed = "all", .help = "most tasks that have devices at one time"},
    {"/array/on_fail", FIELD_ENUM, SCOPE_ARRAY, AT(array.on_fail), .words = on_fails, .def = "\"continue\"",
     .help = "what failed tasks mean to the others: nothing, or after fail_limit of them all others are cancelled"},
    {"/array/fail_limit", FIELD_INT, SCOPE_ARRAY, AT(array.fail_limit), .lo = 1, .hi = SPEC_TASKS_MAX, .def = "1",
     .help = "tasks that have to fail for on_fail: stop"},
    {"/array/matrix", FIELD_VALUES, SCOPE_ARRAY, AT(array.matrix), .computed = "none",
     .help = "an array of values for each name; a task for each combination, the last name turning fastest; "
             "`${{param.NAME}}` is a task's value"},
    {"/array/ranges", FIELD_VALUES, SCOPE_ARRAY, AT(array.ranges), .computed = "none",
     .help = "for each name `{min, max}`, with `log: true` or `whole: true`, from which a random search draws"},
    {"/array/search/method", FIELD_ENUM, SCOPE_ARRAY, AT(array.search.method), .words = searches, .def = "\"grid\"",
     .help = "grid: each combination of matrix; random: count tasks whose values are drawn from matrix and ranges; "
             "asha: the same, and the better ones go on for longer"},
    {"/array/search/seed", FIELD_U64, SCOPE_ARRAY, AT(array.search.seed), .lo = 0, .hi = 9007199254740992.0, .def = "0",
     .help = "of what is drawn"},
    {"/array/search/metric", FIELD_TEXT, SCOPE_ARRAY, AT(array.search.metric), .hi = 63, .computed = "loss",
     .help = "what tasks measure and asha compares: a name in their metrics"},
    {"/array/search/goal", FIELD_ENUM, SCOPE_ARRAY, AT(array.search.goal), .words = goals, .def = "\"min\"",
     .help = "whether less of it is better, or more"},
    {"/array/search/first_steps", FIELD_INT, SCOPE_ARRAY, AT(array.search.first_steps), .lo = 0, .hi = 1000000000,
     .def = "0", .help = "steps after which asha pauses a task for the first time; asha needs it, 0 for others"},
    {"/array/search/reduction", FIELD_INT, SCOPE_ARRAY, AT(array.search.reduction), .lo = 2, .hi = 16, .def = "4",
     .help = "one task in so many goes on, to so many times the steps"},
    {"/array/search/rungs", FIELD_INT, SCOPE_ARRAY, AT(array.search.rungs), .lo = 1, .hi = 16, .def = "3",
     .help = "how often a task is paused; one that goes on after that runs to its own end"},
    {"/after", FIELD_AFTER, SCOPE_ALL, AT(after), .computed = "none",
     .help =
         "jobs that it comes after: `{job: j17, when: ok}`, with ok (it has succeeded), ended, failed (or cancelled) "
         "or started. `${{after.0.dir}}` is the folder of the first"},
    {"/on_broken", FIELD_ENUM, SCOPE_ALL, AT(on_broken), .words = on_brokens, .def = "\"cancel\"",
     .help = "what becomes of it when one of them can never be as wanted: it is cancelled, or held"},
    {"/singleton", FIELD_BOOL, SCOPE_ALL, AT(singleton), .def = "false",
     .help = "it starts once no job of the same name and user runs, or was queued before it"},
    {"/notify/webhook", FIELD_TEXT, SCOPE_ALL, AT(notify.webhook), .hi = SPEC_SECRET_MAX, .computed = "none",
     .help = "webhook of the user (`muster webhook add`) that hears of this job, of what on says"},
    {"/notify/on", FIELD_NAMES, SCOPE_ALL, AT(notify.on), .def = "[]",
     .help = "of what: started, succeeded, failed, cancelled, recovering, suspended, hung, slow; none: succeeded and "
             "failed"},
    {"/reservation", FIELD_TEXT, SCOPE_ALL, AT(reservation), .hi = SPEC_NAME_MAX - 1, .computed = "none",
     .help = "it runs on the devices of this reservation (`muster reserve`) once that begins; when it is over, as any "
             "other job"},
    {"/limits/time_s", FIELD_INT, SCOPE_ALL, AT(limits.time_s), .lo = 0, .hi = SPEC_TIME_S_MAX, .def = "0",
     .help = "seconds that it may run, all its attempts together: then it saves, ends and has failed. Waiting does not "
             "count; 0: no limit, or what its project sets"},
    {"/limits/queue_s", FIELD_INT, SCOPE_ALL, AT(limits.queue_s), .lo = 0, .hi = SPEC_TIME_S_MAX, .def = "0",
     .help = "seconds that it may wait for its first devices: then it is cancelled; 0: no limit"},
    {"/limits/finish_by", FIELD_TEXT, SCOPE_ALL, AT(limits.finish_by), .hi = 40, .computed = "none",
     .help = "when it should have ended, such as 2026-11-21T06:00:00Z: a wish, for which it goes before jobs that have "
             "time. The answer to its submit says whether it will"},
    {"/limits/warn_s", FIELD_INT, SCOPE_ALL, AT(limits.warn_s), .lo = 0, .hi = 86400, .def = "60",
     .help = "so many seconds before the end of time_s it is warned and told to save; 0: it is not"},
    {"/limits/warn_signal", FIELD_WORD, SCOPE_COMMAND, AT(limits.warn_signal), .words = signals, .def = "\"none\"",
     .help = "signal that a command is sent with the warning. One that its program does not handle ends the program"},
};
const size_t spec_fields_n = sizeof(spec_fields) / sizeof(spec_fields[0]);

const char *spec_object_help(const char *path)
{
    static const struct {
        const char *path, *help;
    } objects[] = {
        {"/devices", "what the job runs on"},
        {"/train", "training by the built-in engine; either this or command"},
        {"/train/model", "the model: a preset's name as plain text, or sizes"},
        {"/train/init", "where weights come from"},
        {"/train/data", "what it learns from"},
        {"/train/batch", "sizes of a step"},
        {"/train/optimizer", "how weights change"},
        {"/train/eval", "evaluation loss, on held-out data"},
        {"/command", "any program, one process a device; either this or train"},
        {"/command/git", "a repository whose files the job runs in, checked out by its node"},
        {"/parallel", "how ranks share the work of training; what is \"auto\" the planner chooses when the job starts, "
                      "and the text \"auto\" leaves tp, pp, schedule, chunks and recompute to it"},
        {"/compress", "compression of messages and checkpoints"},
        {"/sequence", "how documents of different lengths go together"},
        {"/resources",
         "what each rank may take of its node, held by its control group where the agent can make one; the "
         "share of a device is that of the node by its number of devices, and holds where ranks have "
         "accounts of their own"},
        {"/memory", "activation memory"},
        {"/checkpoint", "saving and resuming"},
        {"/retry", "restarts by the server"},
        {"/notify", "who is told of it (docs/webhooks.md)"},
        {"/logs", "what ranks print"},
        {"/array", "many tasks of one spec (docs/arrays.md); `${{index}}` and `${{param.NAME}}` are filled in in name, "
                   "command.argv, command.env, train.data, train.init and train.optimizer"},
        {"/array/search", "how the values of tasks are chosen"},
        {"/limits", "how long it may run and wait"},
    };

    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
        if (strcmp(objects[i].path, path) == 0)
            return objects[i].help;
    return NULL;
}
