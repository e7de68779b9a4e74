#include "server/control/standby.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/version.h"

struct standby {
    struct http *http;
    pthread_mutex_t lock; /* guards the leader */
    char leader[HTTP_ELSEWHERE_MAX];
};

static void on_healthz(void *arg, struct http_req *req)
{
    (void)arg;
    http_reply_new(req, 200, json_pack("{s:s, s:s}", "status", "ok", "version", MUSTER_VERSION));
}

static void on_readyz(void *arg, struct http_req *req)
{
    (void)arg;
    http_problem(req, 503, "standby", "this server stands by: it takes over when the one that leads falls silent");
}

static const struct http_route routes[] = {
    {"GET", "/healthz", ROLE_NONE, on_healthz, 0, NULL},
    {"GET", "/readyz", ROLE_NONE, on_readyz, 0, NULL},
};

static void look_up_leader(void *arg, char ret[HTTP_ELSEWHERE_MAX])
{
    struct standby *s = arg;

    (void)pthread_mutex_lock(&s->lock);
    (void)snprintf(ret, HTTP_ELSEWHERE_MAX, "%s", s->leader);
    (void)pthread_mutex_unlock(&s->lock);
}

int standby_start(const struct http_cfg *cfg, struct standby **ret, struct merr *err)
{
    struct standby *s = calloc(1, sizeof(*s));
    struct http_cfg own = {.bind = cfg->bind,
                           .port = cfg->port,
                           .tls_cert = cfg->tls_cert,
                           .tls_key = cfg->tls_key,
                           .insecure = cfg->insecure,
                           .routes = routes,
                           .n_routes = sizeof(routes) / sizeof(routes[0]),
                           .elsewhere = look_up_leader,
                           .max_connections = cfg->max_connections};
    int r;

    if (!s)
        return merr_set(err, -ENOMEM, "out of memory");
    (void)pthread_mutex_init(&s->lock, NULL);
    own.arg = s;
    r = http_start(&own, &s->http, err);
    if (r < 0)
        standby_stop(s);
    else
        *ret = s;
    return r;
}

int standby_port(const struct standby *s)
{
    return http_port(s->http);
}

void standby_set_leader(struct standby *s, const char *url)
{
    (void)pthread_mutex_lock(&s->lock);
    (void)snprintf(s->leader, sizeof(s->leader), "%s", url);
    (void)pthread_mutex_unlock(&s->lock);
}

void standby_stop(struct standby *s)
{
    if (!s)
        return;
    if (s->http)
        http_stop(s->http);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}
