#include "scheduler/cluster/snapshot.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "base/word.h"

#define FIRST_LINE "muster-snapshot 2"

/* --- printing ---------------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct rates_profile *const *)a;
    uintptr_t y = (uintptr_t) * (const struct rates_profile *const *)b;

    return (x > y) - (x < y);
}

/* The different profiles of the jobs, sorted by address. New; *ret_n of them. */
static const struct rates_profile **profiles_of(const struct sched_input *in, size_t *ret_n)
{
    const struct rates_profile **v = calloc(in->n_jobs + 1, sizeof(*v));
    size_t n = 0;

    for (size_t i = 0; v && i < in->n_jobs; i++)
        v[i] = in->jobs[i].profile;
    if (v)
        qsort(v, in->n_jobs, sizeof(*v), by_address);
    for (size_t i = 0; v && i < in->n_jobs; i++)
        if (n == 0 || v[i] != v[n - 1])
            v[n++] = v[i];
    *ret_n = n;
    return v;
}

static void print_profile(const struct rates_profile *p, struct buf *out)
{
    (void)buf_printf(out, "profile\n");
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        for (int i = 0; i < p->n[t]; i++)
            (void)buf_printf(out, "rate %d %" PRId32 " %" PRId64 "\n", t, p->points[t][i].count,
                             p->points[t][i].rate_ups);
}

static void print_job(const struct sched_job *j, size_t profile, struct buf *out)
{
    (void)buf_printf(out,
                     "job %" PRIu64 " %u %d %" PRId64 " %d %d %d %d %d %u %d %d %d %" PRId64 " %" PRId64 " %d %" PRId64
                     " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %zu",
                     j->id, j->tenant, (int)j->class_, j->submit_us, j->min, j->max, j->replica, j->stage, j->workers,
                     j->types, j->hetero_ok, j->fixed | j->hasty << 1, j->home, j->weight_milli, j->restart_us,
                     j->restarts, j->changed_us, j->waiting_us, j->attained_us, j->remaining_us, j->rho_milli, profile);
    for (size_t i = 0; i < j->n_places; i++)
        (void)buf_printf(out, " %u:%d", j->places[i].node, j->places[i].devices);
    (void)buf_printf(out, "\n");
    if (j->limit_us > 0)
        (void)buf_printf(out, "limit %" PRId64 "\n", j->limit_us);
    if (j->finish_us > 0 || j->within || j->prefer)
        (void)buf_printf(out, "wish %" PRId64 " %d %u\n", j->finish_us, j->within, j->prefer);
    if (j->unsure)
        (void)buf_addstr(out, "unsure\n");
    if (j->share_milli > 0)
        (void)buf_printf(out, "share %" PRId64 "\n", j->share_milli);
    if (j->n_avoid == 0)
        return;
    (void)buf_printf(out, "avoid %zu", j->n_barred);
    for (size_t i = 0; i < j->n_avoid; i++)
        (void)buf_printf(out, " %u", j->avoid[i]);
    (void)buf_printf(out, "\n");
}

static void print_tenant(const struct sched_tenant *t, struct buf *out)
{
    (void)buf_printf(out, "tenant %d %d %" PRId64, t->quota, t->borrow, t->weight_milli);
    if (t->leaving || t->within)
        (void)buf_printf(out, " %d", t->leaving);
    if (t->within)
        (void)buf_printf(out, " %u", t->within);
    (void)buf_printf(out, "\n");
    for (int k = 0; t->type_quota && t->type_most && k < RATES_TYPES_MAX; k++)
        if (t->type_quota[k] >= 0 || t->type_most[k] >= 0)
            (void)buf_printf(out, "of %d %d %d\n", k, t->type_quota[k], t->type_most[k]);
}

