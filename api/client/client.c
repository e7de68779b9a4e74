#include "api/client/client.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/client/calls.h"
#include "api/client/sse.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/private.h"
#include "base/try.h"

#define CALL_MS 60000               /* one call, all told */
#define RETRY_US 5000000            /* how long a call that may be repeated is repeated */
#define RETRY_TAKE_OVER_US 30000000 /* where another server may take over */
#define BUSY_S 30                   /* that a call waits in all since there are too many */
#define QUIET_S 90                  /* a stream without a byte (not even a keep-alive) is lost */
#define TICK_US 500000              /* how often whoever follows a stream is asked whether to go on */
#define WHY_MAX 512
#define URLS_MAX 65536
#define TRACEPARENT_LEN 55

struct client {
    struct calls *calls;
    char *url; /* or several, separated by commas; without a slash at their ends */
    struct following *following;
    bool has_token;
    bool ended; /* the call under way */
    int status; /* of its answer, or why there was none (calls_done) */
    struct buf answer;
    char why[WHY_MAX];
    void (*on_wait)(int wait_s); /* may be NULL */
    json_t *problem;             /* of the last answer that was no success, or NULL */
};

int client_state_dir(const char *given, char *ret, size_t size, struct merr *err)
{
    const char *state = given && *given ? given : getenv("MUSTER_STATE"), *base = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n;

    if (state && *state)
        n = snprintf(ret, size, "%s", state);
    else if (base && *base)
        n = snprintf(ret, size, "%s/muster", base);
    else if (geteuid() == 0)
        n = snprintf(ret, size, "/var/lib/muster");
    else if (home && *home)
        n = snprintf(ret, size, "%s/.local/state/muster", home);
    else
        return merr_set(err, -ENOENT, "no folder for the state is known; set MUSTER_STATE");
    return n >= 0 && (size_t)n < size ? 0 : merr_set(err, -ENAMETOOLONG, "the path of the state folder is too long");
}

/* The servers of a list, each with "http://" in front where it says nothing, and no slash at its end. New. */
static char *whole_urls(const char *list)
{
    struct buf b;
    char *text;

    buf_init(&b, URLS_MAX);
    for (size_t len; *list; list += len + (list[len] == ',')) {
        size_t end = len = strcspn(list, ",");

        while (end > 0 && list[end - 1] == '/')
            end--;
        (void)buf_printf(&b, "%s%s%.*s", b.len ? "," : "", memmem(list, end, "://", 3) ? "" : "http://", (int)end,
                         list);
    }
    text = buf_failed(&b) ? NULL : strdup(buf_text(&b));
    buf_clear(&b);
    return text;
}

int client_new_at(const char *url, const char *token, struct client **ret, struct merr *err)
{
    const char *trusted = getenv("MUSTER_CACERT");
    struct client *c = calloc(1, sizeof(*c));
    struct calls_cfg cfg = {.token = token, .ca_file = trusted && *trusted ? trusted : NULL, .proxies = true};
    int r;

    if (!c || !(c->url = whole_urls(url))) {
        free(c);
        return merr_set(err, -ENOMEM, "no memory for a client");
    }
    c->has_token = token && *token;
    buf_init(&c->answer, CALLS_ANSWER_MAX);
    cfg.url = c->url;
    r = calls_new(&cfg, &c->calls, err);
    if (r < 0) {
        client_free(c);
        return r == -EINVAL ? -EHOSTUNREACH : r;
    }
    *ret = c;
    return 0;
}

/* The URL of the server whose state folder this is. New; NULL: not known. */
static json_t *read_server(const char *dir)
{
    BUF_CLEAR_AUTO struct buf b;
    char path[4096 + 64];

    buf_init(&b, 65536);
    (void)snprintf(path, sizeof(path), "%s/server.json", dir);
    return io_read_file(path, &b, NULL) < 0 ? NULL : json_loadb(buf_text(&b), b.len, 0, NULL);
}

/* The token of a state folder, less the white space at its end. NULL: there is none for us. -EPERM: others have it. */
static int read_token(const char *dir, char **ret, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf b;
    char path[4096 + 64];
    int r;

    buf_init(&b, 65536);
    (void)snprintf(path, sizeof(path), "%s/token", dir);
    r = private_read_file(path, &b, err);
    if (r < 0)
        return r == -EPERM ? r : 0;
    *ret = strndup(buf_text(&b), strcspn(buf_text(&b), " \r\n\t"));
    return *ret ? 0 : merr_set(err, -ENOMEM, "no memory for a client");
}

