/* agent_check - what must hold inside an agent, looked at after each of its turns
 *
 *   a run that was told to end is never told to go on
 *   once a rank has failed, those beside it are gone after their grace, whether or not the server is there
 */
#ifndef MUSTER_TESTS_SIM_AGENT_CHECK_H
#define MUSTER_TESTS_SIM_AGENT_CHECK_H

#include <stdint.h>

#include "tests/sim/world.h"

struct agent;
struct agent_check; /* of one life of an agent */

struct agent_check *agent_check_new(struct world *w);
void agent_check_free(struct agent_check *k);

void agent_check_turn(struct agent_check *k, const struct agent *a);

/* The agent was stopped until then: what it was to do in time counts from there. */
void agent_check_held(struct agent_check *k, int64_t until_us);

#endif
