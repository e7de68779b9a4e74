/* checkpoint - the training state of a job on disk: written while training goes on, read into any layout
 *
 * Source: papers/checkpointing.md (format: section 2; commit: 1.6 and 4; loading: 2.7). A checkpoint is a
 * folder step-%08u of the job's checkpoint folder holding rank-%05u.mck for each writer and MANIFEST, which is
 * renamed into place last: a folder without MANIFEST does not exist. Every stored extent names its logical
 * tensor and its box in it, so any TP×PP×DP layout reads what it needs directly.
 *
 * The folder must be one file system for all ranks of a job. The ranks of an attempt meet through their
 * files alone: each writer's file is complete when it stands under its final name; the coordinator (rank 0)
 * merges their indexes and commits. All calls are for one thread a writer; the work happens on the writer's
 * own threads.
 */
#ifndef MUSTER_CHECKPOINT_CHECKPOINT_H
#define MUSTER_CHECKPOINT_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "compress/device.h"

#define MCK_DIMS_MAX 6
#define MCK_PAD_MAX (1u << 16)

enum mck_dtype {
    MCK_F32,
    MCK_BF16,
    MCK_F16,
    MCK_F64,
    MCK_I64,
    MCK_I32,
    MCK_U8,
    MCK_I8, /* from here on unknown to versions before 0.2 */
    MCK_I16,
    MCK_BOOL,
    MCK_F8E4M3FN,
    MCK_F8E5M2,
    MCK_U16,
    MCK_U32,
    MCK_U64,
    MCK_C64,
    MCK_C128,
};
enum mck_role {
    MCK_MASTER = 0,
    MCK_WEIGHT = 1,
    MCK_MOMENT1 = 2,
    MCK_MOMENT2 = 3,
    MCK_OPTIMIZER = 4,
    MCK_EMA = 5,
    MCK_GRADIENT = 6,
    MCK_BUFFER = 7,
    MCK_OPAQUE = 8,
};

/* A local buffer that holds one box of a logical tensor, or the row-major range [sub_begin, sub_end) of that
 * box (0, 0: all of it). data holds the box's elements densely, starting with element sub_begin. */
struct mck_buffer {
    const char *name; /* Hugging Face name; borrowed until the writer or load is freed */
    enum mck_role role;
    enum mck_dtype dtype;
    int ndim;
    uint64_t shape[MCK_DIMS_MAX]; /* of the whole tensor */
    uint64_t off[MCK_DIMS_MAX], len[MCK_DIMS_MAX];
    uint64_t sub_begin, sub_end;
    void *data;
    uint32_t pad; /* zeros behind data that are part of its memory: written along where that spares a copy */
    int bucket;   /* order of the update, for mck_gate; 0.. */
    bool replica; /* another rank registers the same bytes and writes them: not stored from here */
};

/* How buffers are captured: copied into the pool, which opens the gate soon; or written from where they lie, which
 * opens it once they are on disk but spares the copy. That holds for each 4 MiB of the stream, where every shard begins
 * at a page, that lie in memory in the same way, with zeros in the gaps; the rest is copied. */
enum mck_mode {
    MCK_AUTO, /* MCK_ZEROCOPY where the disk was seen to take all between mck_begin and mck_gate, else MCK_STAGED */
    MCK_STAGED,
    MCK_ZEROCOPY,
    MCK_SYNC, /* training waits for the commit: as MCK_ZEROCOPY, and the gate opens after it */
};

/* Bytes at data. */
uint64_t mck_buffer_bytes(const struct mck_buffer *b);

#define MCK_POOL_BYTES (64u << 20)

struct mck_cfg {
    const char *dir; /* the job's checkpoint folder; made when missing */
    int rank, size;
    uint64_t generation;             /* an attempt of an older generation than one seen in dir never commits */
    enum mck_mode mode;              /* MCK_ZEROCOPY and MCK_SYNC spare copies for codec none alone */
    const char *codec;               /* "none", "plane", "zstd", "lz4", "auto" */
    int keep;                        /* newest committed checkpoints kept, at least 2 */
    uint64_t keep_every;             /* those of a step that this divides are kept too; 0: none */
    size_t pool_bytes;               /* staging ring; 0: MCK_POOL_BYTES */
    const struct device_ops *device; /* of the GPU on which buffers may lie, or NULL; lives for ever. Then the ring is
                            pinned, all is copied into it, on a queue of its own: what kernels are to have done before
                            mck_begin must have run by then */
    int device_ordinal;
    /* Reads buffers that are no memory, whose data only stand for where they are; NULL: they are memory. Called by one
     * thread at a time. 0, or why they cannot be read, which ends the attempt. */
    int (*fetch)(void *arg, const void *from, void *to, size_t bytes, struct merr *err);
    void *fetch_arg;
    int64_t timeout_us; /* for all writers to be prepared; 0: 300 s */
    int64_t stuck_us;   /* without a write done, until an attempt is given up and gates let go; 0: 60 s */
    bool hold;  /* nothing is committed before mck_gate(-1), which says that no buffer was changed since mck_begin */
    bool parts; /* dir is this node's alone: leave whole data files and no MANIFEST; others commit and collect */
};

