#include "server/control/usage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scheduler/cluster/share.h"
#include "server/cluster/job_time.h"
#include "server/control/records.h"
#include "server/control/state.h"

#define REBASE_HALVES 16     /* half-lives after which all is told as of now: numbers stay small */
#define FORGOTTEN_US 1000000 /* device time that is as good as none */
#define ROW_NAME_MAX (2 * SPEC_NAME_MAX + 16)

struct use {
    char project[SPEC_NAME_MAX], user[SPEC_NAME_MAX]; /* no user: a free place */
    double us;                                        /* as if it had all been at usage.base_us */
};

struct usage {
    struct use *v; /* a hash table with free places; size is a power of two */
    size_t n, size;
    int64_t base_us; /* wall */
};

struct usage *usage_new(void)
{
    struct usage *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    u->size = 64;
    u->v = calloc(u->size, sizeof(*u->v));
    if (!u->v) {
        free(u);
        return NULL;
    }
    return u;
}

void usage_free(struct usage *u)
{
    if (u)
        free(u->v);
    free(u);
}

static struct use *place_of(const struct use *v, size_t size, const char *project, const char *user)
{
    size_t at = (hash_xxh3(user, strlen(user)) * 31 + hash_xxh3(project, strlen(project))) & (size - 1);

    while (v[at].user[0] && (strcmp(v[at].user, user) != 0 || strcmp(v[at].project, project) != 0))
        at = (at + 1) & (size - 1);
    return (struct use *)&v[at];
}

static void name_of(const struct use *at, char ret[ROW_NAME_MAX])
{
    (void)snprintf(ret, ROW_NAME_MAX, "%zu:%s/%s", strlen(at->project), at->project, at->user);
}

/* What counts `us` at the base, as of now. */
static double now_of(const struct core *c, double us)
{
    return share_decay(us, c->now.wall_us - c->usage->base_us, c->cfg.share_half_us);
}

/* Room for one more, without those that are forgotten, and all told as of now. -ENOSPC: there are too many. */
static int make_room(struct core *c)
{
    struct usage *u = c->usage;
    size_t size = 64, n = 0;
    struct use *v;
    char name[ROW_NAME_MAX];

    for (size_t i = 0; i < u->size; i++)
        n += u->v[i].user[0] && now_of(c, u->v[i].us) >= FORGOTTEN_US;
    if (n >= USAGE_MOST)
        return -ENOSPC;
    while (size < 4 * (n + 1))
        size *= 2;
    v = calloc(size, sizeof(*v));
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < u->size; i++) {
        struct use *at = &u->v[i];

        if (!at->user[0])
            continue;
        at->us = now_of(c, at->us);
        if (at->us >= FORGOTTEN_US) {
            *place_of(v, size, at->project, at->user) = *at;
        } else {
            name_of(at, name);
            records_drop_row(c, STORE_USAGE, name);
        }
    }
    free(u->v);
    *u = (struct usage){.v = v, .n = n, .size = size, .base_us = c->now.wall_us};
    return 0;
}

/* Where the use of a user is counted, made where it is new; NULL: there is no room. */
static struct use *use_of(struct core *c, const char *project, const char *user)
{
    struct usage *u = c->usage;
    struct use *at;

    if (u->base_us == 0)
        u->base_us = c->now.wall_us;
    if ((2 * (u->n + 1) > u->size || c->now.wall_us - u->base_us > REBASE_HALVES * c->cfg.share_half_us) &&
        make_room(c) < 0 && 2 * (u->n + 1) > u->size)
        return NULL;
    at = place_of(u->v, u->size, project, user);
    if (!at->user[0]) {
        (void)snprintf(at->project, sizeof(at->project), "%s", project);
        (void)snprintf(at->user, sizeof(at->user), "%s", user);
        u->n++;
    }
    return at;
}

/* So much as of now, as of the base. */
static double based(const struct core *c, double us)
{
    return us / share_decay(1, c->now.wall_us - c->usage->base_us, c->cfg.share_half_us);
}

void usage_add(struct core *c, const struct job *j, size_t devices, int64_t device_us)
{
    struct use *at =
        c->cfg.share_half_us > 0 && devices > 0 && device_us > 0 && j->user[0] ? use_of(c, j->project, j->user) : NULL;
    char name[ROW_NAME_MAX];

    if (!at)
        return;
    at->us += based(c, share_of_run((int32_t)devices, device_us / (int64_t)devices, c->cfg.share_half_us));
    name_of(at, name);
    if (!records_put_row_new(c, STORE_USAGE, name,
                             json_pack("{s:s, s:s, s:f, s:I}", "project", at->project, "user", at->user, "us",
                                       now_of(c, at->us), "at_us", (json_int_t)c->now.wall_us)))
        state_fatal(c, "out of memory for what a user had");
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    const char *project = json_string_value(json_object_get(o, "project"));
    const char *user = json_string_value(json_object_get(o, "user"));
    double us = json_number_value(json_object_get(o, "us"));
    int64_t at_us = json_integer_value(json_object_get(o, "at_us"));
    struct use *at;

    if (!project || !user || !*user || strlen(project) >= SPEC_NAME_MAX || strlen(user) >= SPEC_NAME_MAX ||
        !(us >= 0) || at_us < 0)
        return merr_set(err, -EINVAL, "the store's record of what a user had cannot be read");
    at = use_of(c, project, user);
    if (at)
        at->us += based(c, share_decay(us, c->now.wall_us - at_us, c->cfg.share_half_us));
    return 0;
}

