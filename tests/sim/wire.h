/* wire - messages between the clients and the server of the simulated cluster, as a bad network carries them
 *
 * A call is two messages. Each may be late, lost, or (a request) delivered twice; between two that are cut off from
 * each other none goes through. A client whose call is lost hears of it when its time is over. Messages to a server
 * that is not there are refused.
 */
#ifndef MUSTER_TESTS_SIM_WIRE_H
#define MUSTER_TESTS_SIM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/front.h"
#include "tests/sim/world.h"

struct wire;

/* Where requests go: hand one on, answer or not. False: nobody listens, it is refused. */
typedef bool wire_server(void *arg, const struct front_request *r, front_answer *answer, void *answer_arg);

/* status 0: no answer, why says what happened; why NULL: the life of the one who called is over, free arg and do
 * nothing else. */
typedef void wire_done(void *arg, int status, const char *body, size_t len, const char *why);

struct wire *wire_new(struct world *w, int places, wire_server *server, void *arg);
void wire_free(struct wire *n); /* after the world's events are gone */

/* Call the server from a place (a node's number; -1: a user, whose way is never cut), as part of a life. done is called
 * once, when all is over at last. All is copied. */
void wire_call(struct wire *n, int place, const struct life *life, const struct front_request *r, int timeout_ms,
               wire_done *done, void *arg);

/* Faults. */
void wire_cut(struct wire *n, int place, bool cut);
void wire_set(struct wire *n, double lose, double twice, int64_t late_us); /* chances, and how late at most */

#endif
