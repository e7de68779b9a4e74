/* Everything that muster simulate reads: the input is a cluster, throughputs and a trace with a NUL between them. What
 * is accepted and small is also played. */
#include <stdlib.h>
#include <string.h>

#include "api/cli/simulate_read.c" /* the command line is no part of what fuzzers link */

#define PLAYED_JOBS 8
#define PLAYED_NODES 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void play(struct sim_setup *s, const struct sim_trace *t)
{
    struct sim_result r;
    struct merr err;

    if (t->n > PLAYED_JOBS || s->n_nodes > PLAYED_NODES || s->mtbf_us > 0)
        return;
    for (size_t i = 0; i < t->n; i++) /* long jobs only take long */
        if (t->jobs[i].steps > 1000 || t->jobs[i].submit_us > INT64_C(3600000000))
            return;
    s->round_us = INT64_C(86400000000);
    if (sim_run(s, t, &r, &err) == 0)
        sim_result_clear(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const char *text = (const char *)data, *rates = memchr(text, 0, len), *jobs;
    struct sim_setup s;
    struct sim_trace t;
    struct merr err;

    rates = rates ? rates + 1 : text + len;
    jobs = memchr(rates, 0, len - (size_t)(rates - text));
    jobs = jobs ? jobs + 1 : text + len;
    sim_setup_init(&s);
    if (simulate_read_cluster(&s, text, (size_t)(rates - text) - (rates > text), &err) == 0 &&
        simulate_read_throughputs(&s, rates, (size_t)(jobs - rates) - (jobs > rates), &err) == 0 &&
        sim_trace_parse(&s, jobs, len - (size_t)(jobs - text), &t, &err) == 0) {
        play(&s, &t);
        sim_trace_clear(&t);
    }
    sim_setup_clear(&s);
    return 0;
}
