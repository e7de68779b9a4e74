#include "api/client/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/client/sse.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/version.h"

#define ANSWER_MAX (64 << 20) /* bytes of an answer */
#define CONNECT_MS 5000
#define CALL_MS 60000    /* one call, all told */
#define RETRY_US 5000000 /* how long a call that may be repeated is repeated */
#define QUIET_S 90       /* a stream without a byte (not even a keep-alive) is lost */

struct client {
    CURL *curl;
    struct curl_slist *auth; /* Authorization, or NULL */
    char *url;               /* without a slash at its end */
    struct buf answer;
    json_t *problem; /* of the last answer that was no success, or NULL */
    long status;     /* of the last answer */
    char why[CURL_ERROR_SIZE];
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

int client_new_at(const char *url, const char *token, struct client **ret, struct merr *err)
{
    struct client *c = calloc(1, sizeof(*c));
    char *header = NULL;
    size_t len = strlen(url);

    if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        goto fail;
    while (len > 0 && url[len - 1] == '/')
        len--;
    c->url = strndup(url, len);
    c->curl = curl_easy_init();
    buf_init(&c->answer, ANSWER_MAX);
    if (!c->url || !c->curl)
        goto fail;
    if (token) {
        if (asprintf(&header, "Authorization: Bearer %s", token) < 0)
            goto fail;
        c->auth = curl_slist_append(NULL, header);
        free(header);
        if (!c->auth)
            goto fail;
    }
    *ret = c;
    return 0;
fail:
    client_free(c);
    return merr_set(err, -ENOMEM, "no memory for a client");
}

/* A short text file less the white space at its end, or NULL. */
static char *read_line(const char *dir, const char *name)
{
    struct buf b;
    char path[4096 + 64];

    buf_init(&b, 65536);
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (io_read_file(path, &b, NULL) < 0) {
        buf_clear(&b);
        return NULL;
    }
    while (b.len > 0 && strchr(" \r\n\t", b.data[b.len - 1]))
        b.data[--b.len] = '\0';
    return buf_detach(&b);
}

int client_new(const char *server, const char *token, const char *state, struct client **ret, struct merr *err)
{
    char dir[4096] = "", *text = NULL, *found_token = NULL;
    json_t *doc = NULL;
    int r;

    r = client_state_dir(state, dir, sizeof(dir), server && *server ? NULL : err);
    if (r == 0 && (!server || !*server)) {
        text = read_line(dir, "server.json");
        doc = text ? json_loads(text, 0, NULL) : NULL;
        server = json_string_value(json_object_get(doc, "url"));
        if (!server)
            r = merr_set(err, -EHOSTUNREACH,
                         "no server is known: '%s/server.json' cannot be read; start one with "
                         "`muster up`, or name one with --server or MUSTER_SERVER",
                         dir);
    } else if (server && *server) {
        r = 0;
    }
    if (r == 0 && (!token || !*token)) {
        found_token = *dir ? read_line(dir, "token") : NULL;
        token = found_token;
    }
    if (r == 0)
        r = client_new_at(server, token, ret, err);
    free(text);
    free(found_token);
    json_decref(doc);
    return r;
}

void client_free(struct client *c)
{
    int saved = errno;

    if (!c)
        return;
    if (c->curl)
        curl_easy_cleanup(c->curl);
    curl_slist_free_all(c->auth);
    buf_clear(&c->answer);
    json_decref(c->problem);
    free(c->url);
    free(c);
    errno = saved;
}

const char *client_url(const struct client *c)
{
    return c->url;
}

long client_status(const struct client *c)
{
    return c->status;
}

const json_t *client_problem(const struct client *c)
{
    return c->problem;
}

/* --- one request --------------------------------------------------------------------------------------- */

static size_t take_answer(char *data, size_t one, size_t n, void *arg)
{
    struct client *c = arg;

    return buf_add(&c->answer, data, one * n) == 0 ? one * n : 0;
}

static int headers(struct client *c, const char *const *more, struct curl_slist **ret)
{
    struct curl_slist *all = NULL, *longer;

    if (c->auth) {
        all = curl_slist_append(NULL, c->auth->data);
        if (!all)
            return -ENOMEM;
    }
    for (; *more; more++) {
        longer = curl_slist_append(all, *more);
        if (!longer) {
            curl_slist_free_all(all);
            return -ENOMEM;
        }
        all = longer;
    }
    *ret = all;
    return 0;
}

static int prepare(struct client *c, const char *method, const char *path)
{
    const char *trusted = getenv("MUSTER_CACERT");
    char *url;
    CURLcode r;

    curl_easy_reset(c->curl);
    if (asprintf(&url, "%s%s", c->url, path) < 0)
        return -ENOMEM;
    r = curl_easy_setopt(c->curl, CURLOPT_URL, url);
    free(url);
    c->why[0] = '\0';
    (void)curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
    (void)curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->why);
    (void)curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(c->curl, CURLOPT_USERAGENT, "muster/" MUSTER_VERSION);
    if (trusted && *trusted)
        (void)curl_easy_setopt(c->curl, CURLOPT_CAINFO, trusted);
    return r == CURLE_OK ? 0 : -ENOMEM;
}

