/* machines_priv - what machines.c and machine.c share: the simulated machines, their folders and their ranks */
#ifndef MUSTER_TESTS_SIM_MACHINES_PRIV_H
#define MUSTER_TESTS_SIM_MACHINES_PRIV_H

#include <jansson.h>
#include <stdlib.h>

#include "tests/sim/book.h"
#include "tests/sim/machines.h"
#include "worker/agent/machine_evidence.h"

#define WALL_BEGIN_US INT64_C(1800000000000000) /* when the simulation begins, for people */

struct text {
    char *data;
    size_t n, cap;
};

struct box { /* a machine */
    char name[16];
    bool down, disk_full;
    int boot, crash_in; /* actions until the agent dies; 0: it does not */
    bool crashed;
    int64_t wall_off_us, wiped_us; /* the latter: when last; -1: never */
    struct run_folder *runs;
};

struct sim_rank {
    struct run_folder *run;
    struct sim_rank *next;
    int rank, slot;
    struct life life; /* of its process */
    bool page, ids, hung, shim_lost, has_exit, asked, killed;
    enum flight_order order;
    enum flight_phase phase;
    uint64_t step;
    pid_t pid;
    struct rank_exit exit;
    struct text log;
    struct world_train *train; /* that it is in; NULL: a command, or not yet */
    int end_code;              /* of a command */
    bool stubborn;             /* does not end at SIGTERM */
    bool by_itself;            /* it has done what it was to do */
};

struct run_folder {
    struct machines *m;
    int on; /* machine */
    struct run_folder *next;
    char job[64];
    uint64_t generation;
    char path[96];
    json_t *assignment; /* owned; NULL: not kept yet */
    int boot;           /* that it was kept in */
    struct sim_rank *ranks;
    struct text metrics, events;
};

struct world_train { /* the ranks of a generation of a train job, wherever they are */
    struct machines *m;
    struct world_train *next;
    uint64_t job, generation;
    int world, joined;
    struct sim_rank **ranks; /* by number; NULL: not joined, or gone */
    uint64_t step, steps;
    int64_t step_us, moved_us; /* moved_us: when it last took a step */
    bool resumed, over;
};

struct saved { /* what a job has on the shared disk and in memories */
    uint64_t job, step;
};

struct machines {
    struct world *w;
    struct book *book;
    int n, slots;
    struct box *box;
    pid_t next_pid;
    struct sim_rank *graves;
    struct world_train *trains;
    struct saved *saved;
    size_t n_saved;
    void (*changed)(void *arg, int i);
    void *arg;
};

struct machine { /* an agent's view */
    struct machines *m;
    int on;
};

struct machine_rank {
    struct machine *machine;
    char path[96];
    int rank;
};

static inline void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* NULL: there is no such folder, or rank in it. */
struct run_folder *machines_folder(const struct box *b, const char *path);
struct sim_rank *machines_rank(const struct run_folder *f, int rank);

void machines_remove_folder(struct machines *m, int on, const char *path);

/* The wall time on a machine. */
int64_t machines_wall_us(const struct machines *m, int on);

/* A rank is started, ordered to give up, asked to end by SIGTERM, killed (words: it leaves an exit file). */
void machines_rank_start(struct sim_rank *r);
void machines_rank_abort(struct sim_rank *r);
void machines_rank_ask(struct sim_rank *r);
void machines_rank_kill(struct sim_rank *r, bool words);

#endif
