#include "api/protocol/exit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SHELL_SIGNAL 128 /* a shell's status for a program that a signal ended is this and its number */

const char *const exit_cause_names[EXIT_CAUSES] = {
    [EXIT_CAUSE_PROGRAM] = "program",   [EXIT_CAUSE_DONE] = "done",
    [EXIT_CAUSE_DRAINED] = "drained",   [EXIT_CAUSE_USER] = "user",
    [EXIT_CAUSE_INTERNAL] = "internal", [EXIT_CAUSE_NODE] = "node",
    [EXIT_CAUSE_ABORTED] = "aborted",   [EXIT_CAUSE_MEMORY] = "out-of-memory",
    [EXIT_CAUSE_NUMBERS] = "numbers",   [EXIT_CAUSE_REPLICA] = "replica",
};

static const int status_of[EXIT_CAUSES] = {
    [EXIT_CAUSE_UNTOLD] = EXIT_INTERNAL, [EXIT_CAUSE_PROGRAM] = EXIT_INTERNAL, [EXIT_CAUSE_DONE] = EXIT_DONE,
    [EXIT_CAUSE_DRAINED] = EXIT_DRAINED, [EXIT_CAUSE_USER] = EXIT_USER,        [EXIT_CAUSE_INTERNAL] = EXIT_INTERNAL,
    [EXIT_CAUSE_NODE] = EXIT_NODE,       [EXIT_CAUSE_ABORTED] = EXIT_ABORTED,  [EXIT_CAUSE_MEMORY] = EXIT_USER,
    [EXIT_CAUSE_NUMBERS] = EXIT_USER,    [EXIT_CAUSE_REPLICA] = EXIT_NODE,
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
        for (int c = EXIT_CAUSE_DONE; c <= EXIT_CAUSE_ABORTED; c++)
            if (status_of[c] == status)
                return (enum exit_cause)c;
    return EXIT_CAUSE_PROGRAM;
}

struct rank_exit exit_settle(struct rank_exit e, enum job_kind kind)
{
    bool by_others = e.cause == EXIT_CAUSE_ABORTED || e.cause == EXIT_CAUSE_MEMORY;

    if ((e.signal != 0 && !by_others) || (e.cause == EXIT_CAUSE_DONE && e.status != 0))
        e.cause = EXIT_CAUSE_PROGRAM;
    else if (e.cause == EXIT_CAUSE_UNTOLD)
        e.cause = cause_of(e.status, kind);
    if (kind == JOB_COMMAND && e.cause == EXIT_CAUSE_PROGRAM && e.signal == 0 && e.status > SHELL_SIGNAL &&
        e.status <= SHELL_SIGNAL + SIGRTMAX)
        e.signal = e.status - SHELL_SIGNAL;
    return e;
}

static bool ended_by(const struct rank_exit *e, int signal)
{
    return e->signal == signal || (e->signal == 0 && e->status == SHELL_SIGNAL + signal);
}

/* What a command's end means that was told to end. */
static void judge_answer(struct rank_exit *e, const struct exit_seen *seen)
{
    bool by_order = e->signal == 0 || ended_by(e, SIGTERM);

    if ((seen->finished || seen->said == EXIT_SAID_DONE) && (e->status == 0 || ended_by(e, SIGTERM))) {
        e->cause = EXIT_CAUSE_DONE; /* the shell of `command: TEXT` dies of SIGTERM while its program finishes */
        e->status = e->signal = 0;
    } else if (seen->said == EXIT_SAID_STOPPED && by_order) {
        e->cause = EXIT_CAUSE_DRAINED; /* a launcher may end otherwise than what it launched */
        e->status = EXIT_DRAINED;
        e->signal = 0;
    } else if (e->status == 0 || (seen->said == EXIT_SAID_HEARD && e->signal == 0 && e->status == EXIT_DRAINED)) {
        e->cause = EXIT_CAUSE_DRAINED;
    } else {
        e->cause = EXIT_CAUSE_ABORTED;
        (void)snprintf(e->why, sizeof(e->why), "it was told to end, and ended with exit code %d%s%.120s", e->status,
                       seen->said_why[0] ? ": " : "", seen->said_why);
    }
}

