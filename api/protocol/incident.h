/* incident - what was known of a run's ranks as it stood still, failed or was looked at: to be kept, read and replayed
 *
 * The server writes one for each verdict and each failure, and one for who asks what a run does now; `muster diagnose`
 * prints them, also from a file. A verdict comes from `ranks` alone, by incident_judge(), so a saved incident gives
 * the same one again. What machines add for people (stacks, ends of logs, kernel messages) stands in `parts`.
 *
 * Fields may be added by each release; INCIDENT_VERSION changes only where older programs would misread a file.
 */
#ifndef MUSTER_API_PROTOCOL_INCIDENT_H
#define MUSTER_API_PROTOCOL_INCIDENT_H

#include "api/protocol/report.h"
#include "base/buf.h"
#include "scheduler/diagnose/hang.h"
#include "scheduler/plan/layout.h"

#define INCIDENT_VERSION 1
#define INCIDENT_RANK_BYTES (64 << 10) /* that a machine adds of a rank */
#define INCIDENT_BYTES (16 << 20)      /* of one incident */
#define INCIDENTS_MAX 8                /* newest of a job that are kept */
#define INCIDENT_TEXT_MAX 700

enum incident_kind { INCIDENT_HANG, INCIDENT_FAILURE, INCIDENT_LOOK, INCIDENT_KINDS };

struct incident_verdict {
    char class_[24];              /* hang_class_name(), or of a failure "failure" */
    char text[INCIDENT_TEXT_MAX]; /* in one sentence; "": there is nothing to tell */
    int *roots;
    size_t n_roots;
    int64_t waiting; /* ranks that wait in something */
    int waiter;      /* one that waits for the first root; -1: none */
};

struct incident_rank {
    char node[PROTOCOL_NODE_MAX];
    struct report_rank told;
};

struct incident {
    int version;
    char job[PROTOCOL_JOB_MAX];
    int64_t generation, number; /* number: of those of the generation, from 1; 0: it is kept nowhere */
    enum incident_kind kind;
    int64_t at_ms; /* wall time */
    struct layout layout;
    struct incident_verdict verdict;
    struct incident_rank *ranks; /* by rank; empty: only what machines told */
    size_t n_ranks;
    json_t *parts; /* of evidence messages; NULL: none */
};

extern const char *const incident_kind_names[INCIDENT_KINDS];
extern const struct wire_message incident_message, incident_rank_message, incident_verdict_message;

/* Read doc, borrowed. Returns 0, -EPROTO of a version that is not known, -EINVAL with every fault (ranks are told in
 * order, from 0), -ENOMEM; *ret is unchanged then. */
int incident_read(const json_t *doc, struct incident *ret, struct merr *err);
json_t *incident_write(const struct incident *i); /* new; NULL without memory. The version is this program's. */
void incident_clear(struct incident *i);

/* Judge what ranks told; ranks[i] is rank i. The sentence is appended to text, which may be NULL. Returns 0, or
 * -ENOMEM. */
int incident_judge(const struct incident_rank *ranks, size_t n, struct hang_verdict *ret, struct buf *text);

/* How long a rank that tells of a stall may show no sign of life, by what it tells itself (hang_limit_us). */
int64_t incident_limit_us(const struct report_rank *told);

/* Of a run that has failed since calls of its ranks did not go together (hang_odd). */
int incident_judge_odd(const struct incident_rank *ranks, size_t n, struct hang_verdict *ret, struct buf *text);

/* A verdict as a message has it. Returns 0, or -ENOMEM. */
int incident_verdict(const struct hang_verdict *v, const char *text, struct incident_verdict *ret);

#endif
