#include "server/control/webhook_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/control/events.h"
#include "server/control/sealing.h"
#include "server/control/state.h"
#include "server/control/webhook.h"
#include "server/control/webhook_text.h"

#define SECOND_US INT64_C(1000000)
#define LONGEST_S (6 * 3600)
#define LONGEST_US (LONGEST_S * SECOND_US)

/* Before the second try, the third and so on. */
static const int wait_s[WEBHOOK_TRIES - 1] = {5, 30, 120, 600, 3600, 3 * 3600, LONGEST_S};

/* --- from events --------------------------------------------------------------------------------------- */

struct happened {
    struct core *c;
    const struct entry *e; /* of its job; NULL: of none */
    const char *named;     /* webhook that its spec names; NULL: none */
    uint32_t named_on;
    struct webhook_news news;
    char *text[WEBHOOK_FORMATS]; /* owned */
};

static int kind_of(const char *type, const json_t *event)
{
    const char *to = json_string_value(json_object_get(event, "to")),
               *from = json_string_value(json_object_get(event, "from")),
               *code = json_string_value(json_object_get(json_object_get(event, "cause"), "code"));
    const char *word = strcmp(type, "state") == 0 ? (to && from && strcmp(to, from) != 0 ? to : NULL) : code;

    for (size_t i = 0; word && i < webhook_kinds_n; i++)
        if (strcmp(webhook_kinds[i].type, type) == 0 && strcmp(webhook_kinds[i].word, word) == 0)
            return (int)i;
    return -1;
}

/* Whether a webhook is to hear of it. */
static bool wants(const struct webhook *h, const struct happened *w)
{
    const char *user = w->e ? w->e->job.user : "";

    if (h->off)
        return false;
    if (w->named && strcmp(h->name, w->named) == 0 && strcmp(h->user, user) == 0)
        return w->named_on >> w->news.kind & 1;
    if (!(h->on >> w->news.kind & 1) || (!h->cluster && strcmp(h->user, user) != 0))
        return false;
    return !*h->project || (w->e && strcmp(h->project, w->e->job.project) == 0);
}

static void tell_all(struct happened *w)
{
    struct webhook_set *all = w->c->webhooks;

    for (size_t i = 0; i < all->n; i++) {
        struct webhook *h = all->v[i];

        if (!wants(h, w))
            continue;
        if (!w->text[h->format])
            w->text[h->format] = webhook_text(h->format, &w->news);
        (void)webhook_deliver_new(w->c, h, w->news.event, w->news.kind,
                                  w->text[h->format] ? strdup(w->text[h->format]) : NULL);
    }
    for (int i = 0; i < WEBHOOK_FORMATS; i++)
        free(w->text[i]);
}

/* {"webhook": NAME, "on": [...]} of a spec. */
static void read_notify(struct happened *w, const json_t *notify)
{
    const json_t *word;
    char name[SPEC_NAME_MAX + 8];
    size_t i;

    w->named = json_string_value(json_object_get(notify, "webhook"));
    if (w->named && json_array_size(json_object_get(notify, "on")) == 0)
        w->named_on = WEBHOOK_USUAL;
    json_array_foreach (json_object_get(notify, "on"), i, word) {
        int kind;

        (void)snprintf(name, sizeof(name), "job.%s", json_string_value(word));
        kind = webhook_kind(name);
        w->named_on |= kind < 0 ? 0 : UINT32_C(1) << kind;
    }
}

static void take(void *arg, uint64_t id, uint64_t job, const char *type, const char *text)
{
    struct core *c = arg;
    struct happened w = {.c = c, .e = job ? table_find(&c->jobs, job) : NULL};
    json_t *spec = NULL, *event;
    const json_t *cause;

    if ((strcmp(type, "state") != 0 && strcmp(type, "note") != 0 && strcmp(type, "node") != 0) ||
        (job && (!w.e || w.e->job.array))) /* of an array the whole is told, not each task */
        return;
    event = json_loads(text, 0, NULL);
    cause = json_object_get(event, "cause");
    w.news = (struct webhook_news){.kind = kind_of(type, event),
                                   .event = id,
                                   .at = json_string_value(json_object_get(event, "at")),
                                   .job = json_string_value(json_object_get(event, "job")),
                                   .name = w.e ? w.e->job.name : NULL,
                                   .user = w.e ? w.e->job.user : NULL,
                                   .project = w.e ? w.e->job.project : NULL,
                                   .node = json_string_value(json_object_get(json_object_get(event, "data"), "node")),
                                   .code = json_string_value(json_object_get(cause, "code")),
                                   .class_ = json_string_value(json_object_get(cause, "class")),
                                   .text = json_string_value(json_object_get(cause, "text"))};
    if (w.news.kind >= 0 && w.news.at) {
        if (w.e && strstr(w.e->spec_text, "\"notify\":"))
            spec = json_loads(w.e->spec_text, 0, NULL);
        read_notify(&w, json_object_get(spec, "notify"));
        tell_all(&w);
    }
    json_decref(spec);
    json_decref(event);
}

