#include "api/client/calls.h"

#include <arpa/inet.h>
#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/private.h"
#include "base/try.h"
#include "base/version.h"

#define CONNECT_MS 5000
#define DEAD_MS 9000 /* a host that acknowledges nothing for so long is gone: calls over it end */
#define TOKEN_MAX 65536

struct under_way { /* a call */
    struct calls *owner;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    struct buf answer;
    calls_data *data;
    calls_done *done;
    void *arg;
    long status; /* of the answer, once its body begins */
    char *path;
    size_t server; /* that it goes to */
    int hops;      /* times that it went on to another */
    bool full, ended_by_reader;
    char why[CURL_ERROR_SIZE];
    struct under_way *next;
};

struct calls {
    CURLM *multi;
    char *url[CALLS_SERVERS_MAX], *token, *token_file, *ca_file, *cert_file;
    size_t n_urls, current; /* current: the one that answered last */
    bool proxies;
    int retry_after_s;
    struct under_way *first;
};

static int check_url(const char *url, struct merr *err)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return merr_set(err, -EINVAL, "'%s' is no server; want http://HOST:PORT or https://HOST:PORT", url);
    return 0;
}

/* The servers of a list, each without a slash at its end. */
static int take_urls(struct calls *h, const char *list, struct merr *err)
{
    for (size_t len; *list || h->n_urls == 0; list += len + (list[len] == ',')) {
        size_t end = len = strcspn(list, ",");

        while (end > 0 && list[end - 1] == '/')
            end--;
        if (h->n_urls == CALLS_SERVERS_MAX)
            return merr_set(err, -EINVAL, "more than %d servers are named", CALLS_SERVERS_MAX);
        h->url[h->n_urls] = strndup(list, end);
        if (!h->url[h->n_urls])
            return merr_set(err, -ENOMEM, "no memory for calls");
        TRY(check_url(h->url[h->n_urls++], err));
    }
    return 0;
}

static bool copy_text(const char *text, char **ret)
{
    *ret = text ? strdup(text) : NULL;
    return *ret || !text;
}

int calls_new(const struct calls_cfg *cfg, struct calls **ret, struct merr *err)
{
    struct calls *h = calloc(1, sizeof(*h));
    int r;

    if (!h || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(h->multi = curl_multi_init()) ||
        !copy_text(cfg->token, &h->token) || !copy_text(cfg->token_file, &h->token_file) ||
        !copy_text(cfg->ca_file, &h->ca_file))
        r = merr_set(err, -ENOMEM, "no memory for calls");
    else
        r = take_urls(h, cfg->url, err);
    if (r < 0) {
        calls_free(h);
        return r;
    }
    h->proxies = cfg->proxies;
    *ret = h;
    return 0;
}

int calls_show_certificate(struct calls *h, const char *file, struct merr *err)
{
    char *copy = strdup(file);

    if (!copy)
        return merr_set(err, -ENOMEM, "no memory for calls");
    free(h->cert_file);
    h->cert_file = copy; /* another name: libcurl has connections of one certificate apart from those of another */
    return 0;
}

/* Take a call off the list and free it. */
static void call_free(struct under_way *c)
{
    struct under_way **at = &c->owner->first;

    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    if (c->easy) {
        (void)curl_multi_remove_handle(c->owner->multi, c->easy);
        curl_easy_cleanup(c->easy);
    }
    curl_slist_free_all(c->headers);
    free(c->body);
    free(c->path);
    buf_clear(&c->answer);
    free(c);
}

void calls_drop(struct calls *h)
{
    while (h->first)
        call_free(h->first);
}

void calls_free(struct calls *h)
{
    int saved = errno;

    if (!h)
        return;
    calls_drop(h);
    if (h->multi)
        (void)curl_multi_cleanup(h->multi);
    for (size_t i = 0; i < h->n_urls; i++)
        free(h->url[i]);
    free(h->token);
    free(h->token_file);
    free(h->ca_file);
    free(h->cert_file);
    free(h);
    errno = saved;
}

