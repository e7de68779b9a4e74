/* view - what the scheduler is shown of jobs' work: the same for jobs of a server and for those of a trace
 *
 * The caller fills a row with what a job asks for, what it has, and its rates; this adds what follows from them and
 * from what is known of its work. Pure, not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_VIEW_H
#define MUSTER_SCHEDULER_CLUSTER_VIEW_H

#include "scheduler/cluster/sched.h"

#define VIEW_RESTART_US 5000000 /* what a change costs a job where none was measured */

struct view_work {    /* of a job */
    int64_t steps_u;  /* all of its steps, micro-steps; 0: not known */
    int64_t done_u;   /* of them */
    bool rated;       /* its rates are steps a second, not relative alone */
    double device_s;  /* that jobs of its kind took; 0: none is known to have ended. It counts where steps do not */
    double restart_s; /* what a change costs it, measured; 0: not yet */
};

struct view_cluster { /* among whom the cluster is shared */
    int32_t devices;
    size_t jobs;
};

/* The devices of these nodes, less none, for so many jobs. */
struct view_cluster view_cluster_of(const struct sched_node *nodes, size_t n_nodes, size_t jobs);

/* Fill what is left of the work, what a change costs, and the forecast of finish-time fairness: the time since its
 * submission and that for what is left on its fair share, over that for all of its work. Where the work is not known,
 * the forecast grows with its wait. s->profile, limit_us, types and times are set. */
void view_fill(struct sched_job *s, const struct view_work *w, const struct view_cluster *cluster, int64_t now_us);

/* The rate of a job alone on a share of so many devices, of the type that suits it best; 0: it runs on none. */
double view_share_rate(const struct sched_job *s, double devices);

/* The same on one type. */
double view_share_rate_of(const struct sched_job *s, int type, double devices);

#endif
