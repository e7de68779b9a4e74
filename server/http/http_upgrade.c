#include "server/http/http_upgrade.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <netinet/tcp.h>

#include "server/http/http_priv.h"

#define KEY_LEN 24 /* of Sec-WebSocket-Key: 16 bytes as base64 */
#define KEEP_IDLE_S 15

/* Whether a list such as "keep-alive, Upgrade" has a word. */
static bool lists(const char *list, const char *word)
{
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',') {
        size_t n;

        p += strspn(p, " \t");
        n = strcspn(p, ", \t");
        if (n == strlen(word) && strncasecmp(p, word, n) == 0)
            return true;
    }
    return false;
}

static bool asks_for(const struct http_req *r, const char *protocol)
{
    const char *version = http_header(r, "Sec-WebSocket-Version"), *key = http_header(r, "Sec-WebSocket-Key");

    return lists(http_header(r, "Upgrade"), "websocket") && lists(http_header(r, "Connection"), "upgrade") && version &&
           strcmp(version, "13") == 0 && key && strlen(key) == KEY_LEN &&
           lists(http_header(r, "Sec-WebSocket-Protocol"), protocol);
}

/* What proves that the request was understood. */
static void make_answer(const char *key, char ret[32])
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    char text[KEY_LEN + 40];
    unsigned n = 0;

    (void)snprintf(text, sizeof(text), "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    (void)EVP_Digest(text, strlen(text), hash, &n, EVP_sha1(), NULL);
    (void)EVP_EncodeBlock((unsigned char *)ret, hash, (int)n);
}

bool http_upgrade(struct http_req *r, const char *protocol, http_upgraded_fn *fn, void *arg)
{
    char answer[32];

    if (!asks_for(r, protocol)) {
        http_set_header(r, "Upgrade", "websocket");
        http_problem(r, 426, "upgrade-needed", "this is a WebSocket of the protocol '%s' (RFC 6455, version 13)",
                     protocol);
        return false;
    }
    make_answer(http_header(r, "Sec-WebSocket-Key"), answer);
    pthread_mutex_lock(&r->lock);
    if (r->state == HTTP_HELD && !r->gone) {
        http_set_header_locked(r, "Upgrade", "websocket");
        http_set_header_locked(r, "Sec-WebSocket-Accept", answer);
        http_set_header_locked(r, "Sec-WebSocket-Protocol", protocol);
        r->state = HTTP_UPGRADED;
        r->status = 101;
        r->upgraded = fn;
        r->upgraded_arg = arg;
        http_wake(r);
    }
    pthread_mutex_unlock(&r->lock);
    http_req_unref(r);
    return true;
}

/* On the connection's HTTP thread: the answer is sent. */
static void hand_over(void *cls, struct MHD_Connection *conn, void *con_cls, const char *early, size_t n, MHD_socket fd,
                      struct MHD_UpgradeResponseHandle *s)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_req *r = cls;
    int one = 1, idle_s = KEEP_IDLE_S;

    (void)con_cls;
    if (info) { /* of the connection itself, where fd is another socket */
        (void)setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(info->connect_fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        (void)setsockopt(info->connect_fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    }
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    r->upgraded(r->upgraded_arg, r, fd, (struct http_socket *)s, early, n);
}

struct MHD_Response *http_upgrade_response(struct http_req *r)
{
    return MHD_create_response_for_upgrade(hand_over, r);
}

void http_upgrade_close(struct http_socket *s)
{
    (void)MHD_upgrade_action((struct MHD_UpgradeResponseHandle *)s, MHD_UPGRADE_ACTION_CLOSE);
}
