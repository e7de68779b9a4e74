/* What the threads of a writer and its callers share */
#include <sys/resource.h>
#include <unistd.h>

#include "checkpoint/write/writer_priv.h"

#define YIELD 5 /* added to the trainer's nice value */

struct attempt *writer_oldest(struct mck_writer *w)
{
    struct attempt *best = NULL;

    for (int i = 0; i < ATTEMPTS_MAX; i++)
        if (w->attempt[i].used && (!best || w->attempt[i].serial < best->serial))
            best = &w->attempt[i];
    return best;
}

void writer_yield(void)
{
    id_t self = (id_t)gettid();

    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + YIELD);
}

void writer_free_slot(struct mck_writer *w, int slot)
{
    w->free_slot[w->free_slots++] = slot;
    (void)pthread_cond_signal(&w->capture);
    (void)pthread_cond_broadcast(&w->gate);
}

void writer_fail(struct mck_writer *w, struct attempt *a, int code, const struct merr *err)
{
    if (!a->code) {
        a->code = code;
        a->err = *err;
    }
    (void)pthread_cond_broadcast(&w->gate);
    (void)pthread_cond_broadcast(&w->capture);
    (void)pthread_cond_broadcast(&w->encode);
    (void)pthread_cond_broadcast(&w->commit);
}

void writer_average(double *rate, double now)
{
    *rate = *rate > 0 ? 0.7 * *rate + 0.3 * now : now;
}