static void print_node(const struct sched_node *n, struct buf *out)
{
    (void)buf_printf(out, "node %d %d %u %d %d", n->type, n->devices, n->leaf, n->drained, n->silent);
    if (n->slow_milli > 0 || n->spare > 0)
        (void)buf_printf(out, " %d %" PRId64, n->slow_milli, n->slow_us);
    if (n->spare > 0)
        (void)buf_printf(out, " %d", n->spare);
    (void)buf_printf(out, "\n");
    if (n->closes_us > 0 || n->opens_us > 0)
        (void)buf_printf(out, "closes %" PRId64 " %" PRId64 "\n", n->closes_us, n->opens_us);
}

int snapshot_print(const struct sched_input *in, const char *const *types, size_t n_types, struct buf *out)
{
    const struct sched_config *c = &in->config;
    const struct rates_profile **profiles;
    size_t n = 0;

    profiles = profiles_of(in, &n);
    if (!profiles)
        return -ENOMEM;
    (void)buf_printf(out,
                     FIRST_LINE "\nconfig %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                                " %d\nprices",
                     sched_policy_name(c->policy), c->mode == SCHED_FULL ? "full" : "fast", c->now_us, c->round_us,
                     c->starve_us, c->grace_us, c->las_us, c->hold_us, c->spread);
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        (void)buf_printf(out, " %.17g", in->prices[t]);
    (void)buf_printf(out, "\n");
    if (c->power_w > 0) {
        (void)buf_printf(out, "power %" PRId64, c->power_w);
        for (int t = 0; t < RATES_TYPES_MAX; t++)
            (void)buf_printf(out, " %d", in->power_w[t]);
        (void)buf_printf(out, "\n");
    }
    if (c->objective != SCHED_FAIR)
        (void)buf_printf(out, "objective %s\n", sched_objective_names[c->objective]);
    for (size_t t = 0; t < n_types; t++)
        (void)buf_printf(out, "type %s\n", types[t]);
    for (size_t i = 0; i < in->n_tenants; i++)
        print_tenant(&in->tenants[i], out);
    for (size_t i = 0; i < in->n_nodes; i++)
        print_node(&in->nodes[i], out);
    for (size_t i = 0; i < n; i++)
        print_profile(profiles[i], out);
    for (size_t i = 0; i < in->n_jobs; i++) {
        const struct rates_profile **at = bsearch(&in->jobs[i].profile, profiles, n, sizeof(*profiles), by_address);

        print_job(&in->jobs[i], (size_t)(at - profiles), out);
    }
    free(profiles);
    return buf_failed(out) ? -EMSGSIZE : 0;
}

/* --- parsing ----------------------------------------------------------------------------------------------- */

struct line {
    const char *p, *end;
    int bad; /* a field was missing or out of range */
};

static size_t next_word(struct line *l, const char **ret)
{
    while (l->p < l->end && *l->p == ' ')
        l->p++;
    *ret = l->p;
    while (l->p < l->end && *l->p != ' ')
        l->p++;
    return (size_t)(l->p - *ret);
}

static int64_t whole(struct line *l, int64_t lo, int64_t hi)
{
    const char *w;
    size_t n = next_word(l, &w), i = n > 0 && *w == '-';
    bool minus = i > 0;
    int64_t v = 0;

    if (n == i || n > 20)
        l->bad = 1;
    for (; i < n && !l->bad; i++) {
        if (w[i] < '0' || w[i] > '9' || v > (INT64_MAX - 9) / 10)
            l->bad = 1;
        else
            v = v * 10 + (w[i] - '0');
    }
    v = minus ? -v : v;
    if (v < lo || v > hi)
        l->bad = 1;
    return l->bad ? lo : v;
}

static double real(struct line *l)
{
    char text[40], *end;
    const char *w;
    size_t n = next_word(l, &w);
    double v;

    if (n == 0 || n >= sizeof(text)) {
        l->bad = 1;
        return 0;
    }
    memcpy(text, w, n);
    text[n] = '\0';
    v = strtod(text, &end);
    if (*end || !(v >= 0) || v > 1e18)
        l->bad = 1;
    return l->bad ? 0 : v;
}

static void word(struct line *l, char *ret, size_t size)
{
    const char *w;
    size_t n = next_word(l, &w);

    if (n == 0 || n >= size) {
        l->bad = 1;
        n = 0;
    }
    memcpy(ret, w, n);
    ret[n] = '\0';
}

