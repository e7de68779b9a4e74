#include "server/control/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_after.h"
#include "api/spec_array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/version.h"
#include "server/control/agents.h"
#include "server/control/arrays.h"
#include "server/control/audit.h"
#include "server/control/batch.h"
#include "server/control/booking.h"
#include "server/control/bulk.h"
#include "server/control/bundles.h"
#include "server/control/checkpoints.h"
#include "server/control/enroll.h"
#include "server/control/estimates.h"
#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/jobs.h"
#include "server/control/ledger.h"
#include "server/control/listing.h"
#include "server/control/looks.h"
#include "server/control/measures.h"
#include "server/control/nodes.h"
#include "server/control/outlook.h"
#include "server/control/plans.h"
#include "server/control/polls.h"
#include "server/control/predictions.h"
#include "server/control/projects.h"
#include "server/control/quarantine.h"
#include "server/control/queries.h"
#include "server/control/readers.h"
#include "server/control/reports.h"
#include "server/control/salvage.h"
#include "server/control/scrapes.h"
#include "server/control/secrets.h"
#include "server/control/sessions.h"
#include "server/control/state.h"
#include "server/control/supply.h"
#include "server/control/timeline.h"
#include "server/control/tokens.h"
#include "server/control/turn.h"
#include "server/control/schedule_calls.h"
#include "server/control/webhook_calls.h"
#include "server/http/call.h"
#include "server/http/relay.h"
#include "server/http/site.h"
#include "server/http/web.h"

#define LONG_POLL_S 75
#define PARSE_AT_ONCE (64 << 10) /* bytes of a report; others are served by this thread, too */
#define STATS_TEXT_MAX (64 << 10)

enum http_auth routes_auth(void *arg, const char *token, int64_t wall_us, struct http_identity *ret)
{
    return auth_look_up(((struct routes_arg *)arg)->auth, token, wall_us, ret);
}

void routes_refused(void *arg, const struct http_req *r, int status, const char *code)
{
    struct call *call = audit_refusal(r, status, code);

    if (call)
        turn_post(((struct routes_arg *)arg)->core, call);
}

void routes_limited(void *arg, bool by_token)
{
    stats_limited(((struct routes_arg *)arg)->stats, by_token);
}

typedef void run_fn(void *core, struct call *call); /* on the core's thread */

static void post(void *arg, struct http_req *req, run_fn *run)
{
    struct call *call = call_new(req, run);

    if (!call) {
        http_problem(req, 503, "no-memory", "out of memory");
        return;
    }
    call->job = http_param(req, 0) ? job_id_parse(http_param(req, 0)) : 0;
    turn_post(((struct routes_arg *)arg)->core, call);
}

/* What the core does with a call, for the queue. */
#define RUN(name)                                                                                                      \
    static void run_##name(void *core, struct call *call)                                                              \
    {                                                                                                                  \
        if (arrays_resolve(core, call))                                                                                \
            name(core, call);                                                                                          \
    }