/* Whether the address or the certificate is at fault, so that another try would fare no better. */
static bool is_lasting(CURLcode code)
{
    return code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
           code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
}

static const char *hint_of(CURLcode code)
{
    switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return "want http://HOST:PORT or https://HOST:PORT";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return "set MUSTER_CACERT to the file of the certificate to trust";
    case CURLE_GOT_NOTHING:
    case CURLE_SSL_CONNECT_ERROR:
        return "is it running, and is it http:// or https://?";
    default:
        return "is it running?";
    }
}

static int out_of_reach(struct client *c, CURLcode code, struct merr *err)
{
    return merr_set(err, -EHOSTUNREACH, "cannot reach the server at '%s': %s; %s", c->url,
                    c->why[0] ? c->why : curl_easy_strerror(code), hint_of(code));
}

/* The words of an answer that is no success. */
static int refused(struct client *c, long status, struct merr *err)
{
    int code = status == 404 ? -ENOENT : status >= 400 && status < 500 ? -EPERM : -EIO;
    json_t *doc = json_loadb(buf_text(&c->answer), c->answer.len, 0, NULL), *one;
    const char *title = json_string_value(json_object_get(doc, "title"));
    const char *detail = json_string_value(json_object_get(doc, "detail"));
    struct buf words;
    size_t i;

    buf_init(&words, MERR_TEXT_MAX);
    if (!title && !detail)
        (void)buf_printf(&words, "'%s' answers %ld without a reason; is it a Muster server?", c->url, status);
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

static CURLcode perform(struct client *c, const char *method, const char *path, const char *body,
                        struct curl_slist *list, long *ret_status)
{
    CURLcode r;

    if (prepare(c, method, path) < 0)
        return CURLE_OUT_OF_MEMORY;
    buf_clear(&c->answer);
    (void)curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, list);
    (void)curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)CALL_MS);
    (void)curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_answer);
    (void)curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
    if (body) {
        (void)curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
        (void)curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
    }
    r = curl_easy_perform(c->curl);
    if (r == CURLE_OK)
        (void)curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, ret_status);
    return r;
}

/* Send until there is an answer; *ret_status is its status. */
static int send_call(struct client *c, const char *method, const char *path, const char *body, const char *key,
                     long *ret_status, struct merr *err)
{
    int64_t deadline = clock_mono_us() + RETRY_US;
    bool again = strcmp(method, "GET") == 0 || key;
    struct curl_slist *list = NULL;
    char key_header[256] = "";
    const char *more[4];
    int wait_ms = 50;
    CURLcode r;
    size_t n = 0;

    (void)snprintf(key_header, sizeof(key_header), "Idempotency-Key: %s", key ? key : "");
    more[n++] = "Expect:";
    if (body)
        more[n++] = "Content-Type: application/json";
    if (key)
        more[n++] = key_header;
    more[n] = NULL;
    if (headers(c, more, &list) < 0)
        return merr_set(err, -ENOMEM, "no memory for a request");
    c->status = 0;
    json_decref(c->problem);
    c->problem = NULL;
    for (;;) {
        r = perform(c, method, path, body, list, ret_status);
        again = again && clock_mono_us() < deadline;
        if ((r == CURLE_OK && *ret_status != 503) || r == CURLE_OUT_OF_MEMORY || is_lasting(r) || !again)
            break;
        (void)poll(NULL, 0, wait_ms);
        wait_ms = wait_ms < 800 ? wait_ms * 2 : 800;
    }
    curl_slist_free_all(list);
    c->status = r == CURLE_OK ? *ret_status : 0;
    if (r == CURLE_OUT_OF_MEMORY)
        return merr_set(err, -ENOMEM, "no memory for a request");
    return r == CURLE_OK ? 0 : out_of_reach(c, r, err);
}

