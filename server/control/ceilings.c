#include "server/control/ceilings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "server/control/state.h"

struct user_devices { /* of a user in a project */
    const char *user; /* borrowed from a job; NULL: a free place */
    const struct project *project;
    int32_t held;
};

struct ceilings {
    const struct projects *projects; /* borrowed */
    int32_t *runs;                   /* of each project */
    struct user_devices *v;          /* a hash table with free places; size is a power of two */
    size_t size;
};

int ceilings_new(const struct core *c, struct ceilings **ret)
{
    const struct projects *all = &c->cluster.projects;
    struct ceilings *s;
    bool any = false;

    *ret = NULL;
    for (size_t i = 0; i < all->n; i++)
        any = any || all->v[i].max_running >= 0 || all->v[i].max_devices_per_user >= 0;
    if (!any)
        return 0;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->projects = all;
    s->size = 16;
    while (s->size < 2 * (c->jobs.n + 1))
        s->size *= 2;
    s->runs = calloc(all->n, sizeof(*s->runs));
    s->v = calloc(s->size, sizeof(*s->v));
    if (!s->runs || !s->v) {
        ceilings_free(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void ceilings_free(struct ceilings *s)
{
    if (!s)
        return;
    free(s->runs);
    free(s->v);
    free(s);
}

/* The place of a job's user in its project; one is always free. */
static struct user_devices *place_of(const struct ceilings *s, const struct project *p, const char *user)
{
    size_t at = (hash_xxh3(user, strlen(user)) + (size_t)(p - s->projects->v) * 31) & (s->size - 1);

    while (s->v[at].user && (s->v[at].project != p || strcmp(s->v[at].user, user) != 0))
        at = (at + 1) & (s->size - 1);
    return &s->v[at];
}

/* The job's project, if it has a ceiling that matters here. */
static const struct project *capped(const struct ceilings *s, const struct job *j)
{
    const struct project *p = s ? project_find(s->projects, j->project) : NULL;

    return p && (p->max_running >= 0 || p->max_devices_per_user >= 0) ? p : NULL;
}

/* Devices that the user may have beside what is held; INT32_MAX: any number. */
static int32_t left_of(const struct ceilings *s, const struct project *p, const struct job *j)
{
    int32_t held = place_of(s, p, j->user)->held;

    if (p->max_devices_per_user < 0)
        return INT32_MAX;
    return held < p->max_devices_per_user ? p->max_devices_per_user - held : 0;
}

static void add(struct ceilings *s, const struct project *p, const struct job *j, int32_t devices)
{
    struct user_devices *at = place_of(s, p, j->user);

    *at = (struct user_devices){.user = j->user, .project = p, .held = at->held + devices};
}

void ceilings_hold(struct ceilings *s, const struct job *j, int32_t devices)
{
    const struct project *p = capped(s, j);

    if (!p)
        return;
    s->runs[p - s->projects->v]++;
    add(s, p, j, devices);
}

bool ceilings_allow(const struct ceilings *s, struct entry *e)
{
    const struct project *p = capped(s, &e->job);

    if (!p)
        return true;
    if (p->max_running >= 0 && s->runs[p - s->projects->v] >= p->max_running)
        e->wait = (struct explain_wait){.code = EXPLAIN_MAX_RUNNING, .need = e->job.min, .total = p->max_running};
    else if (left_of(s, p, &e->job) < e->job.min)
        e->wait =
            (struct explain_wait){.code = EXPLAIN_MAX_DEVICES, .need = e->job.min, .total = p->max_devices_per_user};
    else
        return true;
    return false;
}

int32_t ceilings_take(struct ceilings *s, const struct job *j, int32_t max)
{
    const struct project *p = capped(s, j);
    int32_t left = p ? left_of(s, p, j) : max;

    max = max < left ? max : left;
    ceilings_hold(s, j, max);
    return max;
}

int32_t ceilings_grow(struct ceilings *s, const struct job *j, int32_t held, int32_t max)
{
    const struct project *p = capped(s, j);
    int32_t left = p ? left_of(s, p, j) : max;

    if (!p || max <= held)
        return max;
    max = max - held < left ? max : held + left;
    add(s, p, j, max - held);
    return max;
}
