/* routes - the table of what the server answers, and the handlers that read a request for the core
 *
 * A handler runs on an HTTP thread: it checks the request's form (JSON, the spec) and hands a call on.
 */
#ifndef MUSTER_SERVER_ROUTES_H
#define MUSTER_SERVER_ROUTES_H

#include <stddef.h>

#include "server/http/auth.h"
#include "server/control/core.h"
#include "server/http/http.h"

struct routes_arg { /* the arg of every handler; borrowed while HTTP runs */
    struct core *core;
    struct auth *auth;
    struct store *store;
    struct stats *stats;
};

extern const struct http_route routes[];
extern const size_t n_routes;

bool routes_auth(void *arg, const char *token, struct http_identity *ret);

#endif