struct mck_done { /* how a request ended, for events and metrics */
    uint64_t step, bytes, stored_bytes;
    int64_t capture_us, write_us;
    enum mck_mode mode;          /* as it was captured */
    int64_t stall_us, expect_us; /* the caller waited in mck_gate; what the rates seen before let expect */
    uint32_t removed;            /* older ones that this rank removed before their time, for the disk was full */
    int code;                    /* 0 committed, or a negative errno */
    char path[4096];
    struct merr err;
};

struct mck_writer;

int mck_writer_new(const struct mck_cfg *cfg, const struct mck_buffer *bufs, size_t n, struct mck_writer **ret,
                   struct merr *err);

/* Begin a checkpoint of the buffers as they are now, with the job's cursor as kv (JSON object, borrowed; the
 * same on all ranks; holds at least "step"). Returns at once: 0, -EBUSY (two are under way: this one is left out),
 * or an error that left nothing behind. The buffers may be read until mck_gate. A step begun again after it failed
 * is another attempt: what comes late of the first does no harm, and all ranks must begin it again. */
int mck_begin(struct mck_writer *w, uint64_t step, const json_t *kv, struct merr *err);

/* As mck_begin, in mode MCK_SYNC whatever the writer's: for a checkpoint that is waited for in any case. */
int mck_begin_sync(struct mck_writer *w, uint64_t step, const json_t *kv, struct merr *err);

/* A whole data file, as tiles.h makes them, that is to be this rank's part. */
struct mck_file_of {
    char path[4096]; /* a name that goes away; on the file system of the writer's dir */
    uint8_t uuid[16];
    uint64_t bytes;
};

/* As mck_begin, of a file that is there and durable, in place of buffers, of which the writer may have none. On all
 * ranks, which have files of one attempt. Its name is the writer's from then on, also if that fails. */
int mck_begin_file(struct mck_writer *w, uint64_t step, const struct mck_file_of *file, struct merr *err);

/* Before the update of a bucket (-1: of all): returns once its bytes are copied, or the attempt has failed, at the
 * latest when the disk is stuck: buffers that it still reads then must stay memory, whatever is in them. Adds the time
 * waited to mck_stall_us. */
int mck_gate(struct mck_writer *w, int bucket, struct merr *err);

/* Give up the attempt of a step, whoever has written what of it; why: words for mck_next_done, of code -EAGAIN. With
 * hold it is never too late before mck_gate(-1); else -ENOENT says that the step is being committed, or is not under
 * way. */
int mck_abandon(struct mck_writer *w, uint64_t step, const char *why, struct merr *err);

/* Wait until nothing is under way (committed or given up) or deadline_us passes (-ETIMEDOUT). */
int mck_drain(struct mck_writer *w, int64_t deadline_us, struct merr *err);

/* Take the next finished request. Returns 1 with *ret, or 0 when there is none. On the coordinator a request is
 * finished when committed, elsewhere when its file is durable. */
int mck_next_done(struct mck_writer *w, struct mck_done *ret);

/* Microseconds the caller has spent in mck_begin, mck_gate and mck_drain since the last call. */
int64_t mck_stall_us(struct mck_writer *w);

/* From now on, a thread of the lowest priority writes all checkpoints but the newest anew with a codec, as mck_archive
 * does, whenever one was committed; it ends with the writer, and what is half done is removed. For rank 0's writer.
 * -EINVAL, -ENOMEM or what the thread cannot start for. */
int mck_archive_behind(struct mck_writer *w, const char *codec, struct merr *err);

/* 1 with words when a checkpoint could not be archived since the last call: it stays as it was. */
int mck_next_archive_failure(struct mck_writer *w, struct merr *ret);

/* Stops what is under way (uncommitted files are removed) and frees. */
void mck_writer_free(struct mck_writer *w);

/* --- reading ----------------------------------------------------------------------------------------- */

struct mck; /* one committed checkpoint, open for reading */

/* The newest checkpoint in dir that passes the quick check (MANIFEST whole, every file there with its length,
 * attempt id and footer). Returns 1 with *ret_step, 0 when there is none. skipped (may be NULL, else a new
 * JSON array of {"step","reason"}) says why newer ones were passed over. */
int mck_latest(const char *dir, uint64_t *ret_step, json_t **ret_skipped, struct merr *err);

/* Steps of all committed checkpoints, ascending, as a new array {"step","path","bytes","created"}. */
int mck_list(const char *dir, json_t **ret, struct merr *err);

/* Open dir/step-%08u, or a checkpoint folder itself. -ENOENT, -EBADMSG (corrupt: what and where). */
int mck_open(const char *dir, uint64_t step, struct mck **ret, struct merr *err);
int mck_open_path(const char *path, struct mck **ret, struct merr *err);
void mck_free(struct mck *c);

