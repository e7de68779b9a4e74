#include "api/protocol/assignment.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PORTS_FIRST 12000
#define PORTS_RUNS 2000 /* MASTER_PORTs of a server */

const char *const assignment_order_names[ASSIGNMENT_ORDERS] = {"run", "save", "hand-over", "move", "drain", "stop"};

static const struct wire_field layout_fields[] = {
#define SIZE(member, says)                                                                                             \
    {                                                                                                                  \
        .name = #member, .kind = WIRE_INT, WIRE_AT(layout, member), .min = 1, .max = PLAN_RANKS_MAX, .fallback = 1,    \
        .what = says                                                                                                   \
    }
    SIZE(tp, "ranks that share each layer's tensors"),
    SIZE(pp, "stages of a pipeline"),
    SIZE(cp, "ranks that share each sequence"),
    SIZE(dp, "replicas"),
#undef SIZE
};

const struct wire_message assignment_layout_message = {
    .name = "layout",
    .what = "How the ranks of a training job share the work.",
    WIRE_MESSAGE(layout, layout_fields),
};

static const struct wire_field rank_fields[] = {
    {.name = "rank",
     .kind = WIRE_INT,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment_rank, rank),
     .min = 0,
     .max = 2 * PLAN_RANKS_MAX - 1,
     .what = "its number in the world; that of a source node comes after all that train"},
    {.name = "node",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment_rank, node),
     .min = 1,
     .what = "where it runs"},
    {.name = "slot",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment_rank, slot),
     .min = -1,
     .max = INT32_MAX,
     .fallback = -1,
     .what = "of the node; a source node's rank has none"},
    {.name = "class", .kind = WIRE_TEXT, .flags = WIRE_OMIT, WIRE_AT(assignment_rank, class_), .what = "of the device"},
    {.name = "address",
     .kind = WIRE_TEXT,
     .flags = WIRE_CUT,
     WIRE_AT(assignment_rank, address),
     .what = "where other nodes reach this one"},
};

const struct wire_message assignment_rank_message = {
    .name = "assignment-rank",
    .what =
        "A rank of an assignment, or the process of a source node: one that the job has left, for what its memory has.",
    WIRE_MESSAGE(assignment_rank, rank_fields),
};