int client_new(const char *server, const char *token, const char *state, struct client **ret, struct merr *err)
{
    bool known = server && *server;
    char dir[4096] = "", *text = NULL;
    json_auto_t *doc = NULL;
    int r = client_state_dir(state, dir, sizeof(dir), known ? NULL : err);

    if (!known) {
        if (r < 0)
            return r;
        doc = read_server(dir);
        server = json_string_value(json_object_get(doc, "url"));
        if (!server)
            return merr_set(err, -EHOSTUNREACH,
                            "no server is known: '%s/server.json' cannot be read; start one with "
                            "`muster up`, or name one with --server or MUSTER_SERVER",
                            dir);
    }
    if (token && *token)
        text = strdup(token);
    else if (*dir)
        TRY(read_token(dir, &text, err));
    r = client_new_at(server, text, ret, err);
    free(text);
    return r;
}

void client_on_wait(struct client *c, void (*fn)(int wait_s))
{
    c->on_wait = fn;
}

void client_free(struct client *c)
{
    int saved = errno;

    if (!c)
        return;
    calls_free(c->calls);
    buf_clear(&c->answer);
    json_decref(c->problem);
    free(c->url);
    free(c);
    errno = saved;
}

bool client_bares_token(const struct client *c)
{
    return c->has_token && calls_in_clear(c->url);
}

const char *client_url(const struct client *c)
{
    return c->url;
}

long client_status(const struct client *c)
{
    return c->status > 0 ? c->status : 0;
}

const json_t *client_problem(const struct client *c)
{
    return c->problem;
}

/* --- one request --------------------------------------------------------------------------------------- */

static void take_end(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct client *c = arg;

    c->ended = true;
    c->status = buf_add(&c->answer, body, len) < 0 ? -ENOMEM : status;
    (void)snprintf(c->why, sizeof(c->why), "%s", why);
}

/* Forget what the last call brought, and begin another. */
static int begin(struct client *c, struct call *call, struct merr *err)
{
    buf_clear(&c->answer);
    json_decref(c->problem);
    c->problem = NULL;
    c->ended = false;
    c->status = 0;
    call->done = take_end;
    call->arg = c;
    return calls_begin(c->calls, call, err);
}

/* Whether the address or the certificate is at fault, or memory, so that another try would fare no better. */
static bool is_lasting(int status)
{
    return status == -EINVAL || status == -EACCES || status == -EMSGSIZE || status == -ENOMEM;
}

static const char *hint_of(int status)
{
    switch (status) {
    case -EINVAL:
        return "want http://HOST:PORT or https://HOST:PORT";
    case -EACCES:
        return "set MUSTER_CACERT to the file of the certificate to trust";
    case -EPROTO:
        return "is it running, and is it http:// or https://?";
    case -EMSGSIZE:
        return "its answer is longer than 64 MiB";
    default:
        return "is it running?";
    }
}

static int out_of_reach(struct client *c, struct merr *err)
{
    if (c->status == -ENOMEM)
        return merr_set(err, -ENOMEM, "no memory for a request");
    return merr_set(err, -EHOSTUNREACH, "cannot reach the server at '%s': %s; %s", c->url, c->why, hint_of(c->status));
}

/* The words of an answer that is no success. */
static int refused(struct client *c, struct merr *err)
{
    int status = c->status, code = status == 404 ? -ENOENT : status >= 400 && status < 500 ? -EPERM : -EIO;
    json_t *doc = json_loadb(buf_text(&c->answer), c->answer.len, 0, NULL), *one;
    const char *title = json_string_value(json_object_get(doc, "title"));
    const char *detail = json_string_value(json_object_get(doc, "detail"));
    struct buf words;
    size_t i;

    buf_init(&words, MERR_TEXT_MAX);
    if (!title && !detail)
        (void)buf_printf(&words, "'%s' answers %d without a reason; is it a Muster server?", c->url, status);
    else
        (void)buf_addstr(&words, detail ? detail : title);
    json_array_foreach (json_object_get(doc, "errors"), i, one) {
        const char *pointer = json_string_value(json_object_get(one, "pointer"));
        const char *message = json_string_value(json_object_get(one, "message"));

        if (message)
            (void)buf_printf(&words, "\n  %s%s%s", pointer ? pointer : "", pointer && *pointer ? ": " : "", message);
    }
    if (!title && !detail && code != -ENOENT)
        code = -EHOSTUNREACH;
    (void)merr_set(err, code, "%s", buf_text(&words));
    buf_clear(&words);
    json_decref(c->problem);
    c->problem = doc;
    return code;
}

