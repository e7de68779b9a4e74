/* profiles - measures the devices of the node by class (api/profile.h), once, while nothing runs on it
 *
 * What was found is kept in the state folder, for as long as the same release offers the same devices, and that of the
 * processors for muster run, too, unless its user has measured them before. A measurement
 * beside which a run begins is ended and made again later: it takes no time from runs, and would say nothing. The
 * functions are called by one thread; none blocks.
 */
#ifndef MUSTER_WORKER_AGENT_PROFILES_H
#define MUSTER_WORKER_AGENT_PROFILES_H

#include <jansson.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/agent/devices.h"

#define PROFILES_FILE "profiles.json"

struct profiles;

struct profiles_cfg {          /* borrowed for as long as it lives */
    const char *state, *train; /* folder; muster-train */
    const struct devices *devices;
    int idle_s; /* nothing has run for so long before it measures; 0: it never does */
};

/* What an earlier agent has kept is there at once. 0; -ENOMEM. */
int profiles_new(const struct profiles_cfg *cfg, struct profiles **ret, struct merr *err);
void profiles_free(struct profiles *p); /* NULL is fine; a measurement is ended */

/* Look after it. busy: something runs on the node. True: there is more to tell than before. */
bool profiles_tick(struct profiles *p, bool busy, int64_t now_us, int64_t *ret_next_us);

/* {CLASS: profile}, new; NULL: nothing is known. */
json_t *profiles_json(const struct profiles *p);

#endif
