/* fake_calls - stands in for api/client/calls.c: calls are kept, and end when and how the test says
 *
 * What a test includes this, links no libcurl calls: its own come first.
 */
#ifndef MUSTER_TESTS_UNIT_WORKER_AGENT_FAKE_CALLS_H
#define MUSTER_TESTS_UNIT_WORKER_AGENT_FAKE_CALLS_H

#include "api/client/calls.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_call {
    char method[8], path[512];
    char *body; /* NULL: none */
    calls_done *done;
    void *arg;
    bool ended;
};

static struct {
    struct fake_call v[64];
    size_t n;
    int fault;            /* of calls_begin; 0: none */
    void (*waited)(void); /* what happens whenever somebody waits */
} fake_calls;

static inline void fake_calls_clear(void)
{
    for (size_t i = 0; i < fake_calls.n; i++)
        free(fake_calls.v[i].body);
    memset(&fake_calls, 0, sizeof(fake_calls));
}

/* The first call that has not ended, whose path has that text; NULL: none. */
static inline struct fake_call *fake_call_of(const char *text)
{
    for (size_t i = 0; i < fake_calls.n; i++)
        if (!fake_calls.v[i].ended && strstr(fake_calls.v[i].path, text))
            return &fake_calls.v[i];
    return NULL;
}

static inline void fake_call_end(struct fake_call *c, int status, const char *body)
{
    assert_non_null(c);
    assert_false(c->ended);
    c->ended = true;
    c->done(c->arg, status, body, strlen(body), status < 0 ? "no answer" : "");
}

int calls_new(const struct calls_cfg *cfg, struct calls **ret, struct merr *err)
{
    (void)err;
    assert_non_null(cfg->url);
    *ret = (struct calls *)&fake_calls;
    return 0;
}

void calls_free(struct calls *h)
{
    (void)h;
}

int calls_begin(struct calls *h, const struct call *call, struct merr *err)
{
    struct fake_call *c = &fake_calls.v[fake_calls.n];

    (void)h;
    if (fake_calls.fault)
        return merr_set(err, fake_calls.fault, "no call can be made");
    assert_true(fake_calls.n < COUNT(fake_calls.v));
    fake_calls.n++;
    *c = (struct fake_call){
        .done = call->done, .arg = call->arg, .body = call->body ? strndup(call->body, call->len) : NULL};
    (void)snprintf(c->method, sizeof(c->method), "%s", call->method);
    (void)snprintf(c->path, sizeof(c->path), "%s", call->path);
    return 0;
}

void calls_wait(struct calls *h, const int *fds, int n, int64_t deadline_us)
{
    (void)h;
    (void)fds;
    (void)n;
    (void)deadline_us;
    assert_non_null(fake_calls.waited);
    fake_calls.waited();
}

int calls_show_certificate(struct calls *h, const char *file, struct merr *err)
{
    (void)h;
    (void)file;
    (void)err;
    return 0;
}

#endif
