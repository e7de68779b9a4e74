#include "server/control/webhook.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "server/control/records.h"
#include "server/control/sealing.h"
#include "server/control/state.h"

const char *const webhook_format_names[] = {"json", "slack", "email", NULL};

const struct webhook_kind webhook_kinds[] = {
    {"job.started", "state", "running", "has started"},
    {"job.succeeded", "state", "succeeded", "has succeeded"},
    {"job.failed", "state", "failed", "has failed"},
    {"job.cancelled", "state", "cancelled", "was cancelled"},
    {"job.recovering", "state", "recovering", "has lost a rank and starts again"},
    {"job.suspended", "state", "suspended", "is suspended"},
    {"job.hung", "note", "hang", "stands still"},
    {"job.slow", "note", "slow", "is held up"},
    {"device.slow", "note", "device_slow", "runs on a slow device"},
    {"node.lost", "node", "lost", "is lost"},
    {"node.quarantined", "node", "quarantined", "is quarantined"},
    {"node.repair", "node", "repair", "needs somebody to look at it"},
    {"gpu.ill", "node", "gpu-ill", "has a GPU that is ill"},
};
const size_t webhook_kinds_n = sizeof(webhook_kinds) / sizeof(webhook_kinds[0]);

int webhook_kind(const char *name)
{
    for (size_t i = 0; i < webhook_kinds_n; i++)
        if (strcmp(webhook_kinds[i].name, name) == 0)
            return (int)i;
    return -1;
}

const char *webhook_kind_name(int kind)
{
    return kind >= 0 && (size_t)kind < webhook_kinds_n ? webhook_kinds[kind].name : "webhook.test";
}

int64_t webhook_read_on(const json_t *names)
{
    const json_t *name;
    int64_t on = 0;
    size_t i;

    if (!json_is_array(names))
        return -1;
    json_array_foreach (names, i, name) {
        int kind = json_is_string(name) ? webhook_kind(json_string_value(name)) : -1;

        if (kind < 0)
            return -1;
        on |= INT64_C(1) << kind;
    }
    return on;
}

json_t *webhook_on_json(uint32_t on)
{
    json_t *names = json_array();

    for (size_t i = 0; i < webhook_kinds_n; i++)
        if (on >> i & 1)
            (void)json_array_append_new(names, json_string(webhook_kinds[i].name));
    return names;
}

/* --- the set ------------------------------------------------------------------------------------------- */

struct webhook_set *webhook_new(void)
{
    return calloc(1, sizeof(struct webhook_set));
}

static void delivery_clear(struct delivery *d)
{
    free(d->body);
    free(d->why);
}

static void hook_free(struct webhook *h)
{
    for (size_t i = 0; i < h->n; i++)
        delivery_clear(&h->v[i]);
    free(h->v);
    free(h->url);
    free(h->sealed);
    free(h);
}

void webhook_free(struct webhook_set *all)
{
    for (size_t i = 0; all && i < all->n; i++)
        hook_free(all->v[i]);
    if (all)
        free(all->v);
    free(all);
}

struct webhook *webhook_find(const struct core *c, const char *user, const char *name)
{
    for (size_t i = 0; i < c->webhooks->n; i++)
        if (strcmp(c->webhooks->v[i]->name, name) == 0 && strcmp(c->webhooks->v[i]->user, user) == 0)
            return c->webhooks->v[i];
    return NULL;
}

struct webhook *webhook_find_id(const struct core *c, const char *id)
{
    for (size_t i = 0; i < c->webhooks->n; i++)
        if (strcmp(c->webhooks->v[i]->id, id) == 0)
            return c->webhooks->v[i];
    return NULL;
}

bool webhook_is_there(const struct core *c, const char *user, const char *name)
{
    const struct webhook *h = webhook_find(c, user, name);

    return h && !h->off;
}

int webhook_insert(struct webhook_set *all, struct webhook *h)
{
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 16;
        struct webhook **grown = realloc(all->v, cap * sizeof(struct webhook *));

        if (!grown) {
            hook_free(h);
            return -ENOMEM;
        }
        all->v = grown;
        all->cap = cap;
    }
    all->v[all->n++] = h;
    return 0;
}

static void row_of(const struct webhook *h, uint64_t number, char ret[WEBHOOK_MESSAGE_ID_MAX])
{
    (void)snprintf(ret, WEBHOOK_MESSAGE_ID_MAX, "%s/%llu", h->id, (unsigned long long)number);
}

void webhook_message_id(const struct webhook *h, uint64_t number, char ret[WEBHOOK_MESSAGE_ID_MAX])
{
    (void)snprintf(ret, WEBHOOK_MESSAGE_ID_MAX, "%s.%llu", h->id, (unsigned long long)number);
}

