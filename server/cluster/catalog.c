#include "server/cluster/catalog.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* --- sets -------------------------------------------------------------------------------------------- */

/* How many rows of a set have numbers below that. */
static size_t count_below(const struct catalog_set *s, uint64_t id)
{
    size_t lo = 0, hi = s->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (s->v[s->first + mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Room for one more. */
static int reserve(struct catalog_set *s)
{
    size_t cap = s->cap ? s->cap * 2 : 4;
    struct catalog_row **v;

    if (s->first + s->n < s->cap)
        return 0;
    if (s->first > s->cap / 2) {
        memmove(s->v, s->v + s->first, s->n * sizeof(struct catalog_row *));
        s->first = 0;
        return 0;
    }
    v = realloc(s->v, cap * sizeof(struct catalog_row *));
    if (!v)
        return -ENOMEM;
    s->v = v;
    s->cap = cap;
    return 0;
}

/* There is room. */
static void put(struct catalog_set *s, struct catalog_row *row)
{
    size_t at = s->first + count_below(s, row->id);

    memmove(s->v + at + 1, s->v + at, (s->first + s->n - at) * sizeof(struct catalog_row *));
    s->v[at] = row;
    s->n++;
}

static void take(struct catalog_set *s, const struct catalog_row *row)
{
    size_t i = count_below(s, row->id), at = s->first + i;

    assert(i < s->n && s->v[at] == row);
    if (i == 0)
        s->first++;
    else
        memmove(s->v + at, s->v + at + 1, (s->n - i - 1) * sizeof(struct catalog_row *));
    if (--s->n > 0)
        return;
    free(s->v);
    *s = (struct catalog_set){.n = 0};
}

/* --- names ------------------------------------------------------------------------------------------- */

static size_t bucket_of(const char *name)
{
    return hash_xxh3(name, strlen(name)) % CATALOG_BUCKETS;
}

static struct catalog_name *name_find(struct catalog_name *const *all, const char *name)
{
    struct catalog_name *n = all[bucket_of(name)];

    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    return n;
}

static struct catalog_name *name_get(struct catalog_name **all, const char *name)
{
    struct catalog_name *n = name_find(all, name), **at = &all[bucket_of(name)];

    if (n)
        return n;
    n = calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    n->next = *at;
    *at = n;
    return n;
}

/* One that has no job any more leaves. */
static void name_settle(struct catalog_name **all, struct catalog_name *n)
{
    struct catalog_name **at = &all[bucket_of(n->name)];

    if (n->active.n > 0 || n->ended.n > 0)
        return;
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    free(n);
}

static struct catalog_set *set_of(struct catalog *c, bool task, enum job_state state)
{
    return task ? &c->tasks[state] : &c->of_state[state];
}

static struct catalog_set *half(struct catalog_name *n, enum job_state state)
{
    return job_ended(state) ? &n->ended : &n->active;
}

const struct catalog_name *catalog_user(const struct catalog *c, const char *name)
{
    return name_find(c->users, name);
}

const struct catalog_name *catalog_project(const struct catalog *c, const char *name)
{
    return name_find(c->projects, name);
}

/* --- rows -------------------------------------------------------------------------------------------- */

/* Count a row in, or out with -1. */
static void count(struct catalog *c, const struct catalog_row *row, int sign)
{
    bool ended = job_ended(row->state);
    uint64_t bytes = sign < 0 ? -row->bytes : row->bytes;

    *(ended ? &row->user->ended_bytes : &row->user->active_bytes) += bytes;
    *(ended ? &row->project->ended_bytes : &row->project->active_bytes) += bytes;
    *(ended ? &c->ended_bytes : &c->active_bytes) += bytes;
    row->user->n_of[row->state] += (size_t)sign;
    row->project->n_of[row->state] += (size_t)sign;
    c->n_ended += ended ? (size_t)sign : 0;
    row->user->ended_logs += !ended ? 0 : sign < 0 ? -row->logs : row->logs;
    c->logs += sign < 0 ? -row->logs : row->logs;
    if (ended && sign > 0 && row->logs > 0 && row->id < row->user->logs_from)
        row->user->logs_from = row->id;
}

static int add(struct catalog *c, uint64_t id, const char *user, const char *project, enum job_state state,
               uint64_t bytes, bool task)
{
    struct catalog_row *row;

    if (catalog_find(c, id))
        return -EEXIST;
    row = calloc(1, sizeof(*row));
    if (!row)
        return -ENOMEM;
    *row = (struct catalog_row){.id = id,
                                .user = name_get(c->users, user),
                                .project = name_get(c->projects, project),
                                .bytes = bytes,
                                .state = state,
                                .task = task};
    if (!row->user || !row->project || reserve(set_of(c, task, state)) < 0 || reserve(half(row->user, state)) < 0 ||
        reserve(half(row->project, state)) < 0) {
        if (row->user)
            name_settle(c->users, row->user);
        if (row->project)
            name_settle(c->projects, row->project);
        free(row);
        return -ENOMEM;
    }
    put(set_of(c, task, state), row);
    put(half(row->user, state), row);
    put(half(row->project, state), row);
    count(c, row, 1);
    return 0;
}

int catalog_add(struct catalog *c, uint64_t id, const char *user, const char *project, enum job_state state,
                uint64_t bytes)
{
    return add(c, id, user, project, state, bytes, false);
}

int catalog_add_task(struct catalog *c, uint64_t id, const char *user, const char *project, enum job_state state,
                     uint64_t bytes)
{
    return add(c, id, user, project, state, bytes, true);
}

struct catalog_row *catalog_find(const struct catalog *c, uint64_t id)
{
    for (int s = 0; s < 2 * JOB_STATES; s++) {
        const struct catalog_set *set = s < JOB_STATES ? &c->of_state[s] : &c->tasks[s - JOB_STATES];
        size_t i = count_below(set, id);

        if (i < set->n && set->v[set->first + i]->id == id)
            return set->v[set->first + i];
    }
    return NULL;
}

int catalog_move(struct catalog *c, struct catalog_row *row, enum job_state to)
{
    bool ends = job_ended(row->state) != job_ended(to);

    if (row->state == to)
        return 0;
    if (reserve(set_of(c, row->task, to)) < 0 ||
        (ends && (reserve(half(row->user, to)) < 0 || reserve(half(row->project, to)) < 0)))
        return -ENOMEM;
    take(set_of(c, row->task, row->state), row);
    put(set_of(c, row->task, to), row);
    if (ends) {
        take(half(row->user, row->state), row);
        take(half(row->project, row->state), row);
        put(half(row->user, to), row);
        put(half(row->project, to), row);
    }
    count(c, row, -1);
    row->state = to;
    count(c, row, 1);
    return 0;
}

void catalog_ship(struct catalog *c, struct catalog_row *row, uint64_t bytes)
{
    row->shipped += bytes;
    row->user->shipped += bytes;
    row->project->shipped += bytes;
    c->shipped += bytes;
}

void catalog_count_logs(struct catalog *c, struct catalog_row *row, uint64_t bytes)
{
    count(c, row, -1);
    row->logs = bytes;
    count(c, row, 1);
}

void catalog_resize(struct catalog *c, struct catalog_row *row, uint64_t bytes)
{
    count(c, row, -1);
    row->bytes = bytes;
    count(c, row, 1);
}

void catalog_drop(struct catalog *c, struct catalog_row *row)
{
    take(set_of(c, row->task, row->state), row);
    take(half(row->user, row->state), row);
    take(half(row->project, row->state), row);
    count(c, row, -1);
    catalog_ship(c, row, -row->shipped);
    name_settle(c->users, row->user);
    name_settle(c->projects, row->project);
    free(row);
}

struct catalog_row *catalog_surplus(const struct catalog *c, bool by_bytes)
{
    const struct catalog_name *most = NULL;

    for (size_t b = 0; b < CATALOG_BUCKETS; b++)
        for (const struct catalog_name *n = c->users[b]; n; n = n->next)
            if (n->ended.n > 0 &&
                (!most || (by_bytes ? n->ended_bytes > most->ended_bytes : n->ended.n > most->ended.n)))
                most = n;
    return most ? most->ended.v[most->ended.first] : NULL;
}

struct catalog_row *catalog_most_logs(struct catalog *c)
{
    struct catalog_name *most = NULL;

    for (size_t b = 0; b < CATALOG_BUCKETS; b++)
        for (struct catalog_name *n = c->users[b]; n; n = n->next)
            if (n->ended_logs > (most ? most->ended_logs : 0))
                most = n;
    for (size_t i = most ? count_below(&most->ended, most->logs_from) : 0; most && i < most->ended.n; i++) {
        struct catalog_row *row = most->ended.v[most->ended.first + i];

        most->logs_from = row->id;
        if (row->logs > 0)
            return row;
    }
    return NULL;
}

static void names_clear(struct catalog_name **all)
{
    for (size_t b = 0; b < CATALOG_BUCKETS; b++)
        for (struct catalog_name *n = all[b], *next; n; n = next) {
            next = n->next;
            free(n->active.v);
            free(n->ended.v);
            free(n);
        }
}

void catalog_clear(struct catalog *c)
{
    for (int s = 0; s < 2 * JOB_STATES; s++) {
        struct catalog_set *set = set_of(c, s >= JOB_STATES, (enum job_state)(s % JOB_STATES));

        for (size_t i = 0; i < set->n; i++)
            free(set->v[set->first + i]);
        free(set->v);
    }
    names_clear(c->users);
    names_clear(c->projects);
    *c = (struct catalog){.n_ended = 0};
}

/* --- searching --------------------------------------------------------------------------------------- */

struct catalog_any *catalog_query_any(struct catalog_query *q)
{
    assert(q->n < sizeof(q->all) / sizeof(q->all[0]));
    q->all[q->n].n = 0;
    return &q->all[q->n++];
}

static void any_name(struct catalog_any *any, const struct catalog_name *n)
{
    if (!n || any->n + 2 > CATALOG_SETS_MAX)
        return;
    any->of[any->n++] = &n->active;
    any->of[any->n++] = &n->ended;
}

void catalog_any_user(const struct catalog *c, struct catalog_any *any, const char *name)
{
    any_name(any, catalog_user(c, name));
}

void catalog_any_project(const struct catalog *c, struct catalog_any *any, const char *name)
{
    any_name(any, catalog_project(c, name));
}

void catalog_query_states(const struct catalog *c, struct catalog_query *q, const bool states[JOB_STATES])
{
    struct catalog_any *any = catalog_query_any(q);

    for (int s = 0; s < JOB_STATES; s++)
        if (states[s])
            any->of[any->n++] = &c->of_state[s];
}

/* The one with the highest number below that in any of the sets. */
static struct catalog_row *any_below(struct catalog_query *q, const struct catalog_any *any, uint64_t below)
{
    struct catalog_row *best = NULL;

    for (size_t i = 0; i < any->n; i++) {
        const struct catalog_set *s = any->of[i];
        size_t n = count_below(s, below);

        if (n > 0 && (!best || s->v[s->first + n - 1]->id > best->id))
            best = s->v[s->first + n - 1];
    }
    q->looks++;
    return best;
}

struct catalog_row *catalog_next(struct catalog_query *q, uint64_t below, size_t most, uint64_t *ret_below)
{
    size_t end = q->looks + most;

    assert(q->n > 0);
    *ret_below = 0;
    while (q->looks < end) {
        struct catalog_row *row = NULL;
        bool same = true;

        for (size_t i = 0; i < q->n; i++) {
            struct catalog_row *next = any_below(q, &q->all[i], row ? row->id + 1 : below);

            if (!next)
                return NULL;
            same = same && (!row || next == row);
            row = next;
        }
        if (same)
            return row;
        below = row->id + 1; /* none above it is in all; it may be */
    }
    *ret_below = below;
    return NULL;
}
