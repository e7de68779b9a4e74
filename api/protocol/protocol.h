/* protocol - the contract between musterd, muster-agent and muster-train: its version and sizes
 *
 * Each message is a struct and a table of its fields (wire.h), in a file of its own in this folder; the table reads and
 * writes it in all programs and prints its part of docs/protocol.md (reference.h).
 *
 * Version 1 had no number, and said whose fault a rank's end is by its exit status. Version 2 has the number, in
 * registrations and assignments, and the cause as a field of its own (exit.h). What version 1 wrote is still read.
 */
#ifndef MUSTER_API_PROTOCOL_PROTOCOL_H
#define MUSTER_API_PROTOCOL_PROTOCOL_H

#include "api/protocol/wire.h"
#include "base/merr.h"

#define PROTOCOL_VERSION 2
#define PROTOCOL_OLDEST 1

#define PROTOCOL_USER_MAX 33 /* name of a Unix account, with its NUL */
#define PROTOCOL_JOB_MAX 64  /* bytes of a job's id with its end */
#define PROTOCOL_NODE_MAX 64
#define PROTOCOL_PROOF_MAX 65
#define PROTOCOL_PATH_MAX 4096
#define PROTOCOL_TRACE_MAX 56 /* a context of W3C Trace Context, with its NUL */

/* Whether a message of this version can be read. Returns 0, or -EPROTO: what ("the assignment of job 'j17'") is of a
 * version that this program does not know, and what to do. */
int protocol_check(int version, const char *what, struct merr *err);

#endif