/* And the handler that hands it on as it is. */
#define PLAIN(name)                                                                                                    \
    RUN(name)                                                                                                          \
    static void on_##name(void *arg, struct http_req *req)                                                             \
    {                                                                                                                  \
        post(arg, req, run_##name);                                                                                    \
    }
PLAIN(listing_jobs)
PLAIN(audit_list)
PLAIN(jobs_get)
PLAIN(jobs_action)
PLAIN(jobs_explain)
PLAIN(jobs_retry)
PLAIN(jobs_logs)
PLAIN(jobs_metrics)
PLAIN(jobs_series)
PLAIN(jobs_incidents)
PLAIN(jobs_diagnosis)
PLAIN(jobs_ranks)
PLAIN(timeline_of_job)
PLAIN(timeline_of_all)
PLAIN(checkpoints_list)
RUN(checkpoints_act)
PLAIN(nodes_list)
PLAIN(nodes_get)
PLAIN(nodes_drain)
PLAIN(nodes_undrain)
PLAIN(nodes_test)
PLAIN(nodes_remove)
PLAIN(enroll_make)
PLAIN(secrets_list)
PLAIN(secrets_drop)
PLAIN(enroll_forget)
PLAIN(webhook_calls_list)
PLAIN(webhook_calls_get)
PLAIN(webhook_calls_drop)
PLAIN(webhook_calls_test)
PLAIN(webhook_calls_deliveries)
RUN(webhook_calls_add)
RUN(webhook_calls_patch)
PLAIN(schedule_calls_list)
PLAIN(schedule_calls_get)
PLAIN(schedule_calls_drop)
PLAIN(schedule_calls_run)
RUN(schedule_calls_add)
RUN(schedule_calls_patch)
PLAIN(nodes_cluster)
PLAIN(supply_list)
PLAIN(measures_node)
PLAIN(measures_cluster)
PLAIN(outlook_plan)
RUN(outlook_what_if)
PLAIN(booking_list_maintenance)
PLAIN(booking_drop_maintenance)
PLAIN(booking_list_reservations)
PLAIN(booking_drop_reservation)
RUN(booking_add_maintenance)
RUN(booking_end_node)
RUN(booking_add_reservation)
PLAIN(estimates_report)
PLAIN(ledger_report)
PLAIN(predictions_report)
PLAIN(plans_profiles)
PLAIN(nodes_snapshot)
PLAIN(projects_get)
PLAIN(projects_list)
PLAIN(projects_remove)
PLAIN(projects_drop_member)
PLAIN(tokens_list)
PLAIN(tokens_revoke)
PLAIN(salvage_list)
PLAIN(salvage_retry)
PLAIN(salvage_drop)
RUN(jobs_submit)
RUN(jobs_patch)
RUN(batch_submit)
RUN(bulk_cancel)
RUN(projects_put)
RUN(projects_put_member)
RUN(tokens_create)
RUN(agents_register)
RUN(enroll_join)
RUN(enroll_renew)
RUN(secrets_put)
RUN(sessions_exec)
RUN(sessions_forward)
RUN(polls_assignments)
RUN(polls_keys)
RUN(reports_take)
RUN(looks_take)
RUN(polls_put_key)

/* The body as a JSON object, new; NULL: the request is answered. */
static json_t *read_object(struct http_req *req)
{
    size_t len;
    const char *body = http_body(req, &len);
    json_error_t je;
    json_t *o = len ? json_loadb(body, len, JSON_REJECT_DUPLICATES, &je) : NULL;

    if (json_is_object(o))
        return o;
    if (len == 0)
        http_problem(req, 422, "body-invalid", "the body is empty; send a JSON object");
    else if (o)
        http_problem(req, 422, "body-invalid", "the body is JSON but no object");
    else
        http_problem(req, 400, "not-json", "the body is no JSON: line %d, column %d: %s", je.line, je.column, je.text);
    json_decref(o);
    return NULL;
}

/* A spec, which may be YAML, too; NULL: the request is answered. */
static json_t *read_spec(struct http_req *req)
{
    const char *type = http_header(req, "Content-Type"), *body;
    struct faults faults = {.n = 0};
    json_t *doc = NULL;
    size_t len;

    if (!type || strncmp(type, "application/yaml", 16) != 0)
        return read_object(req);
    body = http_body(req, &len);
    if (spec_document(body ? body : "", len, &doc, &faults) < 0)
        http_problem_errors_new(req, "the spec cannot be read", faults_json(&faults));
    else if (!json_is_object(doc))
        http_problem(req, 422, "body-invalid", "the body is YAML but no mapping");
    faults_clear(&faults);
    if (json_is_object(doc))
        return doc;
    json_decref(doc);
    return NULL;
}

static void on_schema(void *arg, struct http_req *req)
{
    json_auto_t *schema = spec_schema();
    char *text = schema ? json_dumps(schema, JSON_COMPACT) : NULL;

    (void)arg;
    if (text)
        http_reply_text_new(req, 200, "application/schema+json", text, strlen(text));
    else
        http_problem(req, 503, "no-memory", "out of memory");
}

/* A call with the body as a JSON object; NULL: the request is answered. */
static struct call *read_call(struct http_req *req, run_fn *run)
{
    json_t *body = read_object(req);
    struct call *call = body ? call_new(req, run) : NULL;

    if (!body)
        return NULL;
    if (!call) {
        json_decref(body);
        http_problem(req, 503, "no-memory", "out of memory");
        return NULL;
    }
    call->body = body;
    call->job = http_param(req, 0) ? job_id_parse(http_param(req, 0)) : 0;
    return call;
}

static void post_object(void *arg, struct http_req *req, run_fn *run)
{
    struct call *call = read_call(req, run);

    if (call)
        turn_post(((struct routes_arg *)arg)->core, call);
}

static void on_outlook_what_if(void *arg, struct http_req *req)
{
    post_object(arg, req, run_outlook_what_if);
}

static void on_jobs_patch(void *arg, struct http_req *req)
{
    post_object(arg, req, run_jobs_patch);
}

static void on_batch_submit(void *arg, struct http_req *req)
{
    struct call *call = read_call(req, run_batch_submit);
    size_t len;
    const char *body = http_body(req, &len);

    if (!call)
        return;
    call->hash = hash_xxh3(body, len);
    turn_post(((struct routes_arg *)arg)->core, call);
}

static void on_checkpoints_act(void *arg, struct http_req *req)
{
    size_t len;

    (void)http_body(req, &len);
    if (len > 0)
        post_object(arg, req, run_checkpoints_act);
    else
        post(arg, req, run_checkpoints_act);
}

static void on_jobs_resume(void *arg, struct http_req *req)
{
    size_t len;

    (void)http_body(req, &len);
    if (len > 0)
        post_object(arg, req, run_jobs_action);
    else
        on_jobs_action(arg, req);
}

static void on_projects_put(void *arg, struct http_req *req)
{
    post_object(arg, req, run_projects_put);
}

static void on_booking_add_maintenance(void *arg, struct http_req *req)
{
    post_object(arg, req, run_booking_add_maintenance);
}

static void on_booking_end_node(void *arg, struct http_req *req)
{
    post_object(arg, req, run_booking_end_node);
}

static void on_booking_add_reservation(void *arg, struct http_req *req)
{
    post_object(arg, req, run_booking_add_reservation);
}

static void on_bulk_cancel(void *arg, struct http_req *req)
{
    post_object(arg, req, run_bulk_cancel);
}

static void on_projects_put_member(void *arg, struct http_req *req)
{
    post_object(arg, req, run_projects_put_member);
}

static void on_secrets_put(void *arg, struct http_req *req)
{
    post_object(arg, req, run_secrets_put);
}

static void on_webhook_calls_add(void *arg, struct http_req *req)
{
    post_object(arg, req, run_webhook_calls_add);
}

static void on_webhook_calls_patch(void *arg, struct http_req *req)
{
    post_object(arg, req, run_webhook_calls_patch);
}

static void on_schedule_calls_add(void *arg, struct http_req *req)
{
    post_object(arg, req, run_schedule_calls_add);
}

static void on_schedule_calls_patch(void *arg, struct http_req *req)
{
    post_object(arg, req, run_schedule_calls_patch);
}

static void on_tokens_create(void *arg, struct http_req *req)
{
    post_object(arg, req, run_tokens_create);
}

static void on_sessions_exec(void *arg, struct http_req *req)
{
    post_object(arg, req, run_sessions_exec);
}

static void on_sessions_forward(void *arg, struct http_req *req)
{
    post_object(arg, req, run_sessions_forward);
}

/* To the relay at once: the core has said already who may. */
static struct relay *relay_of(void *arg, struct http_req *req)
{
    struct relay *y = ((struct routes_arg *)arg)->core->cfg.relay;

    if (!y)
        http_problem(req, 404, "unknown-session", "this server lets nobody into jobs (musterd --no-exec)");
    return y;
}

static void on_relay_client(void *arg, struct http_req *req)
{
    const char *ticket = http_query(req, "ticket");
    struct relay *y = relay_of(arg, req);

    if (y)
        relay_join_client(y, req, http_param(req, 0), ticket ? ticket : "");
}

/* --- agents ------------------------------------------------------------------------------------------ */

/* Whether an agent's token may speak for this node. Else the request is answered. */
static bool admit(void *arg, struct http_req *req, const char *node)
{
    const struct http_identity *who = http_identity(req);

    switch (auth_agent_may(((struct routes_arg *)arg)->auth, who, node)) {
    case AGENT_MAY:
        return true;
    case AGENT_OTHER_NODE:
        http_problem(req, 403, "other-node", "this token is of node '%s' and does not speak for '%.63s'", who->node,
                     node);
        return false;
    case AGENT_NOT_SHARED:
        http_problem(req, 403, "agent-not-enrolled",
                     "this server takes agents by tokens of their own alone: `muster node enroll %.63s` prints a code "
                     "for `muster-agent --join`",
                     node);
        return false;
    case AGENT_ENROLLED:
        http_problem(req, 403, "agent-enrolled",
                     "node '%.63s' has a token of its own, the shared one does not speak for it; `muster node forget` "
                     "takes it away",
                     node);
    }
    return false;
}

static void on_agents_register(void *arg, struct http_req *req)
{
    struct call *call = read_call(req, run_agents_register);
    const char *node = call ? json_string_value(json_object_get(call->body, "node")) : NULL;

    if (!call)
        return;
    if (admit(arg, req, node ? node : "")) {
        turn_post(((struct routes_arg *)arg)->core, call);
        return;
    }
    call->req = NULL;
    call_free(call);
}

static void on_enroll_join(void *arg, struct http_req *req)
{
    post_object(arg, req, run_enroll_join);
}

static void on_enroll_renew(void *arg, struct http_req *req)
{
    if (admit(arg, req, http_param(req, 0)))
        post_object(arg, req, run_enroll_renew);
}

static void on_polls_assignments(void *arg, struct http_req *req)
{
    if (admit(arg, req, http_param(req, 0)))
        post(arg, req, run_polls_assignments);
}

static void on_polls_keys(void *arg, struct http_req *req)
{
    if (admit(arg, req, http_param(req, 0)))
        post(arg, req, run_polls_keys);
}

/* Check a spec here, on the HTTP thread, so that the core only takes good ones. */
static void on_jobs_submit(void *arg, struct http_req *req)
{
    struct faults faults = {.n = 0};
    struct call *call = NULL;
    json_t *doc = read_spec(req), *full;
    const char *body;
    size_t len;

    if (!doc)
        return;
    call = call_new(req, run_jobs_submit);
    if (!call) {
        json_decref(doc);
        http_problem(req, 503, "no-memory", "out of memory");
        return;
    }
    spec_after_fill(doc, ((struct routes_arg *)arg)->core->cfg.jobs_dir, &faults);
    spec_check_paths(doc, &faults);
    if (spec_from_json(doc, &call->spec, &faults) == 0 && call->spec->array.tasks > 0)
        spec_check_tasks(doc, call->spec, &faults);
    if (!call->spec || faults.n > 0) {
        char detail[80];

        (void)snprintf(detail, sizeof(detail), "the job's spec has %zu fault%s", faults.n + faults.more,
                       faults.n + faults.more == 1 ? "" : "s");
        http_problem_errors_new(req, detail, faults_json(&faults));
        faults_clear(&faults);
        json_decref(doc);
        call->req = NULL;
        call_free(call);
        return;
    }
    faults_clear(&faults);
    full = call->spec->array.tasks > 0 ? json_incref(doc) : spec_to_json(call->spec); /* of each task when it starts */
    call->text = full ? json_dumps(full, JSON_COMPACT) : NULL;
    json_decref(full);
    json_decref(doc);
    call->flag = call_number(call, "dry_run", 0) != 0;
    body = http_body(req, &len);
    call->hash = hash_xxh3(body, len);
    if (!call->text) {
        call_problem(call, 503, "no-memory", "out of memory");
        call_deliver(call);
        return;
    }
    turn_post(((struct routes_arg *)arg)->core, call);
}

static void run_bundles_done(void *core, struct call *call)
{
    (void)core; /* it has its answer: a turn notes that it was made */
    (void)call;
}

/* On the thread of large bodies. */
static void take_bundle(void *core, struct call *call)
{
    if (!bundles_take(core, call)) {
        call_deliver(call);
        return;
    }
    call->run = run_bundles_done;
    turn_post(core, call);
}

static void on_bundles(void *arg, struct http_req *req)
{
    struct call *call = call_new(req, take_bundle);

    if (call)
        readers_post(((struct routes_arg *)arg)->core->intake, call);
    else
        http_problem(req, 503, "no-memory", "out of memory");
}

/* On a thread of its own: the parser takes some 50 ms for 4 MiB of logs. */
static void parse_report(void *core, struct call *call)
{
    call->body = read_object(call->req);
    if (call->body) {
        call->run = run_reports_take;
        turn_post(core, call);
        return;
    }
    call->req = NULL; /* answered */
    call_free(call);
}

static void on_reports_take(void *arg, struct http_req *req)
{
    struct call *call;
    size_t len;

    if (!admit(arg, req, http_param(req, 0)))
        return;
    (void)http_body(req, &len);
    if (len <= PARSE_AT_ONCE) {
        post_object(arg, req, run_reports_take);
        return;
    }
    call = call_new(req, parse_report);
    if (call)
        readers_post(((struct routes_arg *)arg)->core->intake, call);
    else
        http_problem(req, 503, "no-memory", "out of memory");
}

static void on_looks_take(void *arg, struct http_req *req)
{
    if (admit(arg, req, http_param(req, 0)))
        post_object(arg, req, run_looks_take);
}

static void on_relay_agent(void *arg, struct http_req *req)
{
    struct relay *y = admit(arg, req, http_param(req, 0)) ? relay_of(arg, req) : NULL;

    if (y)
        relay_join_agent(y, req, http_param(req, 1), http_param(req, 0));
}

static void on_polls_put_key(void *arg, struct http_req *req)
{
    struct call *call;
    size_t len;
    const char *body = http_body(req, &len);

    if (!admit(arg, req, http_param(req, 0)))
        return;
    call = call_new(req, run_polls_put_key);
    if (call)
        call->text = strndup(body ? body : "", len);
    if (!call || !call->text) {
        if (call)
            call->req = NULL;
        call_free(call);
        http_problem(req, 503, "no-memory", "out of memory");
        return;
    }
    turn_post(((struct routes_arg *)arg)->core, call);
}

/* --- documentation ----------------------------------------------------------------------------------- */

static void on_docs(void *arg, struct http_req *req)
{
    (void)arg;
    http_set_header(req, "Location", "/docs/index.html");
    http_reply_new(req, 302, NULL);
}

static void on_docs_page(void *arg, struct http_req *req)
{
    site_serve(((struct routes_arg *)arg)->docs, req);
}

/* --- operations -------------------------------------------------------------------------------------- */

static void on_healthz(void *arg, struct http_req *req)
{
    (void)arg;
    http_reply_new(req, 200, json_pack("{s:s, s:s}", "status", "ok", "version", MUSTER_VERSION));
}

static void on_readyz(void *arg, struct http_req *req)
{
    const struct routes_arg *a = arg;

    size_t unread = quarantine_count(a->core);

    int trouble = files_trouble(a->core->files);

    if (store_up(a->store))
        http_reply_new(req, 200,
                       json_pack("{s:s, s:o*, s:s*}", "status", unread > 0 || trouble != 0 ? "degraded" : "ready",
                                 "quarantined", unread > 0 ? json_integer((json_int_t)unread) : NULL, "logs",
                                 trouble == ENOSPC || trouble == EDQUOT ? "wait for room on the disk"
                                 : trouble != 0                         ? "wait for the disk"
                                                                        : NULL));
    else
        http_problem(req, 503, "store-away", "the store is away; what is asked now waits for it");
}

RUN(scrapes_answer)

/* While the store is away the core waits for it: what can be said without the core is said at once. */
static void on_metrics(void *arg, struct http_req *req)
{
    const struct routes_arg *a = arg;
    struct buf b;

    if (store_up(a->store)) {
        post(arg, req, run_scrapes_answer);
        return;
    }
    buf_init(&b, STATS_TEXT_MAX);
    (void)buf_addstr(&b, "# HELP muster_store_up Whether the store answers\n# TYPE muster_store_up gauge\n"
                         "muster_store_up 0\n");
    stats_print(a->stats, &b);
    http_reply_text(req, 200, "text/plain; version=0.0.4; charset=utf-8", buf_text(&b), b.len);
    buf_clear(&b);
}

const struct http_route routes_table[] = {
    {"POST", "/v1/jobs", ROLE_USER, on_jobs_submit, 0, queries_submit},
    {"GET", "/v1/jobs", ROLE_VIEWER, on_listing_jobs, 0, queries_jobs},
    {"POST", "/v1/jobs:batch", ROLE_USER, on_batch_submit, 0, NULL},
    {"POST", "/v1/jobs:cancel", ROLE_USER, on_bulk_cancel, 0, NULL},
    {"GET", "/v1/jobs/{id}", ROLE_VIEWER, on_jobs_get, 0, NULL},
    {"PATCH", "/v1/jobs/{id}", ROLE_USER, on_jobs_patch, 0, NULL},
    {"POST", "/v1/jobs/{id}/cancel", ROLE_USER, on_jobs_action, 0, NULL},
    {"POST", "/v1/jobs/{id}/suspend", ROLE_USER, on_jobs_action, 0, NULL},
    {"POST", "/v1/jobs/{id}/resume", ROLE_USER, on_jobs_resume, 0, NULL},
    {"POST", "/v1/jobs/{id}/checkpoint", ROLE_USER, on_jobs_action, 0, NULL},
    {"POST", "/v1/jobs/{id}/retry", ROLE_USER, on_jobs_retry, 0, queries_retry},
    {"GET", "/v1/jobs/{id}/events", ROLE_VIEWER, on_timeline_of_job, 0, queries_job_events},
    {"GET", "/v1/jobs/{id}/logs", ROLE_VIEWER, on_jobs_logs, 0, queries_logs},
    {"GET", "/v1/jobs/{id}/metrics", ROLE_VIEWER, on_jobs_metrics, 0, queries_metrics},
    {"GET", "/v1/jobs/{id}/series", ROLE_VIEWER, on_jobs_series, 0, queries_series},
    {"GET", "/v1/jobs/{id}/checkpoints", ROLE_VIEWER, on_checkpoints_list, 0, NULL},
    {"POST", "/v1/jobs/{id}/checkpoints/{step}/verify", ROLE_USER, on_checkpoints_act, 0, NULL},
    {"POST", "/v1/jobs/{id}/checkpoints/{step}/export", ROLE_USER, on_checkpoints_act, 0, NULL},
    {"POST", "/v1/jobs/{id}/checkpoints/{step}/sample", ROLE_USER, on_checkpoints_act, 0, NULL},
    {"DELETE", "/v1/jobs/{id}/checkpoints/{step}", ROLE_USER, on_checkpoints_act, 0, NULL},
    {"GET", "/v1/jobs/{id}/diagnosis", ROLE_VIEWER, on_jobs_diagnosis, LONG_POLL_S, NULL},
    {"GET", "/v1/jobs/{id}/ranks", ROLE_VIEWER, on_jobs_ranks, 0, queries_ranks},
    {"GET", "/v1/jobs/{id}/incidents", ROLE_VIEWER, on_jobs_incidents, 0, NULL},
    {"GET", "/v1/jobs/{id}/incidents/{n}", ROLE_VIEWER, on_jobs_incidents, 0, NULL},
    {"GET", "/v1/jobs/{id}/explain", ROLE_VIEWER, on_jobs_explain, 0, NULL},
    {"POST", "/v1/jobs/{id}/exec", ROLE_USER, on_sessions_exec, 0, NULL},
    {"POST", "/v1/jobs/{id}/forward", ROLE_USER, on_sessions_forward, 0, NULL},
    {"GET", "/v1/exec/{session}", ROLE_NONE, on_relay_client, 0, queries_exec},
    {"GET", "/v1/events", ROLE_VIEWER, on_timeline_of_all, 0, queries_events},
    {"GET", "/v1/nodes", ROLE_VIEWER, on_nodes_list, 0, queries_nodes},
    {"GET", "/v1/nodes/{id}", ROLE_VIEWER, on_nodes_get, 0, NULL},
    {"GET", "/v1/nodes/{id}/series", ROLE_VIEWER, on_measures_node, 0, queries_node_series},
    {"POST", "/v1/nodes/{id}/drain", ROLE_ADMIN, on_nodes_drain, 0, queries_drain},
    {"POST", "/v1/nodes/{id}/undrain", ROLE_ADMIN, on_nodes_undrain, 0, NULL},
    {"POST", "/v1/nodes/{id}/test", ROLE_ADMIN, on_nodes_test, 0, NULL},
    {"POST", "/v1/nodes/{id}/end", ROLE_ADMIN, on_booking_end_node, 0, NULL},
    {"DELETE", "/v1/nodes/{id}", ROLE_ADMIN, on_nodes_remove, 0, NULL},
    {"POST", "/v1/nodes/{id}/enroll", ROLE_ADMIN, on_enroll_make, 0, queries_enroll},
    {"DELETE", "/v1/nodes/{id}/enroll", ROLE_ADMIN, on_enroll_forget, 0, NULL},
    {"GET", "/v1/cluster", ROLE_VIEWER, on_nodes_cluster, 0, NULL},
    {"GET", "/v1/allocations", ROLE_VIEWER, on_supply_list, 0, NULL},
    {"GET", "/v1/cluster/plan", ROLE_VIEWER, on_outlook_plan, 0, NULL},
    {"GET", "/v1/cluster/series", ROLE_VIEWER, on_measures_cluster, 0, queries_cluster_series},
    {"POST", "/v1/cluster/what-if", ROLE_VIEWER, on_outlook_what_if, 0, NULL},
    {"GET", "/v1/cluster/snapshot", ROLE_ADMIN, on_nodes_snapshot, 0, NULL},
    {"GET", "/v1/schema", ROLE_VIEWER, on_schema, 0, NULL},
    {"GET", "/v1/profiles", ROLE_VIEWER, on_plans_profiles, 0, NULL},
    {"GET", "/v1/maintenance", ROLE_VIEWER, on_booking_list_maintenance, 0, NULL},
    {"POST", "/v1/maintenance", ROLE_ADMIN, on_booking_add_maintenance, 0, NULL},
    {"DELETE", "/v1/maintenance/{id}", ROLE_ADMIN, on_booking_drop_maintenance, 0, NULL},
    {"GET", "/v1/reservations", ROLE_VIEWER, on_booking_list_reservations, 0, NULL},
    {"POST", "/v1/reservations", ROLE_ADMIN, on_booking_add_reservation, 0, NULL},
    {"DELETE", "/v1/reservations/{id}", ROLE_ADMIN, on_booking_drop_reservation, 0, NULL},
    {"GET", "/v1/usage", ROLE_VIEWER, on_ledger_report, 0, queries_usage},
    {"GET", "/v1/reports/estimates", ROLE_VIEWER, on_estimates_report, 0, NULL},
    {"GET", "/v1/reports/predictions", ROLE_VIEWER, on_predictions_report, 0, NULL},
    {"GET", "/v1/projects", ROLE_VIEWER, on_projects_list, 0, NULL},
    {"GET", "/v1/projects/{name}", ROLE_VIEWER, on_projects_get, 0, NULL},
    {"PUT", "/v1/projects/{name}", ROLE_ADMIN, on_projects_put, 0, NULL},
    {"DELETE", "/v1/projects/{name}", ROLE_ADMIN, on_projects_remove, 0, NULL},
    {"PUT", "/v1/projects/{name}/members/{user}", ROLE_USER, on_projects_put_member, 0, NULL},
    {"DELETE", "/v1/projects/{name}/members/{user}", ROLE_USER, on_projects_drop_member, 0, NULL},
    {"GET", "/v1/audit", ROLE_ADMIN, on_audit_list, 0, queries_audit},
    {"GET", "/v1/secrets", ROLE_USER, on_secrets_list, 0, NULL},
    {"PUT", "/v1/secrets/{name}", ROLE_USER, on_secrets_put, 0, NULL},
    {"DELETE", "/v1/secrets/{name}", ROLE_USER, on_secrets_drop, 0, NULL},
    {"GET", "/v1/schedules", ROLE_USER, on_schedule_calls_list, 0, NULL},
    {"POST", "/v1/schedules", ROLE_USER, on_schedule_calls_add, 0, NULL},
    {"GET", "/v1/schedules/{name}", ROLE_USER, on_schedule_calls_get, 0, NULL},
    {"PATCH", "/v1/schedules/{name}", ROLE_USER, on_schedule_calls_patch, 0, NULL},
    {"DELETE", "/v1/schedules/{name}", ROLE_USER, on_schedule_calls_drop, 0, NULL},
    {"POST", "/v1/schedules/{name}/run", ROLE_USER, on_schedule_calls_run, 0, NULL},
    {"GET", "/v1/webhooks", ROLE_USER, on_webhook_calls_list, 0, NULL},
    {"POST", "/v1/webhooks", ROLE_USER, on_webhook_calls_add, 0, NULL},
    {"GET", "/v1/webhooks/{name}", ROLE_USER, on_webhook_calls_get, 0, NULL},
    {"PATCH", "/v1/webhooks/{name}", ROLE_USER, on_webhook_calls_patch, 0, NULL},
    {"DELETE", "/v1/webhooks/{name}", ROLE_USER, on_webhook_calls_drop, 0, NULL},
    {"POST", "/v1/webhooks/{name}/test", ROLE_USER, on_webhook_calls_test, 0, NULL},
    {"GET", "/v1/webhooks/{name}/deliveries", ROLE_USER, on_webhook_calls_deliveries, 0, NULL},
    {"GET", "/v1/bundles/{name}", ROLE_USER, on_bundles, 0, NULL},
    {"PUT", "/v1/bundles/{name}", ROLE_USER, on_bundles, 0, queries_put_bundle},
    {"GET", "/v1/tokens", ROLE_ADMIN, on_tokens_list, 0, NULL},
    {"POST", "/v1/tokens", ROLE_ADMIN, on_tokens_create, 0, NULL},
    {"DELETE", "/v1/tokens/{id}", ROLE_ADMIN, on_tokens_revoke, 0, NULL},
    {"GET", "/v1/quarantine", ROLE_ADMIN, on_salvage_list, 0, NULL},
    {"POST", "/v1/quarantine/{id}/retry", ROLE_ADMIN, on_salvage_retry, 0, NULL},
    {"DELETE", "/v1/quarantine/{id}", ROLE_ADMIN, on_salvage_drop, 0, NULL},
    {"POST", "/v1/agents/join", ROLE_NONE, on_enroll_join, 0, NULL},
    {"POST", "/v1/agents/{node}/certificate", ROLE_AGENT, on_enroll_renew, 0, NULL},
    {"POST", "/v1/agents/register", ROLE_AGENT, on_agents_register, 0, NULL},
    {"GET", "/v1/agents/{node}/assignments", ROLE_AGENT, on_polls_assignments, LONG_POLL_S, queries_assignments},
    {"POST", "/v1/agents/{node}/report", ROLE_AGENT, on_reports_take, 0, NULL},
    {"POST", "/v1/agents/{node}/evidence", ROLE_AGENT, on_looks_take, 0, NULL},
    {"PUT", "/v1/agents/{node}/rendezvous/{job}/{generation}/{key}", ROLE_AGENT, on_polls_put_key, 0, queries_put_key},
    {"GET", "/v1/agents/{node}/rendezvous/{job}/{generation}", ROLE_AGENT, on_polls_keys, LONG_POLL_S, queries_keys},
    {"GET", "/v1/agents/{node}/exec/{session}", ROLE_AGENT, on_relay_agent, 0, NULL},
    {"GET", "/healthz", ROLE_NONE, on_healthz, HTTP_PROBE, NULL},
    {"GET", "/readyz", ROLE_NONE, on_readyz, HTTP_PROBE, NULL},
    {"GET", "/metrics", ROLE_NONE, on_metrics, 0, NULL},
    {"GET", "/openapi.yaml", ROLE_NONE, web_openapi, 0, NULL},
    {"GET", "/", ROLE_NONE, web_page, 0, NULL},
    {"GET", "/assets/{name}", ROLE_NONE, web_file, 0, NULL},
    {"GET", "/docs", ROLE_NONE, on_docs, 0, NULL},
    {"GET", "/docs/{page}", ROLE_NONE, on_docs_page, 0, NULL},
    {"GET", "/docs/{folder}/{file}", ROLE_NONE, on_docs_page, 0, NULL},
};
const size_t routes_count = sizeof(routes_table) / sizeof(routes_table[0]);
