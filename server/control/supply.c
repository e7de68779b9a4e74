#include "server/control/supply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/cluster/allocations.h"
#include "server/cluster/slots.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/contact.h"
#include "server/control/enroll.h"
#include "server/control/events.h"
#include "server/control/provider.h"
#include "server/control/records.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define SECOND_US INT64_C(1000000)
#define PLAN_US SECOND_US
#define LIST_SOON_US (3 * SECOND_US)  /* while something is expected to change */
#define LIST_US (30 * SECOND_US)      /* while there are allocations, else: */
#define LIST_IDLE_US (60 * SECOND_US) /* one that nobody knows may turn up */
#define RELEASE_US (60 * SECOND_US)   /* after which one is released again that is still there */
#define REFUSED_US (5 * SECOND_US)    /* after a request that failed; each time in a row twice as long, up to */
#define REFUSED_MOST_US (600 * SECOND_US)
#define NEEDS_MAX 1024
#define LISTED_MAX 16384
#define CLUSTER_MAX 24

struct supply {
    struct allocations all;
    struct provider *provider;
    char cluster[CLUSTER_MAX];   /* "muster-" and eight digits of chance, "-" */
    bool known;                  /* a list has come */
    bool listing;                /* one is under way */
    int64_t list_us, plan_us;    /* monotonic: when the next is due */
    uint64_t listed_below;       /* allocations of lower numbers were stored before the list under way was asked for */
    char trouble[MERR_TEXT_MAX]; /* why the newest list failed; "": it did not */
    struct {
        int failures;   /* requests in a row */
        int64_t ask_us; /* monotonic: none before */
        char why[ALLOCATIONS_TEXT_MAX];
    } queue[ALLOCATIONS_QUEUES_MAX];
};

static void wake(void *core, struct call *call)
{
    ((struct core *)core)->handed = true; /* a turn is all that was wanted */
    ((struct core *)core)->turn.next_tick_us = 0;
    call_free(call);
}

/* --- beginning and end --------------------------------------------------------------------------------- */

int supply_start(struct core *c, bool thread, struct supply **ret, struct merr *err)
{
    struct supply *s;
    int r;

    *ret = NULL;
    if (!c->cfg.supply.way.call)
        return 0;
    s = calloc(1, sizeof(*s));
    if (!s)
        return merr_set(err, -ENOMEM, "out of memory");
    r = allocations_read_queues(c->cfg.supply.queues, &s->all, err);
    for (size_t i = 0; r == 0 && i < s->all.n_queues; i++) { /* jobs may name them before a node has them */
        uint8_t class_ = classes_add(&c->cluster.classes, s->all.queues[i].class_);

        if (class_ < CLASSES_MAX)
            c->lendable[class_] += s->all.queues[i].most * s->all.queues[i].devices;
        else
            r = merr_set(err, -EINVAL, "more than %d classes of devices", CLASSES_MAX);
    }
    if (r == 0)
        r = provider_start(&c->cfg.supply.way, &c->turn.queue, wake, thread, &s->provider, err);
    if (r < 0)
        supply_free(s);
    else
        *ret = s;
    return r;
}

void supply_free(struct supply *s)
{
    if (!s)
        return;
    provider_free(s->provider);
    free(s);
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    const char *name = json_string_value(json_object_get(o, "name"));

    if (strcmp(row->name, "cluster") == 0 && name && strlen(name) < CLUSTER_MAX) {
        uint64_t next = (uint64_t)json_integer_value(json_object_get(o, "next"));

        (void)snprintf(c->supply->cluster, CLUSTER_MAX, "%s", name);
        c->supply->all.next = next > c->supply->all.next ? next : c->supply->all.next;
        return 0;
    }
    return allocations_take(&c->supply->all, row->name, o) == 0
               ? 0
               : merr_set(err, -EINVAL, "the store's record of an allocation cannot be read");
}

/* Its name, and that no number is given twice. */
static void keep_cluster(struct core *c)
{
    if (!records_put_row_new(
            c, STORE_ALLOCATIONS, "cluster",
            json_pack("{s:s, s:I}", "name", c->supply->cluster, "next", (json_int_t)c->supply->all.next)))
        state_fatal(c, "out of memory for allocations");
}