/* --- one call -------------------------------------------------------------------------------------------------- */

/* libcurl ends the call when less is taken than there is. */
static size_t take(char *data, size_t one, size_t n, void *arg)
{
    struct under_way *c = arg;

    if (c->status == 0)
        (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &c->status);
    if (c->data && c->status == 200)
        c->ended_by_reader = c->data(c->arg, data, one * n) != 0;
    else
        c->full = buf_add(&c->answer, data, one * n) == -EMSGSIZE;
    return c->ended_by_reader || buf_failed(&c->answer) ? 0 : one * n;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);

    (void)arg;
    (void)purpose;
    if (fd >= 0) /* of what was sent, and of the probes of a connection that is silent */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(unsigned){DEAD_MS}, sizeof(unsigned));
    return fd;
}

static int add_header(struct under_way *c, const char *line, struct merr *err)
{
    struct curl_slist *longer = curl_slist_append(c->headers, line);

    if (!longer)
        return merr_set(err, -ENOMEM, "no memory for a call");
    c->headers = longer;
    return 0;
}

static int add_token(struct under_way *c, const char *token, size_t len, struct merr *err)
{
    char *line;
    int n = asprintf(&line, "Authorization: Bearer %.*s", (int)len, token), r;

    if (n < 0)
        return merr_set(err, -ENOMEM, "no memory for a call");
    r = add_header(c, line, err);
    explicit_bzero(line, (size_t)n);
    free(line);
    return r;
}

static int add_token_of_file(struct under_way *c, const char *path, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf token;

    buf_init(&token, TOKEN_MAX);
    TRY(private_read_file(path, &token, err));
    return add_token(c, buf_text(&token), strcspn(buf_text(&token), " \r\n"), err);
}

static int add_headers(struct under_way *c, const struct call *call, struct merr *err)
{
    const struct calls *h = c->owner;
    char line[256];

    if (h->token)
        TRY(add_token(c, h->token, strlen(h->token), err));
    else if (h->token_file)
        TRY(add_token_of_file(c, h->token_file, err));
    if (call->body) {
        (void)snprintf(line, sizeof(line), "Content-Type: %s", call->type ? call->type : "application/json");
        TRY(add_header(c, line, err));
    }
    for (size_t i = 0; i < CALLS_HEADERS_MAX && call->headers[i]; i++)
        TRY(add_header(c, call->headers[i], err));
    return add_header(c, "Expect:", err);
}

/* Let the call go to a server. */
static bool set_server(struct under_way *c, size_t server)
{
    char *url;
    CURLcode r;

    c->server = server;
    if (asprintf(&url, "%s%s", c->owner->url[server], c->path) < 0)
        return false;
    r = curl_easy_setopt(c->easy, CURLOPT_URL, url);
    free(url);
    return r == CURLE_OK;
}

static int set_options(struct under_way *c, const struct call *call, struct merr *err)
{
    CURL *e = c->easy;

    if (!set_server(c, c->owner->current))
        return merr_set(err, -ENOMEM, "no memory for a call");
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
    if (c->body) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, c->body);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->len);
    }
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(e, CURLOPT_PRIVATE, c);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->why);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    if (call->quiet_s) {
        curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)call->quiet_s);
    }
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_USERAGENT, "muster/" MUSTER_VERSION);
    if (!c->owner->proxies)
        curl_easy_setopt(e, CURLOPT_NOPROXY, "*"); /* the token is for the server's eyes only */
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, 3L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, 3L);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    if (c->owner->ca_file)
        curl_easy_setopt(e, CURLOPT_CAINFO, c->owner->ca_file);
    if (c->owner->cert_file) {
        curl_easy_setopt(e, CURLOPT_SSLCERT, c->owner->cert_file);
        curl_easy_setopt(e, CURLOPT_SSLKEY, c->owner->cert_file);
    }
    return 0;
}

