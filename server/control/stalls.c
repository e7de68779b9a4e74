#include "server/control/stalls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum hang_phase phase_of(const char *name)
{
    static const struct {
        const char *name;
        enum hang_phase phase;
    } of[] = {{"forward", HANG_COMPUTES}, {"backward", HANG_COMPUTES}, {"reduce", HANG_COMPUTES},
              {"update", HANG_COMPUTES},  {"eval", HANG_EVALUATES},    {"checkpoint", HANG_SAVES},
              {"exit", HANG_ENDS}};

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (strcmp(of[i].name, name) == 0)
            return of[i].phase;
    return HANG_STARTS;
}

static void page_clear(struct stall *p)
{
    free((void *)p->rank.group);
    free(p->name);
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
    struct hang_group *group;
    unsigned times;
    struct stall *p;

    if (!*stalls && s->idle_us > 0 && (*stalls = calloc(1, sizeof(**stalls) + n * sizeof((*stalls)->of[0]))))
        (*stalls)->n = n;
    if (!*stalls)
        return;
    p = &(*stalls)->of[told->rank];
    times = p->rank.told && s->idle_us > p->rank.idle_us ? p->times + 1 : 1;
    page_clear(p);
    group = s->idle_us > 0 ? calloc(s->n_groups + 1, sizeof(*group)) : NULL;
    if (!group)
        return;
    p->name = calloc(s->n_groups + 1, sizeof(*p->name));
    for (size_t i = 0; i < s->n_groups; i++) {
        group[i] = (struct hang_group){
            .key = (uint64_t)s->groups[i].key, .entered = (uint64_t)s->groups[i].entered, .size = s->groups[i].size};
        if (p->name)
            (void)snprintf(p->name[i], sizeof(p->name[i]), "%s", s->groups[i].name);
    }
    p->told_us = now_us;
    p->times = times;
    (void)snprintf(p->op, sizeof(p->op), "%s", s->op);
    (void)snprintf(p->phase, sizeof(p->phase), "%s", told->phase);
    p->step = told->step < 0 ? 0 : (uint64_t)told->step;
    p->rank = (struct hang_rank){.told = true,
                                 .stopped = s->stopped,
                                 .inside = s->op[0] != '\0',
                                 .peer = s->peer < (int)n ? s->peer : -1,
                                 .key = (uint64_t)s->key,
                                 .call = (uint64_t)s->call,
                                 .sends = strcmp(s->op, "send") == 0,
                                 .phase = phase_of(told->phase),
                                 .idle_us = s->idle_us,
                                 .gap_us = s->gap_us,
                                 .group = group,
                                 .n_groups = s->n_groups};
}

const char *stalls_group_name(const struct stall *p)
{
    for (size_t i = 0; p->name && i < p->rank.n_groups; i++)
        if (p->rank.group[i].key == p->rank.key)
            return p->name[i];
    return "?";
}
