/* slow - which devices are slower than the others of their class, told from the times of a job's replicas
 *
 * With each step a job tells how long every replica took for one virtual worker. A replica is compared with the others
 * of its class in the same step, so what slows all of them (longer batches, a busy file system) is no matter. A replica
 * that has none beside it is compared with what the class usually takes for that job; that is weaker evidence, so it
 * takes SLOW_ALONE times as long. Pure: time comes in as an argument. Not tied to a thread.
 *
 * What is kept of a device is a smoothed ratio: one report moves it by a factor of at most 1.09, so a hiccup of any
 * length in one step (an evaluation, a checkpoint, the first step of a run) is forgotten after a few more.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_SLOW_H
#define MUSTER_SCHEDULER_CLUSTER_SLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOW_REPORTS 8      /* in a row that agree, at least */
#define SLOW_ALONE 4        /* times as long without others to compare with */
#define SLOW_RETRY_TIMES 24 /* one that is found slow again and again is tried again after that x retry_us at most */
#define SLOW_NO_CLASS (-1)

struct slow_rules {
    double ratio;     /* slow is who takes more than so many times what its class takes, > 1; 0: nobody ever is.
                         Well again is who is below the middle between that and 1 */
    int64_t after_us; /* for so long without a break */
    int64_t retry_us; /* a slow device that is idle is tried again after that; each time in a row twice as long */
};

struct slow_replica {
    double ms;       /* for one virtual worker in this step; <= 0: not told */
    int class_;      /* of all its devices; SLOW_NO_CLASS: of several */
    bool slow;       /* one of its devices is known to be slow */
    int workers;     /* that it has */
    double usual_ms; /* what the class takes for this job; 0: not known */
};

struct slow_ratio {
    double ratio; /* 0: nothing can be said */
    bool alone;   /* it is the ratio to what is usual */
    bool eased;   /* it has less work than another of its class: it may keep up because it rests in between */
};

/* Each replica's time over the median of the others of its class that are not slow, into ret[n]. */
void slow_compare(const struct slow_replica *v, size_t n, struct slow_ratio *ret);

struct slow_device {  /* zeroed: well, and nothing is known */
    double ratio;     /* smoothed; 0: not measured */
    int32_t in_row;   /* reports that disagree with slow, without a break */
    int64_t since_us; /* the first of those */
    bool slow;
    int32_t times;       /* that it was found slow and not well in between */
    int64_t found_us;    /* when it was found slow */
    int64_t retry_at_us; /* when an idle one is tried again */
};

#define SLOW_USUAL_FIRST 64 /* times of which what is usual is made up at first */

struct slow_usual { /* zeroed: nothing is known */
    double ms;
    int32_t n; /* times seen, up to SLOW_USUAL_FIRST */
};

/* Take in a time. suspect: it is of a device that may be slow, and counts only while little is known. */
void slow_usual(struct slow_usual *u, double ms, bool suspect);

/* Whether a device may be slow: it is known to be, or not clearly well. */
bool slow_suspect(const struct slow_device *d, const struct slow_rules *rules);

enum slow_news { SLOW_NO_NEWS, SLOW_FOUND, SLOW_WELL };

/* Take in a ratio of slow_compare() that is not 0. */
enum slow_news slow_take(struct slow_device *d, const struct slow_rules *rules, const struct slow_ratio *r,
                         int64_t now_us);

/* A test of the device by itself has shown the ratio. True: it is slow by that, and was not. */
bool slow_confirm(struct slow_device *d, const struct slow_rules *rules, double ratio, int64_t now_us);

/* A run begins on the device: what was counted for another is no evidence any more. */
void slow_begin(struct slow_device *d);

/* Let an idle device be tried again when its time has come. True: it was slow and is not any more. */
bool slow_expire(struct slow_device *d, int64_t now_us);

/* Somebody says that it is well: nothing is known of it. True: it was slow. */
bool slow_forgive(struct slow_device *d);

#endif
