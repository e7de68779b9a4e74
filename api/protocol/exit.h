/* exit - how a rank ended, and what Muster's own programs say of the cause
 *
 * A status belongs to the program that ended with it: a user's program may use any. So the cause is a field of its own.
 * muster-train leaves it in its flight page, the shim writes it into the rank's exit file, the agent reports it. Of a
 * user's program the shim knows whether it was told to end before it did (exit_judge).
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

#define EXIT_WHY_MAX 200

struct rank_exit {
    int status; /* of its program; 128 + signal when a signal ended it; -1: it has none */
    int signal; /* 0: none */
    enum exit_cause cause;
    int lost;               /* 1 + the rank that it lost, for which it gave up; 0: none */
    int64_t at_ms;          /* wall time; 0: not told */
    char why[EXIT_WHY_MAX]; /* for people, where the numbers do not say it; "": they do */
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
        {.name = "why",                                                                                                \
         .kind = WIRE_TEXT,                                                                                            \
         .flags = WIRE_OMIT | WIRE_CUT,                                                                                \
         WIRE_AT(s, member why),                                                                                       \
         .what = "for people, where the numbers do not say it"},                                                       \
        {.name = "lost",                                                                                               \
         .kind = WIRE_INT,                                                                                             \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(s, member lost),                                                                                      \
         .min = 0,                                                                                                     \
         .max = INT32_MAX,                                                                                             \
         .what = "1 + the rank that was gone, for which it gave up; 0: none"},                                         \
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

/* What a command has said of its own end in rank-NNNNN.result or by obeying an order (docs/programs.md). */
enum exit_said {
    EXIT_SAID_NOTHING,
    EXIT_SAID_HEARD, /* nothing of its end, but it has acknowledged an order: it knows what statuses mean here */
    EXIT_SAID_DONE,
    EXIT_SAID_STOPPED,
    EXIT_SAID_FAILED,
};

struct exit_seen {        /* by the shim of a rank */
    enum exit_cause told; /* what the rank left in its flight page; EXIT_CAUSE_UNTOLD: nothing */
    enum exit_said said;
    enum exit_cause said_cause;  /* of FAILED */
    char said_why[EXIT_WHY_MAX]; /* likewise, in its words; "": none */
    bool asked;                  /* it was told to end (SIGTERM) before it did */
    bool killed;                 /* Muster sent it SIGKILL before it ended */
    bool finished;               /* it has made the file EXIT_FINISHED in the folder of its run */
    bool out_of_memory;          /* the kernel has killed for want of memory in its control group */
};

/* What a program makes in MUSTER_RUN_DIR that was told to end and had done all of its work. */
#define EXIT_FINISHED "finished"

/* Find the cause of an end of which status and signal are known. What a program does once it was told to end is an
 * answer to that: with status 0 it has saved (EXIT_CAUSE_DRAINED), with EXIT_FINISHED it is done, and whatever else it
 * ends by is no cause (EXIT_CAUSE_ABORTED). What it has said itself goes before its status, which may be a launcher's.
 */
void exit_judge(struct rank_exit *e, const struct exit_seen *seen);

/* The same end with a cause: where it was left out, that which protocol 1 meant by the status; where a signal ended the
 * rank, or what it said cannot be (its work is done, with a status that is not 0), the program's own affair. A shell
 * ends with 128 and a signal's number where that signal ended its program: of a command it is that signal. */
struct rank_exit exit_settle(struct rank_exit e, enum job_kind kind);

/* Whose fault an end is whose cause is settled: EXIT_CAUSE_DONE, nobody's; EXIT_CAUSE_USER, EXIT_CAUSE_NODE or
 * EXIT_CAUSE_INTERNAL. A command's end is its owner's, but for signals that others send to end it. */
enum exit_cause exit_fault(const struct rank_exit *e, enum job_kind kind);

/* The end in words: "ended by signal 11 (Segmentation fault)". */
void exit_describe(const struct rank_exit *e, enum job_kind kind, char *ret, size_t size);

/* Of an end with a cause: the rank did what it was to do (not as an answer to an order), or that or drained. */
bool exit_done(const struct rank_exit *e);
bool exit_well(const struct rank_exit *e);

/* The status that muster-train ends with for a cause. */
int exit_status(enum exit_cause cause);

#endif
