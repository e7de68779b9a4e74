#include "api/protocol/report.h"

#include <stdint.h>

#include "scheduler/plan/layout.h"

const char *const report_kind_names[REPORT_KINDS] = {"logs", "metrics", "events"};
const char *const report_did_names[REPORT_DIDS] = {NULL, "saved", "stopping", "refused"};
static const char *const state_names[REPORT_STATES] = {NULL, "starting", "running", "exited"};

/* Which run something is of. */
#define RUN_FIELDS(s)                                                                                                  \
    {.name = "job", .kind = WIRE_TEXT, .flags = WIRE_NEEDED, WIRE_AT(s, job), .min = 1, .what = "its id"},             \
    {                                                                                                                  \
        .name = "generation", .kind = WIRE_LONG, .flags = WIRE_NEEDED, WIRE_AT(s, generation), .min = 1,               \
        .max = INT64_MAX, .what = "of the job"                                                                         \
    }

static const struct wire_field ref_fields[] = {RUN_FIELDS(report_ref)};

const struct wire_message report_ref_message = {
    .name = "run",
    .what = "An entry of `stale` and `forget`.",
    WIRE_MESSAGE(report_ref, ref_fields),
};

static const struct wire_field group_fields[] = {
    {.name = "name", .kind = WIRE_TEXT, .flags = WIRE_CUT, WIRE_AT(report_group, name), .what = "for people"},
    {.name = "key",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(report_group, key),
     .min = 0,
     .max = INT64_MAX,
     .what = "the same for all members, and no other group's of the run"},
    {.name = "entered",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(report_group, entered),
     .min = 0,
     .max = INT64_MAX,
     .what = "calls of all members that the rank has entered"},
    {.name = "left",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(report_group, left),
     .min = 0,
     .max = INT64_MAX,
     .what = "and left"},
    {.name = "size",
     .kind = WIRE_INT,
     WIRE_AT(report_group, size),
     .min = 0,
     .max = PLAN_RANKS_MAX,
     .what = "members; 0: not known"},
    {.name = "digest",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(report_group, digest),
     .min = 0,
     .max = UINT32_MAX,
     .what = "of the newest call: the same on all members that make the same"},
};

const struct wire_message report_group_message = {
    .name = "report-group",
    .what = "A group of a rank that has shown no sign of life for a while.",
    WIRE_MESSAGE(report_group, group_fields),
};

/* Of a rank that has shown no sign of life for a while; left out of one that goes on. */
#define STALL_LONG(key, member, says) STALL_UP_TO(key, member, INT64_MAX, says)
#define STALL_COUNT(key, member, says) STALL_UP_TO(key, member, INT32_MAX, says)
#define STALL_UP_TO(key, member, most, says)                                                                           \
    {                                                                                                                  \
        .name = key, .kind = WIRE_LONG, .flags = WIRE_OMIT, WIRE_AT(report_rank, stall.member), .min = 0, .max = most, \
        .what = says                                                                                                   \
    }
