#include "server/cluster/allocations.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/times.h"
#include "scheduler/cluster/calendar.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define LEAST_TIME_S 600 /* whoever says nothing of its time leaves a node minutes before its end */

const char *const allocations_states[] = {"asked", "waiting", "running", "released", NULL};

/* --- queues -------------------------------------------------------------------------------------------- */

static int read_count(const char *value, int lo, int hi, int *ret)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (end == value || *end || n < lo || n > hi)
        return -EINVAL;
    *ret = (int)n;
    return 0;
}

static int read_word(const char *value, size_t size, const char *letters, char *ret)
{
    size_t n = strlen(value);

    if (n == 0 || n >= size || (letters && strspn(value, letters) != n))
        return -EINVAL;
    (void)snprintf(ret, size, "%s", value);
    return 0;
}

static int read_key(struct allocation_queue *q, const char *key, const char *value)
{
    if (strcmp(key, "class") == 0)
        return read_word(value, sizeof(q->class_), LETTERS, q->class_);
    if (strcmp(key, "account") == 0)
        return read_word(value, sizeof(q->account), LETTERS "@", q->account);
    if (strcmp(key, "options") == 0)
        return read_word(value, sizeof(q->options), NULL, q->options);
    if (strcmp(key, "agent") == 0)
        return read_word(value, sizeof(q->agent), NULL, q->agent);
    if (strcmp(key, "devices") == 0)
        return read_count(value, 1, 256, &q->devices);
    if (strcmp(key, "fixed") == 0)
        return read_count(value, 0, ALLOCATIONS_NODES_MAX, &q->fixed);
    if (strcmp(key, "most") == 0)
        return read_count(value, 1, ALLOCATIONS_NODES_MAX, &q->most);
    if (strcmp(key, "time") == 0)
        return times_parse(value, &q->time_s) < 0 || q->time_s < LEAST_TIME_S ? -EINVAL : 0;
    if (strcmp(key, "idle") == 0)
        return times_parse(value, &q->idle_s);
    if (strcmp(key, "grace") == 0)
        return times_parse(value, &q->grace_s);
    return -ENOENT;
}

static int read_queue(char *text, struct allocations *all, struct merr *err)
{
    struct allocation_queue q = {
        .class_ = "cpu", .devices = 1, .most = 8, .time_s = 3600, .idle_s = 300, .grace_s = 60};
    char *rest = strchr(text, ':'), *save = NULL;

    if (rest)
        *rest++ = '\0';
    if (read_word(text, sizeof(q.name), LETTERS, q.name) < 0 || allocations_queue(all, text))
        return merr_set(err, -EINVAL, "'%.64s' is no name of a queue, or is there twice", text);
    if (all->n_queues == ALLOCATIONS_QUEUES_MAX)
        return merr_set(err, -EINVAL, "%d queues are the most there can be", ALLOCATIONS_QUEUES_MAX);
    for (char *part = rest ? strtok_r(rest, ",", &save) : NULL; part; part = strtok_r(NULL, ",", &save)) {
        char *value = strchr(part, '=');

        if (value)
            *value++ = '\0';
        if (!value || read_key(&q, part, value) < 0)
            return merr_set(err, -EINVAL,
                            "queue '%s': '%.64s%s%.64s': want class=, devices=, most=, fixed=, time=, idle=, grace=, "
                            "account=, options= or agent=, with a value that can be one",
                            q.name, part, value ? "=" : "", value ? value : "");
    }
    if (q.fixed > q.most)
        return merr_set(err, -EINVAL, "queue '%s': fixed=%d is more than most=%d", q.name, q.fixed, q.most);
    all->queues[all->n_queues++] = q;
    return 0;
}

int allocations_read_queues(const char *text, struct allocations *all, struct merr *err)
{
    char *copy = strdup(text), *save = NULL;
    int r = copy ? 0 : merr_set(err, -ENOMEM, "out of memory");

    for (char *part = r == 0 ? strtok_r(copy, ";", &save) : NULL; part && r == 0; part = strtok_r(NULL, ";", &save))
        r = read_queue(part, all, err);
    free(copy);
    if (r == 0 && all->n_queues == 0)
        r = merr_set(err, -EINVAL, "'%.64s' names no queue; want such as p:devices=8,most=4,time=8h", text);
    return r;
}

