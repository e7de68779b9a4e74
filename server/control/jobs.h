/* jobs - the calls about jobs: submit, list, show, change, act on, explain, and read what they print and measure
 *
 * A caller sees jobs that are its own, or all with a role for that. Each call answers, or hands the call on.
 */
#ifndef MUSTER_SERVER_JOBS_H
#define MUSTER_SERVER_JOBS_H

struct call;
struct core;

void jobs_submit(struct core *c, struct call *call); /* POST /v1/jobs, with a checked spec */
void jobs_get(struct core *c, struct call *call);    /* GET /v1/jobs/{id} */
void jobs_patch(struct core *c, struct call *call);  /* PATCH /v1/jobs/{id} */
void jobs_retry(struct core *c, struct call *call);
void jobs_action(struct core *c, struct call *call);    /* POST …/cancel, …/suspend, …/resume, …/checkpoint */
void jobs_explain(struct core *c, struct call *call);   /* GET …/explain */
void jobs_incidents(struct core *c, struct call *call); /* all, or the one that is named */
void jobs_diagnosis(struct core *c, struct call *call);
void jobs_logs(struct core *c, struct call *call);    /* GET …/logs */
void jobs_metrics(struct core *c, struct call *call); /* GET …/metrics */

#endif