#define STALL_FIELDS                                                                                                   \
    {.name = "idle_us",                                                                                                \
     .kind = WIRE_LONG,                                                                                                \
     .flags = WIRE_OMIT,                                                                                               \
     WIRE_AT(report_rank, stall.idle_us),                                                                              \
     .min = 0,                                                                                                         \
     .max = INT64_MAX,                                                                                                 \
     .what = "since its last sign of life; 0: it goes on, and the following is not told"},                             \
        {.name = "gap_us",                                                                                             \
         .kind = WIRE_LONG,                                                                                            \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(report_rank, stall.gap_us),                                                                           \
         .min = 0,                                                                                                     \
         .max = INT64_MAX,                                                                                             \
         .what = "its longest time between two signs of life of late; 0: not known"},                                  \
        STALL_LONG("usual_us", usual_us, "the longest that its phase has taken of late; 0: not known"),                \
        STALL_LONG("allowed_us", allowed_us, "that it has asked for in this phase; 0: nothing"),                       \
        STALL_LONG("role", order.role, "ranks of the same make the same operations; 0: no other rank does"),           \
        STALL_LONG("span", order.span, "its step's computation, or what comes before it"),                             \
        STALL_COUNT("span_ops", order.ops, "operations that it has made in it"),                                       \
        STALL_LONG("before", order.span_before, "the span before"),                                                    \
        STALL_COUNT("before_ops", order.ops_before, "and its operations"),                                             \
        STALL_COUNT("odd", order.odd,                                                                                  \
                    "2 + the first operation that is another than a step before; 1: none; 0: not known"),              \
        {.name = "window",                                                                                             \
         .kind = WIRE_TEXT,                                                                                            \
         .flags = WIRE_OMIT | WIRE_CUT,                                                                                \
         WIRE_AT(report_rank, stall.order.window),                                                                     \
         .what = "digests of its last operations, 8 hexadecimal digits each"},                                         \
        {.name = "stopped",                                                                                            \
         .kind = WIRE_BOOL,                                                                                            \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(report_rank, stall.stopped),                                                                          \
         .what = "its process is stopped, or frozen"},                                                                 \
        {.name = "frozen",                                                                                             \
         .kind = WIRE_BOOL,                                                                                            \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(report_rank, stall.frozen),                                                                           \
         .what = "a control group of it is frozen"},                                                                   \
        {.name = "op",                                                                                                 \
         .kind = WIRE_TEXT,                                                                                            \
         .flags = WIRE_OMIT | WIRE_CUT,                                                                                \
         WIRE_AT(report_rank, stall.op),                                                                               \
         .what = "the operation that it waits in; empty: it waits for nobody"},                                        \
        {.name = "op_key",                                                                                             \
         .kind = WIRE_LONG,                                                                                            \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(report_rank, stall.key),                                                                              \
         .min = 0,                                                                                                     \
         .max = INT64_MAX,                                                                                             \
         .what = "the key of that operation's group"},                                                                 \
        {.name = "op_call",                                                                                            \
         .kind = WIRE_LONG,                                                                                            \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(report_rank, stall.call),                                                                             \
         .min = 0,                                                                                                     \
         .max = INT64_MAX,                                                                                             \
         .what = "its number among the calls of the group"},                                                           \
        {.name = "op_peer",                                                                                            \
         .kind = WIRE_INT,                                                                                             \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(report_rank, stall.peer),                                                                             \
         .min = -1,                                                                                                    \
         .max = PLAN_RANKS_MAX,                                                                                        \
         .fallback = -1,                                                                                               \
         .what = "the rank whose message it waits for; -1: a call of all members"},                                    \
        {.name = "beats",                                                                                              \
         .kind = WIRE_BOOL,                                                                                            \
         .flags = WIRE_OMIT,                                                                                           \
         WIRE_AT(report_rank, stall.beats),                                                                            \
         .what = "of a command: known by its heartbeat alone, not by what it waits in"},                               \
        {.name = "section",                                                                                            \
         .kind = WIRE_TEXT,                                                                                            \
         .flags = WIRE_OMIT | WIRE_CUT,                                                                                \
         WIRE_AT(report_rank, stall.section),                                                                          \
         .what = "of a command: the section that it has declared"},                                                    \
    {                                                                                                                  \
        .name = "groups", .kind = WIRE_LIST, .flags = WIRE_OMIT | WIRE_PASS, WIRE_AT(report_rank, stall.groups),       \
        WIRE_COUNT(report_rank, stall.n_groups), .most = REPORT_GROUPS_MAX, .of = &report_group_message,               \
        .what = "how far it is in each group"                                                                          \
    }

