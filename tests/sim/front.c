#include "tests/sim/front.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/routes.h"
#include "server/http/http_page.h"
#include "server/http/http_parse.h"
#include "server/http/http_stream.h"
#include "server/http/http_upgrade.h"

struct http_req {
    const struct http_route *route;
    char *method, *path, *split, *query, *body, *key;
    struct http_path segments;
    struct http_fields fields;
    const char *params[HTTP_PARAMS_MAX];
    struct http_identity who;
    void *user;
    front_answer *answer;
    void *arg;
};

static bool muted;

void front_mute(void)
{
    muted = true;
}

void front_listen(void)
{
    muted = false;
}

static char *copy(const char *text)
{
    char *s = strdup(text ? text : "");

    if (!s)
        abort();
    return s;
}

static void finish(struct http_req *r, int status, const char *body, size_t len)
{
    if (muted)
        r->answer(r->arg, FRONT_NEVER, NULL, 0);
    else
        r->answer(r->arg, status, body, len);
    free(r->method);
    free(r->path);
    free(r->split);
    free(r->query);
    free(r->body);
    free(r->key);
    free(r);
}

void front_call(void *routes_arg, const struct front_request *q, front_answer *answer, void *arg)
{
    const char *mark = strchr(q->target, '?');
    struct http_req *r = calloc(1, sizeof(*r));

    if (!r)
        abort();
    r->method = copy(q->method);
    r->path = copy(q->target);
    if (mark)
        r->path[mark - q->target] = '\0';
    r->query = copy(mark ? mark + 1 : "");
    r->split = copy(r->path);
    r->body = q->body ? copy(q->body) : NULL;
    r->key = q->idempotency_key ? copy(q->idempotency_key) : NULL;
    r->who = q->who;
    r->answer = answer;
    r->arg = arg;
    if (http_path_split(r->split, &r->segments) < 0 || http_query_split(r->query, &r->fields) < 0) {
        http_problem(r, 400, "path-invalid", "the path or query cannot be read");
        return;
    }
    for (size_t i = 0; i < routes_count && !r->route; i++)
        if (strcmp(routes_table[i].method, r->method) == 0 &&
            http_path_match(routes_table[i].pattern, &r->segments, r->params, HTTP_PARAMS_MAX))
            r->route = &routes_table[i];
    if (!r->route)
        http_problem(r, 404, "no-route", "no route");
    else if ((r->route->role == ROLE_AGENT) != (r->who.role == ROLE_AGENT) || r->who.role < r->route->role)
        http_problem(r, 403, "forbidden", "a %s may not", http_role_name(r->who.role));
    else
        r->route->handler(routes_arg, r);
}

const char *http_role_name(enum http_role role)
{
    static const char *const names[] = {"none", "viewer", "user", "admin", "agent"};

    return names[role];
}

const char *http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_address(const struct http_req *r)
{
    (void)r;
    return "";
}

const char *http_path(const struct http_req *r)
{
    return r->path;
}

const char *http_param(const struct http_req *r, int i)
{
    return r->params[i];
}

const char *http_query(const struct http_req *r, const char *name)
{
    for (size_t i = 0; i < r->fields.n; i++)
        if (strcmp(r->fields.v[i].name, name) == 0)
            return r->fields.v[i].value;
    return NULL;
}

const char *http_header(const struct http_req *r, const char *name)
{
    return strcmp(name, "Idempotency-Key") == 0 ? r->key : NULL;
}

const char *http_body(const struct http_req *r, size_t *ret_len)
{
    *ret_len = r->body ? strlen(r->body) : 0;
    return r->body;
}

const struct http_identity *http_identity(const struct http_req *r)
{
    return &r->who;
}

const char *http_request_id(const struct http_req *r)
{
    (void)r;
    return "sim";
}

bool http_gone(struct http_req *r)
{
    (void)r;
    return false;
}

bool http_wants_stream(const struct http_req *r)
{
    (void)r;
    return false; /* nobody follows: streams are tried over real sockets */
}

void http_set_header(struct http_req *r, const char *name, const char *value)
{
    (void)r;
    (void)name;
    (void)value;
}

void http_reply_new(struct http_req *r, int status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    finish(r, status, text, text ? strlen(text) : 0);
    free(text);
}

void http_reply_with_new(struct http_req *r, int status, json_t *body, const char *name, const char *member)
{
    if (body && member)
        (void)json_object_set_new(body, name, json_loads(member, JSON_DECODE_ANY, NULL));
    http_reply_new(r, status, body);
}

void http_reply_text(struct http_req *r, int status, const char *content_type, const char *text, size_t len)
{
    (void)content_type;
    finish(r, status, text, len);
}

void http_reply_text_new(struct http_req *r, int status, const char *content_type, char *text, size_t len)
{
    http_reply_text(r, status, content_type, text, len);
    free(text);
}

void http_page_reply(struct http_req *r, int status, const char *content_type, struct http_page *p)
{
    size_t len = http_page_bytes(p);
    char *text = malloc(len + 1);

    http_reply_text_new(r, status, content_type, text, text ? (size_t)http_page_read(p, 0, text, len) : 0);
    http_page_unref(p);
}

void http_problem(struct http_req *r, int status, const char *code, const char *fmt, ...)
{
    char detail[MERR_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(detail, sizeof(detail), fmt, ap);
    va_end(ap);
    http_reply_new(r, status, json_pack("{s:s, s:i, s:s}", "code", code, "status", status, "detail", detail));
}

void http_problem_errors_new(struct http_req *r, const char *detail, json_t *errors)
{
    http_reply_new(r, 422, json_pack("{s:i, s:s, s:o}", "status", 422, "detail", detail, "errors", errors));
}

/* No request asks for a stream, so none begins. */
struct http_stream *http_stream_begin(struct http_req *r)
{
    (void)r;
    abort();
}

int http_stream_event(struct http_stream *s, uint64_t id, const char *event, const char *data)
{
    (void)s;
    (void)id;
    (void)event;
    (void)data;
    abort();
}

bool http_stream_over(struct http_stream *s)
{
    (void)s;
    abort();
}

void http_stream_end(struct http_stream *s)
{
    (void)s;
    abort();
}

bool http_upgrade(struct http_req *r, const char *protocol, http_upgraded_fn *fn, void *arg)
{
    (void)fn;
    (void)arg;
    http_problem(r, 426, "upgrade-needed", "nobody speaks '%s' in a simulation", protocol);
    return false;
}

void http_upgrade_close(struct http_socket *s)
{
    (void)s;
}
