/* muster.h - a program's own words to Muster: libmuster.so.1
 *
 * For programs that run as commands of Muster: numbers and events to the job's page, orders from it (save, stop), a
 * sign of life, and how the program ended. All of it goes through the files of docs/programs.md, which may be written
 * without this library too. It needs nothing but libc, and no call waits for a network.
 *
 *     muster *m;
 *     struct muster_order o = {.size = sizeof(o)};
 *
 *     muster_open(NULL, &m);
 *     for (int64_t step = 1; step <= steps; step++) {
 *         double loss = train();
 *
 *         muster_step(m, step);
 *         muster_metrics(m, step, (const char *[]){"loss"}, &loss, 1);
 *         muster_order_get(m, &o);
 *         if (o.order == MUSTER_STOP) {
 *             save();
 *             muster_ack(m, o.seq, step, "stopping");
 *             muster_finish(m, "stopped", step, NULL);
 *             muster_close(m);
 *             return 76;
 *         }
 *     }
 *     muster_finish(m, "done", steps, NULL);
 *     muster_close(m);
 *
 * Calls are safe on any thread. They return 0 or a negative errno, with words in muster_last_error(). Outside Muster,
 * in a child of fork(), and with NULL for the handle they do nothing and return 0. Structs begin with their size:
 * fields are only ever appended. Symbols have the version MUSTER_1.0.
 */
#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muster muster; /* one a process */

struct muster_options {
    uint32_t size;                 /* sizeof(struct muster_options) */
    int rank;                      /* of the world; -1: RANK of the environment */
    const char *run_dir, *job_dir; /* NULL: MUSTER_RUN_DIR, MUSTER_JOB_DIR of the environment */
    uint32_t flags;                /* 0 */
};

/* Returns 0; 1 outside Muster, with NULL in *ret; -EINVAL of options that make no sense. NULL for options: all of the
 * environment. A process that opens twice has the same handle twice, and closes it as often; -EBUSY: the second time
 * with other options. Starts a thread of its own, which sees no signals. */
int muster_open(const struct muster_options *options, muster **ret);

/* Ends the thread, and that the program is watched. From the callback of muster_on_order too. */
void muster_close(muster *m);

/* Numbers of a step that is done: n names of 1 to 128 of A-Z a-z 0-9 _ . / : - and as many values. NaN and infinities
 * are kept as null. Only rank 0 writes; others return 0. -EINVAL: names that cannot be, a negative step; -EMSGSIZE:
 * more than 16 KiB. Where the disk takes nothing the line is dropped, and -ENOSPC returned once a minute. */
int muster_metrics(muster *m, int64_t step, const char *const *names, const double *values, size_t n);

/* A JSON object of at most 16 KiB with a "type", which the job's history keeps; "rank" is added. -EINVAL: it is none;
 * -EMSGSIZE; -ENOSPC as above. */
int muster_event(muster *m, const char *json, size_t len);

/* A picture ("image": PNG or JPEG), text ("text") or "json" of at most 1 MiB, kept in the job's folder under key, which
 * is a name as of metrics. -EINVAL, -EMSGSIZE, errors of the file system. */
int muster_artifact(muster *m, const char *type, const char *key, int64_t step, const void *data, size_t len);

/* The program goes on: step steps are done. From the first of these calls on it is watched; two stores, no call of the
 * system. */
int muster_step(muster *m, int64_t step);

/* What follows may take so long without a step: an evaluation, a checkpoint. Sections may lie in each other; the
 * innermost counts. -EINVAL: no name, no time above 0; -EOVERFLOW: 16 are open; -ENOENT: none is. */
int muster_section_begin(muster *m, const char *name, double timeout_s);
int muster_section_end(muster *m);

enum muster_orders { MUSTER_NONE, MUSTER_SAVE, MUSTER_STOP, MUSTER_SCALE, MUSTER_ABORT };

struct muster_order {
    uint32_t size;        /* sizeof(struct muster_order), set by the caller */
    uint32_t order;       /* enum muster_orders; unknown ones are MUSTER_NONE */
    uint64_t seq;         /* 0: none has come */
    int64_t deadline_us;  /* since 1970; 0: none */
    int32_t devices_next; /* of SCALE; 0: not told */
};

/* The newest order, at most 100 ms old. Of a program of several ranks each sees it by itself, and not at the same
 * moment: let rank 0's count, by a broadcast. */
int muster_order_get(muster *m, struct muster_order *ret);

/* Call fn for each new order, on the library's thread; NULL: no more. An order that is there already counts as new. */
int muster_on_order(muster *m, void (*fn)(void *arg, const struct muster_order *order), void *arg);

/* Answer the order with this number: did is "saved", "stopping" or "refused". */
int muster_ack(muster *m, uint64_t seq, int64_t step, const char *did);

/* How the program ends: outcome is "done", "stopped" or "failed", which may name a class: "failed/user",
 * "failed/system", "failed/node". Durable when it returns. Does not end the program; it is not watched any more. */
int muster_finish(muster *m, const char *outcome, int64_t step, const char *message);

/* Words for the last call of this thread that failed; never NULL. */
const char *muster_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