static const struct wire_field rank_fields[] = {
    {.name = "rank",
     .kind = WIRE_INT,
     .flags = WIRE_NEEDED,
     WIRE_AT(report_rank, rank),
     .min = 0,
     .max = INT32_MAX,
     .what = "its number"},
    {.name = "slot",
     .kind = WIRE_INT,
     WIRE_AT(report_rank, slot),
     .min = -1,
     .max = INT32_MAX,
     .fallback = -1,
     .what = "of the node; -1: of a source node, which has none"},
    {.name = "state",
     .kind = WIRE_ENUM,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, state),
     WIRE_NAMES(state_names),
     .what = "how far it is"},
    {.name = "pid",
     .kind = WIRE_LONG,
     WIRE_AT(report_rank, pid),
     .min = 0,
     .max = INT64_MAX,
     .what = "process; 0: not known"},
    {.name = "step",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, step),
     .min = 0,
     .max = INT64_MAX,
     .fallback = -1,
     .what = "that it is at"},
    {.name = "phase",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(report_rank, phase),
     .what = "of the step, by its flight page"},
    STALL_FIELDS,
    {.name = "steps",
     .kind = WIRE_INTS,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, steps),
     WIRE_COUNT(report_rank, n_steps),
     .min = 0,
     .max = INT32_MAX,
     .most = REPORT_STEPS_MAX * REPORT_STEP_NUMBERS,
     .what =
         "18 numbers for each record of consecutive steps since the last report: the first step, how many there are, "
         "how many count, flags of the others (1 the first, 2 evaluated, 4 saved, 8 paused), then, summed, "
         "microseconds: all of it, computing, in calls of tp, pp, dp, cp and other groups, waiting for data, for "
         "saving (of all steps), of processors; work in tokens, KiB sent, and microseconds without a processor and at "
         "the limit of the control group"},
    {.name = "ack",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, ack.seq),
     .min = 0,
     .max = INT64_MAX,
     .what = "of a command: number of the newest order that it has answered"},
    {.name = "ack_step",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, ack.step),
     .min = -1,
     .max = INT64_MAX,
     .what = "at which step; -1: not told"},
    {.name = "ack_did",
     .kind = WIRE_ENUM,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, ack.did),
     WIRE_NAMES(report_did_names),
     .what = "and what it did"},
    EXIT_FIELDS(report_rank, exit., 0),
    {.name = "at_ms",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, exit.at_ms),
     .min = 0,
     .max = INT64_MAX,
     .what = "wall time of its end; 0: not told"},
    {.name = "log_tail",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(report_rank, log_tail),
     .type = JSON_ARRAY,
     .what = "last lines of its log, where it failed"},
};

const struct wire_message report_rank_message = {
    .name = "report-rank",
    .what = "A rank of this node. Of one that has not exited, what is said of its exit means nothing.",
    WIRE_MESSAGE(report_rank, rank_fields),
};

static const struct wire_field run_fields[] = {
    RUN_FIELDS(report_run),
    {.name = "proof",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(report_run, proof),
     .what = "of its assignment"},
    {.name = "ranks",
     .kind = WIRE_LIST,
     .flags = WIRE_PASS,
     WIRE_AT(report_run, ranks),
     WIRE_COUNT(report_run, n_ranks),
     .most = 2 * PLAN_RANKS_MAX,
     .of = &report_rank_message,
     .what = "of this node"},
    {.name = "trouble",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(report_run, trouble),
     .what = "why a file of the run is not read"},
};

const struct wire_message report_run_message = {
    .name = "report-run",
    .what = "A run on this node, until the server says that it may be forgotten; also an entry of a registration.",
    WIRE_MESSAGE(report_run, run_fields),
};

/* Which file of which run. */
#define PIECE_FIELDS                                                                                                   \
    RUN_FIELDS(report_piece),                                                                                          \
    {                                                                                                                  \
        .name = "rank", .kind = WIRE_INT, .flags = WIRE_OMIT, WIRE_AT(report_piece, rank), .min = 0, .max = INT32_MAX, \
        .fallback = -1, .what = "whose log it is of"                                                                   \
    }