/* The seconds after which a server that has had too many calls takes this one; 0: that is not why it refuses. What
 * else is answered 429 will not be otherwise soon. */
static int busy_s(const struct client *c)
{
    json_auto_t *doc = c->status == 429 ? json_loadb(buf_text(&c->answer), c->answer.len, 0, NULL) : NULL;
    const char *type = json_string_value(json_object_get(doc, "type"));

    return type && strcmp(type, "urn:muster:problem:too-many-requests") == 0 ? calls_retry_after_s(c->calls) : 0;
}

/* Send until there is an answer, whose status is the client's then. */
static int send_bytes(struct client *c, const char *method, const char *path, const char *type, const char *body,
                      size_t len, const char *key, struct merr *err)
{
    int64_t deadline = clock_mono_us() + (strchr(c->url, ',') ? RETRY_TAKE_OVER_US : RETRY_US);
    bool again = strcmp(method, "GET") == 0 || key || type;
    const char *trace = getenv("TRACEPARENT"); /* whoever calls us is in a trace, which goes on */
    char key_header[256], trace_header[80];
    int busy_left_s = BUSY_S, after_s;
    struct call call = {.method = method, .path = path, .type = type, .body = body, .len = len, .timeout_ms = CALL_MS};
    size_t n = 0;

    (void)snprintf(key_header, sizeof(key_header), "Idempotency-Key: %s", key ? key : "");
    (void)snprintf(trace_header, sizeof(trace_header), "traceparent: %.55s", trace ? trace : "");
    if (key)
        call.headers[n++] = key_header;
    if (trace && strspn(trace, "0123456789abcdef-") == TRACEPARENT_LEN)
        call.headers[n] = trace_header;
    for (int wait_ms = 50;; wait_ms = wait_ms < 800 ? wait_ms * 2 : 800) {
        TRY(begin(c, &call, err));
        while (!c->ended)
            calls_wait(c->calls, NULL, 0, clock_mono_us() + TICK_US);
        after_s = busy_s(c);
        if (after_s > 0 && after_s <= busy_left_s) { /* it was not taken: whatever it is, it may be made again */
            busy_left_s -= after_s;
            if (c->on_wait)
                c->on_wait(after_s);
            (void)poll(NULL, 0, after_s * 1000);
            continue;
        }
        again = again && clock_mono_us() < deadline;
        if ((c->status > 0 && c->status != 503) || is_lasting(c->status) || !again)
            break;
        (void)poll(NULL, 0, wait_ms);
    }
    return c->status > 0 ? 0 : out_of_reach(c, err);
}

static int send_call(struct client *c, const char *method, const char *path, const char *body, const char *key,
                     struct merr *err)
{
    return send_bytes(c, method, path, NULL, body, body ? strlen(body) : 0, key, err);
}

int client_put(struct client *c, const char *path, const void *data, size_t len, struct merr *err)
{
    TRY(send_bytes(c, "PUT", path, "application/octet-stream", data, len, NULL, err));
    return c->status < 200 || c->status >= 300 ? refused(c, err) : 0;
}

int client_call(struct client *c, const char *method, const char *path, const json_t *body, const char *key,
                json_t **ret_doc, struct merr *err)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_error_t je;
    json_t *doc;
    int r;

    if (body && !text)
        return merr_set(err, -ENOMEM, "no memory for a request");
    r = send_call(c, method, path, text ? text : strcmp(method, "GET") == 0 ? NULL : "", key, err);
    free(text);
    if (r < 0)
        return r;
    if (c->status < 200 || c->status >= 300)
        return refused(c, err);
    if (!ret_doc)
        return 0;
    doc = c->answer.len ? json_loadb(c->answer.data, c->answer.len, JSON_DECODE_ANY, &je) : json_null();
    if (!doc)
        return merr_set(err, -EHOSTUNREACH, "'%s' does not answer in JSON (%s); is it a Muster server?", c->url,
                        je.text);
    *ret_doc = doc;
    return 0;
}

