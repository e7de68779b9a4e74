/* routes - the table of what the server answers, and the handlers that read a request for the core
 *
 * A handler runs on an HTTP thread: it checks the request's form (JSON, the spec) and hands a call on.
 */
#ifndef MUSTER_SERVER_ROUTES_H
#define MUSTER_SERVER_ROUTES_H

#include <stdbool.h>
#include <stddef.h>

#include "server/control/auth.h"
#include "server/http/http.h"

struct core;
struct stats;
struct store;

struct routes_arg { /* the arg of every handler; borrowed while HTTP runs */
    struct core *core;
    struct auth *auth;
    struct store *store;
    struct stats *stats;
    const struct site *docs; /* NULL: there is none */
};

extern const struct http_route routes_table[];
extern const size_t routes_count;

/* As http_cfg.limited. */
void routes_limited(void *arg, bool by_token);

/* As http_cfg.refused. */
void routes_refused(void *arg, const struct http_req *r, int status, const char *code);

/* As http_auth_fn. */
enum http_auth routes_auth(void *arg, const char *token, int64_t wall_us, struct http_identity *ret);

#endif
