#include "server/store/sentinel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_S 1
#define PORT 26379

static int parse_one(const char *text, size_t len, struct sentinel *s)
{
    const char *colon = memchr(text, ':', len);
    size_t host = colon ? (size_t)(colon - text) : len;
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : PORT;

    if (s->n == SENTINEL_MAX || host == 0 || host >= SENTINEL_HOST_MAX || (colon && end != text + len) || port < 1 ||
        port > 65535)
        return -EINVAL;
    (void)snprintf(s->v[s->n].host, SENTINEL_HOST_MAX, "%.*s", (int)host, text);
    s->v[s->n++].port = (int)port;
    return 0;
}

int sentinel_parse(const char *url, struct sentinel *ret, struct merr *err)
{
    static const char scheme[] = "sentinel://";
    struct sentinel s = {.n = 0};
    const char *at = url + strlen(scheme), *slash;
    int r = 0;

    if (strncmp(url, scheme, strlen(scheme)) != 0)
        return -ENOENT;
    slash = strchr(at, '/');
    if (!slash || !slash[1] || strlen(slash + 1) >= sizeof(s.name) || strpbrk(slash + 1, "/ "))
        r = -EINVAL;
    while (r == 0 && at < slash) {
        size_t len = strcspn(at, ",/");

        r = parse_one(at, len, &s);
        at += len + (at[len] == ',');
    }
    if (r < 0 || s.n == 0)
        return merr_set(err, -EINVAL,
                        "'%s' names no Sentinels; write sentinel://HOST:PORT,HOST:PORT/NAME, at most %d of them", url,
                        SENTINEL_MAX);
    (void)snprintf(s.name, sizeof(s.name), "%s", slash + 1);
    *ret = s;
    return 0;
}

static redisReply *ask(const char *host, int port, const char *name)
{
    struct timeval timeout = {.tv_sec = ASK_S};
    redisContext *c = redisConnectWithTimeout(host, port, timeout);
    redisReply *reply = NULL;

    if (c && c->err == 0) {
        (void)fcntl(c->fd, F_SETFD, FD_CLOEXEC);
        if (redisSetTimeout(c, timeout) == REDIS_OK)
            reply = redisCommand(c, "SENTINEL get-master-addr-by-name %s", name);
    }
    if (c)
        redisFree(c);
    return reply;
}

int sentinel_find(const struct sentinel *s, char ret_host[SENTINEL_HOST_MAX], int *ret_port)
{
    int r = -ENOENT;

    for (size_t i = 0; i < s->n && r < 0; i++) {
        redisReply *reply = ask(s->v[i].host, s->v[i].port, s->name);
        long port = 0;

        if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->str &&
            reply->element[1]->str)
            port = strtol(reply->element[1]->str, NULL, 10);
        if (port > 0 && port <= 65535 && strlen(reply->element[0]->str) < SENTINEL_HOST_MAX) {
            (void)snprintf(ret_host, SENTINEL_HOST_MAX, "%s", reply->element[0]->str);
            *ret_port = (int)port;
            r = 0;
        }
        freeReplyObject(reply);
    }
    return r;
}

bool sentinel_confirms(redisContext *c)
{
    redisReply *reply = redisCommand(c, "ROLE");
    bool yes = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->str &&
               strcmp(reply->element[0]->str, "master") == 0;

    freeReplyObject(reply);
    return yes;
}