int client_text(struct client *c, const char *path, struct buf *out, struct merr *err)
{
    TRY(send_call(c, "GET", path, NULL, NULL, err));
    if (c->status < 200 || c->status >= 300)
        return refused(c, err);
    return buf_add(out, buf_text(&c->answer), c->answer.len);
}

/* --- events -------------------------------------------------------------------------------------------- */

struct following {
    struct client *c;
    struct sse sse;
    client_event_fn *fn;
    void *arg;
    bool heard;      /* something in this attempt */
    int result;      /* 0 while it goes on */
    int64_t tick_us; /* when the next tick is due */
    int64_t heard_us;
};

static int take_event(void *arg, const char *type, const char *text)
{
    struct following *g = arg;
    json_t *data = json_loads(text, JSON_DECODE_ANY, NULL);
    int r = strcmp(type, "end") == 0 ? 1 : g->fn(g->arg, type, data);

    json_decref(data);
    return r;
}

static int take_stream(void *arg, const char *data, size_t len)
{
    struct following *g = ((struct client *)arg)->following;

    g->heard = true;
    g->heard_us = clock_mono_us();
    g->result = sse_feed(&g->sse, data, len, take_event, g);
    return g->result;
}

static int tick(struct following *g)
{
    int64_t now = clock_mono_us();

    if (now >= g->tick_us) {
        g->tick_us = now + TICK_US;
        g->result = g->fn(g->arg, "", NULL);
    }
    return g->result;
}

/* One attempt, until it ends or nobody wants more. */
static int stream_once(struct following *g, const char *path, struct merr *err)
{
    struct client *c = g->c;
    char last[64];
    struct call call = {.method = "GET",
                        .path = path,
                        .headers = {"Accept: text/event-stream", g->sse.last_id[0] ? last : NULL},
                        .quiet_s = QUIET_S,
                        .data = take_stream};

    (void)snprintf(last, sizeof(last), "Last-Event-ID: %s", g->sse.last_id);
    sse_restart(&g->sse);
    g->heard = false;
    TRY(begin(c, &call, err));
    while (!c->ended && g->result == 0) {
        calls_wait(c->calls, NULL, 0, g->tick_us);
        if (g->result == 0)
            (void)tick(g);
    }
    calls_drop(c->calls);
    return 0;
}

/* Whether a stream goes on by another attempt: 0, else what it ends with, 1 for well. */
static int try_again(struct following *g, int patience_s, struct merr *err)
{
    struct client *c = g->c;

    if (g->result)
        return g->result;
    if (c->status > 0 && c->status != 200 && c->status < 500)
        return refused(c, err);
    if (c->status == -ENOMEM || clock_mono_us() - g->heard_us > patience_s * (int64_t)1000000)
        return c->status > 0 ? refused(c, err) : out_of_reach(c, err);
    return 0;
}

int client_follow(struct client *c, const char *path, int patience_s, client_event_fn *fn, void *arg, struct merr *err)
{
    struct following g = {.c = c, .fn = fn, .arg = arg, .heard_us = clock_mono_us()};
    int wait_ms = 50, r;

    sse_init(&g.sse);
    /* cppcheck-suppress autoVariables ; taken back below */
    c->following = &g;
    for (;;) {
        r = stream_once(&g, path, err);
        if (r < 0)
            break;
        r = try_again(&g, patience_s, err);
        if (r != 0)
            break;
        if (g.heard || c->status == 200)
            wait_ms = 50;
        (void)poll(NULL, 0, wait_ms);
        wait_ms = wait_ms < 800 ? wait_ms * 2 : 800;
        r = tick(&g);
        if (r != 0)
            break;
    }
    c->following = NULL;
    sse_clear(&g.sse);
    return r > 0 ? 0 : r;
}

int client_exit_status(int code)
{
    switch (code) {
    case 0:
        return 0;
    case -ENOENT:
        return 3;
    case -EPERM:
        return 4;
    case -EHOSTUNREACH:
        return 5;
    default:
        return 1;
    }
}
