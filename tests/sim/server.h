/* server - the production control room of the simulated cluster: its turns, its deaths, its store
 *
 * The store outlives the server, as Redis does. A server that dies is gone between two turns or in a commit, which then
 * was applied or not; whoever waited for an answer never gets one. The next one takes the lead and loads the store.
 */
#ifndef MUSTER_TESTS_SIM_SERVER_H
#define MUSTER_TESTS_SIM_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/front.h"
#include "tests/sim/world.h"

struct core;
struct sim_server;

/* after_turn is called with a turn done and durable. */
struct sim_server *sim_server_new(struct world *w, void (*after_turn)(void *arg, struct core *c), void *arg);
void sim_server_free(struct sim_server *s);

void sim_server_start(struct sim_server *s); /* does nothing when it runs */

/* For wire_new(): false: it does not run. */
bool sim_server_take(void *server, const struct front_request *r, front_answer *answer, void *arg);

/* Faults. The server is started anew after away_us. */
void sim_server_kill(struct sim_server *s, int64_t away_us);
void sim_server_kill_in_commit(struct sim_server *s, bool applied, int64_t away_us);
void sim_server_store_away(struct sim_server *s, int64_t for_us);
void sim_server_step_clock(struct sim_server *s, int64_t by_us);

/* NULL while none runs. */
struct core *sim_server_core(struct sim_server *s);
uint64_t sim_server_turns(const struct sim_server *s);
int sim_server_lives(const struct sim_server *s);

#endif
