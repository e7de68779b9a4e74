#include "server/control/sessions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "api/protocol/frame.h"
#include "server/control/audit.h"
#include "server/control/change.h"
#include "server/control/jobs.h"
#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/http/relay.h"

/* --- what is asked ------------------------------------------------------------------------------------------------ */

static bool is_text(const json_t *v, size_t least)
{
    return json_is_string(v) && json_string_length(v) >= least && strlen(json_string_value(v)) == json_string_length(v);
}

static bool is_number(const json_t *v, json_int_t least, json_int_t most)
{
    return !v || (json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= most);
}

static bool are_words(const json_t *argv)
{
    const json_t *v;
    size_t i;

    json_array_foreach (argv, i, v)
        if (!is_text(v, i == 0))
            return false;
    return json_array_size(argv) > 0 && json_array_size(argv) <= SESSIONS_WORDS_MAX;
}

static bool are_variables(json_t *env)
{
    const char *name;
    json_t *v;

    if (env && (!json_is_object(env) || json_object_size(env) > SESSIONS_WORDS_MAX))
        return false;
    json_object_foreach (env, name, v)
        if (!*name || strchr(name, '=') || !is_text(v, 0))
            return false;
    return true;
}

/* known: names with a space around each. */
static bool are_known(const json_t *body, const char *known)
{
    const char *name;
    char word[64];
    json_t *v;

    json_object_foreach ((json_t *)body, name, v) {
        (void)snprintf(word, sizeof(word), " %.60s ", name);
        if (!strstr(known, word))
            return false;
    }
    return true;
}

