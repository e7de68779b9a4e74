#include "scheduler/cluster/finish.h"

#include <stdio.h>

#define URGENCY_MOST 8.0

static const char *const names[FINISH_VERDICTS] = {"none", "will", "likely", "unlikely", "cannot", "unknown"};

const char *finish_verdict_name(enum finish_verdict verdict)
{
    return names[verdict];
}

/* How long it takes on n devices of the type that is fastest for it, its time limit at most; -1: unknown. */
static int64_t needs_us(const struct sched_job *j, int32_t n, bool *ret_by_limit)
{
    int64_t best = SCHED_LEFT_UNKNOWN;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if ((sched_job_types(j) >> t & 1) && j->profile->n[t] > 0) {
            int64_t left = sched_left_us(j, rates_at(j->profile, t, n, NULL));

            best = left < best ? left : best;
        }
    *ret_by_limit = best == j->limit_us;
    return best < SCHED_LEFT_UNKNOWN ? best : -1;
}

/* How much later than now it could begin on its fewest devices; INT64_MAX: nobody knows; below 0: it is too late. */
static int64_t slack_us(const struct sched_job *j, int64_t now_us, int64_t *ret_needs)
{
    int32_t least, most;
    bool by_limit;

    sched_job_range(j, &least, &most);
    *ret_needs = least <= most ? needs_us(j, least, &by_limit) : -1;
    return *ret_needs < 0 ? INT64_MAX : j->finish_us - now_us - *ret_needs;
}

double finish_urgency(const struct sched_job *j, int64_t now_us)
{
    int64_t needs, slack = slack_us(j, now_us, &needs), most_needs;
    int32_t least, most;
    bool by_limit;

    if (needs < 0)
        return 1;
    sched_job_range(j, &least, &most);
    most_needs = needs_us(j, most, &by_limit);
    if (now_us + most_needs > j->finish_us)
        return 1;
    slack = slack > 0 ? slack : 0;
    return 1 + (URGENCY_MOST - 1) * (double)needs / (double)(needs + slack + 1);
}

bool finish_presses(const struct sched_job *j, int64_t now_us, int64_t within_us)
{
    int64_t needs;

    return slack_us(j, now_us, &needs) < within_us && finish_urgency(j, now_us) > 1;
}

/* What it has left on the devices that the plan gives it. */
static void judge_running(const struct sched_input *in, const struct sched_verdict *v, const struct sched_job *j,
                          struct finish *f)
{
    int64_t left = sched_left_us(j, v->shape.rate_ups);

    f->start_us = in->config.now_us;
    f->devices = v->shape.n[0] + v->shape.n[1];
    f->needs_us = left < SCHED_LEFT_UNKNOWN ? left : -1;
    f->by_limit = left == j->limit_us;
}

struct finish finish_of(const struct sched_input *in, const struct sched_plan *plan, size_t job,
                        const struct forecast *forecast)
{
    const struct sched_job *j = &in->jobs[job];
    const struct sched_verdict *v = &plan->verdicts[job];
    struct finish f = {.by_us = j->finish_us, .start_us = forecast->start_us, .end_us = -1, .basis = forecast->basis};
    int64_t now = in->config.now_us, soonest;
    int32_t least, most;
    bool certain, by_limit;

    if (j->finish_us == 0)
        return f;
    sched_job_range(j, &least, &most);
    f.devices = least;
    f.needs_us = needs_us(j, least, &f.by_limit);
    soonest = needs_us(j, most, &by_limit);
    certain = v->n > 0 || (forecast->latest_us > 0 && f.needs_us >= 0 && forecast->latest_us + f.needs_us <= f.by_us);
    if (v->n > 0)
        judge_running(in, v, j, &f);
    f.end_us = f.start_us >= 0 && f.needs_us >= 0 ? f.start_us + f.needs_us : -1;
    f.verdict = now > f.by_us || (soonest >= 0 && now + soonest > f.by_us && !by_limit) ? FINISH_CANNOT
                : f.end_us < 0                                                          ? FINISH_UNKNOWN
                : f.end_us > f.by_us && f.by_limit                                      ? FINISH_UNKNOWN
                : f.end_us > f.by_us                                                    ? FINISH_UNLIKELY
                : certain && f.by_limit                                                 ? FINISH_WILL
                                                                                        : FINISH_LIKELY;
    if (f.verdict == FINISH_CANNOT && v->n == 0 && soonest >= 0) {
        f.devices = most;
        f.needs_us = soonest;
        f.by_limit = by_limit;
    }
    return f;
}

static void say_span(int64_t us, char *ret, size_t size)
{
    double s = (double)us / 1e6;

    if (s < 120)
        (void)snprintf(ret, size, "%.0f s", s);
    else if (s < 7200)
        (void)snprintf(ret, size, "%.0f min", s / 60);
    else if (s < 172800)
        (void)snprintf(ret, size, "%.1f h", s / 3600);
    else
        (void)snprintf(ret, size, "%.1f days", s / 86400);
}

void finish_text(const struct finish *f, int64_t now_us, char *ret, size_t size)
{
    char needs[32], start[32], late[32], begins[96];

    say_span(f->needs_us, needs, sizeof(needs));
    say_span(f->start_us - now_us, start, sizeof(start));
    say_span(f->verdict == FINISH_CANNOT && f->needs_us >= 0 ? now_us + f->needs_us - f->by_us : f->end_us - f->by_us,
             late, sizeof(late));
    if (f->start_us < 0)
        (void)snprintf(begins, sizeof(begins), "nobody knows when it starts");
    else if (f->start_us <= now_us)
        (void)snprintf(begins, sizeof(begins), "it has its devices");
    else
        (void)snprintf(begins, sizeof(begins), "its start is expected in %s", start);
    if (f->verdict == FINISH_CANNOT && now_us > f->by_us)
        (void)snprintf(ret, size, "should have ended before now");
    else if (f->verdict == FINISH_CANNOT)
        (void)snprintf(ret, size, "needs %s on %d device%s, and would be %s late if it started now", needs, f->devices,
                       f->devices == 1 ? "" : "s", late);
    else if (f->needs_us < 0)
        (void)snprintf(ret, size, "needs a time that nobody knows (give it limits.time_s); %s", begins);
    else
        (void)snprintf(ret, size, "needs %s%s on %d device%s; %s%s%s%s", f->by_limit ? "at most " : "", needs,
                       f->devices, f->devices == 1 ? "" : "s", begins,
                       f->verdict == FINISH_UNLIKELY ? ", which makes it " : "",
                       f->verdict == FINISH_UNLIKELY ? late : "", f->verdict == FINISH_UNLIKELY ? " late" : "");
}
