#include "server/control/tokens.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/control/auth.h"
#include "server/control/events.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/http/relay.h"

#define EXPIRY_MAX_US (INT64_C(3653) * 86400 * 1000000)

static void note(struct core *c, struct call *call, const char *code, const json_t *view)
{
    char actor[80], text[160];

    (void)snprintf(actor, sizeof(actor), "user:%s", http_identity(call->req)->user);
    (void)snprintf(text, sizeof(text), "token %s of %s", json_string_value(json_object_get(view, "id")),
                   json_string_value(json_object_get(view, "user")));
    if (strcmp(code, "revoked") == 0)
        call_changed_new(call, json_deep_copy(view), NULL);
    else
        call_changed_new(call, NULL, json_deep_copy(view));
    events_note(c, 0, "", "token", 0, actor, code, text, json_deep_copy(view));
}

/* "expires_at": later than now, and not so late that it is a mistake. */
static bool read_expiry(struct call *call, int64_t wall_us, int64_t *ret_us)
{
    json_t *value = json_object_get(call->body, "expires_at");
    const char *text = json_string_value(value);

    if (!value || json_is_null(value))
        return true;
    if (text && clock_read_rfc3339(text, ret_us) == 0 && *ret_us > wall_us && *ret_us - wall_us <= EXPIRY_MAX_US)
        return true;
    call_problem(call, 422, "expiry-invalid",
                 "'expires_at' is a time to come within ten years, such as 2026-12-31T23:59:59Z");
    return false;
}

/* "unix_user": the name of an account, which each node looks up for itself. */
static bool read_unix_user(struct call *call, struct http_identity *ret)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    json_t *value = json_object_get(call->body, "unix_user");
    const char *text = json_string_value(value);

    if (!value || json_is_null(value))
        return true;
    if (!text || !*text || *text == '-' || strlen(text) >= sizeof(ret->unix_user) ||
        strspn(text, good) != strlen(text) || strcmp(text, "root") == 0 || strspn(text, "0123456789") == strlen(text)) {
        call_problem(call, 422, "unix-user-invalid",
                     "'unix_user' is the name of a person's account on the nodes, not root");
        return false;
    }
    (void)snprintf(ret->unix_user, sizeof(ret->unix_user), "%s", text);
    return true;
}

/* Read {"user", "role", "expires_at", "unix_user"}. False: the call is answered. */
static bool read_wanted(struct call *call, int64_t wall_us, struct auth_wanted *wanted)
{
    struct http_identity *ret = &wanted->who;
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";
    const char *key, *user = json_string_value(json_object_get(call->body, "user"));
    const char *role = json_string_value(json_object_get(call->body, "role"));
    json_t *value;

    json_object_foreach (call->body, key, value) {
        if (strcmp(key, "user") != 0 && strcmp(key, "role") != 0 && strcmp(key, "expires_at") != 0 &&
            strcmp(key, "unix_user") != 0) {
            call_problem(call, 422, "unknown-field",
                         "a token has no field '%s'; known are user, role, expires_at and unix_user", key);
            return false;
        }
    }
    if (!user || !*user || strlen(user) >= SPEC_NAME_MAX || strspn(user, good) != strlen(user)) {
        call_problem(call, 422, "user-invalid", "'user' is wanted: 1 to %d letters, digits, '.', '_', '@' or '-'",
                     SPEC_NAME_MAX - 1);
        return false;
    }
    ret->role = role ? auth_role(role) : ROLE_USER;
    if (ret->role == ROLE_AGENT) {
        call_problem(call, 422, "role-invalid", "tokens of agents are bound to their node: `muster node enroll NODE`");
        return false;
    }
    if (ret->role == ROLE_NONE || (json_object_get(call->body, "role") && !role)) {
        call_problem(call, 422, "role-invalid", "'%.32s' is no role: want viewer, user or admin", role ? role : "role");
        return false;
    }
    (void)snprintf(ret->user, sizeof(ret->user), "%s", user);
    return read_unix_user(call, ret) && read_expiry(call, wall_us, &wanted->expires_us);
}

void tokens_create(struct core *c, struct call *call)
{
    struct auth_wanted wanted = {.expires_us = 0};
    char token[AUTH_TOKEN_MAX];
    struct merr err = {""};
    json_t *view;
    int r;

    if (!read_wanted(call, c->now.wall_us, &wanted))
        return;
    r = auth_make(c->cfg.auth, c->cfg.chance, &wanted, c->now.wall_us, token, &view, &err);
    if (r < 0) {
        call_problem(call, r == -ENOSPC ? 409 : 503, r == -ENOSPC ? "too-many-tokens" : "no-token", "%s", err.text);
        return;
    }
    note(c, call, "made", view);
    (void)json_object_set_new(view, "token", json_string(token));
    call_answer_new(call, 201, view);
}

void tokens_list(struct core *c, struct call *call)
{
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "tokens", auth_list(c->cfg.auth), "next_cursor"));
}

void tokens_revoke(struct core *c, struct call *call)
{
    const char *id = http_param(call->req, 0);
    struct merr err = {""};
    json_t *view;
    int r = auth_revoke(c->cfg.auth, id, &view, &err);

    if (r < 0) {
        call_problem(call, r == -ENOENT ? 404 : 409, r == -ENOENT ? "unknown-token" : "file-token", "%s", err.text);
        return;
    }
    events_drop_token(c, id);
    if (c->cfg.relay)
        relay_end_token(c->cfg.relay, id);
    note(c, call, "revoked", view);
    call_answer_new(call, 200, view);
}
