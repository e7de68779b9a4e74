/* slow_care - a rank that seems to compute slowly has its device tested beside another's before anybody is blamed
 *
 * Both ranks multiply and copy the same between two steps, and tell how long that took them. The finding's words say
 * what came of it; only what is confirmed so keeps work off the device, and weighs in full against its node.
 */
#ifndef MUSTER_SERVER_SLOW_CARE_H
#define MUSTER_SERVER_SLOW_CARE_H

#include <jansson.h>
#include <stdbool.h>

#include "scheduler/diagnose/lag.h"
#include "server/control/entry.h"

struct core;

#define SLOW_CARE_UNTESTED "Not confirmed by a test of the device" /* as a finding's words end until then */

struct slow_care_verdict {
    bool confirmed;
    int rank;
    double ratio; /* times as long as the other's */
    char text[512];
};

/* A rank seems to compute slowly: have its device tested, where there is one to compare it with. */
void slow_care_found(struct core *c, struct entry *e, const struct lag_finding *f);

/* A rank tells of its test. True: both have, and *ret is what that means. */
bool slow_care_tested(struct core *c, struct entry *e, const json_t *event, struct slow_care_verdict *ret);

#endif
