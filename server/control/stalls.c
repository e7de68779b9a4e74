#include "server/control/stalls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void page_clear(struct stall *p)
{
    free(p->told.stall.groups);
    *p = (struct stall){0};
}

void stalls_free(struct stalls *stalls)
{
    for (size_t i = 0; stalls && i < stalls->n; i++)
        page_clear(&stalls->of[i]);
    free(stalls);
}

void stalls_take(struct stalls **stalls, size_t n, const struct report_rank *told, int64_t now_us)
{
    const struct report_stall *s = &told->stall;
    struct report_group *groups;
    unsigned times;
    struct stall *p;

    if (!*stalls && s->idle_us > 0 && (*stalls = calloc(1, sizeof(**stalls) + n * sizeof((*stalls)->of[0]))))
        (*stalls)->n = n;
    if (!*stalls)
        return;
    p = &(*stalls)->of[told->rank];
    times = p->told.stall.idle_us > 0 && s->idle_us > p->told.stall.idle_us ? p->times + 1 : 1;
    page_clear(p);
    groups = s->idle_us > 0 ? calloc(s->n_groups + 1, sizeof(*groups)) : NULL;
    if (!groups)
        return;
    if (s->n_groups > 0)
        memcpy(groups, s->groups, s->n_groups * sizeof(*groups));
    *p = (struct stall){.told_us = now_us, .times = times, .told = *told};
    p->told.stall.groups = groups;
    p->told.log_tail = NULL;
    p->told.steps = NULL; /* the report's, which goes */
    p->told.n_steps = 0;
}

struct incident_rank *stalls_list(const struct stalls *stalls, const struct job_place *places)
{
    struct incident_rank *list = calloc(stalls->n + 1, sizeof(*list));

    for (size_t i = 0; list && i < stalls->n; i++) {
        (void)snprintf(list[i].node, sizeof(list[i].node), "%s", places[i].node);
        list[i].told = stalls->of[i].told;
        list[i].told.rank = (int)i;
    }
    return list;
}
