/* hostile - agents and users of the simulated cluster who lie, storm and take what is not theirs
 *
 * A hostile agent is a node of its own, whose device class only hostile users ask for. It tells of others' runs, in
 * others' names and by older incarnations, replays what it sent, counts absurdly, and lies about the ends of its own
 * runs. Hostile users submit and cancel in storms, act on others' jobs and on the cluster, and send specs that nobody
 * can mean. What must hold: they are refused where they may not, never with an internal error, and no honest user is
 * told anything that the honest cluster did not do (users.h, check.h).
 */
#ifndef MUSTER_TESTS_SIM_HOSTILE_H
#define MUSTER_TESTS_SIM_HOSTILE_H

#include <stdint.h>

#include "tests/sim/agents.h"
#include "tests/sim/wire.h"
#include "tests/sim/world.h"

#define HOSTILE_CLASS "evil"
#define HOSTILE_NODE "evil"          /* begins the names of their nodes */
#define HOSTILE_NOT_IN "closed"      /* a project that they are no members of */
#define HOSTILE_SAYS "hostile words" /* in all that a hostile agent writes of others' jobs */

struct hostile;
struct users;

struct hostile_wish {
    uint64_t seed; /* of their chance, which is their own */
    int actors;    /* half of them agents, half users */
    int64_t over_us;
    const struct users *users; /* who must have made their projects before the hostile begin */
};

struct hostile_sum {
    int calls, refused;
};

/* agents: whose names and older incarnations they use. */
struct hostile *hostile_new(struct world *w, struct wire *n, const struct agents *agents,
                            const struct hostile_wish *wish);
void hostile_free(struct hostile *h);

/* They do nothing more; whoever cleans up after them cancels all jobs of HOSTILE_USER. */
#define HOSTILE_USER "mallory"
void hostile_stop(struct hostile *h);

struct hostile_sum hostile_sum(const struct hostile *h);

#endif
