#include "api/protocol/registration.h"

#include <stdio.h>

static const struct wire_field fields[] = {
    {.name = "protocol",
     .kind = WIRE_INT,
     WIRE_AT(registration, protocol),
     .min = 1,
     .max = INT32_MAX,
     .fallback = 1,
     .what = "newest version that the agent speaks"},
    {.name = "node",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED | WIRE_NAME,
     WIRE_AT(registration, node),
     .min = 1,
     .what = "its name"},
    {.name = "boot_id",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(registration, boot_id),
     .what = "which boot of the machine this is"},
    {.name = "incarnation",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED | WIRE_NAME,
     WIRE_AT(registration, incarnation),
     .min = 1,
     .what = "of the agent's process"},
    {.name = "succeeds",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(registration, succeeds),
     .what = "incarnation of the process before in the same folder"},
    {.name = "seq",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, seq),
     .min = 0,
     .max = INT64_MAX,
     .what = "number among all reports and registrations of this process: one that comes late is known by it"},
    {.name = "address",
     .kind = WIRE_TEXT,
     .flags = WIRE_CUT,
     WIRE_AT(registration, address),
     .what = "where other nodes reach this one"},
    {.name = "version", .kind = WIRE_TEXT, .flags = WIRE_CUT, WIRE_AT(registration, version), .what = "of the program"},
    {.name = "slots",
     .kind = WIRE_JSON,
     .flags = WIRE_NEEDED,
     WIRE_AT(registration, slots),
     .type = JSON_ARRAY,
     .what = "`{slot, kind, class, threads, memory_mib, trains}` each (above)"},
    {.name = "runs",
     .kind = WIRE_LIST,
     .flags = WIRE_PASS,
     WIRE_AT(registration, runs),
     WIRE_COUNT(registration, n_runs),
     .most = SIZE_MAX,
     .of = &report_run_message,
     .what = "that the agent found alive, or finished and not reported"},
    {.name = "gpus",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, gpus),
     .type = JSON_ARRAY,
     .what = "how they do (above)"},
    {.name = "nic",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, nic),
     .type = JSON_OBJECT,
     .what = "what links the node to others (above)"},
    {.name = "health",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, health),
     .type = JSON_OBJECT,
     .what = "what the node's checks say (above)"},
    {.name = "profiles",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, profiles),
     .type = JSON_OBJECT,
     .what = "what was measured of the classes of its devices, by class (docs/planning.md)"},
    {.name = "shared_account",
     .kind = WIRE_BOOL,
     WIRE_AT(registration, shared_account),
     .what = "ranks run under the account of the agent, not under those of their users"},
    {.name = "rack",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, rack),
     .what = "what the node shares with others of the same name: a rack's switch and power"},
    {.name = "no_exec",
     .kind = WIRE_BOOL,
     WIRE_AT(registration, no_exec),
     .what = "the agent joins no sessions beside ranks"},
    {.name = "leaves_at_us",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, leaves_at_us),
     .min = 0,
     .max = INT64_MAX,
     .what = "when the node goes for good, microseconds since 1970; 0: nobody said"},
    {.name = "leaving",
     .kind = WIRE_BOOL,
     .flags = WIRE_OMIT,
     WIRE_AT(registration, leaving),
     .what = "the agent was told to leave: what runs there moves away by then, and the node goes off the list"},
};

const struct wire_message registration_message = {
    .name = "registration",
    .what = "`POST /v1/agents/register`.",
    WIRE_MESSAGE(registration, fields),
};

static const struct wire_field answer_fields[] = {
    {.name = "heartbeat_s",
     .kind = WIRE_INT,
     WIRE_AT(registration_answer, heartbeat_s),
     .min = 1,
     .max = 60,
     .fallback = 1,
     .what = "between two reports"},
    {.name = "lost_after_s",
     .kind = WIRE_INT,
     WIRE_AT(registration_answer, lost_after_s),
     .min = 0,
     .max = INT32_MAX,
     .what = "silence after which the node counts as lost"},
    {.name = "version",
     .kind = WIRE_LONG,
     WIRE_AT(registration_answer, version),
     .min = 0,
     .max = INT64_MAX,
     .what = "of the node's wanted set"},
    {.name = "protocol",
     .kind = WIRE_INT,
     WIRE_AT(registration_answer, protocol),
     .min = 1,
     .max = INT32_MAX,
     .fallback = 1,
     .what = "version that the server speaks"},
};

const struct wire_message registration_answer_message = {
    .name = "registration-answer",
    .what = "The answer to a registration, with status 200.",
    WIRE_MESSAGE(registration_answer, answer_fields),
};

int registration_read(const json_t *doc, struct registration *ret, struct merr *err)
{
    const json_t *version = json_object_get(doc, "protocol");
    const char *node = json_string_value(json_object_get(doc, "node"));
    char what[PROTOCOL_NODE_MAX + 32];
    int r;

    (void)snprintf(what, sizeof(what), "the agent of node '%.63s'", node ? node : "");
    if (json_is_integer(version) && json_integer_value(version) > 0 && json_integer_value(version) <= INT32_MAX &&
        (r = protocol_check((int)json_integer_value(version), what, err)) < 0)
        return r;
    return wire_read(&registration_message, doc, ret, err);
}

json_t *registration_write(const struct registration *r)
{
    struct registration now = *r;

    now.protocol = PROTOCOL_VERSION;
    return wire_write(&registration_message, &now);
}

void registration_clear(struct registration *r)
{
    wire_clear(&registration_message, r);
}

int registration_answer_read(const json_t *doc, struct registration_answer *ret, struct merr *err)
{
    return wire_read(&registration_answer_message, doc, ret, err);
}

json_t *registration_answer_write(const struct registration_answer *a)
{
    struct registration_answer now = *a;

    now.protocol = PROTOCOL_VERSION;
    return wire_write(&registration_answer_message, &now);
}