/* Room for one more of n items of size bytes. -ENOSPC at most items, -ENOMEM. */
static int room(void **v, size_t n, size_t *cap, size_t most, size_t size)
{
    size_t grown = *cap ? 2 * *cap : 64;
    void *p;

    if (n < *cap)
        return 0;
    if (n >= most)
        return -ENOSPC;
    grown = grown < most ? grown : most;
    p = realloc(*v, grown * size);
    if (!p)
        return -ENOMEM;
    *v = p;
    *cap = grown;
    return 0;
}

#define ROOM(s, what, n, most) room((void **)&(s)->what, n, &(s)->what##_cap, most, sizeof(*(s)->what))

static int read_config(struct snapshot *s, struct line *l)
{
    struct sched_config *c = &s->in.config;
    char policy[32], mode[8];
    int found;

    word(l, policy, sizeof(policy));
    word(l, mode, sizeof(mode));
    found = word_index(policy, sched_policy_names);
    if (found < 0 || (strcmp(mode, "full") != 0 && strcmp(mode, "fast") != 0))
        l->bad = 1;
    else
        c->policy = (enum sched_policy)found;
    c->mode = strcmp(mode, "full") == 0 ? SCHED_FULL : SCHED_FAST;
    c->now_us = whole(l, 0, INT64_MAX / 4);
    c->round_us = whole(l, 0, INT64_MAX / 1000);
    c->starve_us = whole(l, 0, INT64_MAX / 4);
    c->grace_us = whole(l, 0, INT64_MAX / 4);
    c->las_us = whole(l, 0, INT64_MAX / 4);
    c->hold_us = whole(l, 0, INT64_MAX / 4);
    c->spread = whole(l, 0, 1);
    return 0;
}

static int read_power(struct snapshot *s, struct line *l)
{
    s->in.config.power_w = whole(l, 1, SCHED_POWER_MAX);
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        s->in.power_w[t] = (int32_t)whole(l, 0, SCHED_DEVICE_POWER_MAX);
    return 0;
}

static int read_objective(struct snapshot *s, struct line *l)
{
    char name[16];
    int found;

    word(l, name, sizeof(name));
    found = word_index(name, sched_objective_names);
    l->bad = l->bad || found < 0;
    s->in.config.objective = found > 0 ? (enum sched_objective)found : SCHED_FAIR;
    return 0;
}

static int read_prices(struct snapshot *s, struct line *l)
{
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        s->in.prices[t] = real(l);
    return 0;
}

static int read_type(struct snapshot *s, struct line *l)
{
    if (s->n_types == RATES_TYPES_MAX)
        return -ENOSPC;
    word(l, s->types[s->n_types++], SNAPSHOT_NAME_MAX);
    return 0;
}

static int read_tenant(struct snapshot *s, struct line *l)
{
    int r = ROOM(s, tenants, s->in.n_tenants, SCHED_TENANTS_MAX);
    struct sched_tenant t = {.quota = (int32_t)whole(l, 0, RATES_COUNT_MAX)};

    t.borrow = (int32_t)whole(l, -1, RATES_COUNT_MAX);
    t.weight_milli = whole(l, 1, 1000000);
    if (l->p < l->end)
        t.leaving = (int32_t)whole(l, 0, RATES_COUNT_MAX);
    if (l->p < l->end)
        t.within = (uint32_t)whole(l, 1, SCHED_TENANTS_MAX);
    if (r == 0)
        s->tenants[s->in.n_tenants++] = t;
    return r;
}