static const struct wire_field fields[] = {
    {.name = "protocol",
     .kind = WIRE_INT,
     WIRE_AT(assignment, protocol),
     .min = 1,
     .max = INT32_MAX,
     .fallback = 1,
     .what = "version of this message"},
    {.name = "job", .kind = WIRE_TEXT, .flags = WIRE_NEEDED, WIRE_AT(assignment, job), .min = 1, .what = "its id"},
    {.name = "user", .kind = WIRE_TEXT, .flags = WIRE_OMIT, WIRE_AT(assignment, user), .what = "who submitted the job"},
    {.name = "generation",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment, generation),
     .min = 1,
     .max = INT64_MAX,
     .what = "of the job: the run's number"},
    {.name = "order",
     .kind = WIRE_ENUM,
     WIRE_AT(assignment, order),
     WIRE_NAMES(assignment_order_names),
     .what = "what is wanted of the run"},
    {.name = "grace_s",
     .kind = WIRE_INT,
     WIRE_AT(assignment, grace_s),
     .min = -1,
     .max = INT32_MAX,
     .fallback = ASSIGNMENT_GRACE_S,
     .what = "seconds from SIGTERM to SIGKILL; -1: as before"},
    {.name = "dir",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment, dir),
     .min = 1,
     .what = "the job's folder"},
    {.name = "layout",
     .kind = WIRE_STRUCT,
     WIRE_AT(assignment, layout),
     .of = &assignment_layout_message,
     .what = "of the ranks"},
    {.name = "world",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, world),
     .min = 1,
     .max = PLAN_RANKS_MAX,
     .what = "ranks that there are, those of source nodes not counted"},
    {.name = "ranks",
     .kind = WIRE_LIST,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment, ranks),
     WIRE_COUNT(assignment, n_ranks),
     .most = PLAN_RANKS_MAX,
     .of = &assignment_rank_message,
     .what = "the whole world; the agent starts those with its node's name"},
    {.name = "master_port",
     .kind = WIRE_INT,
     WIRE_AT(assignment, master_port),
     .min = 0,
     .max = 65535,
     .what = "`MASTER_PORT` of a command"},
    {.name = "spec",
     .kind = WIRE_JSON,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment, spec),
     .type = JSON_OBJECT,
     .what = "of the job ([spec.md](spec.md)), with nothing left to the planner"},
    {.name = "leaves",
     .kind = WIRE_INTS,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, leaves),
     WIRE_COUNT(assignment, n_leaves),
     .min = 1,
     .max = INT32_MAX,
     .most = PLAN_RANKS_MAX,
     .what = "virtual workers of each replica; left out where they are shared out evenly"},
    {.name = "givers",
     .kind = WIRE_LIST,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, source_nodes),
     WIRE_COUNT(assignment, n_source_nodes),
     .most = PLAN_RANKS_MAX,
     .of = &assignment_rank_message,
     .what = "nodes that the job has left and whose memory has its state"},
    {.name = "measure_links",
     .kind = WIRE_BOOL,
     WIRE_AT(assignment, measure_links),
     .what = "the server wants to know how fast the run's nodes reach each other"},
    {.name = "trial",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, trial),
     .min = 0,
     .max = INT32_MAX,
     .what = "number of the newest test of devices that two ranks are to make between two steps; 0: none"},
    {.name = "trial_rank",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, trial_rank),
     .min = 0,
     .max = PLAN_RANKS_MAX,
     .what = "the one whose device seems slow"},
    {.name = "trial_peer",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, trial_peer),
     .min = 0,
     .max = PLAN_RANKS_MAX,
     .what = "the one that it is compared with"},
    {.name = "pass_over",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, pass_over),
     .min = 0,
     .max = 1000,
     .what = "newest checkpoints, and all snapshots, that the run does not go on from"},
    {.name = "devices_next",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, devices_next),
     .min = 0,
     .max = PLAN_RANKS_MAX,
     .what = "how many devices an elastic command goes on with once it has obeyed `order`; 0: not told"},
    {.name = "evidence",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, evidence),
     .min = 0,
     .max = INT64_MAX,
     .what = "the newest evidence that is asked for, to be gathered before `order` is obeyed; 0: none"},
    {.name = "ends_at_us",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, ends_at_us),
     .min = 0,
     .max = INT64_MAX,
     .what = "when the run has used up the job's time, microseconds since 1970"},
    {.name = "warned_s",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, warned_s),
     .min = 0,
     .max = SPEC_TIME_S_MAX,
     .what = "the time limit, in seconds, that the job is warned of; a command's ranks are sent limits.warn_signal"},
    {.name = "resumes",
     .kind = WIRE_BOOL,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, resumes),
     .what = "an earlier run of the job has left a checkpoint"},
    {.name = "secrets",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, secrets),
     .type = JSON_OBJECT,
     .what = "values by name, of those that the spec's variables name; the agent keeps them in memory alone"},
    {.name = "proof",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, proof),
     .what = "that the run was given to this node: reports carry it"},
    {.name = "unix_user",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, unix_user),
     .what = "account of the ranks, where the agent can give them one; left out: the account of jobs"},
    {.name = "trace",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, trace),
     .what = "context of the run in a distributed trace, of W3C Trace Context: its programs' TRACEPARENT"},
    {.name = "node",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, node),
     .what = "added by the agent: its node"},
    {.name = "threads",
     .kind = WIRE_INT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, threads),
     .min = 1,
     .max = 1024,
     .what = "added by the agent: threads a rank"},
    {.name = "boot_id",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, boot_id),
     .what = "added by the agent: which boot of the machine the run began in"},
    {.name = "memory",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, memory),
     .what = "added by the agent: folder for snapshots in the node's memory"},
    {.name = "memory_limit",
     .kind = WIRE_LONG,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment, memory_limit),
     .min = 1,
     .max = INT64_MAX,
     .what = "added by the agent: bytes that the snapshots of all jobs may take there"},
    {.name = "no_memory",
     .kind = WIRE_TEXT,
     .flags = WIRE_OMIT | WIRE_CUT,
     WIRE_AT(assignment, no_memory),
     .what = "added by the agent: why there is no `memory`"},
};

const struct wire_message assignment_message = {
    .name = "assignment",
    .what = "An entry of `assignments`, and `assignment.json` in the folder of a run.",
    WIRE_MESSAGE(assignment, fields),
};

static const struct wire_field session_fields[] = {
    {.name = "session",
     .kind = WIRE_TEXT,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment_session, session),
     .what = "to be joined by `GET /v1/agents/{node}/exec/{session}`"},
    {.name = "job", .kind = WIRE_TEXT, .flags = WIRE_NEEDED, WIRE_AT(assignment_session, job), .what = "of the run"},
    {.name = "generation",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment_session, generation),
     .min = 1,
     .max = INT64_MAX,
     .what = "of the run"},
    {.name = "rank",
     .kind = WIRE_INT,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment_session, rank),
     .min = 0,
     .max = PLAN_RANKS_MAX,
     .what = "beside which it is"},
};