void webhook_send_collect(struct core *c)
{
    if (c->webhooks->n == 0)
        return;
    events_each(c, take, c);
    for (size_t i = 0; i < c->webhooks->n; i++)
        if (c->webhooks->v[i]->changed && !webhook_put(c, c->webhooks->v[i]))
            state_fatal(c, "out of memory for a webhook");
}

/* --- sending ------------------------------------------------------------------------------------------- */

static bool send_post(struct core *c, const struct webhook *h, const struct delivery *d, struct post_message *m)
{
    char stamp[64], id[WEBHOOK_MESSAGE_ID_MAX], id_line[80], line[WEBHOOK_SIGNATURE_MAX + 24],
        signature[WEBHOOK_SIGNATURE_MAX], of[64];
    int64_t seconds = c->now.wall_us / SECOND_US;
    char *secret = NULL;

    webhook_message_id(h, d->number, id);
    (void)snprintf(id_line, sizeof(id_line), "webhook-id: %s", id);
    (void)snprintf(stamp, sizeof(stamp), "webhook-timestamp: %lld", (long long)seconds);
    m->url = h->url;
    m->body = d->body;
    m->len = strlen(d->body);
    m->headers[0] = "Content-Type: application/json";
    m->headers[1] = id_line;
    m->headers[2] = stamp;
    if (h->sealed) {
        (void)snprintf(of, sizeof(of), "webhook-secret/%s", h->id);
        secret = c->cfg.secret_key ? sealing_open(c->cfg.secret_key, of, h->sealed) : NULL;
        if (!secret || !webhook_sign(secret, id, seconds, d->body, signature)) {
            free(secret);
            return false;
        }
        (void)snprintf(line, sizeof(line), "webhook-signature: %s", signature);
        m->headers[3] = line;
        explicit_bzero(secret, strlen(secret));
        free(secret);
    }
    return c->cfg.way.send(c->cfg.way.self, m);
}

static bool send_mail(struct core *c, const struct webhook *h, const struct delivery *d, struct post_message *m)
{
    const char *to = h->url + strlen("mailto:");
    char id[WEBHOOK_MESSAGE_ID_MAX], *mail;
    bool ok;

    if (!c->cfg.way.relay)
        return false;
    webhook_message_id(h, d->number, id);
    mail = webhook_mail(c->cfg.way.from, to, id, d->at_us, d->body);
    m->url = c->cfg.way.relay;
    m->from = c->cfg.way.from;
    m->to = to;
    m->body = mail;
    m->len = mail ? strlen(mail) : 0;
    ok = mail && c->cfg.way.send(c->cfg.way.self, m);
    free(mail);
    return ok;
}

/* How many of a user's are on their way. */
static size_t on_way_of(const struct webhook_set *all, const char *user)
{
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++)
        if (all->v[i]->on_way > 0 && strcmp(all->v[i]->user, user) == 0)
            n += all->v[i]->on_way;
    return n;
}

/* Send one. False: no more go out now. */
static bool send_one(struct core *c, struct webhook *h, struct delivery *d)
{
    struct webhook_set *all = c->webhooks;
    struct post_message m = {.id = ++all->next};
    struct sent *s = &all->sent[all->n_sent];

    if (!(h->format == WEBHOOK_MAIL ? send_mail : send_post)(c, h, d, &m))
        return false;
    *s = (struct sent){.id = m.id, .number = d->number};
    (void)snprintf(s->hook, sizeof(s->hook), "%s", h->id);
    all->n_sent++;
    h->on_way++;
    d->on_way = true;
    return true;
}

static void send_of(struct core *c, struct webhook *h)
{
    struct webhook_set *all = c->webhooks;
    int64_t now = c->now.wall_us;
    size_t own = on_way_of(all, h->user), left = h->waits - h->on_way;

    for (size_t i = 0; i < h->n && left > 0 && h->on_way < WEBHOOK_AT_ONCE; i++) {
        struct delivery *d = &h->v[i];

        if (!d->waits || d->on_way)
            continue;
        left--;
        if (d->next_us > now && d->next_us - now <= LONGEST_US) { /* later still: the clock was put back */
            if (d->next_us < all->due_us)
                all->due_us = d->next_us;
            continue;
        }
        if (own++ >= WEBHOOK_USER_AT_ONCE || all->n_sent == WEBHOOK_ALL_AT_ONCE)
            return; /* what comes back makes room */
        if (!send_one(c, h, d)) {
            all->due_us = now + SECOND_US;
            return;
        }
    }
}