void webhook_remove(struct core *c, struct webhook *h)
{
    struct webhook_set *all = c->webhooks;
    char row[WEBHOOK_MESSAGE_ID_MAX];

    for (size_t i = 0; i < h->n; i++) {
        row_of(h, h->v[i].number, row);
        records_drop_row(c, STORE_DELIVERIES, row);
    }
    records_drop_row(c, STORE_WEBHOOKS, h->id);
    all->waits -= h->waits;
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i] == h)
            all->v[i--] = all->v[--all->n];
    hook_free(h);
}

/* --- deliveries ---------------------------------------------------------------------------------------- */

struct delivery *webhook_delivery(struct webhook *h, uint64_t number)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->v[i].number == number)
            return &h->v[i];
    return NULL;
}

static struct delivery *add(struct webhook *h)
{
    if (h->n == h->cap) {
        size_t cap = h->cap ? h->cap * 2 : 8;
        struct delivery *grown = realloc(h->v, cap * sizeof(*grown));

        if (!grown)
            return NULL;
        h->v = grown;
        h->cap = cap;
    }
    h->v[h->n] = (struct delivery){.kind = WEBHOOK_TEST};
    return &h->v[h->n++];
}

static bool has_room(const struct core *c, const struct webhook *h)
{
    size_t own = 0;

    for (size_t i = 0; i < c->webhooks->n; i++)
        if (strcmp(c->webhooks->v[i]->user, h->user) == 0)
            own += c->webhooks->v[i]->waits;
    return h->waits < WEBHOOK_WAITING && own < WEBHOOK_USER_WAITING && c->webhooks->waits < WEBHOOK_ALL_WAITING;
}

struct delivery *webhook_deliver_new(struct core *c, struct webhook *h, uint64_t number, int kind, char *body)
{
    struct delivery *d = body && has_room(c, h) ? add(h) : NULL;

    if (!d) {
        h->dropped++;
        h->changed = true;
        free(body);
        return NULL;
    }
    d->number = number;
    d->kind = kind;
    d->at_us = d->next_us = c->now.wall_us;
    d->body = body;
    d->waits = true;
    h->waits++;
    c->webhooks->waits++;
    c->webhooks->due_us = 0;
    webhook_put_delivery(c, h, d);
    return d;
}

void webhook_forget_oldest(struct core *c, struct webhook *h)
{
    char row[WEBHOOK_MESSAGE_ID_MAX];

    for (size_t i = 0; i < h->n && h->n - h->waits > WEBHOOK_KEPT;) {
        if (h->v[i].waits) {
            i++;
            continue;
        }
        row_of(h, h->v[i].number, row);
        records_drop_row(c, STORE_DELIVERIES, row);
        delivery_clear(&h->v[i]);
        memmove(&h->v[i], &h->v[i + 1], (h->n - i - 1) * sizeof(h->v[0]));
        h->n--;
    }
}

/* --- the store ----------------------------------------------------------------------------------------- */

static void sealed_as(const struct webhook *h, char ret[64])
{
    (void)snprintf(ret, 64, "webhook-url/%s", h->id);
}

bool webhook_put(struct core *c, struct webhook *h)
{
    char of[64], *url;
    json_t *o;

    sealed_as(h, of);
    url = c->cfg.secret_key ? sealing_close(c->cfg.chance, c->cfg.secret_key, of, h->url) : NULL;
    o = url ? json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:b, s:b, s:I, s:I, s:I, s:s*}", "name", h->name, "user",
                        h->user, "project", h->project, "url", url, "format", webhook_format_names[h->format], "on",
                        webhook_on_json(h->on), "cluster", h->cluster, "off", h->off, "made_us", (json_int_t)h->made_us,
                        "failing_us", (json_int_t)h->failing_us, "dropped", (json_int_t)h->dropped, "secret", h->sealed)
            : NULL;
    free(url);
    h->changed = false;
    return records_put_row_new(c, STORE_WEBHOOKS, h->id, o);
}

void webhook_put_delivery(struct core *c, struct webhook *h, const struct delivery *d)
{
    char row[WEBHOOK_MESSAGE_ID_MAX];

    row_of(h, d->number, row);
    if (!records_put_row_new(c, STORE_DELIVERIES, row,
                             json_pack("{s:s, s:I, s:I, s:i, s:i, s:i, s:b, s:s*, s:s*}", "kind",
                                       webhook_kind_name(d->kind), "at_us", (json_int_t)d->at_us, "next_us",
                                       (json_int_t)d->next_us, "tries", d->tries, "status", d->status, "ms", d->ms,
                                       "failed", d->failed, "why", d->why, "body", d->waits ? d->body : NULL)))
        state_fatal(c, "out of memory for a delivery");
}

