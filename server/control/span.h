/* span - a job's place in a distributed trace: contexts, ids, and spans as JSON
 *
 * A context is W3C Trace Context's `traceparent` of version 00, "00-<trace>-<parent span>-<flags>" in lower-case hex.
 * The span ids of a job are made of its trace and number: every server makes the same ones, so that nothing but the
 * context is kept. A span is an object of OTLP's JSON form (ids in hex, times in nanoseconds as text). Pure.
 */
#ifndef MUSTER_SERVER_SPAN_H
#define MUSTER_SERVER_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/protocol.h"
#include "base/chance.h"

struct job;

enum span_part { SPAN_REQUEST, SPAN_JOB, SPAN_QUEUE, SPAN_DECIDE, SPAN_ATTEMPT, SPAN_START, SPAN_FIRST_STEP };

struct span {
    enum span_part part;
    uint32_t generation;       /* of its attempt; 0: of none */
    int64_t begin_us, end_us;  /* wall; an end before the begin, of a clock that was set back, counts as the begin */
    const char *fault;         /* why it failed; NULL: it did not */
    const char *method, *path; /* of SPAN_REQUEST */
    int status;
};

/* Whether the text is a context that can be gone on from, of any version, and then as one of version 00 in ret. */
bool span_context_read(const char *text, char ret[PROTOCOL_TRACE_MAX]);

/* A context of its own, which is sampled and has no parent (a parent of zeros). False: there is no chance. */
bool span_context_begin(const struct chance *chance, char ret[PROTOCOL_TRACE_MAX]);

bool span_sampled(const char *context); /* whether its caller has it recorded; false of "" */

/* The context that an attempt of the job hands to its program; "" without one. */
void span_context_of(const struct job *j, uint32_t generation, char ret[PROTOCOL_TRACE_MAX]);

/* A span of the job as JSON; new, NULL: no memory. */
char *span_print(const struct job *j, const struct span *s);

#endif
