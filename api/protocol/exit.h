/* exit - how a rank ended, and what Muster's own programs say of the cause
 *
 * A status belongs to the program that ended with it: a user's program may use any. So the cause is a field of its own.
 * muster-train leaves it in its flight page, the shim writes it into the rank's exit file, the agent reports it; of a
 * user's program nobody says one.
 */
#ifndef MUSTER_API_PROTOCOL_EXIT_H
#define MUSTER_API_PROTOCOL_EXIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/cause.h"
#include "api/protocol/wire.h"
#include "api/spec.h"
#include "base/merr.h"

struct rank_exit {
    int status; /* of its program; 128 + signal when a signal ended it; -1: it has none */
    int signal; /* 0: none */
    enum exit_cause cause;
    int64_t at_ms; /* wall time; 0: not told */
};

/* Rows of a table: the fields of a struct rank_exit. member: where it is in struct s, "exit." or nothing. needed:
 * WIRE_NEEDED or 0, for status and signal. */
#define EXIT_FIELDS(s, member, needed)                                                                                 \
    {.name = "exit_code",                                                                                              \
     .kind = WIRE_INT,                                                                                                 \
     .flags = needed,                                                                                                  \
     WIRE_AT(s, member status),                                                                                        \
     .min = -1,                                                                                                        \
     .max = 255,                                                                                                       \
     .what = "status of its program; 128 and the signal's number where a signal ended it"},                            \
        {.name = "signal",                                                                                             \
         .kind = WIRE_INT,                                                                                             \
         .flags = needed,                                                                                              \
         WIRE_AT(s, member signal),                                                                                    \
         .min = 0,                                                                                                     \
         .max = 127,                                                                                                   \
         .what = "that ended it; 0: none"},                                                                            \
    {                                                                                                                  \
        .name = "cause", .kind = WIRE_ENUM, .flags = WIRE_OMIT, WIRE_AT(s, member cause), .names = exit_cause_names,   \
        .n_names = EXIT_CAUSES, .what = "whose doing the end is (below); left out by protocol 1"                       \
    }

/* Names on the wire; NULL for EXIT_CAUSE_UNTOLD. */
extern const char *const exit_cause_names[EXIT_CAUSES];
extern const struct wire_message exit_message;

/* The end of a rank as rank-NNNNN.exit has it. Returns 0, -EINVAL with all faults, -ENOMEM; *ret is unchanged then. */
int exit_read(const json_t *doc, struct rank_exit *ret, struct merr *err);
json_t *exit_write(const struct rank_exit *e); /* new; NULL without memory */

/* The same end with a cause: where it was left out, that which protocol 1 meant by the status; where a signal ended the
 * rank, or what it said cannot be (its work is done, with a status that is not 0), the program's own affair. */
struct rank_exit exit_settle(struct rank_exit e, enum job_kind kind);

/* Of an end with a cause: the rank did what it was to do (not as an answer to an order), or that or drained. */
bool exit_done(const struct rank_exit *e);
bool exit_well(const struct rank_exit *e);

/* The status that muster-train ends with for a cause. */
int exit_status(enum exit_cause cause);

#endif