/* From now on verify, digest, diff (for its first checkpoint), heal, export and import call tell with how many bytes
 * they have done, and of how many: again and again, from one thread at a time, not always the caller's. NULL: they do
 * not. */
void mck_watch(struct mck *c, void (*tell)(void *arg, uint64_t done, uint64_t all), void *arg);

uint64_t mck_step(const struct mck *c);
const json_t *mck_kv(const struct mck *c); /* borrowed */

/* Fill the buffers, whatever layout wrote them, verifying every chunk read. Strict: a tensor or region not in
 * the checkpoint is -ENOENT with its name. dtype of buffer and file must agree, or both be among F32/BF16/F16
 * (converted, round to nearest even). */
int mck_load(struct mck *c, const struct mck_buffer *bufs, size_t n, struct merr *err);

/* As mck_load, into buffers of which some lie on a GPU (device NULL: none). */
int mck_load_on(struct mck *c, const struct mck_buffer *bufs, size_t n, const struct device_ops *device, int ordinal,
                struct merr *err);

/* Everything inspect prints: files, tensors, shards, chunks, kv, as new JSON. */
json_t *mck_inspect(const struct mck *c);

/* Read and check every byte. Returns 0, or -EBADMSG with the damaged tensors named in err and in *ret_report
 * (new JSON {"ok","files":…,"faults":[{"file","chunk","tensors","what"}]}; may be NULL). */
int mck_verify(struct mck *c, json_t **ret_report, struct merr *err);

/* Hash over all logical tensors of all roles and the cursor: the same whatever the layout or codec.
 * 32 hex digits and NUL. */
int mck_digest(struct mck *c, char ret_hex[33], struct merr *err);

/* What two checkpoints mean differently: tensors there once only, of other shape, type or values, and names in the
 * cursor. *ret is new: {"same", "tensors", "equal": how many, "differences": [{"name","role","what", and for values
 * "elements","different","first","largest" (null: not finite)}], "cursor": [names]}. -EBADMSG when one is damaged. */
int mck_diff(struct mck *a, struct mck *b, json_t **ret, struct merr *err);

/* How far codec "optq" lets AdamW's moments be off. */
struct mck_bounds {
    float rho; /* second moments, as a part of them, 0.001 .. 0.5; 0: the usual 0.01 */
    float eb;  /* an update, as a part of the learning rate, 2^-20 .. 1; 0: the usual 2^-7 */
};

/* Write all checkpoints of dir but the newest anew with a codec ("plane", "zstd", "lz4", "optq"), those that were not
 * yet: smaller, of the same meaning. With "optq" AdamW's moments are then within bounds (NULL: the usual ones) of what
 * they were, the rest as with plane. Each is verified before it takes the old one's place, in one rename. *ret_steps:
 * how many. -EBUSY when one is being read; -EINVAL: no such codec or bounds, or a file system that cannot exchange two
 * folders. */
int mck_archive(const char *dir, const char *codec, const struct mck_bounds *bounds, int *ret_steps, struct merr *err);

/* Rebuild a lost MANIFEST from the indexes at the tails of the data files. Returns 1, or 0 when it is whole. */
int mck_repair(const char *path, struct merr *err);

/* Write damaged chunks of a checkpoint anew from what n other ones hold of the same tensors between them:
 * copies, damaged ones too, or snapshots in memory, in any layout; folders of such; or ones with some of their data
 * files and no MANIFEST. Only bytes that meet the chunk's own checksums are written, so a wrong one does no harm.
 * *ret_report (may be NULL) is new:
 * {"healed": [{"file","chunk","tensors"}], "left": [the same with "what"; chunk -1: the file as a whole]}. 0,
 * -EBADMSG when something is left (err: the first), or -ENOENT when there is nothing at one of from. */
int mck_heal(struct mck *c, const char *const *from, size_t n, json_t **ret_report, struct merr *err);

/* --- safetensors --------------------------------------------------------------------------------------- */

/* Write the master weights as dir/model.safetensors (+ config.json from kv's "model") in Hugging Face names,
 * shapes and types ("f32", "bf16", "f16"), in constant memory. Where they take more than part_bytes (0: no limit), as
 * files of at most that, but of one tensor at least, and model.safetensors.index.json; -EEXIST when dir holds a
 * model.safetensors, which readers would take instead. */
int mck_export_safetensors(struct mck *c, const char *dir, const char *dtype, uint64_t part_bytes, struct merr *err);

/* Open a .safetensors file, or a folder with model.safetensors or its index, as a read-only checkpoint whose
 * tensors all have role MCK_MASTER. Names keep their file's spelling less a leading "transformer.". */
int mck_open_safetensors(const char *path, struct mck **ret, struct merr *err);

/* Write what mck_open_safetensors opened, in the types it has, as the committed step 0 in dir, which is made when
 * missing; in constant memory. -EEXIST when dir holds a checkpoint. */
int mck_import_safetensors(struct mck *c, const char *dir, struct merr *err);

#endif