int supply_load(struct core *c, struct merr *err)
{
    struct supply *s = c->supply;
    uint32_t number;
    int r = s ? records_take_rows(c, STORE_ALLOCATIONS, NULL, take_row, err) : 0;

    if (!s || r < 0 || *s->cluster)
        return r;
    if (!chance_draw(c->cfg.chance, &number, sizeof(number)))
        return merr_set(err, -EIO, "no random bytes");
    (void)snprintf(s->cluster, sizeof(s->cluster), "muster-%08x-", (unsigned)number);
    keep_cluster(c);
    return 0;
}

/* --- allocations --------------------------------------------------------------------------------------- */

static void row_name(const struct allocation *a, char ret[24])
{
    (void)snprintf(ret, 24, "a%llu", (unsigned long long)a->id);
}

static void keep(struct core *c, const struct allocation *a)
{
    char name[24];

    row_name(a, name);
    if (!records_put_row_new(c, STORE_ALLOCATIONS, name, allocations_record(a)))
        state_fatal(c, "out of memory for an allocation");
}

static void tell(struct core *c, const struct allocation *a, const char *code, const char *why)
{
    char text[MERR_TEXT_MAX + 64], name[24];

    row_name(a, name);
    (void)snprintf(text, sizeof(text), "%s of %d node%s of queue %s%s%s", name, a->nodes, a->nodes == 1 ? "" : "s",
                   a->queue, *why ? ": " : "", why);
    log_info("allocation %s: %s", code, text);
    events_note(c, 0, "", "allocation", 0, "scheduler", code, text,
                json_pack("{s:s, s:s, s:i}", "allocation", name, "queue", a->queue, "nodes", a->nodes));
}

static struct node *node_of(const struct core *c, const struct allocation *a, int i)
{
    char name[ALLOCATIONS_NAME_MAX];

    allocations_node(a, i, name);
    return cluster_node(&c->cluster, name);
}

/* It is over: nothing is heard of its nodes, and nobody can come in their names any more. */
static void drop(struct core *c, struct allocation *a, const char *code, const char *why)
{
    char name[ALLOCATIONS_NAME_MAX];

    tell(c, a, code, why);
    for (int i = 0; i < a->nodes; i++) {
        struct node *n = node_of(c, a, i);

        if (n && n->contact != NODE_LOST)
            contact_lose(c, n, "its allocation is over");
        if (n) {
            n->leaves_us = c->now.wall_us; /* so that it goes off the list */
            change_node(c, n);
        }
        allocations_node(a, i, name);
        enroll_void(c, name);
    }
    row_name(a, name);
    records_drop_row(c, STORE_ALLOCATIONS, name);
    allocations_drop(&c->supply->all, a);
}

/* Nobody needs it: nothing is placed there any more, and the provider gets it back once that is durable. */
static void release(struct core *c, struct allocation *a)
{
    for (int i = 0; i < a->nodes; i++) {
        struct node *n = node_of(c, a, i);

        if (n && !n->drain)
            care_hold(c, n, "scheduler", "nobody needs it: its allocation is handed back");
    }
    a->state = ALLOCATION_RELEASED;
    a->retry_us = 0;
    keep(c, a);
    tell(c, a, "released", a->arrived == 0 && a->granted_us ? "its agents did not come" : "");
}

/* --- asking -------------------------------------------------------------------------------------------- */

static json_t *codes_new(struct core *c, const struct allocation *a)
{
    json_t *list = json_array();

    for (int i = 0; i < a->nodes; i++) {
        char node[ALLOCATIONS_NAME_MAX], code[AUTH_TOKEN_MAX];

        allocations_node(a, i, node);
        if (enroll_code(c, node, ENROLL_LIFE_MAX_S, code) < 0)
            break;
        (void)json_array_append_new(list, json_pack("{s:s, s:s}", "node", node, "code", code));
    }
    return list;
}