static const struct wire_field piece_fields[] = {
    PIECE_FIELDS,
    {.name = "offset",
     .kind = WIRE_LONG,
     WIRE_AT(report_piece, offset),
     .min = 0,
     .max = INT64_MAX,
     .what = "where it begins in its file, in bytes"},
    {.name = "text", .kind = WIRE_STRING, .flags = WIRE_NEEDED, WIRE_AT(report_piece, text), .what = "of the file"},
    {.name = "max_mib",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(report_piece, max_mib),
     .min = 16,
     .max = 1024,
     .what = "MiB of a log to keep, by the job's spec"},
};

const struct wire_message report_piece_message = {
    .name = "piece",
    .what = "A piece of a file of a run. A piece that does not begin at the server's offset is passed over.",
    WIRE_MESSAGE(report_piece, piece_fields),
};

static const struct wire_field ack_fields[] = {
    PIECE_FIELDS,
    {.name = "offset",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(report_piece, offset),
     .min = 0,
     .max = INT64_MAX,
     .what = "up to which all of the file is durable; the next piece begins there"},
};

const struct wire_message report_ack_message = {
    .name = "ack",
    .what = "How far a file has been stored.",
    WIRE_MESSAGE(report_piece, ack_fields),
};

#define PIECES(s, member, kind_, key, type, says)                                                                      \
    {                                                                                                                  \
        .name = key, .kind = WIRE_LIST, .flags = WIRE_PASS, WIRE_AT(s, member[kind_].v),                               \
        WIRE_COUNT(s, member[kind_].n), .most = SIZE_MAX, .of = &(type), .what = says                                  \
    }

static const struct wire_field fields[] = {
    {.name = "incarnation",
     .kind = WIRE_TEXT,
     WIRE_AT(report, incarnation),
     .what = "of the agent's process, as in its registration"},
    {.name = "seq",
     .kind = WIRE_LONG,
     WIRE_AT(report, seq),
     .min = 0,
     .max = INT64_MAX,
     .what = "number of the report"},
    {.name = "runs",
     .kind = WIRE_LIST,
     .flags = WIRE_PASS,
     WIRE_AT(report, runs),
     WIRE_COUNT(report, n_runs),
     .most = SIZE_MAX,
     .of = &report_run_message,
     .what = "on this node"},
    {.name = "gpus",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(report, gpus),
     .type = JSON_ARRAY,
     .what = "how they do (below)"},
    {.name = "pressure",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(report, pressure),
     .min = -1,
     .max = 100,
     .fallback = -1,
     .what = "percent of the last ten seconds in which something on the node had to wait for a processor; -1: not "
             "known"},
    {.name = "steal",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(report, steal),
     .min = -1,
     .max = 100,
     .fallback = -1,
     .what = "percent of the processors' time since the last report that the hypervisor took; -1: not known"},
    {.name = "host",
     .kind = WIRE_INTS,
     .flags = WIRE_OMIT,
     WIRE_AT(report, host),
     WIRE_COUNT(report, n_host),
     .min = -1,
     .max = INT32_MAX,
     .most = REPORT_HOST_NUMBERS,
     .what =
         "the node as a whole: percent of its processors that are busy, MiB of memory in use and in all, its load in "
         "hundredths, KiB/s that come in and go out, MiB free where jobs have their folders; -1: not known"},
    {.name = "health",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(report, health),
     .type = JSON_OBJECT,
     .what = "what the node's checks say (above)"},
    {.name = "test",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(report, test),
     .type = JSON_OBJECT,
     .what = "what came of the active test that was asked for (above)"},
    PIECES(report, pieces, REPORT_LOGS, "logs", report_piece_message, "what ranks print"),
    PIECES(report, pieces, REPORT_METRICS, "metrics", report_piece_message, "whole lines of `metrics.jsonl`"),
    PIECES(report, pieces, REPORT_EVENTS, "events", report_piece_message, "whole lines of `events.jsonl`"),
};

const struct wire_message report_message = {
    .name = "report",
    .what = "`POST /v1/agents/{node}/report`. Runs, ranks and pieces with faults are passed over.",
    WIRE_MESSAGE(report, fields),
};

