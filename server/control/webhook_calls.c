#include "server/control/webhook_calls.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/sealing.h"
#include "server/control/state.h"
#include "server/control/webhook.h"
#include "server/control/webhook_text.h"
#include "server/http/call.h"

#define INVALID "webhook-invalid"
#define SECRET_BYTES 24
#define SECRET_MAX 136

/* --- what is told -------------------------------------------------------------------------------------- */

/* Whose host alone is told: an address of Slack is a secret. Of mail all of it. */
static json_t *url_of(const struct webhook *h)
{
    const char *host = strstr(h->url, "://");
    size_t n = host ? (size_t)(host + 3 - h->url) : 0;

    if (!host)
        return json_string(h->url);
    return json_sprintf("%.*s/...", (int)(n + strcspn(h->url + n, "/?#")), h->url);
}

static json_t *time_or_null(int64_t wall_us)
{
    return wall_us > 0 ? cluster_time(wall_us) : json_null();
}

static json_t *view(const struct webhook *h)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:o, s:s, s:b, s:o, s:o, s:I, s:I}", "id", h->id, "name", h->name,
                     "user", h->user, "url", url_of(h), "format", webhook_format_names[h->format], "on",
                     webhook_on_json(h->on), "project", *h->project ? json_string(h->project) : json_null(), "scope",
                     h->cluster ? "cluster" : "own", "enabled", !h->off, "created_at", time_or_null(h->made_us),
                     "failing_since", time_or_null(h->failing_us), "waiting", (json_int_t)h->waits, "dropped",
                     (json_int_t)h->dropped);
}

static json_t *view_delivery(const struct webhook *h, const struct delivery *d)
{
    char id[WEBHOOK_MESSAGE_ID_MAX];

    webhook_message_id(h, d->number, id);
    return json_pack("{s:s, s:s, s:o, s:s, s:i, s:o, s:i, s:s?, s:o}", "id", id, "type", webhook_kind_name(d->kind),
                     "at", time_or_null(d->at_us), "state",
                     d->waits    ? "waiting"
                     : d->failed ? "failed"
                                 : "delivered",
                     "tries", d->tries, "status", d->status > 0 ? json_integer(d->status) : json_null(), "ms", d->ms,
                     "why", d->why, "next_at", d->waits ? time_or_null(d->next_us) : json_null());
}

/* --- which one ----------------------------------------------------------------------------------------- */

/* The caller's own by its name, or by its id, by which admins have all. NULL: the call is answered. */
static struct webhook *asked(const struct core *c, struct call *call)
{
    const struct http_identity *who = http_identity(call->req);
    const char *name = http_param(call->req, 0);
    struct webhook *h = webhook_find(c, who->user, name);

    h = h ? h : webhook_find_id(c, name);
    if (h && (who->role == ROLE_ADMIN || strcmp(h->user, who->user) == 0))
        return h;
    call_problem(call, 404, "unknown-webhook",
                 "you have no webhook '%.63s'; `muster webhook list` shows those there are", name);
    return NULL;
}

void webhook_calls_list(struct core *c, struct call *call)
{
    const struct http_identity *who = http_identity(call->req);
    json_t *all = json_array();

    for (size_t i = 0; i < c->webhooks->n; i++)
        if (who->role == ROLE_ADMIN || strcmp(c->webhooks->v[i]->user, who->user) == 0)
            (void)json_array_append_new(all, view(c->webhooks->v[i]));
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "webhooks", all, "next_cursor"));
}

void webhook_calls_get(struct core *c, struct call *call)
{
    struct webhook *h = asked(c, call);

    if (h)
        call_answer_new(call, 200, view(h));
}

void webhook_calls_deliveries(struct core *c, struct call *call)
{
    struct webhook *h = asked(c, call);
    json_t *all = json_array();

    for (size_t i = h ? h->n : 0; i-- > 0;)
        (void)json_array_append_new(all, view_delivery(h, &h->v[i]));
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "deliveries", all, "next_cursor"));
}

/* --- what is asked for --------------------------------------------------------------------------------- */

static bool refuse(struct call *call, const char *field, const char *wants)
{
    return call_refuse(call, INVALID, field, wants);
}

/* A text of the body; "" where there is none. NULL: the call is answered. */
static const char *text_of(struct call *call, const char *field, size_t most)
{
    return call_text(call, INVALID, field, "", most);
}

static bool only_known(struct call *call, const char *known)
{
    return call_only_known(call, INVALID, "a webhook", known);
}

