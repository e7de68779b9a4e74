#include "server/http/call.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/merr.h"
#include "server/http/http_page.h"

#define PROMETHEUS "text/plain; version=0.0.4; charset=utf-8"

struct call *call_new(struct http_req *req, void (*run)(void *owner, struct call *call))
{
    struct call *call = calloc(1, sizeof(*call));

    if (call) {
        call->req = req;
        call->run = run;
        call->began_us = clock_mono_us();
    }
    return call;
}

const struct http_identity *call_who(const struct call *call)
{
    return call->who ? call->who : http_identity(call->req);
}

void call_free(struct call *call)
{
    if (!call)
        return;
    json_decref(call->body);
    json_decref(call->acks);
    json_decref(call->fresh);
    json_decref(call->reply);
    json_decref(call->before);
    json_decref(call->after);
    spec_free(call->spec);
    free(call->text);
    free(call->page);
    free(call->whole_spec);
    http_page_unref(call->shared);
    free(call);
}

void call_answer_new(struct call *call, int status, json_t *reply)
{
    assert(status > 0);
    if (call->status != 0) {
        json_decref(reply);
        return;
    }
    call->status = status;
    call->reply = reply;
}

void call_problem(struct call *call, int status, const char *code, const char *fmt, ...)
{
    char text[MERR_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    call_answer_new(call, status, json_pack("{s:s, s:s}", "code", code, "detail", text));
}

bool call_refuse(struct call *call, const char *code, const char *field, const char *wants)
{
    call_problem(call, 422, code, "'%s' %s", field, wants);
    return false;
}

const char *call_text(struct call *call, const char *code, const char *field, const char *usual, size_t most)
{
    const json_t *v = json_object_get(call->body, field);
    const char *text = json_string_value(v);

    if (!v)
        return usual;
    if (text && strlen(text) == json_string_length(v) && strlen(text) <= most)
        return text;
    (void)call_refuse(call, code, field, "is a text without NUL, or is too long");
    return NULL;
}

bool call_only_known(struct call *call, const char *code, const char *what, const char *known)
{
    const char *name;
    char word[64];
    json_t *v;

    json_object_foreach (call->body, name, v) {
        (void)snprintf(word, sizeof(word), " %.60s ", name);
        if (!strstr(known, word)) {
            call_problem(call, 422, code, "'%.63s' is no field of %s: it has%s", name, what, known);
            return false;
        }
    }
    return true;
}

int64_t call_number(const struct call *call, const char *name, int64_t none)
{
    const char *text = http_query(call->req, name); /* its route has checked it */

    return text ? strtoll(text, NULL, 10) : none;
}

void call_changed_new(struct call *call, json_t *before, json_t *after)
{
    json_decref(call->before);
    json_decref(call->after);
    call->before = before;
    call->after = after;
}

void call_deliver(struct call *call)
{
    struct http_req *req = call->req;

    if (req && call->etag[0])
        http_set_header(req, "ETag", call->etag);
    if (req && call->page) {
        http_reply_text_new(req, call->status, call->page_is_json ? "application/json" : PROMETHEUS, call->page,
                            strlen(call->page));
        call->page = NULL;
    } else if (req && call->shared) {
        http_page_reply(req, call->status, PROMETHEUS, call->shared);
        call->shared = NULL;
    } else if (req && call->status >= 400) {
        const char *code = json_string_value(json_object_get(call->reply, "code"));
        const char *detail = json_string_value(json_object_get(call->reply, "detail"));
        json_t *errors = json_object_get(call->reply, "errors"); /* borrowed */

        if (errors)
            http_problem_errors_new(req, detail ? detail : "the request cannot be met", json_incref(errors));
        else
            http_problem(req, call->status, code ? code : "internal", "%s", detail ? detail : "out of memory");
    } else if (req) {
        http_reply_with_new(req, call->status, call->reply, "spec", call->whole_spec);
        call->reply = NULL;
    }
    call->req = NULL;
    call_free(call);
}
