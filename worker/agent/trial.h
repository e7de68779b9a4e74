/* trial - an active test of a node: short, and of what a rank needs of it
 *
 * In a process of its own (`muster-agent trial DIR`), so that what blocks or breaks is not the agent.
 */
#ifndef MUSTER_WORKER_AGENT_TRIAL_H
#define MUSTER_WORKER_AGENT_TRIAL_H

#include <jansson.h>

/* Copy memory, multiply matrices, write to a folder's disk and send over loopback, and check what came of each. New:
 * {"passed", "why", and rates as the server's protocol has them}. */
json_t *trial_run(const char *folder);

/* The program: prints that. */
int trial_main(int argc, char **argv);

#endif
