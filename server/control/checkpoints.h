/* checkpoints - the checkpoints of a job: which there are, and what is done to one
 *
 * The list joins what the job told with what lies on the disk, which a reader's thread looks at. Whatever opens a
 * checkpoint runs as a job of one device, in the name of the job's user and under its account: so it reaches what the
 * job itself reaches, whoever of those who may act on the job has asked for it. Paths come from the job's spec alone.
 */
#ifndef MUSTER_SERVER_CHECKPOINTS_H
#define MUSTER_SERVER_CHECKPOINTS_H

struct call;
struct core;

#define CHECKPOINTS_PROMPT_MAX 4096
#define CHECKPOINTS_TOKENS_MAX 4096

void checkpoints_list(struct core *c, struct call *call); /* GET /v1/jobs/{id}/checkpoints */

/* POST …/checkpoints/{step}/verify, …/export, …/sample and DELETE …/checkpoints/{step}: the answer is the new job. */
void checkpoints_act(struct core *c, struct call *call);

#endif
