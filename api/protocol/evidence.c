#include "api/protocol/evidence.h"

static const struct wire_field rank_fields[] = {
    {.name = "told",
     .kind = WIRE_STRUCT,
     .flags = WIRE_NEEDED,
     WIRE_AT(evidence_rank, told),
     .of = &report_rank_message,
     .what = "as in a report, but with what it waits in also of one that goes on"},
    {.name = "flight",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(evidence_rank, flight),
     .type = JSON_OBJECT,
     .what = "what its flight page has: its last operations, newest first"},
    {.name = "processes",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(evidence_rank, processes),
     .type = JSON_ARRAY,
     .what = "it and those that it started: `pid`, `name`, `state`, `wait` (where in the kernel), `stack` of the "
             "kernel, `threads` likewise, `python` (what `py-spy` says); what may not be read is left out"},
    {.name = "log",
     .kind = WIRE_STRING,
     .flags = WIRE_OMIT,
     WIRE_AT(evidence_rank, log),
     .what = "the end of what it printed"},
    {.name = "left_out",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(evidence_rank, left_out),
     .what = "what is missing, and why"},
};

const struct wire_message evidence_rank_message = {
    .name = "evidence-rank",
    .what = "What a node tells of a rank for people.",
    WIRE_MESSAGE(evidence_rank, rank_fields),
};

static const struct wire_field fields[] = {
    {.name = "incarnation",
     .kind = WIRE_TEXT,
     WIRE_AT(evidence, incarnation),
     .what = "of the agent's process, as in its registration"},
    {.name = "job", .kind = WIRE_TEXT, .flags = WIRE_NEEDED, WIRE_AT(evidence, job), .min = 1, .what = "its id"},
    {.name = "generation",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(evidence, generation),
     .min = 1,
     .max = INT64_MAX,
     .what = "of the job"},
    {.name = "number",
     .kind = WIRE_LONG,
     WIRE_AT(evidence, number),
     .min = 0,
     .max = INT64_MAX,
     .what = "`evidence` of the assignment that asked; 0: nobody did, a rank has failed"},
    {.name = "proof",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(evidence, proof),
     .what = "of its assignment"},
    {.name = "took_ms",
     .kind = WIRE_LONG,
     WIRE_AT(evidence, took_ms),
     .min = 0,
     .max = INT64_MAX,
     .what = "to gather it"},
    {.name = "kernel",
     .kind = WIRE_STRING,
     .flags = WIRE_OMIT,
     WIRE_AT(evidence, kernel),
     .what = "newest messages of the node's kernel, where its users may read them"},
    {.name = "ranks",
     .kind = WIRE_LIST,
     .flags = WIRE_PASS,
     WIRE_AT(evidence, ranks),
     WIRE_COUNT(evidence, n_ranks),
     .most = 2 * PLAN_RANKS_MAX,
     .of = &evidence_rank_message,
     .what = "of this node"},
};

const struct wire_message evidence_message = {
    .name = "evidence",
    .what = "`POST /v1/agents/{node}/evidence`, answered by an empty object; an entry of `parts` of an incident has "
            "`node` instead of `incarnation` and `proof`.",
    WIRE_MESSAGE(evidence, fields),
};

int evidence_read(const json_t *doc, struct evidence *ret, struct merr *err)
{
    return wire_read(&evidence_message, doc, ret, err);
}

json_t *evidence_write(const struct evidence *e)
{
    return wire_write(&evidence_message, e);
}

void evidence_clear(struct evidence *e)
{
    wire_clear(&evidence_message, e);
}
