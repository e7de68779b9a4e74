/* muster_state.h - checkpoints, plans and codecs for other people's programs: libmuster-state.so.1
 *
 * What muster.torch stands on: the writer and reader of docs/checkpoints.md, the planner of docs/sequence.md, the order
 * of samples, and the codecs of docs/compression.md. Of others' libraries it needs libc, jansson and xxhash, as
 * Muster's own programs do; the rest is linked into it, and only the names below are seen: load it with RTLD_LOCAL
 * where other versions may be about. Handles are opaque, structs begin with their size (fields are only ever appended),
 * documents are JSON text in UTF-8.
 *
 * Calls return 0 or a negative errno, with words in mstate_last_error(). A handle is for one thread at a time; the work
 * happens on the library's own threads, none of which runs before mstate_writer_new. Symbols have the version
 * MUSTER_STATE_1.0.
 */
#ifndef MUSTER_STATE_H
#define MUSTER_STATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Words for the last call of this thread that failed; never NULL. */
const char *mstate_last_error(void);

/* Frees a text that a call has given. NULL is fine. */
void mstate_text_free(char *text);

/* --- checkpoints ------------------------------------------------------------------------------------------------- */

#define MSTATE_DIMS 6

/* What a tensor is for, and the type of its elements: the numbers of docs/checkpoints.md. */
enum mstate_roles {
    MSTATE_MASTER, /* weights as they are updated: what an export writes */
    MSTATE_WEIGHT,
    MSTATE_MOMENT1,
    MSTATE_MOMENT2,
    MSTATE_OPTIMIZER,
    MSTATE_EMA,
    MSTATE_GRADIENT,
    MSTATE_BUFFER,
    MSTATE_OPAQUE
};
enum mstate_types {
    MSTATE_F32,
    MSTATE_BF16,
    MSTATE_F16,
    MSTATE_F64,
    MSTATE_I64,
    MSTATE_I32,
    MSTATE_U8,
    MSTATE_I8,
    MSTATE_I16,
    MSTATE_BOOL,
    MSTATE_F8E4M3FN,
    MSTATE_F8E5M2,
    MSTATE_U16,
    MSTATE_U32,
    MSTATE_U64,
    MSTATE_C64,
    MSTATE_C128
};

/* Memory that holds a box of a tensor, or elements [sub_begin, sub_end) of that box in row-major order (0, 0: all of
 * it), dense, the first at data. Of an array of them the first one's size counts. */
struct mstate_buffer {
    uint32_t size; /* sizeof(struct mstate_buffer) */
    int32_t role, dtype, ndim;
    const char *name; /* of the tensor, 1 to 1024 bytes; copied */
    uint64_t shape[MSTATE_DIMS], off[MSTATE_DIMS], len[MSTATE_DIMS];
    uint64_t sub_begin, sub_end;
    void *data;
    int32_t bucket;   /* for mstate_writer_gate; 0.. */
    uint32_t replica; /* 1: another rank stores the same bytes, from here none are */
};

enum mstate_modes { MSTATE_AUTO, MSTATE_STAGED, MSTATE_ZEROCOPY };

struct mstate_options {
    uint32_t size; /* sizeof(struct mstate_options) */
    int32_t rank, world;
    int32_t keep;        /* newest checkpoints kept, at least 2 */
    uint64_t keep_every; /* those of steps that this divides are kept too; 0: none */
    const char *dir;     /* one folder for all ranks, on one file system; made when missing */
    const char *codec;   /* "none", "plane", "zstd", "lz4" or "auto" */
    uint64_t generation; /* a writer of an older one than was seen in dir never commits: -ESTALE */
    uint64_t pool_bytes; /* memory for copies; 0: 64 MiB */
    int32_t mode;        /* enum mstate_modes */
    int32_t timeout_s;   /* for all ranks to have written; 0: 300 */
};

typedef struct mstate_writer mstate_writer;

/* A writer for the buffers, whose memory must stay until it is freed. -ESTALE, -EINVAL with the buffer's name, errors
 * of the file system. */
int mstate_writer_new(const struct mstate_options *options, const struct mstate_buffer *buffers, size_t n,
                      mstate_writer **ret);

#define MSTATE_SYNC 1u /* write from where the buffers lie; mstate_writer_gate waits until it is committed */

/* Begin a checkpoint of the buffers as they are now; they may be read until mstate_writer_gate. cursor: a JSON object
 * with "step", kept with it, that of rank 0. All ranks begin the same steps. -EBUSY: two are under way. */
int mstate_writer_begin(mstate_writer *w, uint64_t step, const char *cursor, uint32_t flags);

/* Before the buffers of a bucket (-1: all) are changed: returns once they are copied. With -1 it also says that nothing
 * was changed since mstate_writer_begin: no checkpoint is committed before. */
int mstate_writer_gate(mstate_writer *w, int32_t bucket);

/* Instead of it, where something was: nothing of that step is committed, and mstate_writer_next_done tells why.
 * -ENOENT: nothing of it is under way. */
int mstate_writer_abandon(mstate_writer *w, uint64_t step, const char *why);

/* Wait until nothing is under way, at most timeout_ms: -ETIMEDOUT. After mstate_writer_gate. */
int mstate_writer_drain(mstate_writer *w, int64_t timeout_ms);