static void ask(struct core *c, const struct allocation_step *step, const struct entry *of)
{
    struct supply *s = c->supply;
    const struct allocation_queue *q = &s->all.queues[step->queue];
    const char *account = strcmp(q->account, "@project") == 0 ? (of ? of->job.project : "") : q->account;
    struct allocation *a = allocations_add(&s->all, q->name, step->nodes, c->now.wall_us);
    char name[CLUSTER_MAX + 24];
    json_t *codes;

    if (!a)
        return;
    codes = codes_new(c, a);
    if (json_array_size(codes) < (size_t)a->nodes) {
        json_decref(codes);
        log_warn("no nodes of queue %s are asked for: there are as many join codes as can be", q->name);
        drop(c, a, "refused", "there are as many join codes as can be");
        s->queue[step->queue].ask_us = c->now.mono_us + REFUSED_US;
        return;
    }
    a->sent = true;
    keep(c, a);
    keep_cluster(c);
    (void)snprintf(name, sizeof(name), "%sa%llu", s->cluster, (unsigned long long)a->id);
    if (!provider_ask_new(s->provider, PROVIDER_REQUEST, a->id,
                          json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:s*, s:o}", "name", name,
                                    "queue", q->name, "class", q->class_, "account", account, "options", q->options,
                                    "agent", q->agent, "count", a->nodes, "devices", q->devices, "time_s", q->time_s,
                                    "grace_s", q->grace_s, "server", c->cfg.supply.url, "ca", c->cfg.supply.ca, "nodes",
                                    codes)))
        state_fatal(c, "out of memory for an allocation");
    tell(c, a, "asked", "");
    s->list_us = 0;
}

/* Whether the job waits for devices that more nodes would bring. */
static bool needs_devices(const struct entry *e)
{
    if (!job_waits(&e->job) || e->wait.need == 0 || e->job.reservation[0])
        return false;
    switch (e->wait.code) {
    case EXPLAIN_INSUFFICIENT:
    case EXPLAIN_BEHIND:
    case EXPLAIN_FRAGMENTED:
    case EXPLAIN_DRAINED:
    case EXPLAIN_TOO_SMALL:
    case EXPLAIN_NO_CLASS:
    case EXPLAIN_NO_NODES:
    case EXPLAIN_CLOSING:
        return true;
    default:
        return false;
    }
}

static size_t find_needs(const struct core *c, struct allocation_need *ret, const struct entry **ret_of)
{
    const struct supply *s = c->supply;
    size_t n = 0;

    for (size_t i = 0; i < c->jobs.n_order && n < NEEDS_MAX; i++) {
        const struct entry *e = table_at(&c->jobs, i);
        uint64_t classes = e && needs_devices(e) ? entry_classes(e, &c->cluster.classes) : 0;
        struct allocation_need need = {.devices = e ? e->wait.need : 0, .limit_us = e ? e->job.time_s * SECOND_US : 0};

        for (size_t q = 0; classes && q < s->all.n_queues; q++)
            if (classes >> classes_find(&c->cluster.classes, s->all.queues[q].class_) & 1 &&
                c->now.mono_us >= s->queue[q].ask_us)
                need.queues |= UINT64_C(1) << q;
        if (need.queues == 0)
            continue;
        ret_of[n] = e;
        ret[n++] = need;
    }
    return n;
}

/* What of its nodes is there. */
static void look_at_nodes(struct core *c)
{
    struct allocations *all = &c->supply->all;

    for (size_t i = 0; i < all->n; i++) {
        all->v[i].arrived = all->v[i].free = 0;
        all->v[i].busy = false;
        all->v[i].ends_us = 0;
    }
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];
        uint64_t id = allocations_of_node(n->name);
        struct allocation *a = id ? allocations_find(all, id) : NULL;

        if (!a || n->contact == NODE_LOST)
            continue;
        a->arrived++;
        a->busy = a->busy || n->n_listed > 0;
        a->ends_us = a->ends_us == 0 || n->leaves_us < a->ends_us ? n->leaves_us : a->ends_us;
        for (size_t k = 0; k < n->n_slots; k++) {
            a->busy = a->busy || n->slots[k].job != 0 || n->slots[k].stale;
            a->free += node_gives(n) && n->slots[k].job == 0 && slots_usable(&n->slots[k]);
        }
    }
    for (size_t i = 0; i < all->n; i++) {
        struct allocation *a = &all->v[i];

        if (a->arrived > 0 && a->state < ALLOCATION_RUNS) {
            a->state = ALLOCATION_RUNS;
            keep(c, a);
            tell(c, a, "running", "");
        }
        a->granted_us = a->state == ALLOCATION_RUNS && a->granted_us == 0 ? c->now.wall_us : a->granted_us;
    }
}

static void plan(struct core *c)
{
    static struct allocation_need needs[NEEDS_MAX]; /* of the core's thread */
    static const struct entry *of[NEEDS_MAX];
    struct allocation_step steps[ALLOCATIONS_STEPS_MAX];
    struct allocations *all = &c->supply->all;
    size_t n_needs = find_needs(c, needs, of), n;

    n = allocations_plan(all, needs, n_needs, c->now.wall_us, steps);
    for (size_t i = 0; i < n; i++)
        if (steps[i].release)
            release(c, allocations_find(all, steps[i].id));
        else if (c->now.mono_us >= c->supply->queue[steps[i].queue].ask_us)
            ask(c, &steps[i], steps[i].need < n_needs ? of[steps[i].need] : NULL);
}

