/* bulk - what is done to many jobs by one call: those that a selector names, of the jobs that the caller may act on
 *
 * So many a call, so that the turn is not held up; the answer says where to go on.
 */
#ifndef MUSTER_SERVER_BULK_H
#define MUSTER_SERVER_BULK_H

struct call;
struct core;

void bulk_cancel(struct core *c, struct call *call); /* POST /v1/jobs:cancel */

#endif