/* What the end of a command means that nothing asked for and that knows what statuses mean here. */
static void judge_said(struct rank_exit *e, const struct exit_seen *seen)
{
    if (seen->said == EXIT_SAID_FAILED) {
        e->cause = seen->said_cause;
        (void)snprintf(e->why, sizeof(e->why), "%s", seen->said_why);
    } else if (e->status == EXIT_DRAINED || (seen->said == EXIT_SAID_STOPPED && e->status != 0)) {
        e->cause = EXIT_CAUSE_USER;
        (void)snprintf(e->why, sizeof(e->why), "it stopped itself: nothing had asked it to (exit code %d)", e->status);
    } else if (e->status != 0) {
        e->cause = cause_of(e->status, JOB_TRAIN);
    }
}

void exit_judge(struct rank_exit *e, const struct exit_seen *seen)
{
    e->cause = EXIT_CAUSE_PROGRAM;
    if (seen->killed && e->signal == SIGKILL) {
        e->cause = EXIT_CAUSE_ABORTED;
        (void)snprintf(e->why, sizeof(e->why), "it did not end when it was told to, and was killed after its grace");
    } else if (seen->told != EXIT_CAUSE_UNTOLD && e->signal == 0) {
        e->cause = seen->told;
    } else if (seen->asked) {
        judge_answer(e, seen);
    } else if (seen->out_of_memory && ended_by(e, SIGKILL)) {
        e->cause = EXIT_CAUSE_MEMORY;
    } else if (seen->said != EXIT_SAID_NOTHING && e->signal == 0) {
        judge_said(e, seen);
    }
}

enum exit_cause exit_fault(const struct rank_exit *e, enum job_kind kind)
{
    static const int sent_by_others[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT};

    if (exit_done(e))
        return EXIT_CAUSE_DONE;
    if (e->cause == EXIT_CAUSE_USER || e->cause == EXIT_CAUSE_MEMORY || e->cause == EXIT_CAUSE_NUMBERS)
        return EXIT_CAUSE_USER;
    if (e->cause == EXIT_CAUSE_REPLICA)
        return EXIT_CAUSE_NODE;
    if (e->cause != EXIT_CAUSE_PROGRAM || kind != JOB_COMMAND)
        return e->cause == EXIT_CAUSE_NODE ? EXIT_CAUSE_NODE : EXIT_CAUSE_INTERNAL;
    for (size_t i = 0; i < sizeof(sent_by_others) / sizeof(sent_by_others[0]); i++)
        if (e->signal == sent_by_others[i])
            return EXIT_CAUSE_INTERNAL;
    return EXIT_CAUSE_USER;
}

void exit_describe(const struct rank_exit *e, enum job_kind kind, char *ret, size_t size)
{
    if (e->why[0])
        (void)snprintf(ret, size, "%s", e->why);
    else if (e->cause == EXIT_CAUSE_MEMORY)
        (void)snprintf(ret, size, "took more memory than it may, and was killed by the kernel");
    else if (e->cause == EXIT_CAUSE_NUMBERS)
        (void)snprintf(ret, size, "its numbers are wrong: a loss or gradient is not finite, or replicas do not agree");
    else if (e->cause == EXIT_CAUSE_REPLICA)
        (void)snprintf(ret, size, "its weights are not those that most replicas agree on");
    else if (e->signal != 0)
        (void)snprintf(ret, size, "ended by signal %d (%s)", e->signal, strsignal(e->signal));
    else if (kind == JOB_TRAIN && e->cause == EXIT_CAUSE_USER)
        (void)snprintf(ret, size, "the spec, the data or the model is at fault (exit %d)", e->status);
    else if (e->cause == EXIT_CAUSE_NODE)
        (void)snprintf(ret, size, "its node is at fault");
    else
        (void)snprintf(ret, size, "ended with exit code %d", e->status);
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
