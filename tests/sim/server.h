/* server - the production control room of the simulated cluster: its turns, its deaths, its store
 *
 * The store outlives the servers, as Redis does. A server that dies is gone between two turns or in a commit, which
 * then was applied or not; whoever waited for an answer never gets one. One alone takes the lead by force when it
 * starts anew. Of two, one leads and renews its lease, and the other one takes the lead once that has ended: also when
 * the first one was only stopped, and wakes up later and believes that it leads.
 */
#ifndef MUSTER_TESTS_SIM_SERVER_H
#define MUSTER_TESTS_SIM_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/front.h"
#include "tests/sim/world.h"

#define SIM_SERVERS_MAX 2

struct core;
struct sim_server; /* all of them, with the store */

/* n: 1 or 2. jobs: that a user may have at once. spares: of the class "fast". after_turn is called with a turn done and
 * durable, of the one that leads. */
struct sim_server *sim_server_new(struct world *w, int n, int jobs, int spares,
                                  void (*after_turn)(void *arg, struct core *c), void *arg);
void sim_server_free(struct sim_server *s);

void sim_server_start(struct sim_server *s); /* all that do not run */

/* For wire_new(): false: none believes that it leads. Where two do, chance decides whom the client asks. */
bool sim_server_take(void *server, const struct front_request *r, front_answer *answer, void *arg);

/* Faults, of the one that leads. It is started anew after away_us. */
void sim_server_kill(struct sim_server *s, int64_t away_us);
void sim_server_kill_in_commit(struct sim_server *s, bool applied, int64_t away_us);
void sim_server_hold(struct sim_server *s, int64_t for_us); /* it is stopped, as by SIGSTOP */
void sim_server_step_clock(struct sim_server *s, int64_t by_us);

/* Faults of the store. */
void sim_server_store_away(struct sim_server *s, int64_t for_us); /* nobody answers */
void sim_server_store_full(struct sim_server *s, int64_t for_us); /* it refuses each write */
void sim_server_store_break(struct sim_server *s); /* the connection breaks after the next write, before its answer */

/* Of the one that leads; NULL while none does. */
struct core *sim_server_core(struct sim_server *s);
uint64_t sim_server_turns(const struct sim_server *s);
int sim_server_lives(const struct sim_server *s);

#endif
