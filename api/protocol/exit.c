#include "api/protocol/exit.h"

const char *const exit_cause_names[EXIT_CAUSES] = {
    [EXIT_CAUSE_PROGRAM] = "program", [EXIT_CAUSE_DONE] = "done",         [EXIT_CAUSE_DRAINED] = "drained",
    [EXIT_CAUSE_USER] = "user",       [EXIT_CAUSE_INTERNAL] = "internal", [EXIT_CAUSE_NODE] = "node",
    [EXIT_CAUSE_ABORTED] = "aborted",
};

static const int status_of[EXIT_CAUSES] = {
    [EXIT_CAUSE_UNTOLD] = EXIT_INTERNAL, [EXIT_CAUSE_PROGRAM] = EXIT_INTERNAL, [EXIT_CAUSE_DONE] = EXIT_DONE,
    [EXIT_CAUSE_DRAINED] = EXIT_DRAINED, [EXIT_CAUSE_USER] = EXIT_USER,        [EXIT_CAUSE_INTERNAL] = EXIT_INTERNAL,
    [EXIT_CAUSE_NODE] = EXIT_NODE,       [EXIT_CAUSE_ABORTED] = EXIT_ABORTED,
};

static const struct wire_field fields[] = {
    EXIT_FIELDS(rank_exit, , WIRE_NEEDED),
    {.name = "at_ms",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(rank_exit, at_ms),
     .min = 0,
     .max = INT64_MAX,
     .what = "when, in milliseconds since 1970"},
};

const struct wire_message exit_message = {
    .name = "exit",
    .what = "`rank-NNNNN.exit`, written by the shim once the rank's process group is gone.",
    WIRE_MESSAGE(rank_exit, fields),
};

int exit_read(const json_t *doc, struct rank_exit *ret, struct merr *err)
{
    return wire_read(&exit_message, doc, ret, err);
}

json_t *exit_write(const struct rank_exit *e)
{
    return wire_write(&exit_message, e);
}

/* What protocol 1 meant by a status: each was of a trainer in one kind of job, and of anybody in the other. */
static enum exit_cause cause_of(int status, enum job_kind kind)
{
    if (kind == JOB_TRAIN)
        for (int c = EXIT_CAUSE_DONE; c < EXIT_CAUSES; c++)
            if (status_of[c] == status)
                return (enum exit_cause)c;
    return EXIT_CAUSE_PROGRAM;
}

struct rank_exit exit_settle(struct rank_exit e, enum job_kind kind)
{
    if (e.signal != 0 || (e.cause == EXIT_CAUSE_DONE && e.status != 0))
        e.cause = EXIT_CAUSE_PROGRAM;
    else if (e.cause == EXIT_CAUSE_UNTOLD)
        e.cause = cause_of(e.status, kind);
    return e;
}

bool exit_done(const struct rank_exit *e)
{
    return e->cause == EXIT_CAUSE_DONE || (e->cause == EXIT_CAUSE_PROGRAM && e->status == 0 && e->signal == 0);
}

bool exit_well(const struct rank_exit *e)
{
    return exit_done(e) || e->cause == EXIT_CAUSE_DRAINED;
}

int exit_status(enum exit_cause cause)
{
    return status_of[cause];
}