/* What is wrong with the body; NULL: nothing. */
static const char *fault_of(const json_t *body)
{
    const json_t *workdir = json_object_get(body, "workdir"), *tty = json_object_get(body, "tty");
    char *text = json_dumps(body, JSON_COMPACT);
    bool fits = text && strlen(text) <= SESSIONS_BYTES_MAX;

    free(text);
    if (!fits)
        return "the body is longer than 32 KiB";
    if (!are_known(body, " argv tty rank env workdir cols rows "))
        return "the body has argv, tty, rank, env, workdir, cols and rows, and nothing else";
    if (!are_words(json_object_get(body, "argv")))
        return "'argv' is the program and its arguments: 1 to 256 texts without NUL";
    if (!are_variables(json_object_get(body, "env")))
        return "'env' is an object of at most 256 variables, each a text without NUL";
    if (workdir && (!is_text(workdir, 1) || json_string_value(workdir)[0] != '/'))
        return "'workdir' is an absolute path";
    if (tty && !json_is_boolean(tty))
        return "'tty' is true or false";
    if (!is_number(json_object_get(body, "rank"), 0, INT32_MAX))
        return "'rank' is a number from 0 on";
    if (!is_number(json_object_get(body, "cols"), 1, UINT16_MAX) ||
        !is_number(json_object_get(body, "rows"), 1, UINT16_MAX))
        return "'cols' and 'rows' are 1 to 65535";
    return NULL;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool draw(const struct core *c, char ret[RELAY_ID_MAX])
{
    unsigned char bytes[(RELAY_ID_MAX - 1) / 2];

    if (!chance_draw(c->cfg.chance, bytes, sizeof(bytes)))
        return false;
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* The run's rank that a session is beside. NULL: the call is answered. */
static const struct job_place *find_place(struct core *c, struct call *call, const struct job *j, json_int_t rank)
{
    const struct node *n;

    if (rank >= (json_int_t)j->n_places) {
        call_problem(call, 404, "unknown-rank", "job '%s' has ranks 0 to %zu, not %lld", http_param(call->req, 0),
                     j->n_places - 1, (long long)rank);
        return NULL;
    }
    n = cluster_node(&c->cluster, j->places[rank].node);
    if (n && n->registered && n->no_exec) {
        call_problem(call, 403, "no-exec", "node '%s' of rank %lld lets nobody into jobs (muster-agent --no-exec)",
                     j->places[rank].node, (long long)rank);
        return NULL;
    }
    if (n && n->registered && n->contact == NODE_READY)
        return &j->places[rank];
    call_problem(call, 503, "node-silent", "node '%s' of rank %lld does not answer now", j->places[rank].node,
                 (long long)rank);
    return NULL;
}

/* The live job of the call, whose caller may have sessions in it. NULL: the call is answered. */
static struct entry *find_job(struct core *c, struct call *call)
{
    struct entry *e;

    if (!c->cfg.relay) {
        call_problem(call, 403, "no-exec", "this server lets nobody into jobs (musterd --no-exec)");
        return NULL;
    }
    e = jobs_live(c, call);
    if (!e || rights_owns(http_identity(call->req), e->job.user))
        return e;
    call_problem(call, 403, "not-owner",
                 "job '%s' is of '%s': a session acts as they do, with their files and secrets, so it is theirs alone",
                 http_param(call->req, 0), e->job.user);
    return NULL;
}

/* Open a session and answer by it. asked: the body, which the agent is told; taken over. */
static void open_new(struct core *c, struct call *call, const struct entry *e, json_int_t rank, json_t *asked)
{
    const struct job_place *place = find_place(c, call, &e->job, rank);
    struct relay_session s = {.generation = e->job.generation,
                              .rank = (int)rank,
                              .port = (int)json_integer_value(json_object_get(asked, "port"))};
    char begin[FRAME_MAX], url[96], *text;
    struct merr err = {""};
    int n, r;

    (void)snprintf(s.node, sizeof(s.node), "%s", place ? place->node : "");
    (void)snprintf(s.user, sizeof(s.user), "%s", http_identity(call->req)->user);
    (void)snprintf(s.token, sizeof(s.token), "%s", http_identity(call->req)->token);
    (void)snprintf(s.group, sizeof(s.group), "j%llu", (unsigned long long)e->job.id);
    (void)snprintf(s.run, sizeof(s.run), "%s", s.group);
    text = place ? json_dumps(asked, JSON_COMPACT) : NULL;
    json_decref(asked);
    if (!place)
        return;
    n = text ? snprintf(begin, sizeof(begin), "%c%s", SESSION_BEGIN, text) : -1;
    free(text);
    if (n < 0 || n >= (int)sizeof(begin) || !draw(c, s.id) || !draw(c, s.ticket)) {
        call_problem(call, 503, "no-memory", "out of memory, or of chance");
        return;
    }
    r = relay_open(c->cfg.relay, &s, begin, (size_t)n, &err);
    if (r < 0) {
        if (r == -EBUSY)
            http_set_header(call->req, "Retry-After", "1"); /* one may end any moment */
        call_problem(call, r == -EBUSY ? 429 : 503, r == -EBUSY ? "too-many-sessions" : "no-memory", "%s", err.text);
        return;
    }
    change_assignments(c, place->node);
    (void)snprintf(url, sizeof(url), "/v1/exec/%s?ticket=%s", s.id, s.ticket);
    call_answer_new(call, 201,
                    json_pack("{s:s, s:s, s:s, s:i}", "session", s.id, "ticket", s.ticket, "url", url, "expires_s",
                              (int)(RELAY_JOIN_US / 1000000)));
}

void sessions_exec(struct core *c, struct call *call)
{
    struct entry *e = find_job(c, call);
    const char *fault = e ? fault_of(call->body) : NULL;
    json_t *names = json_array(), *v;
    const char *name;

    json_object_foreach (json_object_get(call->body, "env"), name, v)
        (void)json_array_append_new(names, json_string(name));
    if (fault)
        call_problem(call, 422, "exec-invalid", "%s", fault);
    else if (e) {
        open_new(c, call, e, json_integer_value(json_object_get(call->body, "rank")), json_incref(call->body));
        if (call->status == 201)
            call_changed_new(call, NULL,
                             json_pack("{s:s, s:O, s:O, s:O, s:O*, s:O*}", "what", "exec_opened", "session",
                                       json_object_get(call->reply, "session"), "argv",
                                       json_object_get(call->body, "argv"), "variables", names, "workdir",
                                       json_object_get(call->body, "workdir"), "rank",
                                       json_object_get(call->body, "rank")));
    }
    json_decref(names);
}

/* The port of the job's run that a name of its spec stands for; 0: none. */
static int port_of_name(const struct entry *e, const char *name)
{
    struct job_spec *spec = entry_spec(e);
    int port = 0;

    for (size_t i = 0; spec && name && i < spec->command.ports.n; i++)
        if (strcmp(spec->command.ports.v[i], name) == 0)
            port = assignment_port(e->job.master_port, i);
    spec_free(spec);
    return port;
}

void sessions_forward(struct core *c, struct call *call)
{
    json_t *port = json_object_get(call->body, "port"), *rank = json_object_get(call->body, "rank");
    struct entry *e = find_job(c, call);
    int named;

    if (!e)
        return;
    if (!are_known(call->body, " port rank ") || !port || (!json_is_string(port) && !is_number(port, 1, UINT16_MAX)) ||
        !is_number(rank, 0, INT32_MAX)) {
        call_problem(call, 422, "forward-invalid",
                     "the body has 'port', 1 to 65535 or a name of command.ports, and 'rank', a number from 0 on, and "
                     "nothing else");
        return;
    }
    named = json_is_string(port) ? port_of_name(e, json_string_value(port)) : 0;
    if (json_is_string(port) && named == 0) {
        call_problem(call, 404, "unknown-port", "job '%s' has no port '%.32s' in its command.ports",
                     http_param(call->req, 0), json_string_value(port));
        return;
    }
    if (named > 0)
        (void)json_object_set_new(call->body, "port", json_integer(named));
    port = json_object_get(call->body, "port");
    open_new(c, call, e, json_integer_value(rank), json_incref(call->body));
    if (call->status == 201)
        call_changed_new(call, NULL,
                         json_pack("{s:s, s:O, s:O, s:O*}", "what", "forward_opened", "session",
                                   json_object_get(call->reply, "session"), "port", port, "rank", rank));
}

/* --- agents ------------------------------------------------------------------------------------------------------- */

static void list(void *arg, const struct relay_session *s)
{
    struct assignment_session a = {.generation = s->generation, .rank = s->rank};

    (void)snprintf(a.session, sizeof(a.session), "%s", s->id);
    (void)snprintf(a.job, sizeof(a.job), "%s", s->run);
    (void)json_array_append_new(arg, assignment_session_write(&a));
}

json_t *sessions_waiting(const struct core *c, const struct node *n)
{
    json_t *all = json_array();

    if (c->cfg.relay)
        relay_waiting(c->cfg.relay, n->name, list, all);
    return all;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* On the core's thread. */
static void note_end(void *core, struct call *call)
{
    struct core *c = core;

    c->handed = true;
    audit_note(c, json_string_value(json_object_get(call->body, "user")), call->body);
    call_free(call);
}

void sessions_ended(void *arg, const struct relay_session *s)
{
    struct call *call = call_new(NULL, note_end);

    if (!call)
        return;
    call->body = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:I, s:I, s:s, s:o*}", "what",
                           s->port ? "forward_closed" : "exec_closed", "session", s->id, "user", s->user, "job", s->run,
                           "rank", s->rank, "node", s->node, "bytes_in", (json_int_t)s->bytes[0], "bytes_out",
                           (json_int_t)s->bytes[1], "why", s->why, "port", s->port ? json_integer(s->port) : NULL);
    if (!queue_give(&((struct core *)arg)->turn.queue, call))
        call_free(call);
}
