#include "server/http/http_req.h"

#include <assert.h>
#include <stdio.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "server/http/http_priv.h"

const char *http_path(const struct http_req *r)
{
    return r->uri;
}

const char *http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_address(const struct http_req *r)
{
    return r->address;
}

const char *http_param(const struct http_req *r, int i)
{
    assert(i >= 0 && i < HTTP_PARAMS_MAX);
    return r->params[i];
}

const char *http_query(const struct http_req *r, const char *name)
{
    for (size_t i = 0; i < r->query.n; i++)
        if (strcmp(r->query.v[i].name, name) == 0)
            return r->query.v[i].value;
    return NULL;
}

const char *http_header(const struct http_req *r, const char *name)
{
    const char *at = r->header_text.data;

    for (size_t i = 0; i < r->n_headers; i++) {
        const char *value = at + strlen(at) + 1;

        if (strcasecmp(at, name) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

const char *http_body(const struct http_req *r, size_t *ret_len)
{
    if (ret_len)
        *ret_len = r->body.len;
    return buf_text(&r->body);
}

const struct http_identity *http_identity(const struct http_req *r)
{
    return &r->identity;
}

const char *http_request_id(const struct http_req *r)
{
    return r->request_id;
}

bool http_wants_stream(const struct http_req *r)
{
    return http_accepts(http_header(r, "Accept"), "text/event-stream");
}

static void drop_header(struct http_req *r, size_t i)
{
    free(r->out_headers[i].name);
    free(r->out_headers[i].value);
    r->out_headers[i] = r->out_headers[--r->n_out_headers];
}

void http_set_header_locked(struct http_req *r, const char *name, const char *value)
{
    size_t i;
    char *copy_name, *copy_value;

    for (i = 0; i < r->n_out_headers; i++)
        if (strcasecmp(r->out_headers[i].name, name) == 0) {
            drop_header(r, i);
            break;
        }
    assert(r->n_out_headers < HTTP_OUT_HEADERS_MAX);
    copy_name = strdup(name);
    copy_value = strdup(value);
    if (!copy_name || !copy_value) {
        free(copy_name);
        free(copy_value);
        return;
    }
    for (char *c = copy_value; *c; c++) /* a value from outside must not begin a header of its own */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    r->out_headers[r->n_out_headers].name = copy_name;
    r->out_headers[r->n_out_headers++].value = copy_value;
}

void http_set_header(struct http_req *r, const char *name, const char *value)
{
    pthread_mutex_lock(&r->lock);
    if (r->state == HTTP_HELD)
        http_set_header_locked(r, name, value);
    pthread_mutex_unlock(&r->lock);
}

void http_req_unref(struct http_req *r)
{
    if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    while (r->n_out_headers)
        drop_header(r, 0);
    free(r->out);
    http_page_unref(r->page);
    free(r->uri);
    free(r->uri_parts);
    buf_clear(&r->header_text);
    buf_clear(&r->body);
    buf_clear(&r->stream.queue);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* Take a held request's answer: true if the caller is the one who answers (r->lock is then held). */
static bool claim(struct http_req *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->state == HTTP_HELD && !r->gone) {
        r->state = HTTP_ANSWERED;
        return true;
    }
    pthread_mutex_unlock(&r->lock);
    return false;
}

void http_wake(struct http_req *r)
{
    if (!r->suspended)
        return;
    r->suspended = false;
    MHD_resume_connection(r->conn);
}

/* Give text or a page (taken over) as the answer of a held request, or drop it when somebody has answered; ends the
 * handler's hold either way. */
static void answer_take_any(struct http_req *r, int status, const char *content_type, char *text, size_t len,
                            struct http_page *page)
{
    if (claim(r)) {
        r->status = status;
        strncpy(r->content_type_copy, content_type, sizeof(r->content_type_copy) - 1);
        r->content_type = r->content_type_copy;
        r->out = text;
        r->out_len = len;
        r->page = page;
        text = NULL;
        page = NULL;
        http_wake(r);
        pthread_mutex_unlock(&r->lock);
    }
    free(text);
    http_page_unref(page);
    http_req_unref(r);
}

static void answer_take(struct http_req *r, int status, const char *content_type, char *text, size_t len)
{
    answer_take_any(r, status, content_type, text, len, NULL);
}

void http_page_reply(struct http_req *r, int status, const char *content_type, struct http_page *p)
{
    answer_take_any(r, status, content_type, NULL, http_page_bytes(p), p);
}

bool http_closed(const struct http_req *r)
{
    const union MHD_ConnectionInfo *info =
        r->conn ? MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD) : NULL;
    struct pollfd p = {.fd = info ? info->connect_fd : -1, .events = POLLRDHUP};

    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

bool http_gone(struct http_req *r)
{
    bool gone;

    pthread_mutex_lock(&r->lock);
    gone = r->gone || r->state != HTTP_HELD || (r->suspended && http_closed(r));
    pthread_mutex_unlock(&r->lock);
    return gone;
}

/* The tag of an answer: what its handler says of the version, and what tells one content from another. True: the client
 * has it already. */
static bool tag(struct http_req *r, const char *text)
{
    const char *known = http_header(r, "If-None-Match"), *version = "";
    char etag[64];

    for (size_t i = 0; i < r->n_out_headers; i++)
        if (strcasecmp(r->out_headers[i].name, "ETag") == 0)
            version = r->out_headers[i].value;
    version += *version == '"';
    (void)snprintf(etag, sizeof(etag), "\"%.*s%s%016llx\"", (int)strcspn(version, "\""), version, *version ? "-" : "",
                   (unsigned long long)hash_xxh3(text, strlen(text)));
    http_set_header(r, "ETag", etag);
    return known && http_etag_match(known, etag);
}

/* The text of an object with one more member, which is JSON already; text is taken over, and not empty. */
static char *with_member_new(char *text, const char *name, const char *member)
{
    size_t n = strlen(text), more = strlen(name) + strlen(member) + 5; /* ,"": and the end */
    char *longer = realloc(text, n + more + 1);

    if (longer)
        (void)snprintf(longer + n - 1, more + 2, ",\"%s\":%s}", name, member);
    else
        free(text);
    return longer;
}

void http_reply_new(struct http_req *r, int status, json_t *body)
{
    http_reply_with_new(r, status, body, NULL, NULL);
}

void http_reply_with_new(struct http_req *r, int status, json_t *body, const char *name, const char *member)
{
    char *text = NULL;

    if (body) {
        text = json_dumps(body, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17));
        json_decref(body);
        if (text && name && member)
            text = with_member_new(text, name, member);
        if (!text) {
            http_problem(r, 503, "out-of-memory", "no memory for the answer; try again");
            return;
        }
    }
    if (text && status == 200 && (strcmp(r->method, "GET") == 0 || r->is_head) && tag(r, text)) {
        free(text);
        text = NULL;
        status = 304;
    }
    answer_take(r, status, "application/json", text, text ? strlen(text) : 0);
}

void http_reply_text(struct http_req *r, int status, const char *content_type, const char *text, size_t len)
{
    char *copy = malloc(len + 1);

    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    answer_take(r, copy ? status : 503, content_type, copy, copy ? len : 0);
}

void http_reply_text_new(struct http_req *r, int status, const char *content_type, char *text, size_t len)
{
    answer_take(r, status, content_type, text, len);
}

static const char *title_of(int status)
{
    static const struct {
        int status;
        const char *title;
    } known[] = {
        {307, "Another server leads"},
        {400, "Bad request"},
        {401, "Authentication needed"},
        {403, "Not allowed"},
        {404, "Not found"},
        {405, "Method not allowed"},
        {409, "Conflict"},
        {412, "Precondition failed"},
        {413, "Body too large"},
        {415, "Unsupported media type"},
        {422, "Cannot be processed"},
        {426, "Upgrade needed"},
        {428, "Precondition needed"},
        {429, "Too many requests"},
        {431, "Headers too large"},
        {500, "Internal error"},
        {501, "Not implemented"},
        {503, "Not available now"},
        {504, "Took too long"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].status == status)
            return known[i].title;
    return "Error";
}

/* A problem document as text, NULL when memory is short. errors is taken over, may be NULL. */
static char *problem_text_new(struct http_req *r, int status, const char *code, const char *detail, json_t *errors)
{
    char type[128];
    char *text = NULL;
    json_t *doc;

    (void)snprintf(type, sizeof(type), "urn:muster:problem:%s", code);
    doc = json_pack("{s:s, s:s, s:i, s:s+, s:s}", "type", type, "title", title_of(status), "status", status, "detail",
                    detail, "", "request_id", r->request_id);
    if (doc && errors)
        (void)json_object_set(doc, "errors", errors);
    if (doc)
        text = json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(doc);
    json_decref(errors);
    return text;
}

void http_fill_problem(struct http_req *r, int status, const char *code, const char *detail)
{
    free(r->out);
    r->out = problem_text_new(r, status, code, detail, NULL);
    r->out_len = r->out ? strlen(r->out) : 0;
    r->status = status;
    r->content_type = "application/problem+json";
}

void http_problem(struct http_req *r, int status, const char *code, const char *fmt, ...)
{
    char detail[2048], *text;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(detail, sizeof(detail), fmt, ap);
    va_end(ap);
    text = problem_text_new(r, status, code, detail, NULL);
    answer_take(r, status, "application/problem+json", text, text ? strlen(text) : 0);
}

void http_problem_errors_new(struct http_req *r, const char *detail, json_t *errors)
{
    char *text = problem_text_new(r, 422, "spec-invalid", detail, errors);

    answer_take(r, 422, "application/problem+json", text, text ? strlen(text) : 0);
}