/* Quota and limit of a type, of the tenant before it. They are set to its tenant when all is read. */
static int read_of(struct snapshot *s, struct line *l)
{
    int r = ROOM(s, of, s->n_of, SCHED_TENANTS_MAX);
    int type = (int)whole(l, 0, RATES_TYPES_MAX - 1);
    struct snapshot_of *at;

    if (r < 0 || s->in.n_tenants == 0)
        return r < 0 ? r : -EINVAL;
    if (s->n_of == 0 || s->of[s->n_of - 1].tenant != s->in.n_tenants - 1) {
        s->of[s->n_of] = (struct snapshot_of){.tenant = s->in.n_tenants - 1};
        for (int t = 0; t < RATES_TYPES_MAX; t++)
            s->of[s->n_of].quota[t] = s->of[s->n_of].most[t] = -1;
        s->n_of++;
    }
    at = &s->of[s->n_of - 1];
    at->quota[type] = (int32_t)whole(l, -1, RATES_COUNT_MAX);
    at->most[type] = (int32_t)whole(l, -1, RATES_COUNT_MAX);
    return 0;
}

int snapshot_add_node(struct snapshot *s, struct sched_node node)
{
    int r = ROOM(s, nodes, s->in.n_nodes, SCHED_NODES_MAX);

    if (r < 0)
        return r;
    s->nodes[s->in.n_nodes++] = node;
    s->in.nodes = s->nodes;
    return 0;
}

static int read_node(struct snapshot *s, struct line *l)
{
    struct sched_node n = {.type = (uint8_t)whole(l, 0, RATES_TYPES_MAX - 1)};

    n.devices = (int32_t)whole(l, 0, SCHED_NODE_DEVICES_MAX);
    n.leaf = (uint32_t)whole(l, 0, SCHED_NODES_MAX - 1);
    n.drained = (int32_t)whole(l, 0, SCHED_NODE_DEVICES_MAX);
    n.silent = (int32_t)whole(l, 0, SCHED_NODE_DEVICES_MAX);
    if (l->p < l->end) {
        n.slow_milli = (int32_t)whole(l, 0, SCHED_SLOW_MAX);
        n.slow_us = whole(l, 0, INT64_MAX / 4);
    }
    if (l->p < l->end)
        n.spare = (int32_t)whole(l, 1, SCHED_NODE_DEVICES_MAX);
    return snapshot_add_node(s, n);
}

/* Of the node before it. */
static int read_closes(struct snapshot *s, struct line *l)
{
    if (s->in.n_nodes == 0)
        return -EINVAL;
    s->nodes[s->in.n_nodes - 1].closes_us = whole(l, 0, INT64_MAX / 4);
    s->nodes[s->in.n_nodes - 1].opens_us = whole(l, 0, INT64_MAX / 4);
    return 0;
}

static int read_profile(struct snapshot *s, struct line *l)
{
    int r = ROOM(s, profiles, s->n_profiles, SNAPSHOT_PROFILES_MAX);

    (void)l;
    if (r == 0)
        memset(&s->profiles[s->n_profiles++], 0, sizeof(*s->profiles));
    return r;
}

static int read_rate(struct snapshot *s, struct line *l)
{
    struct rates_profile *p = s->n_profiles > 0 ? &s->profiles[s->n_profiles - 1] : NULL;
    int t = (int)whole(l, 0, RATES_TYPES_MAX - 1);
    struct rates_point at = {.count = (int32_t)whole(l, 1, RATES_COUNT_MAX)};

    at.rate_ups = whole(l, 1, RATES_UPS_MAX);
    if (!p || p->n[t] == RATES_POINTS_MAX || (p->n[t] > 0 && p->points[t][p->n[t] - 1].count >= at.count))
        l->bad = 1;
    else
        p->points[t][p->n[t]++] = at;
    return 0;
}

/* "node:devices" ... to the line's end. */
static int read_places(struct snapshot *s, struct line *l, struct sched_job *j)
{
    const char *w;
    size_t n;

    while ((n = next_word(l, &w)) > 0) {
        const char *colon = memchr(w, ':', n);
        struct line node = {.p = w, .end = colon ? colon : w}, devices = {.p = colon ? colon + 1 : w, .end = w + n};
        int r = ROOM(s, places, s->n_places, SNAPSHOT_PLACES_MAX);

        if (r < 0)
            return r;
        s->places[s->n_places++] = (struct sched_place){.node = (uint32_t)whole(&node, 0, SCHED_NODES_MAX - 1),
                                                        .devices = (int32_t)whole(&devices, 1, RATES_COUNT_MAX)};
        l->bad = l->bad || node.bad || devices.bad;
        j->n_places++;
    }
    return 0;
}

