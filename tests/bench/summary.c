/* bench summary - what it costs a rank to tell what each step was spent on
 *
 * Steps of 5 ms of arithmetic with 64 operations of groups in each, taken in turn with and without the summary and its
 * clock reads for each micro-batch. Processor time of the thread, so that other load changes little; the median of the
 * differences of pairs beside the step without.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "worker/engine/train/summary.h"

#define OPS 64
#define MICROS 8
#define BARE 100000 /* steps of nothing but the summary */

static double cpu_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void compute(struct flight *f, uint64_t step)
{
    static volatile double sink;

    for (uint64_t op = 0; op < OPS; op++) {
        double x = 1;

        for (int i = 0; i < 40000; i++)
            x = x * 1.0000001 + 1e-9;
        sink += x;
        flight_enter(f, &(struct flight_call){
                            .group = "dp", .key = 7, .size = 2, .peer = -1, .op = 1, .seq = step * OPS + op + 1});
        flight_leave(f);
    }
}

static void told_step(struct summary *s, uint64_t step)
{
    summary_begin(s);
    compute(s->flight, step);
    for (int i = 0; i < MICROS; i++) { /* as load() of step.c does for each */
        int64_t began_us = clock_mono_us();

        s->data_us += clock_mono_us() - began_us;
    }
    summary_computed(s, step, 0, 4096);
    summary_end(s, 0, step << 20);
}

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv)
{
    int pairs = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 20 : 200;
    double *plain = calloc((size_t)pairs, sizeof(*plain)), *more = calloc((size_t)pairs, sizeof(*more)), began, bare;
    struct summary s = {0};

    if (!plain || !more || flight_private(&s.flight, NULL) < 0)
        return 1;
    for (int i = 0; i < pairs; i++) {
        double took[2];

        for (int k = 0; k < 2; k++) { /* each goes first in every other pair */
            bool told = (i + k) % 2;

            began = cpu_us();
            if (told)
                told_step(&s, (uint64_t)i);
            else
                compute(s.flight, (uint64_t)i);
            took[told] = cpu_us() - began;
        }
        plain[i] = took[0];
        more[i] = took[1] - took[0];
    }
    began = cpu_us();
    for (int i = 0; i < BARE; i++) {
        summary_begin(&s);
        summary_computed(&s, (uint64_t)i, 0, 4096);
        summary_end(&s, 0, 0);
    }
    bare = (cpu_us() - began) / BARE;
    qsort(plain, (size_t)pairs, sizeof(*plain), by_size);
    qsort(more, (size_t)pairs, sizeof(*more), by_size);
    printf("{\"bench\":\"summary\",\"metric\":\"summaries of steps, in turn with steps without\",\"value\":%.3f,"
           "\"unit\":\"%% of a step\",\"step_us\":%.0f,\"quarter_to_quarter\":[%.3f,%.3f],\"pairs\":%d,"
           "\"summary_alone_us\":%.2f,\"summary_alone_percent\":%.4f}\n",
           100 * more[pairs / 2] / plain[pairs / 2], plain[pairs / 2], 100 * more[pairs / 4] / plain[pairs / 2],
           100 * more[pairs * 3 / 4] / plain[pairs / 2], pairs, bare, 100 * bare / plain[pairs / 2]);
    flight_close(s.flight);
    free(plain);
    free(more);
    return 0;
}
