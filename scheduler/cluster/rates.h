/* rates - how fast a job runs on a number of devices of a type, and how its virtual workers lie on unequal devices
 *
 * Rates are millionths of a global step a second. All arithmetic is integer or IEEE +, -, *, /: the same everywhere.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_RATES_H
#define MUSTER_SCHEDULER_CLUSTER_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RATES_TYPES_MAX 16
#define RATES_POINTS_MAX 64
#define RATES_COUNT_MAX 1000000        /* devices of one job */
#define RATES_UPS_MAX 1000000000000000 /* micro-steps a second */

struct rates_point { /* measured */
    int32_t count;
    int64_t rate_ups;
};

struct rates_profile { /* of one kind of job; points of a type by rising count */
    struct rates_point points[RATES_TYPES_MAX][RATES_POINTS_MAX];
    uint8_t n[RATES_TYPES_MAX]; /* 0: it does not run on that type */
};

/* The rate on count devices of a type, 0 where it does not run. Between and beyond measured counts a step takes
 * a + b/count seconds, fitted to the two nearest points (a, b >= 0); below the first point, and with one point only,
 * scaling is linear. *ret_modelled (may be NULL): not measured. */
int64_t rates_at(const struct rates_profile *p, int type, int32_t count, bool *ret_modelled);

struct rates_est { /* devices of one type */
    int32_t devices;
    int64_t worker_ns; /* one virtual worker's local step there, >= 1 */
    int32_t each;      /* result: workers of most devices */
    int32_t fewer;     /* result: devices with one worker less */
};

/* Lay workers on the devices so that the slowest device is as fast as can be: binary search over the step times that
 * can be (EasyScale 2022, intra-job schedule). Returns that time in ns and fills each and fewer of all n parts, or 0
 * when there is no device or no worker. Surplus places are taken from the slowest type first. */
int64_t rates_map_workers(struct rates_est *parts, size_t n, int32_t workers);

/* Rate of a job with workers on n_a devices of type a and n_b of type b: the map above, with the share lost to
 * communication that the profile shows on as many equal devices. 0: it cannot run so, and *ret_idle is unchanged; else
 * that is the share of what the devices can do that is left idle. */
int64_t rates_mixed(const struct rates_profile *p, int a, int32_t n_a, int b, int32_t n_b, int32_t workers,
                    double *ret_idle);

/* The same of replicas cut between two stages of their pipelines, n_a devices of type a before n_b of type b, with
 * layers shared out by speed: the mean of both types' rates for all these devices, less what whole layers cost. 0: a
 * type cannot run it. */
int64_t rates_spanned(const struct rates_profile *p, int a, int32_t n_a, int b, int32_t n_b);

#endif
