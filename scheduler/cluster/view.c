#include "scheduler/cluster/view.h"

#define AGE_US 600000000 /* a wait of this length doubles the weight of a job whose work is not known */
#define RHO_MOST 4000

struct view_cluster view_cluster_of(const struct sched_node *nodes, size_t n_nodes, size_t jobs)
{
    struct view_cluster c = {.jobs = jobs > 0 ? jobs : 1};

    for (size_t i = 0; i < n_nodes; i++)
        c.devices += nodes[i].devices;
    return c;
}

double view_share_rate_of(const struct sched_job *s, int type, double devices)
{
    int32_t max = s->workers > 0 && s->workers < s->max ? s->workers : s->max;

    if (devices >= max)
        return (double)rates_at(s->profile, type, max, NULL);
    if (devices >= s->min)
        return (double)rates_at(s->profile, type, (int32_t)devices, NULL);
    return (double)rates_at(s->profile, type, s->min, NULL) * devices / s->min; /* its minimum, part of the time */
}

double view_share_rate(const struct sched_job *s, double devices)
{
    double best = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        double rate = (s->types >> t & 1) && s->profile->n[t] > 0 ? view_share_rate_of(s, t, devices) : 0;

        best = rate > best ? rate : best;
    }
    return best;
}

/* All of its work, micro-steps; 0: not known. A job of unknown rates makes a step a second on each replica, so what it
 * takes is known where others of its kind have ended, or where its time is limited. */
static double work_u(const struct sched_job *s, const struct view_work *w)
{
    double device_us = w->device_s * 1e6, replica = s->replica > 1 ? s->replica : 1;

    if (w->steps_u > 0)
        return w->rated ? (double)w->steps_u : 0;
    if (w->rated)
        return 0;
    if (device_us <= 0 && s->limit_us > 0)
        device_us = (double)s->limit_us * s->min + (double)s->attained_us;
    return device_us > (double)s->attained_us ? device_us / replica : 0; /* longer than others: nobody knows */
}

static double done_u(const struct sched_job *s, const struct view_work *w)
{
    return w->steps_u > 0 ? (double)w->done_u : (double)s->attained_us / (s->replica > 1 ? s->replica : 1);
}

/* Its wait, and then what it says of all the time that it takes. */
static int64_t rho_by_wait(const struct sched_job *s, int64_t now_us)
{
    int64_t waited = now_us - s->waiting_us, most = INT64_C(3) * AGE_US;

    return s->n_places > 0 ? 1000 : 1000 + (waited < most ? waited : most) * 1000 / AGE_US;
}

void view_fill(struct sched_job *s, const struct view_work *w, const struct view_cluster *cluster, int64_t now_us)
{
    double age_us = (double)(now_us - s->submit_us), work = work_u(s, w), left = work - done_u(s, w), share, rho;

    s->unsure = w->steps_u > 0 && !w->rated;
    s->restart_us = w->restart_s > 0 ? (int64_t)(w->restart_s * 1e6) : VIEW_RESTART_US;
    s->remaining_us = work <= 0 ? -1 : left > 0 ? (int64_t)left : 0;
    s->rho_milli = rho_by_wait(s, now_us);
    share = work <= 0 ? 0 : view_share_rate(s, (double)cluster->devices / (double)cluster->jobs);
    if (share <= 0)
        return;
    rho = (age_us * share / 1e6 + (double)s->remaining_us) / work * 1000;
    s->rho_milli = rho < RHO_MOST ? (int64_t)rho : RHO_MOST;
}
