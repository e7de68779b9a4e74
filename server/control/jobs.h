/* jobs - the calls about jobs: submit, list, show, change, act on, explain, and read what they print and measure
 *
 * A caller sees jobs that are its own, or all with a role for that. Each call answers, or hands the call on.
 */
#ifndef MUSTER_SERVER_JOBS_H
#define MUSTER_SERVER_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/control/entry.h"
#include "server/store/job_store.h"

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
void jobs_ranks(struct core *c, struct call *call);
void jobs_logs(struct core *c, struct call *call);    /* GET …/logs */
void jobs_metrics(struct core *c, struct call *call); /* GET …/metrics */
void jobs_series(struct core *c, struct call *call);  /* GET …/series */

/* The entry of the call's job, which the caller may see and which has a run. NULL: the call is answered. */
struct entry *jobs_live(struct core *c, struct call *call);

/* What a job made of another one takes from it (checkpoints.h). */
struct jobs_origin {
    char user[SPEC_NAME_MAX], unix_user[33], project[SPEC_NAME_MAX];
    int priority;
    bool train, ended;
    json_int_t newest; /* step of the checkpoint that it told of last; INT64_MAX: none */
    json_t *spec;      /* new */
};

/* The call's job, on which its caller may act. False: the call is answered. */
bool jobs_find_origin(struct core *c, struct call *call, struct jobs_origin *ret);

/* Answer that a job was made. */
void jobs_answer_new(struct core *c, struct call *call, const struct entry *e);

/* --- for batches (batch.h) --- */

struct wanted_key {                     /* Idempotency-Key of a submit */
    char key[JOB_STORE_SUBMIT_KEY_MAX]; /* with the user's name */
    bool given;
};

/* Whether a submit's key was used before: then call->job is the job that it made, or the call is answered. */
bool jobs_key_was_used(struct core *c, struct call *call, struct wanted_key *w);
void jobs_remember_key(struct core *c, struct entry *e, const struct wanted_key *w, uint64_t hash);

/* The job of this number that the call's spec asks for, if it is admitted; else the call is answered. Not yet in the
 * table. NULL: it is answered. */
struct entry *jobs_prepare(struct core *c, struct call *call, uint64_t id);

/* It is queued from now on. Its spec's text is the call's. */
void jobs_queue(struct core *c, struct call *call, struct entry *e);

#endif
