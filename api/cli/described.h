/* described - the devices that a cluster file describes (docs/planning.md), as the planner sees them
 *
 * Faults are printed, and an exit status is returned, as everywhere in the commands.
 */
#ifndef MUSTER_API_CLI_DESCRIBED_H
#define MUSTER_API_CLI_DESCRIBED_H

#include <jansson.h>

#include "scheduler/plan/site.h"

struct described {
    struct plan_site site; /* borrows the others */
    struct plan_net *net;  /* NULL: all pairs of nodes are alike */
    struct plan_profile *profile[PLAN_GROUPS_MAX];
    uint64_t program_bytes; /* the most of these classes; 0: none was measured */
};

/* The file's JSON, new, with no field that a cluster file has not. Returns 0 or an exit status. */
int described_read(const char *file, json_t **ret);

/* Its devices. classes: the name of one, of which devices are taken (0: all, and links between nodes are all taken to
 * be alike); or several with their numbers in the order of ranks, as "a100=8,v100=4"; NULL: the one with most devices.
 * Returns 0 with a value that described_clear() frees, or an exit status with nothing to free. */
int described_site(const char *file, const json_t *doc, const char *classes, long devices, bool bf16,
                   struct described *ret);
void described_clear(struct described *d);

#endif
