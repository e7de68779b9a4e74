#include "worker/agent/http.h"

#include <arpa/inet.h>
#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"

#define CONNECT_MS 5000
#define TOKEN_MAX 4096
#define FDS_MAX 8

struct call {
    struct http *http;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    struct buf answer;
    http_done *done;
    void *arg;
    char why[CURL_ERROR_SIZE];
    struct call *next;
};

struct http {
    CURLM *multi;
    char *url, *token_file, *ca_file;
    struct call *calls;
};

static int check_url(const char *url, struct merr *err)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return merr_set(err, -EINVAL, "'%s' is no server; want http://HOST:PORT or https://HOST:PORT", url);
    return 0;
}

int http_new(const char *url, const char *token_file, const char *ca_file, struct http **ret, struct merr *err)
{
    struct http *h;
    size_t len = strlen(url);
    int r = check_url(url, err);

    if (r < 0)
        return r;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return merr_set(err, -ENOMEM, "cannot start the HTTP library");
    h = calloc(1, sizeof(*h));
    if (!h)
        return merr_set(err, -ENOMEM, "no memory for HTTP");
    while (len && url[len - 1] == '/')
        len--;
    h->multi = curl_multi_init();
    h->url = strndup(url, len);
    h->token_file = strdup(token_file);
    h->ca_file = ca_file ? strdup(ca_file) : NULL;
    if (!h->multi || !h->url || !h->token_file || (ca_file && !h->ca_file)) {
        http_free(h);
        return merr_set(err, -ENOMEM, "no memory for HTTP");
    }
    *ret = h;
    return 0;
}

/* Take a call off the list and free it. */
static void call_free(struct call *c)
{
    struct call **at = &c->http->calls;

    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    if (c->easy) {
        (void)curl_multi_remove_handle(c->http->multi, c->easy);
        curl_easy_cleanup(c->easy);
    }
    curl_slist_free_all(c->headers);
    free(c->body);
    buf_clear(&c->answer);
    free(c);
}

void http_free(struct http *h)
{
    if (!h)
        return;
    while (h->calls)
        call_free(h->calls);
    if (h->multi)
        (void)curl_multi_cleanup(h->multi);
    free(h->url);
    free(h->token_file);
    free(h->ca_file);
    free(h);
}

static size_t take(char *data, size_t size, size_t n, void *arg)
{
    struct call *c = arg;

    return buf_add(&c->answer, data, size * n) < 0 ? 0 : size * n; /* 0: too large, the call fails */
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    (void)arg;
    (void)purpose;
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static int add_headers(struct call *c, const char *type, struct merr *err)
{
    char line[TOKEN_MAX + 64];
    struct curl_slist *list;
    struct buf token;
    int r;

    buf_init(&token, TOKEN_MAX);
    r = io_read_file(c->http->token_file, &token, err);
    if (r < 0) {
        buf_clear(&token);
        return r;
    }
    (void)snprintf(line, sizeof(line), "Authorization: Bearer %.*s", (int)strcspn(buf_text(&token), " \r\n"),
                   buf_text(&token));
    buf_clear(&token);
    list = curl_slist_append(NULL, line);
    explicit_bzero(line, sizeof(line));
    c->headers = list;
    (void)snprintf(line, sizeof(line), "Content-Type: %s", type ? type : "application/json");
    list = list ? curl_slist_append(list, line) : NULL;
    list = list ? curl_slist_append(list, "Expect:") : NULL;
    return list ? 0 : merr_set(err, -ENOMEM, "no memory for a call");
}

static void set_options(struct call *c, const char *method, const char *url, size_t len, int timeout_ms)
{
    CURL *e = c->easy;

    curl_easy_setopt(e, CURLOPT_URL, url);
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
    if (c->body) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, c->body);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
    }
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(e, CURLOPT_PRIVATE, c);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->why);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_NOPROXY, "*"); /* the token is for the server's eyes only */
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, 3L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, 3L);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    if (c->http->ca_file)
        curl_easy_setopt(e, CURLOPT_CAINFO, c->http->ca_file);
}

int http_call(struct http *h, const char *method, const char *path, const char *type, const char *body, size_t len,
              int timeout_ms, http_done *done, void *arg, struct merr *err)
{
    struct call *c = calloc(1, sizeof(*c));
    char url[2048];
    int r;

    if (!c)
        return merr_set(err, -ENOMEM, "no memory for a call");
    c->http = h;
    c->done = done;
    c->arg = arg;
    buf_init(&c->answer, HTTP_ANSWER_MAX);
    c->easy = curl_easy_init();
    c->body = body ? malloc(len + 1) : NULL;
    if (!c->easy || (body && !c->body)) {
        call_free(c);
        return merr_set(err, -ENOMEM, "no memory for a call");
    }
    if (body)
        memcpy(c->body, body, len);
    r = add_headers(c, type, err);
    if (r == 0 && (size_t)snprintf(url, sizeof(url), "%s%s", h->url, path) >= sizeof(url))
        r = merr_set(err, -ENAMETOOLONG, "path too long: '%.200s'", path);
    if (r == 0) {
        set_options(c, method, url, len, timeout_ms);
        if (curl_multi_add_handle(h->multi, c->easy) != CURLM_OK)
            r = merr_set(err, -ENOMEM, "cannot begin a call");
    }
    if (r < 0) {
        call_free(c);
        return r;
    }
    c->next = h->calls;
    h->calls = c;
    return 0;
}

/* Run what can run, and the callbacks of calls that have ended. True when there was one. */
static bool advance(struct http *h)
{
    int running, left;
    bool any = false;
    CURLMsg *m;

    (void)curl_multi_perform(h->multi, &running);
    while ((m = curl_multi_info_read(h->multi, &left))) {
        CURLcode result = m->data.result;
        struct call *c = NULL;
        long status = 0;

        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        if (result == CURLE_OK)
            curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        c->done(c->arg, (int)status, buf_text(&c->answer), c->answer.len,
                result == CURLE_OK ? ""
                : *c->why          ? c->why
                                   : curl_easy_strerror(result));
        call_free(c);
        any = true;
    }
    return any;
}

void http_wait(struct http *h, const int *fds, int n, int64_t deadline_us)
{
    struct curl_waitfd wait[FDS_MAX];

    assert(n <= FDS_MAX);
    for (int i = 0; i < n; i++)
        wait[i] = (struct curl_waitfd){.fd = fds[i], .events = CURL_WAIT_POLLIN};
    if (advance(h))
        return; /* the owner may have new calls to make */
    (void)curl_multi_poll(h->multi, wait, (unsigned)n, clock_poll_ms(deadline_us), NULL);
    (void)advance(h);
}

int http_local_address(const char *url, char *ret, size_t size, struct merr *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    IO_CLOSE_AUTO int fd = -1;
    char *host = NULL, *port = NULL;
    CURLU *u = curl_url();
    int r = check_url(url, err);

    if (r < 0)
        goto done;
    r = -EINVAL;
    if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK ||
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
    return r;
}
