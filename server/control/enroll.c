#include "server/control/enroll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/join.h"
#include "base/clock.h"
#include "server/control/auth.h"
#include "server/control/node_ca.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/records.h"
#include "server/control/state.h"
#include "server/control/waiters.h"
#include "server/http/call.h"

struct code {
    char hash[AUTH_HASH_MAX], used_by[AUTH_HASH_MAX]; /* used_by: "": nobody yet */
    char node[JOB_NODE_MAX];
    int64_t expires_us; /* wall */
};

struct enroll {
    struct code v[ENROLL_CODES_MAX];
    size_t n;
};

struct enroll *enroll_new(void)
{
    return calloc(1, sizeof(struct enroll));
}

void enroll_free(struct enroll *all)
{
    free(all);
}

/* --- the codes ----------------------------------------------------------------------------------------- */

static void drop(struct core *c, size_t i)
{
    struct enroll *all = c->enroll;

    records_drop_row(c, STORE_JOINS, all->v[i].hash);
    all->v[i] = all->v[--all->n];
}

/* Drop those that are over, and those of a node (NULL: of none). Returns how many were the node's. */
static size_t drop_old(struct core *c, const char *node)
{
    size_t n = 0;

    for (size_t i = c->enroll->n; i-- > 0;) {
        bool its = node && strcmp(c->enroll->v[i].node, node) == 0;

        if (its || c->enroll->v[i].expires_us <= c->now.wall_us)
            drop(c, i);
        n += its;
    }
    return n;
}

static int keep(struct core *c, const struct code *code)
{
    json_t *o = json_pack("{s:s, s:I, s:s}", "node", code->node, "expires_us", (json_int_t)code->expires_us, "used_by",
                          code->used_by);

    return records_put_row_new(c, STORE_JOINS, code->hash, o) ? 0 : -ENOMEM;
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = row->text ? json_loads(row->text, 0, NULL) : NULL;
    const char *node, *used_by;
    json_int_t expires_us;
    struct code *code;

    if (c->enroll->n == ENROLL_CODES_MAX ||
        json_unpack(o, "{s:s, s:I, s:s}", "node", &node, "expires_us", &expires_us, "used_by", &used_by) != 0)
        return merr_set(err, -EINVAL, "it would soon be over");
    code = &c->enroll->v[c->enroll->n++];
    *code = (struct code){.expires_us = expires_us};
    (void)snprintf(code->hash, sizeof(code->hash), "%s", row->name);
    (void)snprintf(code->node, sizeof(code->node), "%s", node);
    (void)snprintf(code->used_by, sizeof(code->used_by), "%s", used_by);
    return 0;
}

int enroll_load(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_JOINS, NULL, take_row, err);
}

/* --- calls --------------------------------------------------------------------------------------------- */

static void note(struct core *c, const char *actor, const char *code, const char *node)
{
    char text[128];

    (void)snprintf(text, sizeof(text), "node %s", node);
    events_note(c, 0, "", "token", 0, actor, code, text, json_pack("{s:s}", "node", node));
}

static void note_by(struct core *c, const struct call *call, const char *code, const char *node)
{
    char actor[80];

    (void)snprintf(actor, sizeof(actor), "user:%s", http_identity(call->req)->user);
    note(c, actor, code, node);
}

/* Whoever had the token of the node is heard no more, and what it waits for is answered. */
static void cut_off(struct core *c, const char *name)
{
    struct node *n = cluster_node(&c->cluster, name);

    if (!n)
        return;
    n->registered = false;
    change_node(c, n);
    waiters_wake(c->waiters, waiters_node(name));
    c->schedule_wanted = true;
}

/* The name of the path, if a node can have it. NULL: the call is answered. */
static const char *node_of(struct call *call)
{
    const char *node = http_param(call->req, 0);

    if (join_node_ok(node))
        return node;
    call_problem(call, 422, "node-invalid", "a node's name is 1 to %d letters, digits, '.', '_', '-'",
                 PROTOCOL_NODE_MAX - 1);
    return NULL;
}

int enroll_code(struct core *c, const char *node, int life_s, char ret[AUTH_TOKEN_MAX])
{
    struct code code = {.expires_us = c->now.wall_us + life_s * INT64_C(1000000)};
    struct merr err;

    (void)drop_old(c, node); /* a newer code takes their place */
    if (c->enroll->n == ENROLL_CODES_MAX)
        return -ENOSPC;
    (void)snprintf(code.node, sizeof(code.node), "%s", node);
    if (auth_secret(c->cfg.chance, "mjc_", ret, &err) < 0 || auth_hash(ret, code.hash) < 0 || keep(c, &code) < 0)
        return -EIO;
    c->enroll->v[c->enroll->n++] = code;
    return 0;
}

void enroll_make(struct core *c, struct call *call)
{
    const char *node = node_of(call);
    char text[AUTH_TOKEN_MAX], expires_at[CLOCK_RFC3339_MAX];
    int64_t life_s = call_number(call, "life_s", AGENT_CODE_S);
    int r;

    if (!node)
        return;
    r = enroll_code(c, node, (int)life_s, text);
    if (r < 0) {
        call_problem(call, r == -ENOSPC ? 429 : 503, r == -ENOSPC ? "too-many-codes" : "no-code",
                     r == -ENOSPC ? "%d codes are open, as many as can be; `muster node forget` voids one"
                                  : "no random bytes or no memory for a code of %d",
                     ENROLL_CODES_MAX);
        return;
    }
    note_by(c, call, "enrolled", node);
    clock_rfc3339(c->now.wall_us + life_s * 1000000, expires_at);
    call_answer_new(call, 201, json_pack("{s:s, s:s, s:s}", "node", node, "code", text, "expires_at", expires_at));
}

