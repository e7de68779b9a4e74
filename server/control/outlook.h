/* outlook - what comes, as the scheduler sees it now: who runs until when, who starts when; and what would otherwise
 *
 * A snapshot is taken on the core's thread, as text; a round is taken from it on a thread of readers.h. Nothing of the
 * cluster changes.
 */
#ifndef MUSTER_SERVER_OUTLOOK_H
#define MUSTER_SERVER_OUTLOOK_H

#define OUTLOOK_JOBS_MAX 1000        /* of one answer */
#define OUTLOOK_NODES_MAX 1000       /* added in thought */
#define OUTLOOK_BYTES_MAX (32 << 20) /* of a snapshot */

struct call;
struct core;

/* GET /v1/cluster/plan and POST /v1/cluster/what-if. */
void outlook_plan(struct core *c, struct call *call);
void outlook_what_if(struct core *c, struct call *call);

#endif