int calls_begin(struct calls *h, const struct call *call, struct merr *err)
{
    struct under_way *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return merr_set(err, -ENOMEM, "no memory for a call");
    c->owner = h;
    c->data = call->data;
    c->done = call->done;
    c->arg = call->arg;
    buf_init(&c->answer, CALLS_ANSWER_MAX);
    c->easy = curl_easy_init();
    c->body = call->body ? malloc(call->len + 1) : NULL;
    c->path = strdup(call->path);
    r = !c->easy || !c->path || (call->body && !c->body) ? merr_set(err, -ENOMEM, "no memory for a call")
                                                         : add_headers(c, call, err);
    if (r < 0)
        goto fail;
    if (call->body)
        memcpy(c->body, call->body, call->len);
    r = set_options(c, call, err);
    if (r < 0)
        goto fail;
    if (curl_multi_add_handle(h->multi, c->easy) != CURLM_OK) {
        r = merr_set(err, -ENOMEM, "cannot begin a call");
        goto fail;
    }
    c->next = h->first;
    h->first = c;
    return 0;
fail:
    call_free(c);
    return r;
}

/* --- answers --------------------------------------------------------------------------------------------------- */

/* Why there was no answer. */
static int code_of(const struct under_way *c, CURLcode result)
{
    switch (result) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return -EINVAL;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return -EACCES;
    case CURLE_GOT_NOTHING:
    case CURLE_SSL_CONNECT_ERROR:
        return -EPROTO;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_WRITE_ERROR:
        return c->ended_by_reader ? -ECANCELED : c->full ? -EMSGSIZE : -ENOMEM;
    default:
        return -EHOSTUNREACH;
    }
}

/* Which server an answer sends the call on to; n_urls: none of ours. */
static size_t sent_to(const struct under_way *c)
{
    const struct calls *h = c->owner;
    char *to = NULL;
    size_t i = 0, len;

    (void)curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_URL, &to);
    for (; i < h->n_urls; i++) {
        len = strlen(h->url[i]);
        if (to && strncmp(to, h->url[i], len) == 0 && (to[len] == '/' || !to[len]))
            break;
    }
    return i;
}

/* Whether a call that ended so goes on to another server, for nothing came of it: it was not sent at all, or was sent
 * on, or the server stands by. */
static bool go_on(struct under_way *c, CURLcode result)
{
    struct calls *h = c->owner;
    size_t next = (c->server + 1) % h->n_urls, to = h->n_urls;
    bool unsent = result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST;
    long status = 0;
    char *url = NULL;

    if (result == CURLE_OK)
        (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 307 && (to = sent_to(c)) < h->n_urls)
        next = to;
    if (status == 307 && to == h->n_urls) {
        (void)curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_URL, &url);
        (void)snprintf(c->why, sizeof(c->why), "'%s' sends calls on to '%.100s', which is none of the servers named",
                       h->url[c->server], url ? url : "");
    }
    if (result == CURLE_OK && status != 307 && status != 503)
        h->current = c->server;
    else if (h->current == c->server)
        h->current = next; /* where a later try goes */
    if ((!unsent && to == h->n_urls) || next == c->server || c->hops >= (int)h->n_urls * 2)
        return false;
    c->hops++;
    c->status = 0;
    buf_reset(&c->answer);
    (void)curl_multi_remove_handle(h->multi, c->easy);
    return set_server(c, next) && curl_multi_add_handle(h->multi, c->easy) == CURLM_OK;
}

static void finish(struct under_way *c, CURLcode result)
{
    curl_off_t after_s = 0;
    long status = 0;

    if (go_on(c, result))
        return;
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &after_s);
    c->owner->retry_after_s = after_s < INT_MAX ? (int)after_s : INT_MAX;
    if (result == CURLE_OK && status == 307) {
        c->done(c->arg, -EHOSTUNREACH, "", 0, c->why);
    } else if (result == CURLE_OK) {
        c->done(c->arg, (int)status, buf_text(&c->answer), c->answer.len, "");
    } else {
        c->done(c->arg, code_of(c, result), "", 0, *c->why ? c->why : curl_easy_strerror(result));
    }
    call_free(c);
}

