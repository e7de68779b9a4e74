#include "server/http/http_meter.h"

#include <stdio.h>

#include "base/clock.h"

static struct http_rate by_address(struct http_guard *g, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

    return http_guard_address(g, info ? info->client_addr : NULL, clock_mono_us());
}

/* r->lock is held. */
static void tell_to_wait(struct http_req *r, int wait_s, bool by_token)
{
    const struct http_cfg *cfg = &r->h->cfg;
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", wait_s);
    http_set_header_locked(r, "Retry-After", text);
    if (cfg->limited)
        cfg->limited(cfg->arg, by_token);
}

bool http_meter_take(struct http_req *r, struct MHD_Connection *conn, char *ret_why, size_t size)
{
    const struct http *h = r->h;
    bool by_token = r->identity.role != ROLE_NONE;
    struct http_guard *g = by_token ? h->by_token : h->by_address;

    if (!g || r->identity.role == ROLE_AGENT || r->route->timeout_s == HTTP_PROBE)
        return true;
    r->rate = by_token ? http_guard_name(g, r->identity.token, clock_mono_us()) : by_address(g, conn);
    if (r->rate.wait_s == 0)
        return true;
    (void)snprintf(ret_why, size, "%s made more than %d requests at once, or %g a second; wait %d s",
                   by_token ? "this token" : "this address", r->rate.limit,
                   by_token ? h->cfg.per_token.per_s : h->cfg.per_address.per_s, r->rate.wait_s);
    pthread_mutex_lock(&r->lock);
    tell_to_wait(r, r->rate.wait_s, by_token);
    pthread_mutex_unlock(&r->lock);
    return false;
}

bool http_meter_body(struct http_req *r)
{
    char name[256];

    if (!r->h->large || r->identity.role != ROLE_AGENT || r->body.len <= HTTP_AGENT_LARGE)
        return true;
    (void)snprintf(name, sizeof(name), "%s/%.200s", r->identity.token, r->params[0] ? r->params[0] : "");
    return http_guard_amount(r->h->large, name, (double)r->body.len, clock_mono_us()).wait_s == 0;
}

void http_meter_guess(struct http_req *r, struct MHD_Connection *conn)
{
    int wait_s = by_address(r->h->guard, conn).wait_s;
    char text[128];

    if (wait_s == 0)
        return;
    (void)snprintf(text, sizeof(text), "too many requests of this address had no token that is known; wait %d s",
                   wait_s);
    http_fill_problem(r, 429, "too-many-requests", text);
    tell_to_wait(r, wait_s, false);
}

void http_meter_tell(const struct http_req *r, struct MHD_Response *response)
{
    static const char *const name[] = {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"};
    const int value[] = {r->rate.limit, r->rate.left, r->rate.reset_s};

    for (size_t i = 0; r->rate.limit > 0 && i < 3; i++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "%d", value[i]);
        (void)MHD_add_response_header(response, name[i], text);
    }
}