void webhook_send_due(struct core *c)
{
    struct webhook_set *all = c->webhooks;
    int64_t ahead_us = all->due_us - c->now.wall_us;

    if (all->waits == 0 || !c->cfg.way.send || all->due_us == INT64_MAX || (ahead_us > 0 && ahead_us <= LONGEST_US))
        return;
    all->due_us = INT64_MAX;
    all->turn++;
    for (size_t i = 0; i < all->n; i++) {
        struct webhook *h = all->v[(all->turn + i) % all->n];

        if (!h->off && h->waits > h->on_way && h->on_way < WEBHOOK_AT_ONCE)
            send_of(c, h);
    }
}

/* --- what came of it ----------------------------------------------------------------------------------- */

static void switch_off(struct core *c, struct webhook *h, const char *why)
{
    h->off = h->changed = true;
    log_warn("webhook '%s' of user '%s' is switched off: %s", h->name, h->user, why);
    events_note(c, 0, h->user, "webhook", 0, "server", "webhook-off", why,
                json_pack("{s:s, s:s, s:s}", "webhook", h->name, "id", h->id, "user", h->user));
}

static void took(struct core *c, struct webhook *h, struct delivery *d)
{
    d->waits = false;
    h->waits--;
    c->webhooks->waits--;
    free(d->body);
    d->body = NULL;
}

static void failed(struct core *c, struct webhook *h, struct delivery *d, const char *why)
{
    free(d->why);
    d->why = strdup(why); /* NULL: it is not told why */
    if (h->failing_us == 0) {
        h->failing_us = c->now.wall_us;
        h->changed = true;
    }
    if (d->tries < WEBHOOK_TRIES && d->status != 410) {
        d->next_us = c->now.wall_us + wait_s[d->tries - 1] * SECOND_US;
    } else {
        d->failed = true;
        took(c, h, d);
    }
    if (d->status == 410 && !h->off)
        switch_off(c, h, "its receiver says 410: it is gone for good");
    else if (c->now.wall_us - h->failing_us > WEBHOOK_DEAD_S * SECOND_US && !h->off)
        switch_off(c, h, "its receiver has taken nothing for three days");
}

static void note(struct core *c, const struct sent *s, const json_t *body)
{
    struct webhook *h = webhook_find_id(c, s->hook);
    struct delivery *d = h ? webhook_delivery(h, s->number) : NULL;
    const char *why = json_string_value(json_object_get(body, "why"));
    char answered[64];

    if (!d || !d->on_way)
        return; /* deleted meanwhile */
    d->on_way = false;
    h->on_way--;
    d->tries++;
    d->status = (int)json_integer_value(json_object_get(body, "status"));
    d->ms = (int)json_integer_value(json_object_get(body, "ms"));
    if (d->status >= 200 && d->status < 300) {
        free(d->why);
        d->why = NULL;
        h->changed = h->changed || h->failing_us != 0;
        h->failing_us = 0;
        took(c, h, d);
    } else {
        (void)snprintf(answered, sizeof(answered), "its receiver answered %d", d->status);
        failed(c, h, d, why && *why ? why : answered);
    }
    webhook_put_delivery(c, h, d);
    webhook_forget_oldest(c, h);
}

/* On the core's thread. */
static void run_done(void *core, struct call *call)
{
    struct core *c = core;
    struct webhook_set *all = c->webhooks;
    uint64_t id = call->hash;

    c->handed = true;
    for (size_t i = 0; i < all->n_sent; i++)
        if (all->sent[i].id == id) {
            struct sent s = all->sent[i];

            all->sent[i] = all->sent[--all->n_sent];
            all->due_us = 0;
            note(c, &s, call->body);
            break;
        }
    call_free(call);
}

void webhook_send_done(void *arg, uint64_t id, int status, int ms, const char *why)
{
    struct call *call = call_new(NULL, run_done);

    if (!call)
        return; /* it is sent again by the next server */
    call->hash = id;
    call->body = json_pack("{s:i, s:i, s:s}", "status", status, "ms", ms, "why", why);
    if (!queue_give(&((struct core *)arg)->turn.queue, call))
        call_free(call);
}
