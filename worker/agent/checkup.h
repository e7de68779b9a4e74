/* checkup - looks after the node in a thread of its own: checks now and then, and the active test that was asked for
 *
 * What blocks there keeps no agent from its ranks. The functions may be called by one other thread; none blocks.
 */
#ifndef MUSTER_WORKER_AGENT_CHECKUP_H
#define MUSTER_WORKER_AGENT_CHECKUP_H

#include <jansson.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/agent/checks.h"

struct checkup;

struct checkup_cfg { /* borrowed for as long as it runs */
    struct checks_cfg look;
    const char *program; /* of a person, NULL: none */
    int every_s;
    const char *self; /* path of muster-agent */
};

/* Returns 0 with the thread running. */
int checkup_new(const struct checkup_cfg *cfg, struct checkup **ret, struct merr *err);
void checkup_free(struct checkup *c); /* NULL is fine; what runs there is killed */

/* What was found last; new. NULL: nothing yet. */
json_t *checkup_health(struct checkup *c);

/* Test the node, once for each number. */
void checkup_test(struct checkup *c, int64_t id);

/* What came of the newest test, with its "id"; new. NULL: none was done. */
json_t *checkup_result(struct checkup *c);

/* How far this node's clock is ahead of the server's. */
void checkup_skew(struct checkup *c, int64_t us);

#endif