/* --- what the provider says ---------------------------------------------------------------------------- */

static void hand_back(struct core *c, const char *name, uint64_t id)
{
    (void)provider_ask_new(c->supply->provider, PROVIDER_RELEASE, id, json_pack("{s:s}", "name", name));
}

static void copy_plain(char *to, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    utf8_copy(to, size, text ? text : "");
    for (char *p = to; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = ' ';
}

/* One of the list. A second one of the same name says nothing. */
static void take_listed(struct core *c, const json_t *o)
{
    struct supply *s = c->supply;
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *state = json_string_value(json_object_get(o, "state"));
    size_t n = strlen(s->cluster);
    char *end = NULL;
    uint64_t id = name && strncmp(name, s->cluster, n) == 0 && name[n] == 'a' ? strtoull(name + n + 1, &end, 10) : 0;
    struct allocation *a = id && !*end ? allocations_find(&s->all, id) : NULL;

    if (id == 0 || *end)
        return; /* another's */
    if (!a) {
        log_warn("the provider has '%.80s', which is not known here: it is handed back", name);
        hand_back(c, name, 0);
        return;
    }
    if (a->listed)
        return;
    a->listed = a->answered = true;
    copy_plain(a->reference, sizeof(a->reference), o, "reference");
    copy_plain(a->why, sizeof(a->why), o, "why");
    if (a->state < ALLOCATION_WAITS || (a->state == ALLOCATION_WAITS && state && strcmp(state, "running") == 0)) {
        a->state = state && strcmp(state, "running") == 0 ? ALLOCATION_RUNS : ALLOCATION_WAITS;
        keep(c, a);
        if (a->state == ALLOCATION_RUNS)
            tell(c, a, "running", "");
    }
}

static bool is_heard(const struct core *c, const struct allocation *a)
{
    for (int i = 0; i < a->nodes; i++) {
        const struct node *n = node_of(c, a, i);

        if (n && n->registered && c->now.mono_us - n->seen_us < NODE_SILENT_US)
            return true;
    }
    return false;
}

static void take_list(struct core *c, const struct provider_answer *answer)
{
    struct supply *s = c->supply;
    const json_t *list = json_object_get(answer->doc, "allocations"), *o;
    size_t i;

    s->listing = false;
    if (answer->status < 0 || !json_is_array(list) || json_array_size(list) > LISTED_MAX) {
        if (!*s->trouble)
            log_warn("the provider does not tell what there is: %s",
                     answer->status < 0 ? answer->why : "'allocations' is no list, or too long a one");
        (void)snprintf(s->trouble, sizeof(s->trouble), "%s", answer->status < 0 ? answer->why : "its list is none");
        return;
    }
    s->trouble[0] = '\0';
    s->known = true;
    for (i = 0; i < s->all.n; i++)
        s->all.v[i].listed = false;
    json_array_foreach (list, i, o) {
        take_listed(c, o);
    }
    for (i = s->all.n; i-- > 0;) {
        struct allocation *a = &s->all.v[i];

        if (a->listed || a->id >= s->listed_below || (a->state == ALLOCATION_ASKED && a->sent && !a->answered))
            continue;
        if (!is_heard(c, a))
            drop(c, a, "gone", a->state == ALLOCATION_ASKED ? "the provider never had it" : "");
        else
            s->list_us = c->now.mono_us + SECOND_US;
    }
}

static void take_request(struct core *c, const struct provider_answer *answer)
{
    struct supply *s = c->supply;
    struct allocation *a = allocations_find(&s->all, answer->id);
    const struct allocation_queue *q = a ? allocations_queue(&s->all, a->queue) : NULL;
    size_t at = q ? (size_t)(q - s->all.queues) : 0;
    int64_t wait_us = REFUSED_US;

    if (!a || !q)
        return;
    s->list_us = 0;
    if (answer->status == 0) {
        s->queue[at].failures = 0;
        s->queue[at].why[0] = '\0';
        a->answered = true;
        copy_plain(a->reference, sizeof(a->reference), answer->doc, "reference");
        if (a->state == ALLOCATION_ASKED)
            a->state = ALLOCATION_WAITS;
        keep(c, a);
        return;
    }
    for (int i = 0; i < s->queue[at].failures && wait_us < REFUSED_MOST_US; i++)
        wait_us *= 2;
    s->queue[at].failures++;
    s->queue[at].ask_us = c->now.mono_us + (wait_us < REFUSED_MOST_US ? wait_us : REFUSED_MOST_US);
    utf8_copy(s->queue[at].why, sizeof(s->queue[at].why), answer->why);
    if (a->arrived == 0 && a->state == ALLOCATION_ASKED) /* if it is there all the same, the list says so */
        drop(c, a, "refused", answer->why);
}

static void take_answers(struct core *c)
{
    struct provider_answer answer;

    while (provider_take(c->supply->provider, &answer)) {
        if (answer.verb == PROVIDER_LIST)
            take_list(c, &answer);
        else if (answer.verb == PROVIDER_REQUEST)
            take_request(c, &answer);
        else if (answer.status < 0)
            log_warn("the provider does not take an allocation back: %s; it is asked again", answer.why);
        json_decref(answer.doc);
    }
}

/* --- time ---------------------------------------------------------------------------------------------- */

static void release_again(struct core *c)
{
    struct supply *s = c->supply;
    char name[CLUSTER_MAX + 24];

    for (size_t i = 0; i < s->all.n; i++) {
        struct allocation *a = &s->all.v[i];

        if (a->state != ALLOCATION_RELEASED || c->now.wall_us < a->retry_us)
            continue;
        a->retry_us = c->now.wall_us + RELEASE_US;
        (void)snprintf(name, sizeof(name), "%sa%llu", s->cluster, (unsigned long long)a->id);
        hand_back(c, name, a->id);
    }
}

static int64_t list_every(const struct supply *s)
{
    for (size_t i = 0; i < s->all.n; i++)
        if (s->all.v[i].state != ALLOCATION_RUNS)
            return LIST_SOON_US;
    return !s->known ? LIST_SOON_US : s->all.n > 0 ? LIST_US : LIST_IDLE_US;
}

void supply_tick(struct core *c)
{
    struct supply *s = c->supply;

    if (!s)
        return;
    take_answers(c);
    if (c->now.mono_us >= s->plan_us) {
        s->plan_us = c->now.mono_us + PLAN_US;
        look_at_nodes(c);
        if (s->known)
            plan(c);
    }
    release_again(c);
    if (s->listing || c->now.mono_us < s->list_us)
        return;
    s->list_us = c->now.mono_us + list_every(s);
    s->listed_below = s->all.next + 1;
    s->listing = provider_ask_new(s->provider, PROVIDER_LIST, 0, json_pack("{s:s}", "prefix", s->cluster));
}

void supply_send(struct core *c)
{
    if (c->supply)
        provider_send(c->supply->provider);
}

/* --- calls --------------------------------------------------------------------------------------------- */

static json_t *queue_view(const struct supply *s, size_t i)
{
    const struct allocation_queue *q = &s->all.queues[i];

    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s?}", "name", q->name, "class", q->class_, "devices",
                     q->devices, "fixed", q->fixed, "most", q->most, "time_s", q->time_s, "idle_s", q->idle_s,
                     "trouble", s->queue[i].why[0] ? s->queue[i].why : NULL);
}

static json_t *view(const struct allocation *a)
{
    char id[24], at[CLOCK_RFC3339_MAX], ends[CLOCK_RFC3339_MAX];

    row_name(a, id);
    clock_rfc3339(a->asked_us, at);
    clock_rfc3339(a->ends_us, ends);
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:b, s:s, s:s?, s:s, s:s}", "id", id, "queue", a->queue, "state",
                     allocations_states[a->state], "nodes", a->nodes, "arrived", a->arrived, "busy", a->busy,
                     "asked_at", at, "ends_at", a->ends_us ? ends : NULL, "reference", a->reference, "why", a->why);
}

void supply_list(struct core *c, struct call *call)
{
    const struct supply *s = c->supply;
    json_t *queues = json_array(), *all = json_array();

    for (size_t i = 0; s && i < s->all.n_queues; i++)
        (void)json_array_append_new(queues, queue_view(s, i));
    for (size_t i = 0; s && i < s->all.n; i++)
        (void)json_array_append_new(all, view(&s->all.v[i]));
    call_answer_new(call, 200,
                    json_pack("{s:o, s:o, s:s?}", "queues", queues, "allocations", all, "trouble",
                              s && *s->trouble ? s->trouble : NULL));
}