/* "on" of the body; where there is none it stays. False: the call is answered. */
static bool read_on(struct call *call, uint32_t *on)
{
    const json_t *v = json_object_get(call->body, "on");
    int64_t mask = v ? webhook_read_on(v) : *on;
    char names[400] = "";

    if (mask >= 0) {
        *on = (uint32_t)mask;
        return true;
    }
    for (size_t i = 0; i < webhook_kinds_n; i++)
        (void)snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i ? ", " : "",
                       webhook_kinds[i].name);
    call_problem(call, 422, "webhook-invalid", "'on' is a list of these: %s", names);
    return false;
}

static bool read_url(const struct core *c, struct call *call, struct webhook *h)
{
    const char *url = text_of(call, "url", WEBHOOK_URL_MAX), *fault;

    if (!url)
        return false;
    if (h->format == WEBHOOK_MAIL) {
        if (!c->cfg.way.relay)
            return refuse(call, "format", "cannot be email here: this server has no relay (musterd --mail-relay)");
        if (strncmp(url, "mailto:", 7) != 0 || !webhook_address_ok(url + 7, NULL))
            return refuse(call, "url", "of email is mailto:NAME@DOMAIN");
        if (!webhook_address_ok(url + 7, c->cfg.way.domains))
            return refuse(call, "url", "is of a domain to which this server sends no mail (musterd --mail-domains)");
    } else {
        fault = post_check_url(url, c->cfg.way.plain);
        if (fault)
            return refuse(call, "url", fault);
    }
    h->url = strdup(url);
    return h->url || refuse(call, "url", "found no memory");
}

static bool read_names(struct call *call, struct webhook *h)
{
    const char *name = text_of(call, "name", SPEC_SECRET_MAX), *format = text_of(call, "format", 16),
               *scope = text_of(call, "scope", 16), *project = text_of(call, "project", SPEC_NAME_MAX - 1);
    int i = 0;

    if (!name || !format || !scope || !project)
        return false;
    if (!spec_secret_name_ok(name))
        return refuse(call, "name", "is 1 to 63 letters, digits, '.', '_', '-'");
    while (*format && webhook_format_names[i] && strcmp(webhook_format_names[i], format) != 0)
        i++;
    if (!webhook_format_names[i])
        return refuse(call, "format", "is json, slack or email");
    if (*scope && strcmp(scope, "own") != 0 && strcmp(scope, "cluster") != 0)
        return refuse(call, "scope", "is own or cluster");
    h->format = (enum webhook_format)i;
    h->cluster = strcmp(scope, "cluster") == 0;
    (void)snprintf(h->name, sizeof(h->name), "%s", name);
    (void)snprintf(h->project, sizeof(h->project), "%s", project);
    (void)snprintf(h->user, sizeof(h->user), "%s", http_identity(call->req)->user);
    if (!h->cluster || http_identity(call->req)->role == ROLE_ADMIN)
        return true;
    call_problem(call, 403, "not-admin", "a webhook of the whole cluster is an admin's");
    return false;
}

/* The secret that was given, or a new one, which goes to ret. */
static bool read_secret(const struct core *c, struct call *call, struct webhook *h, char ret[SECRET_MAX])
{
    unsigned char bytes[SECRET_BYTES], code[SECRET_MAX];
    char of[64], signature[WEBHOOK_SIGNATURE_MAX];
    const char *given = text_of(call, "secret", SECRET_MAX - 1);

    if (!given)
        return false;
    if (h->format != WEBHOOK_JSON)
        return !*given || refuse(call, "secret", "is for format json: others are not signed");
    if (*given) {
        (void)snprintf(ret, SECRET_MAX, "%s", given);
    } else {
        if (!chance_draw(c->cfg.chance, bytes, sizeof(bytes)))
            return refuse(call, "secret", "cannot be made: there is no chance");
        (void)snprintf(ret, SECRET_MAX, "whsec_%.*s", EVP_EncodeBlock(code, bytes, sizeof(bytes)), code);
    }
    if (!webhook_sign(ret, "", 0, "", signature))
        return refuse(call, "secret", "is whsec_ and the base64 of 24 to 64 bytes");
    (void)snprintf(of, sizeof(of), "webhook-secret/%s", h->id);
    h->sealed = c->cfg.secret_key ? sealing_close(c->cfg.chance, c->cfg.secret_key, of, ret) : NULL;
    return h->sealed || refuse(call, "secret", "cannot be sealed: there is no key, or no memory");
}

