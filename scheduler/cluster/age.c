/* The jobs of a round by age. Their times are sorted as integers, digit by digit; where these are alike, what the jobs
 * ask for decides. Jobs in another order are copied into this one: every stage goes through all of them, and looks for
 * none all over the memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"

#define DIGIT_BITS 10
#define DIGITS (1 << DIGIT_BITS)

struct aged {
    uint64_t age; /* submitted so long after the first */
    const struct sched_job *job;
};

static int compare(int64_t x, int64_t y)
{
    return (x > y) - (x < y);
}

/* Of those who came at once what they ask for decides, and the id where they are alike. */
static int by_content(const struct sched_job *x, const struct sched_job *y)
{
    const int64_t of[][2] = {{x->min, y->min},         {x->max, y->max},     {x->remaining_us, y->remaining_us},
                             {x->workers, y->workers}, {x->types, y->types}, {y->weight_milli, x->weight_milli}};

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (of[i][0] != of[i][1])
            return compare(of[i][0], of[i][1]);
    return (x->id > y->id) - (x->id < y->id);
}

static int of_one_age(const void *a, const void *b)
{
    return by_content(((const struct aged *)a)->job, ((const struct aged *)b)->job);
}

static bool is_sorted(const struct sched_job *jobs, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (jobs[i - 1].submit_us > jobs[i].submit_us ||
            (jobs[i - 1].submit_us == jobs[i].submit_us && by_content(&jobs[i - 1], &jobs[i]) > 0))
            return false;
    return true;
}

/* By one digit; of equals the first stays first. */
static void sort_digit(const struct aged *from, struct aged *to, size_t n, unsigned shift)
{
    size_t first[DIGITS + 1] = {0};

    for (size_t i = 0; i < n; i++)
        first[(from[i].age >> shift) % DIGITS + 1]++;
    for (size_t d = 0; d < DIGITS; d++)
        first[d + 1] += first[d];
    for (size_t i = 0; i < n; i++)
        to[first[(from[i].age >> shift) % DIGITS]++] = from[i];
}

/* In v, of which the second half is scratch. Returns where they are then. */
static struct aged *sort(struct aged *v, size_t n, uint64_t oldest)
{
    struct aged *from = v, *to = v + n;

    for (unsigned shift = 0; shift < 64 && oldest >> shift > 0; shift += DIGIT_BITS) {
        struct aged *sorted = to;

        sort_digit(from, to, n, shift);
        to = from;
        from = sorted;
    }
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && from[end].age == from[i].age;)
            end++;
        if (end > i + 1)
            qsort(&from[i], end - i, sizeof(*from), of_one_age);
    }
    return from;
}

int age_sort(struct round *r)
{
    const struct sched_job *jobs = r->in->jobs;
    struct aged *v, *sorted;
    int64_t first = INT64_MAX;
    uint64_t oldest = 0;

    if (is_sorted(jobs, r->n_jobs)) {
        for (size_t i = 0; i < r->n_jobs; i++)
            r->jobs[i] = (struct rjob){.job = &jobs[i], .index = i};
        return 0;
    }
    v = malloc(2 * r->n_jobs * sizeof(*v));
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < r->n_jobs; i++) {
        v[i] = (struct aged){.age = (uint64_t)jobs[i].submit_us, .job = &jobs[i]};
        first = jobs[i].submit_us < first ? jobs[i].submit_us : first;
    }
    for (size_t i = 0; i < r->n_jobs; i++) {
        v[i].age -= (uint64_t)first;
        oldest |= v[i].age;
    }
    sorted = sort(v, r->n_jobs, oldest);
    for (size_t i = 0; i < r->n_jobs; i++) {
        r->by_age[i] = *sorted[i].job;
        r->jobs[i] = (struct rjob){.job = &r->by_age[i], .index = (size_t)(sorted[i].job - jobs)};
    }
    free(v);
    return 0;
}