const struct allocation_queue *allocations_queue(const struct allocations *all, const char *name)
{
    for (size_t i = 0; i < all->n_queues; i++)
        if (strcmp(all->queues[i].name, name) == 0)
            return &all->queues[i];
    return NULL;
}

/* --- allocations --------------------------------------------------------------------------------------- */

struct allocation *allocations_find(struct allocations *all, uint64_t id)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].id == id)
            return &all->v[i];
    return NULL;
}

struct allocation *allocations_add(struct allocations *all, const char *queue, int nodes, int64_t now_us)
{
    struct allocation *a = all->n < ALLOCATIONS_MAX ? &all->v[all->n] : NULL;

    if (!a)
        return NULL;
    *a = (struct allocation){.id = ++all->next, .nodes = nodes, .asked_us = now_us};
    (void)snprintf(a->queue, sizeof(a->queue), "%s", queue);
    all->n++;
    return a;
}

void allocations_drop(struct allocations *all, struct allocation *a)
{
    size_t i = (size_t)(a - all->v);

    memmove(a, a + 1, (--all->n - i) * sizeof(*a));
}

void allocations_node(const struct allocation *a, int index, char ret[ALLOCATIONS_NAME_MAX])
{
    (void)snprintf(ret, ALLOCATIONS_NAME_MAX, "a%llu-%d", (unsigned long long)a->id, index);
}

uint64_t allocations_of_node(const char *node)
{
    char *end = NULL;
    unsigned long long id = node[0] == 'a' && node[1] >= '1' && node[1] <= '9' ? strtoull(node + 1, &end, 10) : 0;

    return id > 0 && *end == '-' && end[1] && strspn(end + 1, "0123456789") == strlen(end + 1) ? id : 0;
}

json_t *allocations_record(const struct allocation *a)
{
    return json_pack("{s:s, s:i, s:s, s:I, s:s}", "queue", a->queue, "nodes", a->nodes, "state",
                     allocations_states[a->state], "asked_us", (json_int_t)a->asked_us, "reference", a->reference);
}

int allocations_take(struct allocations *all, const char *name, const json_t *o)
{
    const char *queue, *state, *reference;
    struct allocation a = {.id = name[0] == 'a' ? strtoull(name + 1, NULL, 10) : 0};
    json_int_t asked_us;
    size_t at = all->n;

    if (json_unpack((json_t *)o, "{s:s, s:i, s:s, s:I, s:s}", "queue", &queue, "nodes", &a.nodes, "state", &state,
                    "asked_us", &asked_us, "reference", &reference) != 0 ||
        a.id == 0 || a.nodes < 1 || a.nodes > ALLOCATIONS_NODES_MAX || all->n == ALLOCATIONS_MAX)
        return -EINVAL;
    a.asked_us = asked_us;
    (void)snprintf(a.queue, sizeof(a.queue), "%s", queue);
    (void)snprintf(a.reference, sizeof(a.reference), "%s", reference);
    while (allocations_states[a.state] && strcmp(allocations_states[a.state], state) != 0)
        a.state++;
    if (!allocations_states[a.state])
        return -EINVAL;
    while (at > 0 && all->v[at - 1].id > a.id)
        at--;
    memmove(&all->v[at + 1], &all->v[at], (all->n++ - at) * sizeof(a));
    all->v[at] = a;
    all->next = a.id > all->next ? a.id : all->next;
    return 0;
}

/* --- the policy ---------------------------------------------------------------------------------------- */

struct planning {
    struct allocations *all;
    int64_t now_us;
    int held[ALLOCATIONS_QUEUES_MAX];  /* nodes, there or to come */
    int left[ALLOCATIONS_MAX];         /* of each allocation's devices that are free or to come */
    int spare[ALLOCATIONS_QUEUES_MAX]; /* devices of what is being asked for */
    bool needed[ALLOCATIONS_MAX];
    struct allocation_step *steps;
    size_t n;
};

static bool is_late(const struct allocation *a, int64_t now_us)
{
    return a->granted_us > 0 && now_us - a->granted_us > ALLOCATIONS_ARRIVE_US;
}

static int64_t new_end_us(const struct planning *p, const struct allocation_queue *q)
{
    return p->now_us + q->time_s * INT64_C(1000000);
}

/* Whether the need may have devices of the allocation. */
static bool serves(const struct planning *p, const struct allocation *a, size_t queue,
                   const struct allocation_need *need)
{
    const struct allocation_queue *q = &p->all->queues[queue];

    if (strcmp(a->queue, q->name) != 0 || a->state == ALLOCATION_RELEASED)
        return false;
    return !calendar_bars(p->now_us, need->limit_us, a->arrived > 0 ? a->ends_us : new_end_us(p, q));
}