static bool make_id(const struct core *c, char ret[WEBHOOK_ID_MAX])
{
    unsigned char bytes[8];

    if (!chance_draw(c->cfg.chance, bytes, sizeof(bytes)))
        return false;
    (void)snprintf(ret, WEBHOOK_ID_MAX, "wh_");
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(ret + 3 + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* Whether the user may have one more of this name. Else the call is answered. */
static bool has_room(const struct core *c, struct call *call, const struct webhook *h)
{
    size_t own = 0;

    if (webhook_find(c, h->user, h->name)) {
        call_problem(call, 409, "webhook-exists", "you have a webhook '%s': delete it, or take another name", h->name);
        return false;
    }
    for (size_t i = 0; i < c->webhooks->n; i++)
        own += strcmp(c->webhooks->v[i]->user, h->user) == 0;
    if (own < WEBHOOK_USER_MAX && c->webhooks->n < WEBHOOK_MAX)
        return true;
    call_problem(call, 409, "too-many-webhooks", "a user has at most %d webhooks, and all together %d; delete some",
                 WEBHOOK_USER_MAX, WEBHOOK_MAX);
    return false;
}

static void discard(struct webhook *h)
{
    free(h->url);
    free(h->sealed);
    free(h);
}

void webhook_calls_add(struct core *c, struct call *call)
{
    struct webhook *h = calloc(1, sizeof(*h));
    char secret[SECRET_MAX] = "";
    json_t *answer;

    if (!h || !make_id(c, h->id)) {
        free(h);
        call_problem(call, 503, "no-memory", "out of memory");
        return;
    }
    h->made_us = c->now.wall_us;
    h->on = WEBHOOK_USUAL;
    if (!only_known(call, " name url on format scope project secret ") || !read_names(call, h) ||
        !read_on(call, &h->on) || !read_url(c, call, h) || !has_room(c, call, h) || !read_secret(c, call, h, secret)) {
        discard(h);
        return;
    }
    if (!webhook_put(c, h)) {
        discard(h);
        call_problem(call, 503, "no-secret", "there is no key, or no memory, to seal the address");
        return;
    }
    answer = view(h);
    if (*secret) /* told once */
        (void)json_object_set_new(answer, "secret", json_string(secret));
    call_changed_new(call, NULL, view(h));
    explicit_bzero(secret, sizeof(secret));
    if (webhook_insert(c->webhooks, h) < 0)
        state_fatal(c, "out of memory for a webhook");
    call_answer_new(call, 201, answer);
}

void webhook_calls_patch(struct core *c, struct call *call)
{
    const json_t *enabled = json_object_get(call->body, "enabled");
    struct webhook *h = asked(c, call);
    uint32_t on = h ? h->on : 0;
    json_t *before;

    if (!h || !only_known(call, " on enabled ") || !read_on(call, &on))
        return;
    if (enabled && !json_is_boolean(enabled)) {
        (void)refuse(call, "enabled", "is true or false");
        return;
    }
    before = view(h);
    h->on = on;
    if (enabled) {
        h->off = json_is_false(enabled);
        h->failing_us = 0;
        c->webhooks->due_us = 0;
    }
    if (!webhook_put(c, h))
        state_fatal(c, "out of memory for a webhook");
    call_changed_new(call, before, view(h));
    call_answer_new(call, 200, view(h));
}

void webhook_calls_drop(struct core *c, struct call *call)
{
    struct webhook *h = asked(c, call);

    if (!h)
        return;
    call_changed_new(call, view(h), NULL);
    call_answer_new(call, 200, view(h));
    webhook_remove(c, h);
}

void webhook_calls_test(struct core *c, struct call *call)
{
    struct webhook *h = asked(c, call);
    struct webhook_news news = {.kind = WEBHOOK_TEST};
    uint64_t number = (uint64_t)c->now.wall_us;
    const struct delivery *d;
    char at[CLOCK_RFC3339_MAX];

    if (!h)
        return;
    clock_rfc3339(c->now.wall_us, at);
    while (webhook_delivery(h, number))
        number++;
    news.at = at;
    news.event = number;
    news.text = h->name;
    d = h->off ? NULL : webhook_deliver_new(c, h, number, WEBHOOK_TEST, webhook_text(h->format, &news));
    if (d)
        call_answer_new(call, 202, view_delivery(h, d));
    else
        call_problem(call, 409, h->off ? "webhook-off" : "webhook-full", "%s",
                     h->off ? "the webhook is switched off: `muster webhook enable` switches it on"
                            : "too many deliveries wait; look at those with `muster webhook deliveries`");
}
