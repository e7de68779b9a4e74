/* standby - what a musterd answers that waits for another one's lease: that it lives, and where the leader is
 *
 * /healthz is answered 200 and /readyz 503; all else is sent to the leader's address by 307, before its body is read
 * and without a look at its token, or answered 503 while no leader is known.
 */
#ifndef MUSTER_SERVER_STANDBY_H
#define MUSTER_SERVER_STANDBY_H

#include "base/merr.h"
#include "server/http/http.h"

struct standby;

/* Listen where cfg says; nothing else of it is used. 0, or as http_start(). */
int standby_start(const struct http_cfg *cfg, struct standby **ret, struct merr *err);

int standby_port(const struct standby *s);

/* Where the leader is: "http://host:port"; "": nobody knows. */
void standby_set_leader(struct standby *s, const char *url);

void standby_stop(struct standby *s); /* NULL is fine */

#endif