/* Run what can run, and the callbacks of calls that have ended. True when there was one. */
static bool advance(struct calls *h)
{
    int running, left;
    bool any = false;
    CURLMsg *m;

    (void)curl_multi_perform(h->multi, &running);
    while ((m = curl_multi_info_read(h->multi, &left))) {
        struct under_way *c = NULL;

        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        finish(c, m->data.result);
        any = true;
    }
    return any;
}

int calls_retry_after_s(const struct calls *h)
{
    return h->retry_after_s;
}

void calls_wait(struct calls *h, const int *fds, int n, int64_t deadline_us)
{
    struct curl_waitfd wait[CALLS_FDS_MAX];

    assert(n <= CALLS_FDS_MAX);
    for (int i = 0; i < n; i++)
        wait[i] = (struct curl_waitfd){.fd = fds[i], .events = CURL_WAIT_POLLIN};
    if (advance(h))
        return; /* the owner may have new calls to make */
    (void)curl_multi_poll(h->multi, wait, (unsigned)n, clock_poll_ms(deadline_us), NULL);
    (void)advance(h);
}

static bool is_in_clear(const char *url)
{
    struct in6_addr v6;
    struct in_addr v4;
    bool clear = false;
    char *host = NULL;
    CURLU *u = curl_url();

    if (strncmp(url, "http://", 7) == 0 && u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        size_t n = strlen(host);

        if (host[0] == '[' && host[n - 1] == ']') {
            host[n - 1] = '\0';
            clear = inet_pton(AF_INET6, host + 1, &v6) != 1 || !IN6_IS_ADDR_LOOPBACK(&v6);
        } else if (inet_pton(AF_INET, host, &v4) == 1) {
            clear = ntohl(v4.s_addr) >> 24 != 127;
        } else {
            clear = strcasecmp(host, "localhost") != 0;
        }
    }
    curl_free(host);
    curl_url_cleanup(u);
    return clear;
}

bool calls_in_clear(const char *urls)
{
    bool clear = false;

    for (size_t len; *urls && !clear; urls += len + (urls[len] == ',')) {
        char one[512];

        len = strcspn(urls, ",");
        (void)snprintf(one, sizeof(one), "%.*s", (int)len, urls);
        clear = is_in_clear(one);
    }
    return clear;
}

int calls_local_address(const char *url, char *ret, size_t size, struct merr *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    IO_CLOSE_AUTO int fd = -1;
    char *host = NULL, *port = NULL;
    CURLU *u = curl_url();
    char *first = strndup(url, strcspn(url, ","));
    int r = first ? check_url(first, err) : merr_set(err, -ENOMEM, "no memory for an address");

    if (r < 0)
        goto done;
    r = -EINVAL;
    if (!u || curl_url_set(u, CURLUPART_URL, first, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK) {
        merr_set(err, r, "'%s' is no server", url);
        goto done;
    }
    if (host[0] == '[' && host[strlen(host) - 1] == ']') { /* IPv6 */
        host[strlen(host) - 1] = '\0';
        memmove(host, host + 1, strlen(host));
    }
    r = -EHOSTUNREACH;
    if (getaddrinfo(host, port, &hints, &found) != 0 || !found) {
        merr_set(err, r, "cannot find the server '%s'", host);
        goto done;
    }
    /* Connecting a datagram socket sends nothing; it only asks the routes. */
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0 ||
        getsockname(fd, (struct sockaddr *)&own, &len) < 0 ||
        getnameinfo((struct sockaddr *)&own, len, ret, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
        merr_set(err, r, "cannot tell by which address the server '%s' is reached; give --address", host);
    else
        r = 0;
done:
    if (found)
        freeaddrinfo(found);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(u);
    free(first);
    return r;
}
