#include "api/client/duplex.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/chance.h"
#include "base/clock.h"
#include "base/private.h"
#include "base/try.h"
#include "base/version.h"

#define CONNECT_MS 5000
#define ANSWER_US INT64_C(10000000)
#define HEAD_MAX (64 << 10)
#define TOKEN_MAX 65536
#define READ_MAX (64 << 10)
#define ROUNDS 16 /* of reading, before others have their turn */

struct duplex {
    CURL *easy;
    int fd;
    struct buf in, out;
    bool more, closing;
    int64_t heard_us;
    char why[CURL_ERROR_SIZE];
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

static int connect_to(struct duplex *d, const struct duplex_cfg *cfg, const char *url, struct merr *err)
{
    curl_socket_t fd = -1;
    int one = 1;
    CURLcode r;

    curl_easy_setopt(d->easy, CURLOPT_URL, url);
    curl_easy_setopt(d->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(d->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(d->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(d->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(d->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(d->easy, CURLOPT_ERRORBUFFER, d->why);
    curl_easy_setopt(d->easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
    if (!cfg->proxies)
        curl_easy_setopt(d->easy, CURLOPT_NOPROXY, "*");
    if (cfg->ca_file)
        curl_easy_setopt(d->easy, CURLOPT_CAINFO, cfg->ca_file);
    if (cfg->cert_file) {
        curl_easy_setopt(d->easy, CURLOPT_SSLCERT, cfg->cert_file);
        curl_easy_setopt(d->easy, CURLOPT_SSLKEY, cfg->cert_file);
    }
    r = curl_easy_perform(d->easy);
    if (r == CURLE_OK)
        r = curl_easy_getinfo(d->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (r != CURLE_OK || fd < 0)
        return merr_set(err, -EHOSTUNREACH, "cannot reach the server at '%s': %s", url,
                        *d->why ? d->why : curl_easy_strerror(r));
    d->fd = fd;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    return 0;
}

int duplex_flush(struct duplex *d, struct merr *err)
{
    while (d->out.len > 0) {
        size_t n = 0;
        CURLcode r = curl_easy_send(d->easy, d->out.data, d->out.len, &n);

        if (r == CURLE_AGAIN)
            break;
        if (r != CURLE_OK)
            return merr_set(err, -EPIPE, "the connection to the server was lost");
        buf_drop(&d->out, n);
    }
    return 0;
}

/* Read what there is: 0, 1 there was nothing, -EPIPE. */
static int receive(struct duplex *d, struct merr *err)
{
    char *to = buf_reserve(&d->in, READ_MAX);
    size_t n = 0;
    CURLcode r = to ? curl_easy_recv(d->easy, to, READ_MAX, &n) : CURLE_OUT_OF_MEMORY;

    if (r == CURLE_AGAIN)
        return 1;
    if (r != CURLE_OK || n == 0)
        return merr_set(err, -EPIPE, "the connection to the server was lost");
    buf_commit(&d->in, n);
    d->heard_us = clock_mono_us();
    return 0;
}

static int add_token(struct duplex *d, const char *path, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf token;

    buf_init(&token, TOKEN_MAX);
    TRY(private_read_file(path, &token, err));
    (void)buf_printf(&d->out, "Authorization: Bearer %.*s\r\n", (int)strcspn(buf_text(&token), " \r\n"),
                     buf_text(&token));
    return 0;
}

static int ask(struct duplex *d, const struct duplex_cfg *cfg, const char *url, struct merr *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *host = strstr(url, "://") + 3;
    unsigned char bytes[22];
    char key[25] = "";

    if (!chance_draw(chance_real(), bytes, sizeof(bytes)))
        return merr_set(err, -EIO, "the system gives no random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++) /* 16 bytes: the last digit has four bits of zero */
        key[i] = digits[i < 21 ? bytes[i] % 64 : bytes[i] % 4 * 16];
    (void)snprintf(key + 22, 3, "==");
    (void)buf_printf(&d->out,
                     "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: muster/" MUSTER_VERSION "\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Protocol: " FRAME_PROTOCOL "\r\n",
                     cfg->path, host, key);
    if (cfg->token_file)
        TRY(add_token(d, cfg->token_file, err));
    (void)buf_addstr(&d->out, "\r\n");
    return buf_failed(&d->out) ? merr_set(err, -ENOMEM, "no memory for a session") : 0;
}

/* What an answer says that is no 101. */
static int refused(const char *answer, const char *body, struct merr *err)
{
    json_auto_t *doc = json_loads(body, JSON_DISABLE_EOF_CHECK, NULL);
    const char *detail = json_string_value(json_object_get(doc, "detail"));

    return merr_set(err, -EPERM, "%s", detail ? detail : answer);
}

static int hear(struct duplex *d, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + ANSWER_US;
    char *end = NULL, *line;
    int r;

    for (;;) {
        struct pollfd p = {.fd = d->fd, .events = POLLIN};

        if (d->out.len > 0)
            p.events |= POLLOUT;
        TRY(duplex_flush(d, err));
        r = receive(d, err);
        if (r < 0)
            return r;
        end = d->in.len > 0 ? memmem(d->in.data, d->in.len, "\r\n\r\n", 4) : NULL;
        if (end)
            break;
        if (clock_mono_us() > deadline_us || d->in.len > HEAD_MAX)
            return merr_set(err, -EHOSTUNREACH, "the server does not answer");
        if (r == 1)
            (void)poll(&p, 1, clock_poll_ms(deadline_us));
    }
    *end = '\0';
    line = strchr(d->in.data, '\r');
    if (line)
        *line = '\0';
    if (strncmp(d->in.data, "HTTP/1.1 101", 12) != 0)
        return refused(d->in.data, end + 4, err);
    buf_drop(&d->in, (size_t)(end + 4 - d->in.data));
    return 0;
}

static int open_at(const struct duplex_cfg *cfg, const char *url, struct duplex **ret, struct merr *err)
{
    struct duplex *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return merr_set(err, -ENOMEM, "no memory for a session");
    buf_init(&d->in, DUPLEX_QUEUE_MAX);
    buf_init(&d->out, DUPLEX_QUEUE_MAX);
    d->easy = curl_easy_init();
    r = d->easy ? connect_to(d, cfg, url, err) : merr_set(err, -ENOMEM, "no memory for a session");
    if (r < 0)
        goto fail;
    r = ask(d, cfg, url, err);
    if (r < 0)
        goto fail;
    r = hear(d, err);
    if (r < 0)
        goto fail;
    *ret = d;
    return 0;
fail:
    duplex_free(d);
    return r;
}

int duplex_open(const struct duplex_cfg *cfg, struct duplex **ret, struct merr *err)
{
    int r = merr_set(err, -EHOSTUNREACH, "no server is named");

    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return merr_set(err, -ENOMEM, "no memory for a session");
    for (const char *p = cfg->url; r != 0 && *p; p += strcspn(p, ","), p += *p == ',') {
        char url[2048];

        (void)snprintf(url, sizeof(url), "%.*s", (int)strcspn(p, ","), p);
        while (*url && url[strlen(url) - 1] == '/')
            url[strlen(url) - 1] = '\0';
        if (strstr(url, "://"))
            r = open_at(cfg, url, ret, err);
    }
    return r;
}

void duplex_free(struct duplex *d)
{
    if (!d)
        return;
    if (d->easy)
        curl_easy_cleanup(d->easy);
    buf_clear(&d->in);
    buf_clear(&d->out);
    free(d);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

int duplex_fd(const struct duplex *d)
{
    return d->fd;
}

short duplex_events(const struct duplex *d)
{
    return (short)(POLLIN | (d->out.len > 0 ? POLLOUT : 0));
}

bool duplex_more(const struct duplex *d)
{
    return d->more;
}

size_t duplex_queued(const struct duplex *d)
{
    return d->out.len;
}

static int write_frame(struct duplex *d, enum frame_kind kind, const void *data, size_t len)
{
    unsigned char mask[4];

    if (d->closing)
        return 0;
    if (!chance_draw(chance_real(), mask, sizeof(mask)))
        return -EIO;
    return frame_write(&d->out, kind, data, len, mask);
}

int duplex_send(struct duplex *d, enum session_message kind, const void *data, size_t len)
{
    unsigned char mask[4];

    if (len > SESSION_PIECE)
        return -EMSGSIZE;
    if (d->closing)
        return 0;
    if (!chance_draw(chance_real(), mask, sizeof(mask)))
        return -EIO;
    return frame_write_message(&d->out, (unsigned char)kind, data, len, mask);
}

void duplex_close(struct duplex *d, enum frame_close code, const char *why)
{
    unsigned char mask[4];

    if (!d->closing && chance_draw(chance_real(), mask, sizeof(mask)))
        (void)frame_write_close(&d->out, code, why, mask);
    d->closing = true;
    (void)duplex_flush(d, NULL);
}

static int take_frame(struct duplex *d, const struct frame *f,
                      int (*fn)(void *arg, enum session_message kind, char *data, size_t len), void *arg,
                      struct merr *err)
{
    char why[128];

    switch (f->kind) {
    case FRAME_BINARY:
        return f->len > 0 ? fn(arg, (enum session_message)(unsigned char)f->data[0], f->data + 1, f->len - 1) : 0;
    case FRAME_PING:
        return write_frame(d, FRAME_PONG, f->data, f->len);
    case FRAME_CLOSE:
        (void)frame_read_close(f, why, sizeof(why));
        duplex_close(d, FRAME_CLOSE_DONE, "");
        return merr_set(err, 1, "%s", why);
    case FRAME_PONG:
        break;
    }
    return 0;
}

/* The frames that have come. */
static int take_frames(struct duplex *d, int (*fn)(void *arg, enum session_message kind, char *data, size_t len),
                       void *arg, struct merr *err)
{
    struct frame f;
    size_t at = 0;
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = frame_read(d->in.data + at, d->in.len - at, false, &f)) != 0) {
        if (n < 0)
            return merr_set(err, -EPIPE, "what the server sends is no session");
        at += (size_t)n;
        r = take_frame(d, &f, fn, arg, err);
    }
    buf_drop(&d->in, at);
    return r;
}

int duplex_work(struct duplex *d, int (*fn)(void *arg, enum session_message kind, char *data, size_t len), void *arg,
                struct merr *err)
{
    int r = 0;

    d->more = true;
    TRY(duplex_flush(d, err));
    TRY(take_frames(d, fn, arg, err));
    for (int i = 0; i < ROUNDS && d->more; i++) {
        r = receive(d, err);
        if (r < 0)
            return r;
        d->more = r == 0;
        TRY(take_frames(d, fn, arg, err));
    }
    if (clock_mono_us() - d->heard_us > DUPLEX_LOST_US)
        return merr_set(err, -EPIPE, "the server has not said anything for 45 s");
    return duplex_flush(d, err);
}