static const struct wire_field ack_lists[] = {
    PIECES(report_acks, of, REPORT_LOGS, "logs", report_ack_message, "one a log"),
    PIECES(report_acks, of, REPORT_METRICS, "metrics", report_ack_message, "one a run"),
    PIECES(report_acks, of, REPORT_EVENTS, "events", report_ack_message, "one a run"),
};

const struct wire_message report_acks_message = {
    .name = "acks", .what = "How far the files of runs have been stored.", WIRE_MESSAGE(report_acks, ack_lists)};

static const struct wire_field answer_fields[] = {
    {.name = "acks",
     .kind = WIRE_STRUCT,
     WIRE_AT(report_answer, acks),
     .of = &report_acks_message,
     .what = "what is durable"},
    {.name = "stale",
     .kind = WIRE_LIST,
     .flags = WIRE_PASS,
     WIRE_AT(report_answer, stale),
     WIRE_COUNT(report_answer, n_stale),
     .most = SIZE_MAX,
     .of = &report_ref_message,
     .what = "runs that are over: stop them"},
    {.name = "forget",
     .kind = WIRE_LIST,
     .flags = WIRE_PASS,
     WIRE_AT(report_answer, forget),
     WIRE_COUNT(report_answer, n_forget),
     .most = SIZE_MAX,
     .of = &report_ref_message,
     .what = "runs of which all is stored: their folders may go"},
    {.name = "test",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(report_answer, test),
     .min = 0,
     .max = INT64_MAX,
     .what = "number of an active test that the node is to do, once; 0: none"},
    {.name = "warm",
     .kind = WIRE_INTS,
     .flags = WIRE_OMIT,
     WIRE_AT(report_answer, warm),
     WIRE_COUNT(report_answer, n_warm),
     .min = 0,
     .max = REPORT_SLOTS_MAX - 1,
     .most = REPORT_SLOTS_MAX,
     .what = "slots on which a started `muster-train` is to wait for a rank of a training job; any other ends"},
    {.name = "now_ms",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(report_answer, now_ms),
     .min = 0,
     .max = INT64_MAX,
     .what = "the server's clock, for a node to see that its own is wrong"},
};

const struct wire_message report_answer_message = {
    .name = "report-answer",
    .what = "The answer to a report, with status 200.",
    WIRE_MESSAGE(report_answer, answer_fields),
};

int report_read(const json_t *doc, struct report *ret, struct merr *err)
{
    return wire_read(&report_message, doc, ret, err);
}

json_t *report_write(const struct report *r)
{
    return wire_write(&report_message, r);
}

void report_clear(struct report *r)
{
    wire_clear(&report_message, r);
}

void report_run_clear(struct report_run *run)
{
    wire_clear(&report_run_message, run);
}

int report_piece_read(const json_t *doc, struct report_piece *ret, struct merr *err)
{
    return wire_read(&report_piece_message, doc, ret, err);
}

json_t *report_piece_write(const struct report_piece *p)
{
    return wire_write(&report_piece_message, p);
}

json_t *report_ack_write(const struct report_piece *ack)
{
    return wire_write(&report_ack_message, ack);
}

int report_acks_read(const json_t *doc, struct report_acks *ret, struct merr *err)
{
    return wire_read(&report_acks_message, doc, ret, err);
}

void report_acks_clear(struct report_acks *a)
{
    wire_clear(&report_acks_message, a);
}

int report_answer_read(const json_t *doc, struct report_answer *ret, struct merr *err)
{
    return wire_read(&report_answer_message, doc, ret, err);
}

json_t *report_answer_write(const struct report_answer *a)
{
    return wire_write(&report_answer_message, a);
}

void report_answer_clear(struct report_answer *a)
{
    wire_clear(&report_answer_message, a);
}

int report_ref_read(const json_t *doc, struct report_ref *ret, struct merr *err)
{
    return wire_read(&report_ref_message, doc, ret, err);
}
