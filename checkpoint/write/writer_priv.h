/* writer_priv - the inside of a mck_writer: an attempt's way through its threads
 *
 *   caller: mck_begin ─▶ capture thread (and mck_gate): copy pieces into slots of the pool
 *     ─▶ encode thread: hash, encode, checksum ─▶ I/O thread: owner of the mio, writes, then syncs
 *     ─▶ commit thread: rename into place; rank 0 waits for the others, merges, renames MANIFEST
 *
 * A failed attempt runs dry: pieces not yet copied are not copied, slots go back, what is under way ends, then
 * the commit thread removes its file and reports it. An extent that needs no copy (in_place) has no slot: its pieces
 * count as copied once it is written. The lock guards all that is not said to belong to a thread.
 */
#ifndef MUSTER_CHECKPOINT_WRITE_WRITER_PRIV_H
#define MUSTER_CHECKPOINT_WRITE_WRITER_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint/format/folder.h"
#include "checkpoint/read/lift.h"
#include "checkpoint/write/mio.h"
#include "checkpoint/write/plan.h"
#include "checkpoint/write/writer.h"
#include "compress/chunk.h"

#define ATTEMPTS_MAX 2
#define DONE_MAX 64 /* results not fetched beyond these are dropped, oldest first */
#define OUTS 3      /* buffers of encoded chunks */
#define NO_SLOT (-1)

struct extent {
    int slot;
    uint32_t left; /* pieces still to copy */
    bool in_place;
};

struct attempt {
    bool used;
    uint64_t step, serial; /* serial: order of mck_begin */
    uint8_t uuid[16];
    char *kv;
    int64_t begun_us, captured_us, stall_us, expect_us;
    enum mck_mode mode;
    int code; /* first failure */
    struct merr err;
    struct mck_file_of file; /* of mck_begin_file; path is empty elsewhere */
    bool skip;               /* the step is committed already: nothing to write */
    bool held;               /* not to be committed yet */
    bool closing;            /* it is being committed */
    uint32_t removed;        /* others that went for it, see mck_done */

    size_t next_piece, pieces_left;
    uint32_t copying;
    uint32_t in_place; /* of copying: extents on their way to the disk from where they lie */
    bool stuck;        /* failed for the disk takes nothing: what is in them does not matter any more */
    uint32_t *bucket_left;
    struct extent *extent;
    uint32_t to_encode; /* extents in the encode queue or at work */

    /* of the encode thread until the tail is queued */
    bool opened;
    int fd;
    char folder[MCK_PATH_MAX], temp[MCK_PATH_MAX], final[MCK_PATH_MAX];
    struct mck_chunk *chunk;
    uint32_t extents_encoded;
    uint64_t append; /* end of what is written so far */
    int codec;       /* enum chunk_codec of this attempt */
    void *tail;
    uint64_t bytes, stored;
    int64_t encode_us, encode_bytes;

    uint32_t io_left;
    bool tail_queued, syncing, durable;
    int64_t first_write_us, last_write_us;
};

struct encode_job { /* an extent to encode */
    struct attempt *a;
    uint32_t extent;
};

struct reading { /* a piece on its way into the pool */
    struct attempt *a;
    const struct piece *p;
};

struct write {          /* a request of the I/O thread; its own free() */
    struct mio_req req; /* must be first */
    struct attempt *a;
    int slot, out;  /* what to give back, or NO_SLOT */
    bool again;     /* it met a full disk before */
    int64_t extent; /* in place, or -1 */
    struct write *next;
};

struct mck_writer {
    struct mck_cfg cfg; /* dir and codec are owned copies */
    struct plan plan;

    pthread_mutex_t lock;
    pthread_cond_t capture, gate, encode, commit, idle;
    bool stop;
    int stop_event; /* readable once stop is set */

    char *pool;
    size_t pool_bytes;
    struct lift *lift;                 /* of the capture thread, as is lifted; NULL: buffers are the host's */
    struct reading lifted[LIFT_DEPTH]; /* ring */
    size_t lifted_first, lifted_n;
    int slots, *free_slot, free_slots;
    char *out[OUTS];
    int free_out[OUTS], free_outs;

    struct attempt attempt[ATTEMPTS_MAX];
    uint64_t serial, last_step;
    uint32_t tries;         /* of last_step before the last one */
    struct encode_job *job; /* ring of job_max: every extent of both attempts */
    size_t job_first, jobs, job_max;
    struct write *write_head, *write_tail;
    int write_event;
    struct mio *mio; /* of the I/O thread */

    struct chunk_coder *coder; /* of the encode thread, as are these */
    struct attempt *filling;
    uint64_t fill_serial; /* of filling: its place may be another's by now */
    int fill_out;
    uint32_t fill_len;
    double encode_rate;          /* of the encode thread; bytes a second, moving average; 0: not known */
    double disk_rate, copy_rate; /* as this, under the lock */
    double window_s;             /* from mck_begin to the next mck_gate, as these */
    bool window_open;
    int64_t begun_us;                 /* the last mck_begin */
    int64_t alive_us;                 /* when something of any attempt was last done */
    atomic_uint_least64_t last_bytes; /* of rank 0: all files of the last checkpoint; 0: not known */

    struct mck_done *done;
    size_t done_first, dones;
    int64_t stall_us;

    const struct writer_follower *follower; /* NULL: nobody follows */
    void *follower_arg;

    pthread_t thread[4];
    int threads;
};

/* First failure of an attempt; wakes whoever may wait for it. Lock held. */
void writer_fail(struct mck_writer *w, struct attempt *a, int code, const struct merr *err);

/* From now on the calling thread comes after those that train: they help out at a gate. */
void writer_yield(void);

/* Oldest attempt in use, or NULL. Lock held. */
struct attempt *writer_oldest(struct mck_writer *w);

/* Give a slot back. Lock held. */
void writer_free_slot(struct mck_writer *w, int slot);

/* Let a moving average take in a value. */
void writer_average(double *rate, double now);

#endif