const struct wire_message assignment_session_message = {
    .name = "session",
    .what = "A program that is to run beside a rank of this node, or a connection to it: an entry of `sessions`.",
    WIRE_MESSAGE(assignment_session, session_fields),
};

static const struct wire_field set_fields[] = {
    {.name = "version",
     .kind = WIRE_LONG,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment_set, version),
     .min = 0,
     .max = INT64_MAX,
     .what = "of the set; the next poll asks for another one"},
    {.name = "assignments",
     .kind = WIRE_JSON,
     .flags = WIRE_NEEDED,
     WIRE_AT(assignment_set, list),
     .of = &assignment_message,
     .type = JSON_ARRAY,
     .what = "every run that the node is to have"},
    {.name = "sessions",
     .kind = WIRE_JSON,
     .flags = WIRE_OMIT,
     WIRE_AT(assignment_set, sessions),
     .of = &assignment_session_message,
     .type = JSON_ARRAY,
     .what = "those that the agent has not joined yet"},
};

const struct wire_message assignment_set_message = {
    .name = "assignment-set",
    .what = "The answer to `GET /v1/agents/{node}/assignments`: all that the node is to have.",
    WIRE_MESSAGE(assignment_set, set_fields),
};

/* Each rank is listed once, each source node is one without ranks, and its number comes after theirs, in order. */
static int check_ranks(const struct assignment *a, struct merr *err)
{
    bool seen[PLAN_RANKS_MAX] = {false};

    for (size_t i = 0; i < a->n_ranks; i++) {
        int rank = a->ranks[i].rank;

        if (rank >= a->world)
            return merr_set(err, -EINVAL, "entry %zu of 'ranks': rank %d is not within a world of %d", i, rank,
                            a->world);
        if (seen[rank])
            return merr_set(err, -EINVAL, "entry %zu of 'ranks': rank %d is listed twice", i, rank);
        seen[rank] = true;
    }
    for (size_t i = 0; i < a->n_source_nodes; i++) {
        bool trains = false;

        for (size_t k = 0; k < a->n_ranks && !trains; k++)
            trains = strcmp(a->ranks[k].node, a->source_nodes[i].node) == 0;
        if (trains || a->source_nodes[i].rank != a->world + (int)i)
            return merr_set(err, -EINVAL, "entry %zu of 'givers' has no node of its own or is not rank %d", i,
                            a->world + (int)i);
    }
    return 0;
}

int assignment_read(const json_t *doc, struct assignment *ret, struct merr *err)
{
    const json_t *version = json_object_get(doc, "protocol");
    const char *job = json_string_value(json_object_get(doc, "job"));
    struct assignment a;
    char what[PROTOCOL_JOB_MAX + 32];
    int r;

    (void)snprintf(what, sizeof(what), "the assignment of job '%.63s'", job ? job : "");
    /* First of all: what else is at fault may be so because of it. */
    if (json_is_integer(version) && json_integer_value(version) > 0 && json_integer_value(version) <= INT32_MAX &&
        (r = protocol_check((int)json_integer_value(version), what, err)) < 0)
        return r;
    r = wire_read(&assignment_message, doc, &a, err);
    if (r < 0)
        return merr_prefix(err, r, "%s", what);
    if (a.world == 0)
        a.world = (int)a.n_ranks;
    r = check_ranks(&a, err);
    if (r < 0) {
        assignment_clear(&a);
        return merr_prefix(err, r, "%s", what);
    }
    *ret = a;
    return 0;
}

json_t *assignment_write(const struct assignment *a)
{
    struct assignment now = *a;

    now.protocol = PROTOCOL_VERSION;
    return wire_write(&assignment_message, &now);
}

void assignment_clear(struct assignment *a)
{
    wire_clear(&assignment_message, a);
}

int assignment_set_read(const json_t *doc, struct assignment_set *ret, struct merr *err)
{
    return wire_read(&assignment_set_message, doc, ret, err);
}

int assignment_session_read(const json_t *doc, struct assignment_session *ret, struct merr *err)
{
    return wire_read(&assignment_session_message, doc, ret, err);
}

json_t *assignment_session_write(const struct assignment_session *s)
{
    return wire_write(&assignment_session_message, s);
}

void assignment_set_clear(struct assignment_set *s)
{
    wire_clear(&assignment_set_message, s);
}

int assignment_port(int master_port, size_t i)
{
    return PORTS_FIRST + master_port % PORTS_RUNS * SPEC_PORTS_MAX + (int)i;
}