static int count(const struct planning *p, size_t queue, const struct allocation_need *need)
{
    int n = p->spare[queue];

    for (size_t i = 0; i < p->all->n; i++)
        n += serves(p, &p->all->v[i], queue, need) ? p->left[i] : 0;
    return n;
}

static void take(struct planning *p, size_t queue, const struct allocation_need *need)
{
    int lacks = need->devices;

    for (size_t i = 0; i < p->all->n && lacks > 0; i++) {
        int n = serves(p, &p->all->v[i], queue, need) ? p->left[i] : 0;

        n = n < lacks ? n : lacks;
        p->left[i] -= n;
        lacks -= n;
        p->needed[i] = p->needed[i] || n > 0;
    }
    p->spare[queue] -= lacks;
}

static bool ask(struct planning *p, size_t queue, int nodes, size_t need)
{
    if (p->n == ALLOCATIONS_STEPS_MAX || p->all->n + p->n >= ALLOCATIONS_MAX || nodes > ALLOCATIONS_NODES_MAX)
        return false;
    p->steps[p->n++] = (struct allocation_step){.queue = queue, .nodes = nodes, .need = need};
    p->held[queue] += nodes;
    p->spare[queue] += nodes * p->all->queues[queue].devices;
    return true;
}

static void meet(struct planning *p, const struct allocation_need *need, size_t number)
{
    for (size_t i = 0; i < p->all->n_queues; i++)
        if (need->queues >> i & 1 && count(p, i, need) >= need->devices) {
            take(p, i, need);
            return;
        }
    for (size_t i = 0; i < p->all->n_queues; i++) {
        const struct allocation_queue *q = &p->all->queues[i];
        int nodes = (need->devices - count(p, i, need) + q->devices - 1) / q->devices;

        if (need->queues >> i & 1 && !calendar_bars(p->now_us, need->limit_us, new_end_us(p, q)) &&
            p->held[i] + nodes <= q->most && ask(p, i, nodes, number)) {
            take(p, i, need);
            return;
        }
    }
}

/* Hand back what nobody has needed for long, the newest first, but for what is always held. */
static void give_back(struct planning *p)
{
    for (size_t i = p->all->n; i-- > 0;) {
        struct allocation *a = &p->all->v[i];
        const struct allocation_queue *q = allocations_queue(p->all, a->queue);
        size_t at = q ? (size_t)(q - p->all->queues) : 0;
        bool lost = a->arrived == 0 && is_late(a, p->now_us);

        if (a->state == ALLOCATION_RELEASED)
            continue;
        if (a->busy || (!lost && p->needed[i]) || (!lost && q && p->held[at] - a->nodes < q->fixed)) {
            a->idle_us = 0;
            continue;
        }
        a->idle_us = a->idle_us ? a->idle_us : p->now_us;
        if ((!lost && q && p->now_us - a->idle_us < q->idle_s * INT64_C(1000000)) || p->n == ALLOCATIONS_STEPS_MAX)
            continue;
        p->steps[p->n++] = (struct allocation_step){.release = true, .id = a->id};
        if (q)
            p->held[at] -= a->nodes;
    }
}

size_t allocations_plan(struct allocations *all, const struct allocation_need *needs, size_t n_needs, int64_t now_us,
                        struct allocation_step ret[ALLOCATIONS_STEPS_MAX])
{
    struct planning p = {.all = all, .now_us = now_us, .steps = ret};

    for (size_t i = 0; i < all->n; i++) {
        const struct allocation *a = &all->v[i];
        const struct allocation_queue *q = allocations_queue(all, a->queue);
        int to_come = a->nodes > a->arrived && !is_late(a, now_us) ? a->nodes - a->arrived : 0;

        if (!q || a->state == ALLOCATION_RELEASED)
            continue;
        p.held[q - all->queues] += a->nodes;
        p.left[i] = a->free + to_come * q->devices;
    }
    for (size_t i = 0; i < n_needs; i++)
        meet(&p, &needs[i], i);
    for (size_t i = 0; i < all->n_queues; i++)
        if (p.held[i] < all->queues[i].fixed)
            (void)ask(&p, i, all->queues[i].fixed - p.held[i], SIZE_MAX);
    give_back(&p);
    return p.n;
}
