/* schedule_calls - what people ask about their schedules: /v1/schedules */
#ifndef MUSTER_SERVER_SCHEDULE_CALLS_H
#define MUSTER_SERVER_SCHEDULE_CALLS_H

struct call;
struct core;

void schedule_calls_add(struct core *c, struct call *call);
void schedule_calls_list(struct core *c, struct call *call);
void schedule_calls_get(struct core *c, struct call *call);
void schedule_calls_patch(struct core *c, struct call *call);
void schedule_calls_drop(struct core *c, struct call *call);
void schedule_calls_run(struct core *c, struct call *call); /* its job now, whatever its times are */

#endif
