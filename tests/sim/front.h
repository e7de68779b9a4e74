/* front - requests to the simulated server, without sockets: the second implementation of server/http/http_req.h
 *
 * A request goes through the server's own routes, roles and handlers. Each is answered once; with FRONT_NEVER when the
 * server died before it answered.
 */
#ifndef MUSTER_TESTS_SIM_FRONT_H
#define MUSTER_TESTS_SIM_FRONT_H

#include <stddef.h>

#include "server/http/http_req.h"

#define FRONT_NEVER (-1)

struct front_request {
    const char *method, *target; /* path and query */
    const char *body;            /* NULL: none */
    const char *idempotency_key; /* NULL: none */
    struct http_identity who;
};

/* body is borrowed, NULL where there is none. */
typedef void front_answer(void *arg, int status, const char *body, size_t len);

/* Hand a request to the routes, as their arg says whose they are. All is copied. */
void front_call(void *routes_arg, const struct front_request *r, front_answer *answer, void *arg);

/* From now on every answer is FRONT_NEVER: the server is dying. Until front_listen(). */
void front_mute(void);
void front_listen(void);

#endif