int client_call(struct client *c, const char *method, const char *path, const json_t *body, const char *key,
                json_t **ret_doc, struct merr *err)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_error_t je;
    long status = 0;
    json_t *doc;
    int r;

    if (body && !text)
        return merr_set(err, -ENOMEM, "no memory for a request");
    r = send_call(c, method, path, text ? text : strcmp(method, "GET") == 0 ? NULL : "", key, &status, err);
    free(text);
    if (r < 0)
        return r;
    if (status < 200 || status >= 300)
        return refused(c, status, err);
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
    long status = 0;
    int r = send_call(c, "GET", path, NULL, NULL, &status, err);

    if (r < 0)
        return r;
    if (status < 200 || status >= 300)
        return refused(c, status, err);
    return buf_add(out, buf_text(&c->answer), c->answer.len);
}

/* --- events -------------------------------------------------------------------------------------------- */

struct following {
    struct client *c;
    struct sse sse;
    client_event_fn *fn;
    void *arg;
    long status;
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

static size_t take_stream(char *data, size_t one, size_t n, void *arg)
{
    struct following *g = arg;

    if (g->status == 0)
        (void)curl_easy_getinfo(g->c->curl, CURLINFO_RESPONSE_CODE, &g->status);
    if (g->status != 200) /* a problem to be read whole */
        return buf_add(&g->c->answer, data, one * n) == 0 ? one * n : 0;
    g->heard_us = clock_mono_us();
    g->result = sse_feed(&g->sse, data, one * n, take_event, g);
    return g->result == 0 ? one * n : 0;
}

static int tick(struct following *g)
{
    int64_t now = clock_mono_us();

    if (now >= g->tick_us) {
        g->tick_us = now + 500000;
        g->result = g->fn(g->arg, "", NULL);
    }
    return g->result;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return tick(arg) != 0;
}

static CURLcode stream_once(struct following *g, const char *path)
{
    struct client *c = g->c;
    struct curl_slist *list = NULL;
    char last[64];
    const char *more[] = {"Accept: text/event-stream", g->sse.last_id[0] ? last : NULL, NULL};
    CURLcode r;

    (void)snprintf(last, sizeof(last), "Last-Event-ID: %s", g->sse.last_id);
    if (prepare(c, "GET", path) < 0 || headers(c, more, &list) < 0)
        return CURLE_OUT_OF_MEMORY;
    buf_clear(&c->answer);
    sse_restart(&g->sse);
    g->status = 0;
    (void)curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, list);
    (void)curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_stream);
    (void)curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, g);
    (void)curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_TIME, (long)QUIET_S);
    (void)curl_easy_setopt(c->curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(c->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(c->curl, CURLOPT_XFERINFODATA, g);
    r = curl_easy_perform(c->curl);
    if (r == CURLE_OK)
        (void)curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &g->status);
    curl_slist_free_all(list);
    return r;
}

int client_follow(struct client *c, const char *path, int patience_s, client_event_fn *fn, void *arg, struct merr *err)
{
    struct following g = {.c = c, .fn = fn, .arg = arg, .heard_us = clock_mono_us()};
    int wait_ms = 50, r = 0;

    sse_init(&g.sse);
    for (;;) {
        CURLcode code = stream_once(&g, path);

        if (g.result || code == CURLE_OUT_OF_MEMORY) {
            r = g.result > 0 ? 0 : g.result < 0 ? g.result : -ENOMEM;
            break;
        }
        if (code == CURLE_OK && g.status != 200 && g.status < 500) {
            r = refused(c, g.status, err);
            break;
        }
        if (g.status == 200)
            wait_ms = 50;
        if (clock_mono_us() - g.heard_us > patience_s * (int64_t)1000000) {
            r = code == CURLE_OK ? refused(c, g.status, err) : out_of_reach(c, code, err);
            break;
        }
        (void)poll(NULL, 0, wait_ms);
        wait_ms = wait_ms < 800 ? wait_ms * 2 : 800;
        if (tick(&g)) {
            r = g.result > 0 ? 0 : g.result;
            break;
        }
    }
    sse_clear(&g.sse);
    return r;
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