/* 1 with the end of a checkpoint that was not told before, else 0: {"step","code","message","path","bytes",
 * "stored_bytes","capture_us","write_us","stall_us","removed"}; code 0: committed (on rank 0) or written (elsewhere).
 */
int mstate_writer_next_done(mstate_writer *w, char **ret);

/* What is under way is given up. NULL is fine. */
void mstate_writer_free(mstate_writer *w);

/* {"checkpoints":[{"step","path","bytes","stored_bytes","created"}],"skipped":[{"step","reason"}]}: the whole ones of a
 * folder by step, and those newer than the newest of them that are not whole. */
int mstate_list(const char *dir, char **ret);

typedef struct mstate mstate;

/* Open the checkpoint of a step in dir. -ENOENT, -EBADMSG: damaged. */
int mstate_open(const char *dir, uint64_t step, mstate **ret);
void mstate_free(mstate *c);

#define MSTATE_BRIEF 1u /* without shards and chunks */

/* All that is known of it: {"step","path","writers","files","tensors","kv",...}. */
int mstate_inspect(const mstate *c, uint32_t flags, char **ret);

/* Fill the buffers, whatever layout wrote them; every byte read is verified. Floats of 16 and 32 bits are converted.
 * -ENOENT with the tensor's name, -EINVAL of another shape or type, -EBADMSG. */
int mstate_load(mstate *c, const struct mstate_buffer *buffers, size_t n);

/* --- samples ------------------------------------------------------------------------------------------------------ */

/* The sample, below n, that has number i since the run began: each epoch of n has an order of its own, without memory.
 * 0 where n is 0. */
uint64_t morder_index(uint64_t seed, uint64_t i, uint64_t n);

struct mseq_options {
    uint32_t size; /* sizeof(struct mseq_options) */
    int32_t replicas;
    int32_t ranks;      /* of a replica that share its sequences; 1: none is cut */
    int32_t micro;      /* pad, sorted: sequences a micro-batch; 0: 1 */
    const char *policy; /* NULL: "sweep" */
    int64_t capacity;   /* tokens a rank holds */
    uint64_t seed;
    int64_t hidden, kv_hidden, layers; /* of the model; */
    double flops_per_s;                /* and what a rank does */
    double micro_s;                    /* fixed part of a micro-batch */
    double lin_s, quad_s;              /* above 0: seconds of S tokens are lin_s S + quad_s S^2, instead of the model */
};

/* Lay sequences of so many tokens out over replicas and micro-batches: the document of docs/sequence.md, for mseq_free.
 * -EINVAL, -E2BIG: a sequence is longer than fits. */
int mseq_plan(const struct mseq_options *options, const int64_t *tokens, size_t n, char **ret);
void mseq_free(char *plan);

/* --- codecs ------------------------------------------------------------------------------------------------------- */

/* One of docs/compression.md. It lives for ever, keeps nothing, and any thread may use it. */
typedef struct mcodec mcodec;

enum mcodec_types { MCODEC_F32, MCODEC_BF16 }; /* of values */

#define MCODEC_NONFINITE 1u /* flag: some value was not finite, or too large, and was coded as 0 */

/* The place of a run of values: chance in rounding depends on it alone. NULL: all 0. */
struct mcodec_site {
    uint32_t size; /* sizeof(struct mcodec_site) */
    uint32_t tensor, step, micro;
    uint64_t seed;
    uint64_t offset; /* of the run's first value in its tensor; a multiple of mcodec_group */
};

/* What is summed: n blocks of len bytes each, in their order. Where own is not NULL, one of them is NULL, and own's
 * values count there, uncoded. */
struct mcodec_parts {
    uint32_t size;    /* sizeof(struct mcodec_parts) */
    int32_t own_type; /* enum mcodec_types */
    const void *const *blocks;
    size_t n, len;
    const void *own;
};

/* The codec of a name, as "r6". -EINVAL, -ENOTSUP: there is none. */
int mcodec_find(const char *name, const mcodec **ret);

/* Values that share a scale: cut runs at multiples of it. */
size_t mcodec_group(const mcodec *codec);

/* Bytes of the block of n values; 0: so many are not coded. */
size_t mcodec_size(const mcodec *codec, size_t n);

/* Code n values into mcodec_size bytes. flags (NULL is fine, here and below) is ORed with the flags. */
int mcodec_encode(const mcodec *codec, const struct mcodec_site *site, int32_t type, const void *values, size_t n,
                  void *block, uint32_t *flags);

/* A block of len bytes from outside into n values. -EBADMSG: it is no block of this codec for n values. */
int mcodec_decode(const mcodec *codec, const void *block, size_t len, int32_t type, void *values, size_t n,
                  uint32_t *flags);

/* The sum of the parts, in f32: as n values, or coded again with a codec of the same transform. As mcodec_decode. */
int mcodec_reduce(const mcodec *codec, const struct mcodec_parts *parts, int32_t type, void *values, size_t n,
                  uint32_t *flags);
int mcodec_reduce_encode(const mcodec *codec, const struct mcodec_parts *parts, const mcodec *to,
                         const struct mcodec_site *site, void *block, size_t n, uint32_t *flags);

#ifdef __cplusplus
}
#endif

#endif