void enroll_void(struct core *c, const char *node)
{
    (void)drop_old(c, node);
    if (c->cfg.auth && auth_revoke_node(c->cfg.auth, node) > 0)
        cut_off(c, node);
}

void enroll_forget(struct core *c, struct call *call)
{
    const char *node = node_of(call);
    size_t codes, tokens;

    if (!node)
        return;
    codes = drop_old(c, node);
    tokens = auth_revoke_node(c->cfg.auth, node);
    if (codes + tokens == 0) {
        call_problem(call, 404, "not-enrolled", "node '%s' has neither a token of its own nor a code", node);
        return;
    }
    if (tokens > 0)
        cut_off(c, node);
    note_by(c, call, "forgotten", node);
    call_answer_new(call, 200,
                    json_pack("{s:s, s:b, s:I}", "node", node, "token", tokens > 0, "codes", (json_int_t)codes));
}

/* A certificate, new, where this server asks for them, else NULL. False: the call is answered. */
static bool certify(struct core *c, struct call *call, const char *request, const char *node, const char *hash,
                    char **ret)
{
    char token[sizeof(((struct http_identity *)NULL)->token)];
    struct merr err;
    int r;

    *ret = NULL;
    if (!c->cfg.node_ca)
        return true;
    (void)snprintf(token, sizeof(token), "%.*s", (int)sizeof(token) - 1, hash);
    r = node_ca_sign(c->cfg.node_ca, request, node, token, c->now.wall_us, ret, &err);
    if (r < 0)
        call_problem(call, r == -EINVAL ? 422 : 503, r == -EINVAL ? "request-invalid" : "no-memory", "%s", err.text);
    return r == 0;
}

static void answer_new(struct call *call, int status, const char *node, char *certificate)
{
    call_answer_new(call, status, join_answer_write(&(struct join_answer){.node = node, .certificate = certificate}));
    free(certificate);
}

/* The code is this agent's: its token is the node's from now on. */
static void bind_token(struct core *c, struct call *call, struct code *code, const char *hash, char *certificate)
{
    char actor[JOB_NODE_MAX + 8];
    struct merr err;
    int r = auth_bind(c->cfg.auth, code->node, hash, c->now.wall_us, &err);

    if (r < 0) {
        free(certificate);
        call_problem(call, r == -EEXIST ? 409 : 503, r == -EEXIST ? "token-taken" : "no-memory", "%s", err.text);
        return;
    }
    (void)snprintf(code->used_by, sizeof(code->used_by), "%s", hash);
    if (keep(c, code) < 0) {
        free(certificate);
        state_fatal(c, "out of memory for a code that was traded");
        return;
    }
    if (r > 0)
        cut_off(c, code->node);
    (void)snprintf(actor, sizeof(actor), "agent:%s", code->node);
    note(c, actor, "joined", code->node);
    answer_new(call, 201, code->node, certificate);
}

void enroll_join(struct core *c, struct call *call)
{
    struct http_identity who;
    struct join join;
    struct code *code = NULL;
    char code_hash[AUTH_HASH_MAX], hash[AUTH_HASH_MAX], *certificate;
    struct agent_code known;
    struct merr err;

    if (join_read(call->body, &join, &err) < 0) {
        call_problem(call, 422, "join-invalid", "%s", err.text);
        return;
    }
    if (auth_hash(join.code, code_hash) < 0 || auth_hash(join.token, hash) < 0) {
        call_problem(call, 503, "no-memory", "out of memory");
        return;
    }
    for (size_t i = 0; i < c->enroll->n && !code; i++)
        if (strcmp(c->enroll->v[i].hash, code_hash) == 0)
            code = &c->enroll->v[i];
    if (code)
        known = (struct agent_code){.node = code->node, .expires_us = code->expires_us, .used_by = code->used_by};
    switch (agent_may_join(code ? &known : NULL, hash, c->now.wall_us)) {
    case AGENT_JOINS:
        if (certify(c, call, join.request, code->node, hash, &certificate))
            bind_token(c, call, code, hash, certificate);
        return;
    case AGENT_JOINED:
        if (auth_look_up(c->cfg.auth, join.token, c->now.wall_us, &who) == HTTP_AUTH_KNOWN) {
            if (certify(c, call, join.request, code->node, hash, &certificate))
                answer_new(call, 200, code->node, certificate);
            return;
        }
        __attribute__((fallthrough)); /* it was revoked meanwhile */
    case AGENT_CODE_USED:
        call_problem(call, 401, "code-used",
                     "this code was traded for a token already; `muster node enroll` prints another");
        return;
    case AGENT_CODE_OVER:
        call_problem(call, 401, "code-expired", "this code has expired; `muster node enroll` prints another");
        return;
    case AGENT_CODE_UNKNOWN:
        call_problem(call, 401, "code-unknown", "this code is not known here; `muster node enroll` prints one");
    }
}

void enroll_renew(struct core *c, struct call *call)
{
    const struct http_identity *who = http_identity(call->req);
    struct join_renewal ask;
    char *certificate;
    struct merr err;

    if (!c->cfg.node_ca)
        call_problem(call, 404, "no-node-ca", "this server asks for no certificates of nodes");
    else if (join_renewal_read(call->body, &ask, &err) < 0)
        call_problem(call, 422, "request-invalid", "%s", err.text);
    else if (certify(c, call, ask.request, who->node, who->token, &certificate)) {
        call_answer_new(call, 200, join_renewed_write(&(struct join_renewed){.certificate = certificate}));
        free(certificate);
    }
}