/* Profile and places are indexes until all is read, since what they point into may still move. */
static int read_job(struct snapshot *s, struct line *l)
{
    int r = ROOM(s, jobs, s->in.n_jobs, SCHED_JOBS_MAX);
    int64_t far = INT64_MAX / 4;
    struct sched_job *j;
    int fixed;

    if (r < 0)
        return r;
    j = &s->jobs[s->in.n_jobs++];
    *j = (struct sched_job){.id = (uint64_t)whole(l, 1, INT64_MAX - 1)};
    j->tenant = (uint32_t)whole(l, 0, SCHED_TENANTS_MAX - 1);
    j->class_ = (enum sched_class)whole(l, SCHED_ELASTIC, SCHED_OPPORTUNISTIC);
    j->submit_us = whole(l, 0, far);
    j->min = (int32_t)whole(l, 1, RATES_COUNT_MAX);
    j->max = (int32_t)whole(l, 1, RATES_COUNT_MAX);
    j->replica = (int32_t)whole(l, 0, RATES_COUNT_MAX);
    j->stage = (int32_t)whole(l, 0, RATES_COUNT_MAX);
    j->workers = (int32_t)whole(l, 0, RATES_COUNT_MAX);
    j->types = (uint32_t)whole(l, 0, UINT32_MAX);
    j->hetero_ok = whole(l, 0, 1);
    fixed = (int)whole(l, 0, 3);
    j->fixed = fixed & 1;
    j->hasty = fixed >> 1;
    j->home = (int8_t)whole(l, -1, RATES_TYPES_MAX - 1);
    j->weight_milli = whole(l, 1, far);
    j->restart_us = whole(l, 0, far / 1000);
    j->restarts = (int32_t)whole(l, 0, INT32_MAX);
    j->changed_us = whole(l, 0, far);
    j->waiting_us = whole(l, 0, far);
    j->attained_us = whole(l, 0, far);
    j->remaining_us = whole(l, -1, far);
    j->rho_milli = whole(l, 0, 1000000);
    j->profile = (const struct rates_profile *)(uintptr_t)whole(l, 0, SNAPSHOT_PROFILES_MAX - 1);
    return read_places(s, l, j);
}

/* Of the job before it, as the next. */
static int read_share(struct snapshot *s, struct line *l)
{
    if (s->in.n_jobs == 0)
        return -EINVAL;
    s->jobs[s->in.n_jobs - 1].share_milli = whole(l, 1, 1000000);
    return 0;
}

static int read_limit(struct snapshot *s, struct line *l)
{
    if (s->in.n_jobs == 0)
        return -EINVAL;
    s->jobs[s->in.n_jobs - 1].limit_us = whole(l, 1, INT64_MAX / 4);
    return 0;
}

static int read_unsure(struct snapshot *s, struct line *l)
{
    (void)l;
    if (s->in.n_jobs == 0)
        return -EINVAL;
    s->jobs[s->in.n_jobs - 1].unsure = true;
    return 0;
}

static int read_wish(struct snapshot *s, struct line *l)
{
    struct sched_job *j = s->in.n_jobs > 0 ? &s->jobs[s->in.n_jobs - 1] : NULL;

    if (!j)
        return -EINVAL;
    j->finish_us = whole(l, 0, INT64_MAX / 4);
    j->within = whole(l, 0, 1);
    j->prefer = (uint32_t)whole(l, 0, UINT32_MAX);
    return 0;
}

/* Of the job before it. Where they are is set when all is read. */
static int read_avoid(struct snapshot *s, struct line *l)
{
    struct sched_job *j = s->in.n_jobs > 0 ? &s->jobs[s->in.n_jobs - 1] : NULL;

    if (!j || j->n_avoid > 0)
        return -EINVAL;
    j->n_barred = (size_t)whole(l, 0, SCHED_NODES_MAX);
    while (l->p < l->end && !l->bad) {
        TRY(ROOM(s, avoid, s->n_avoid, SNAPSHOT_PLACES_MAX));
        s->avoid[s->n_avoid++] = (uint32_t)whole(l, 0, SCHED_NODES_MAX - 1);
        j->n_avoid++;
    }
    return 0;
}

