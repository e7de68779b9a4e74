/* agents - the production agents of the simulated machines: started, killed, held
 *
 * agents.c is also the second implementation of api/client/calls.h (calls go over the wire) and of
 * worker/agent/mirror.h (simulated ranks meet by themselves, so no rendezvous key is carried).
 */
#ifndef MUSTER_TESTS_SIM_AGENTS_H
#define MUSTER_TESTS_SIM_AGENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/machines.h"
#include "tests/sim/wire.h"
#include "tests/sim/world.h"

struct agents;

struct agents *agents_new(struct world *w, struct machines *m, struct wire *n, int count, int slots);
void agents_free(struct agents *all);

void agents_start(struct agents *all, int i);        /* does nothing when it runs or its machine is down */
void agents_kill(struct agents *all, int i);         /* at once; ranks go on */
void agents_crash(struct agents *all, int i, int n); /* at its n-th action on its machine: in the middle of a turn */
void agents_hold(struct agents *all, int i, int64_t for_us);
bool agents_running(const struct agents *all, int i);
bool agents_removed(const struct agents *all, int i); /* the server told it to end */

/* Machine i modulo their number: its name, and how many agents it has had. */
void agents_draw_name(const struct agents *all, size_t i, char *ret, size_t size, int *ret_births);

/* Something has happened on machine i: its agent is to look. For machines_new(). */
void agents_poke(void *agents, int i);

#endif
