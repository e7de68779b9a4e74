/* trace - what happens to jobs, as spans of OpenTelemetry that a collector is sent
 *
 * A job that is submitted with a `traceparent` goes on in that trace; with a collector every other one begins a trace
 * of its own. Its spans are the submit, the wait of each attempt, the round that gave it devices, each attempt with
 * its start and its first step, and the whole job. Spans wait in memory, TRACE_WAITING of them at most, and go out in
 * bodies of OTLP/HTTP as JSON, one on its way at a time, each tried TRACE_TRIES times; what is beyond is counted and
 * left out, so that a collector that is slow or gone holds nothing up. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_TRACE_H
#define MUSTER_SERVER_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/client/post.h"
#include "base/buf.h"
#include "server/cluster/job.h"
#include "server/control/otlp.h"

#define TRACE_WAITING 8192
#define TRACE_BODY_SPANS 512
#define TRACE_TRIES 4

struct call;
struct core;
struct entry;
struct traces;

struct trace_before { /* of a job, before an event changes it */
    bool live;
    enum job_state state;
    uint32_t generation;
    int64_t waiting_us, changed_us;
};

struct traces *trace_new(void); /* NULL: no memory */
void trace_free(struct traces *t);

/* A job was submitted: it has its context, and its request is told of. Before its record is made. */
void trace_submit(struct core *c, const struct call *call, struct job *j);

struct trace_before trace_look(const struct job *j);
void trace_note(struct core *c, const struct job *j, const struct trace_before *was); /* the event is there */
void trace_first_step(struct core *c, const struct job *j);

/* A round that plans begins now: attempts that start in this turn were decided by it. */
void trace_round(struct core *c);

void trace_due(struct core *c); /* once a turn is durable */

/* One body has been sent, or not: as post_done, on any thread; arg is the core. */
post_done trace_done;

void trace_print(const struct core *c, struct buf *out); /* of /metrics */

#endif