static int read_line(struct snapshot *s, struct line *l)
{
    static const struct {
        const char *name;
        int (*take)(struct snapshot *s, struct line *l);
    } known[] = {{"config", read_config}, {"prices", read_prices}, {"type", read_type},
                 {"job", read_job},       {"node", read_node},     {"profile", read_profile},
                 {"rate", read_rate},     {"tenant", read_tenant}, {"limit", read_limit},
                 {"share", read_share},   {"of", read_of},         {"avoid", read_avoid},
                 {"closes", read_closes}, {"wish", read_wish},     {"objective", read_objective},
                 {"unsure", read_unsure}, {"power", read_power}};
    char name[16];
    const char *rest;
    int r;

    word(l, name, sizeof(name));
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (!l->bad && strcmp(known[i].name, name) == 0) {
            r = known[i].take(s, l);
            return r < 0 ? r : l->bad || next_word(l, &rest) > 0 ? -EINVAL : 0;
        }
    return -EINVAL;
}

/* Turn indexes into pointers. */
static int settle(struct snapshot *s, struct merr *err)
{
    size_t at = 0, shunned = 0;

    for (size_t i = 0; i < s->in.n_jobs; i++) {
        struct sched_job *j = &s->jobs[i];

        if ((uintptr_t)j->profile >= s->n_profiles)
            return merr_set(err, -EINVAL, "job %llu: no such profile", (unsigned long long)j->id);
        j->profile = &s->profiles[(uintptr_t)j->profile];
        j->places = j->n_places > 0 ? s->places + at : NULL;
        at += j->n_places;
        j->avoid = j->n_avoid > 0 ? s->avoid + shunned : NULL;
        shunned += j->n_avoid;
    }
    assert(at == s->n_places);
    for (size_t i = 0; i < s->n_of; i++) {
        s->tenants[s->of[i].tenant].type_quota = s->of[i].quota;
        s->tenants[s->of[i].tenant].type_most = s->of[i].most;
    }
    s->in.nodes = s->nodes;
    s->in.tenants = s->tenants;
    s->in.jobs = s->jobs;
    return 0;
}

int snapshot_parse(const char *text, size_t len, struct snapshot *ret, struct merr *err)
{
    struct snapshot s = {.n_types = 0};
    const char *end = text + len;
    int number = 0, r = 0;

    for (const char *p = text, *nl; p < end && r == 0; p = nl + (nl < end)) {
        struct line l;

        nl = memchr(p, '\n', (size_t)(end - p));
        nl = nl ? nl : end;
        l = (struct line){.p = p, .end = nl};
        if (number++ == 0)
            r = (size_t)(nl - p) == strlen(FIRST_LINE) && memcmp(p, FIRST_LINE, (size_t)(nl - p)) == 0 ? 0 : -EINVAL;
        else if (nl > p)
            r = read_line(&s, &l);
    }
    if (r == -EINVAL || number == 0)
        r = merr_set(err, -EINVAL, "line %d: not as in a snapshot that this version writes", number);
    else if (r == -ENOSPC)
        r = merr_set(err, -EINVAL, "line %d: more than this version takes", number);
    else if (r < 0)
        (void)merr_set(err, r, "no memory for a snapshot");
    if (r < 0)
        goto fail;
    r = settle(&s, err);
    if (r < 0)
        goto fail;
    *ret = s;
    return 0;
fail:
    snapshot_clear(&s);
    return r;
}

void snapshot_clear(struct snapshot *s)
{
    free(s->nodes);
    free(s->tenants);
    free(s->of);
    free(s->jobs);
    free(s->places);
    free(s->avoid);
    free(s->profiles);
    *s = (struct snapshot){.n_types = 0};
}