int usage_load(struct core *c, struct merr *err)
{
    return c->cfg.share_half_us > 0 ? records_take_rows(c, STORE_USAGE, NULL, take_row, err) : 0;
}

double usage_of(const struct core *c, const char *project)
{
    double us = 0;

    for (size_t i = 0; i < c->usage->size; i++)
        us += c->usage->v[i].user[0] && strcmp(c->usage->v[i].project, project) == 0 ? c->usage->v[i].us : 0;
    return now_of(c, us);
}

/* --- in a round ------------------------------------------------------------------------------------------ */

struct member {       /* of the tree: a user of a tenant */
    const char *user; /* borrowed; NULL: a free place */
    uint32_t tenant, node;
};

struct tree {
    struct share_node *nodes; /* the tenants, then their users; n of them */
    int64_t *milli;
    size_t n;
    struct member *members; /* a hash table */
    size_t size;
};

static struct member *member_of(const struct tree *t, uint32_t tenant, const char *user)
{
    size_t at = (hash_xxh3(user, strlen(user)) + tenant * 31) & (t->size - 1);

    while (t->members[at].user && (t->members[at].tenant != tenant || strcmp(t->members[at].user, user) != 0))
        at = (at + 1) & (t->size - 1);
    return &t->members[at];
}

static uint32_t tenant_of(const struct core *c, const char *project)
{
    const struct project *p = project_find(&c->cluster.projects, project);

    return p ? (uint32_t)(p - c->cluster.projects.v) + 1 : 0;
}

static void plant_projects(const struct core *c, struct tree *t)
{
    const struct projects *all = &c->cluster.projects;

    t->nodes[t->n++] = (struct share_node){.parent = SHARE_NONE, .weight_milli = 1000};
    for (size_t i = 0; i < all->n; i++) {
        const struct project *up = project_parent(all, &all->v[i]);

        t->nodes[t->n++] = (struct share_node){.parent = up ? (uint32_t)(up - all->v) + 1 : SHARE_NONE,
                                               .weight_milli = all->v[i].weight_milli};
    }
}

/* The users of the jobs, with what their runs that go on have used. */
static void plant_users(const struct core *c, struct tree *t, struct entry *const *entries,
                        const struct sched_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct job *j = &entries[i]->job;
        struct member *m = member_of(t, jobs[i].tenant, j->user);

        if (!m->user) {
            *m = (struct member){.user = j->user, .tenant = jobs[i].tenant, .node = (uint32_t)t->n};
            t->nodes[t->n++] = (struct share_node){.parent = jobs[i].tenant, .weight_milli = 1000, .wants = true};
        }
        if (j->live)
            t->nodes[m->node].use_us += share_of_run(
                (int32_t)j->n_places, job_time_ran_us(j, c->now.wall_us) - j->ran_us, c->cfg.share_half_us);
    }
}

static void add_past(const struct core *c, struct tree *t)
{
    double as_of_now = now_of(c, 1);

    for (size_t i = 0; i < c->usage->size; i++) {
        const struct use *at = &c->usage->v[i];
        uint32_t tenant = at->user[0] ? tenant_of(c, at->project) : 0;
        const struct member *m = at->user[0] ? member_of(t, tenant, at->user) : NULL;

        if (m)
            t->nodes[m->user ? m->node : tenant].use_us += at->us * as_of_now;
    }
}

int usage_share(const struct core *c, struct entry *const *entries, struct sched_job *jobs, size_t n)
{
    struct tree t = {.size = 64};
    size_t most = c->cluster.projects.n + 1 + n;
    bool differ = false;

    if (c->cfg.share_half_us <= 0 || n < 2)
        return 0;
    while (t.size < 2 * (n + 1))
        t.size *= 2;
    t.nodes = calloc(most, sizeof(*t.nodes));
    t.milli = calloc(most, sizeof(*t.milli));
    t.members = calloc(t.size, sizeof(*t.members));
    if (t.nodes && t.milli && t.members) {
        plant_projects(c, &t);
        plant_users(c, &t, entries, jobs, n);
        add_past(c, &t);
        share_all(t.nodes, t.n, t.milli);
        for (size_t i = 0; i < n; i++) {
            jobs[i].share_milli = t.milli[member_of(&t, jobs[i].tenant, entries[i]->job.user)->node];
            differ = differ || jobs[i].share_milli != jobs[0].share_milli;
        }
        for (size_t i = 0; i < n && !differ; i++)
            jobs[i].share_milli = 0;
    }
    most = t.nodes && t.milli && t.members;
    free(t.nodes);
    free(t.milli);
    free(t.members);
    return most ? 0 : -ENOMEM;
}
