/* bench diagnose - naming the rank that holds up a run of many, or slows it: judging what all ranks told
 *
 * Beside it, in the same run, a plain pass that only reads each rank's record once: nothing can judge in less. Times
 * are processor time of the one thread that judges.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/unit/scheduler/diagnose/fleet.h"
#include "tests/unit/scheduler/diagnose/programs.h"

#define TIMES 20

static double cpu_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double read_once(const struct program *p, uint64_t *ret_sum)
{
    double began = cpu_ms();

    for (int i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->rank[i].n_groups; k++)
            *ret_sum += p->rank[i].group[k].key + p->rank[i].group[k].entered + (uint64_t)p->rank[i].idle_us;
    return cpu_ms() - began;
}

static int measure(int tp, int pp, int dp, enum program_fault fault)
{
    double best = 1e9, plain = 1e9, worst = 0;
    uint64_t sum = 0;
    struct program p;
    struct hang_verdict v;
    int wrong = 0, victim = tp * pp * dp / 3;

    /* Where it skips a call, all wait for each other, and what they called last is compared. */
    program_fail(&p, tp, pp, dp, victim, fault,
                 (fault ? PROGRAM_MICRO * (PROGRAM_CALLS + 2) + 2 : 0) + 2 * PROGRAM_CALLS + 1);
    for (int i = 0; i < TIMES; i++) {
        double began = cpu_ms(), took;

        wrong += hang_judge(p.rank, (size_t)p.n, &v) < 0 || v.roots != 1 || v.root[0] != victim;
        took = cpu_ms() - began;
        best = took < best ? took : best;
        worst = took > worst ? took : worst;
        took = read_once(&p, &sum);
        plain = took < plain ? took : plain;
    }
    printf("{\"bench\":\"diagnose\",\"metric\":\"%s of %d ranks (tp %d, pp %d, dp %d)\",\"value\":%.3f,\"unit\":\"ms\","
           "\"worst\":%.3f,\"wrong\":%d,\"reference\":\"reading each record once\",\"ratio\":%.1f}\n",
           fault ? "skipped call" : "hang", p.n, tp, pp, dp, best, worst, wrong, best / (plain > 0 ? plain : 1e-3));
    program_clear(&p);
    return wrong > 0 || sum == 1;
}

/* A window of ten steps in which one rank is a tenth slower, after some in which none is. */
static int measure_slow(int tp, int pp, int dp)
{
    double best = 1e9, worst = 0;
    struct lag_verdict v;
    struct fleet f;
    int wrong = 0;

    fleet_make(&f, tp, pp, dp, 1);
    fleet_start(&f);
    for (int window = 0; window < 6; window++) {
        double began, took;

        f.victim = (uint32_t)f.n / 3;
        f.slower = window < 4 ? 1 : 1.1f;
        for (int i = 0; i < LAG_WINDOW; i++)
            fleet_step(&f, false);
        began = cpu_ms();
        wrong += !lag_judge(f.lag, &v) || (window == 5) != (v.n == 1 && v.found[0].rank == f.victim);
        took = cpu_ms() - began;
        best = took < best ? took : best;
        worst = took > worst ? took : worst;
    }
    printf("{\"bench\":\"diagnose\",\"metric\":\"slow rank of %zu ranks (tp %d, pp %d, dp %d)\",\"value\":%.3f,"
           "\"unit\":\"ms a window of 10 steps\",\"worst\":%.3f,\"wrong\":%d}\n",
           f.n, tp, pp, dp, best, worst, wrong);
    fleet_clear(&f);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    int r = measure(8, 8, 8, PROGRAM_STOPS) | measure_slow(8, 8, 8);

    r |= measure(8, 8, 64, PROGRAM_STOPS);
    r |= measure(8, 8, 64, PROGRAM_SKIPS);
    if (argc < 2 || strcmp(argv[1], "--quick") != 0)
        r |= measure(8, 16, 512, PROGRAM_STOPS) | measure(8, 16, 512, PROGRAM_SKIPS) | measure_slow(8, 16, 512);
    return r;
}