static void copy(char ret[SPEC_NAME_MAX], const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    (void)snprintf(ret, SPEC_NAME_MAX, "%s", text ? text : "");
}

static int format_of(const char *name)
{
    for (int i = 0; i < WEBHOOK_FORMATS; i++)
        if (name && strcmp(webhook_format_names[i], name) == 0)
            return i;
    return -1;
}

/* One that cannot be read, or is sealed with another key, stays in the store. */
static int take_hook(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = row->text ? json_loads(row->text, 0, NULL) : NULL;
    const char *url = json_string_value(json_object_get(o, "url")),
               *secret = json_string_value(json_object_get(o, "secret"));
    int format = format_of(json_string_value(json_object_get(o, "format")));
    struct webhook *h;
    char of[64];

    if (!url || format < 0 || strlen(row->name) >= WEBHOOK_ID_MAX || c->webhooks->n >= WEBHOOK_MAX)
        return 0;
    h = calloc(1, sizeof(*h));
    if (!h)
        return merr_set(err, -ENOMEM, "out of memory");
    (void)snprintf(h->id, sizeof(h->id), "%s", row->name);
    copy(h->name, o, "name");
    copy(h->user, o, "user");
    copy(h->project, o, "project");
    h->format = (enum webhook_format)format;
    h->on = (uint32_t)webhook_read_on(json_object_get(o, "on"));
    h->cluster = json_is_true(json_object_get(o, "cluster"));
    h->off = json_is_true(json_object_get(o, "off"));
    h->made_us = json_integer_value(json_object_get(o, "made_us"));
    h->failing_us = json_integer_value(json_object_get(o, "failing_us"));
    h->dropped = (uint64_t)json_integer_value(json_object_get(o, "dropped"));
    sealed_as(h, of);
    h->url = c->cfg.secret_key ? sealing_open(c->cfg.secret_key, of, url) : NULL;
    h->sealed = secret ? strdup(secret) : NULL;
    if (h->url && (!secret || h->sealed))
        return webhook_insert(c->webhooks, h) < 0 ? merr_set(err, -ENOMEM, "out of memory") : 0;
    log_warn("webhook '%s' of user '%s' does not open with the server's key", h->name, h->user);
    hook_free(h);
    return 0;
}

static int take_delivery(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = row->text ? json_loads(row->text, 0, NULL) : NULL;
    const char *kind = json_string_value(json_object_get(o, "kind")),
               *body = json_string_value(json_object_get(o, "body")),
               *why = json_string_value(json_object_get(o, "why"));
    size_t n = strcspn(row->name, "/");
    struct webhook *h = NULL;
    struct delivery *d;

    for (size_t i = 0; row->name[n] && i < c->webhooks->n && !h; i++)
        if (strncmp(c->webhooks->v[i]->id, row->name, n) == 0 && !c->webhooks->v[i]->id[n])
            h = c->webhooks->v[i];
    if (!h || !kind)
        return merr_set(err, -EINVAL, "a delivery of no webhook"); /* it goes */
    d = add(h);
    if (!d)
        return merr_set(err, -ENOMEM, "out of memory");
    d->number = strtoull(row->name + n + 1, NULL, 10);
    d->kind = webhook_kind(kind) < 0 ? WEBHOOK_TEST : webhook_kind(kind);
    d->at_us = json_integer_value(json_object_get(o, "at_us"));
    d->next_us = json_integer_value(json_object_get(o, "next_us"));
    d->tries = (int)json_integer_value(json_object_get(o, "tries"));
    d->status = (int)json_integer_value(json_object_get(o, "status"));
    d->ms = (int)json_integer_value(json_object_get(o, "ms"));
    d->failed = json_is_true(json_object_get(o, "failed"));
    d->body = body ? strdup(body) : NULL;
    d->why = why ? strdup(why) : NULL;
    if ((body && !d->body) || (why && !d->why))
        return merr_set(err, -ENOMEM, "out of memory");
    d->waits = body;
    h->waits += d->waits;
    c->webhooks->waits += d->waits;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct delivery *x = a, *y = b;

    return x->at_us != y->at_us ? (x->at_us > y->at_us) - (x->at_us < y->at_us)
                                : (x->number > y->number) - (x->number < y->number);
}

int webhook_load(struct core *c, struct merr *err)
{
    TRY(records_take_rows(c, STORE_WEBHOOKS, NULL, take_hook, err));
    TRY(records_take_rows(c, STORE_DELIVERIES, NULL, take_delivery, err));
    for (size_t i = 0; i < c->webhooks->n; i++)
        if (c->webhooks->v[i]->n > 0)
            qsort(c->webhooks->v[i]->v, c->webhooks->v[i]->n, sizeof(struct delivery), by_time);
    return 0;
}
