/* test_comm - worlds of forked processes, for the tests of comm */
#ifndef MUSTER_TESTS_UNIT_WORKER_TEST_COMM_H
#define MUSTER_TESTS_UNIT_WORKER_TEST_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker/engine/comm/comm.h"

#define TEAM_MAX 16

enum team_way { TEAM_SHM, TEAM_UCX, TEAM_MIXED }; /* one node; one node by UCX; two nodes, ranks in turn */

struct team {
    char folder[64];
    int n;
    enum team_way way;
    int64_t timeout_us;
    uint64_t generation[TEAM_MAX]; /* 0: 1 */
    size_t shared_bytes;
    const struct device_ops *device;   /* NULL: none */
    bool device_shared, device_needed; /* the same for all ranks */
    struct flight *flight[TEAM_MAX];   /* shared with the ranks */
    pid_t pid[TEAM_MAX];
    int exit_code[TEAM_MAX]; /* 128 + signal when killed */
    const void *arg;
    atomic_int *come; /* shared with the ranks: see team_come */
};

/* What a rank does; its result is the exit code, 0 for good. */
typedef int (*team_fn)(struct team *t, struct comm_world *w);

void team_init(struct team *t, int n, enum team_way way);
void team_start(struct team *t, team_fn fn);
void team_wait(struct team *t, int64_t timeout_us); /* kills what is left, and says so */
void team_await(struct team *t, int ranks);         /* until so many have come to where they say so; fails after 30 s */
void team_clear(struct team *t);                    /* fails when files are left behind */

void team_come(struct team *t); /* a rank says that it has come to what is tested */

/* init, start, wait, all exit codes 0, clear. */
void team_run(int n, enum team_way way, size_t shared_bytes, team_fn fn, const void *arg);

/* Leave the rank with the line, unless x holds. */
#define NEED(x)                                                                                                        \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            (void)fprintf(stderr, "rank %d: %s:%d: not so: %s\n", comm_rank(w), __FILE__, __LINE__, #x);               \
            return 99;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* Leave the rank, unless call, which takes err, returns 0. */
#define GOOD(call)                                                                                                     \
    do {                                                                                                               \
        struct merr err;                                                                                               \
        int rc_ = (call);                                                                                              \
        if (rc_ != 0) {                                                                                                \
            (void)fprintf(stderr, "rank %d: %s:%d: %d: %s\n", comm_rank(w), __FILE__, __LINE__, rc_, err.text);        \
            return 98;                                                                                                 \
        }                                                                                                              \
    } while (0)

struct comm_group *team_all(struct comm_world *w, const char *name);

#endif
