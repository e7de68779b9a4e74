#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/core.h"

json_t *view_time(int64_t wall_us)
{
    char text[CLOCK_RFC3339_MAX];

    if (wall_us == 0)
        return json_null();
    clock_rfc3339(wall_us, text);
    return json_string(text);
}

json_t *view_progress(const json_t *line, int steps)
{
    json_int_t done = json_integer_value(json_object_get(line, "step"));
    double step_ms = json_number_value(json_object_get(line, "step_ms"));
    json_t *loss = json_object_get(line, "loss"), *speed = json_object_get(line, "tokens_per_s");

    done += json_object_get(line, "step") != NULL; /* metrics count steps from 0 */
    return json_pack("{s:I, s:i, s:O?, s:O?, s:I}", "step", done, "steps", steps, "loss", loss, "tokens_per_s", speed,
                     "eta_s", (json_int_t)((double)(steps > done ? steps - done : 0) * step_ms / 1000.0));
}

void view_reason(const struct core *c, const struct entry *e, char *ret, size_t size)
{
    const struct cluster_reason *r = &e->reason;
    int lack = r->need - r->free;

    (void)c;
    switch (r->code) {
    case CLUSTER_INSUFFICIENT:
        (void)snprintf(ret, size, "waits for %d more device%s: it takes %d at once and %d of its classes %s free", lack,
                       lack == 1 ? "" : "s", r->need, r->free, r->free == 1 ? "is" : "are");
        return;
    case CLUSTER_BEHIND:
        (void)snprintf(ret, size, "waits behind j%llu, which is before it in the queue and waits for devices",
                       (unsigned long long)r->behind);
        return;
    case CLUSTER_NODES_DRAINED:
        (void)snprintf(ret, size, "takes %d devices; the cluster has them only with the nodes that are drained",
                       r->need);
        return;
    case CLUSTER_TOO_SMALL:
        (void)snprintf(ret, size, "takes %d devices; the cluster has %d of its classes", r->need, r->total);
        return;
    case CLUSTER_NO_CLASS:
        (void)snprintf(ret, size, "no node has devices of the classes it may use");
        return;
    case CLUSTER_NO_NODES:
        (void)snprintf(ret, size, "no node has registered yet");
        return;
    case CLUSTER_HELD:
        (void)snprintf(ret, size, "waits a little before it starts again");
        return;
    case CLUSTER_NO_LAYOUT:
        (void)snprintf(ret, size, "no whole number of replicas lies between devices.min and devices.max");
        return;
    case CLUSTER_ASSIGNED:
        break;
    }
    (void)snprintf(ret, size, "waits for the next scheduling round");
}

static json_t *reason_of(const struct core *c, const struct job *j, const struct entry *e)
{
    char text[256];

    if (!e || !job_waits(j))
        return json_pack("{s:s, s:s}", "code", j->reason_code, "text", j->reason_text ? j->reason_text : "");
    view_reason(c, e, text, sizeof(text));
    return json_pack("{s:s, s:s}", "code", e->reason.need == 0 ? "submitted" : cluster_reason_name(e->reason.code),
                     "text", text);
}

static json_t *assignment_of(const struct job *j)
{
    json_t *all = json_array();

    for (size_t i = 0; i < j->n_places; i++)
        (void)json_array_append_new(all, json_pack("{s:i, s:s, s:i, s:s}", "rank", (int)i, "node", j->places[i].node,
                                                   "slot", j->places[i].slot, "class", j->places[i].class_));
    return all;
}

json_t *view_job(const struct core *c, const struct job *j, const struct entry *e, const char *spec_text)
{
    char id[24], dir[4096];
    json_t *layout = json_null(), *o;

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)snprintf(dir, sizeof(dir), "%s/%s", c->cfg.jobs_dir, id);
    if (j->layout.world > 0)
        layout = json_pack("{s:i, s:i, s:i, s:i}", "tp", j->layout.tp, "pp", j->layout.pp, "dp", j->layout.dp, "cp",
                           j->layout.cp);
    o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:{s:i, s:i, s:I}, s:o, s:o, s:O?, "
                  "s:O?, s:O?, s:{s:i, s:i, s:i}, s:s, s:O?}",
                  "id", id, "name", j->name, "project", j->project, "kind", j->kind == JOB_TRAIN ? "train" : "command",
                  "user", j->user, "state", job_state_name(j->state), "priority", j->priority, "generation",
                  (json_int_t)j->generation, "reason", reason_of(c, j, e), "submitted_at", view_time(j->submitted_us),
                  "started_at", view_time(j->started_us), "finished_at", view_time(j->finished_us), "devices", "min",
                  j->min, "max", j->max, "assigned", (json_int_t)j->n_places, "layout", layout, "assignment",
                  assignment_of(j), "progress", j->progress, "eval", j->eval, "checkpoint", j->checkpoint, "restarts",
                  "system", j->restarts_system, "node", j->restarts_node, "user", j->restarts_user, "dir", dir,
                  "outcome", j->outcome);
    if (o && spec_text)
        (void)json_object_set_new(o, "spec", json_loads(spec_text, 0, NULL));
    return o;
}

static const char *node_state(const struct node *n)
{
    if (n->contact == NODE_LOST)
        return "lost";
    if (n->contact == NODE_UNKNOWN || !n->registered)
        return "unknown";
    if (!n->drain)
        return "ready";
    for (size_t i = 0; i < n->n_slots; i++)
        if (n->slots[i].job != 0)
            return "draining";
    return "drained";
}

json_t *view_node(const struct core *c, const struct node *n)
{
    json_t *slots = json_array();

    for (size_t i = 0; i < n->n_slots; i++) {
        const struct slot *s = &n->slots[i];
        char job[24];

        (void)snprintf(job, sizeof(job), "j%llu", (unsigned long long)s->job);
        (void)json_array_append_new(slots, json_pack("{s:i, s:s, s:s, s:s, s:s?, s:o, s:o*}", "slot", s->slot, "kind",
                                                     s->kind, "class", c->classes[s->class_], "state",
                                                     s->job     ? "busy"
                                                     : core_slot_usable(s) ? "free"
                                                                           : "quarantined",
                                                     "job", s->job ? job : NULL, "rank",
                                                     s->job ? json_integer(s->rank) : json_null(), "gpu",
                                                     gpus_view(n, s->slot)));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "id", n->name, "state", node_state(n), "address", n->address,
                     "version", n->release, "last_seen", view_time(n->seen_wall_us), "slots", slots);
}

/* --- explaining -------------------------------------------------------------------------------------- */

/* Jobs that hold devices the waiting one may use: at most eight, in words that help. */
static void blame_holders(const struct core *c, const struct entry *e, json_t *behind, json_t *help)
{
    char text[96];

    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; k < c->nodes[i]->n_slots && json_array_size(behind) < 8; k++) {
            const struct slot *s = &c->nodes[i]->slots[k];
            bool seen = false;

            if (s->job == 0 || !(core_classes_of(c, e) >> s->class_ & 1))
                continue;
            (void)snprintf(text, sizeof(text), "j%llu", (unsigned long long)s->job);
            for (size_t b = 0; b < json_array_size(behind); b++)
                seen = seen || strcmp(json_string_value(json_array_get(behind, b)), text) == 0;
            if (seen)
                continue;
            (void)json_array_append_new(behind, json_string(text));
            (void)snprintf(text, sizeof(text), "wait for j%llu to end, or cancel or suspend it",
                           (unsigned long long)s->job);
            (void)json_array_append_new(help, json_string(text));
        }
}

static json_t *waiting_cause(const struct core *c, const struct entry *e)
{
    const struct cluster_reason *r = &e->reason;
    json_t *behind = json_array(), *help = json_array();
    char text[256], hint[96];

    view_reason(c, e, text, sizeof(text));
    if (r->code == CLUSTER_INSUFFICIENT) {
        blame_holders(c, e, behind, help);
        if (r->free > 0 && r->need > r->free && plan_replica_devices(&e->facts) <= r->free) {
            (void)snprintf(hint, sizeof(hint), "lower devices.min to %d", r->free);
            (void)json_array_append_new(help, json_string(hint));
        }
    } else if (r->code == CLUSTER_BEHIND) {
        (void)snprintf(hint, sizeof(hint), "j%llu", (unsigned long long)r->behind);
        (void)json_array_append_new(behind, json_string(hint));
        (void)json_array_append_new(help, json_string("raise its priority above that of the job before it"));
    } else if (r->code == CLUSTER_NODES_DRAINED) {
        (void)json_array_append_new(help, json_string("undrain a node"));
    } else if (r->code == CLUSTER_TOO_SMALL || r->code == CLUSTER_NO_CLASS || r->code == CLUSTER_NO_NODES) {
        (void)json_array_append_new(help, json_string("start muster-agent on a node with such devices"));
        if (r->code != CLUSTER_NO_NODES)
            (void)json_array_append_new(help, json_string("lower devices.min or allow more classes"));
    }
    return json_pack("{s:s, s:s, s:i, s:i, s:n, s:o, s:o}", "code", cluster_reason_name(r->code), "text", text, "need",
                     r->need, "free", r->free, "class", "behind", behind, "would_help", help);
}

json_t *view_explain(const struct core *c, const struct job *j, const struct entry *e)
{
    json_t *causes = json_array(), *help = json_array();
    char id[24], summary[256];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    (void)snprintf(summary, sizeof(summary), "%s", j->reason_text ? j->reason_text : job_state_name(j->state));
    if (e && job_waits(j)) {
        view_reason(c, e, summary, sizeof(summary));
        (void)json_array_append_new(causes, waiting_cause(c, e));
    } else if (j->outcome && json_object_get(j->outcome, "message")) {
        (void)json_array_append_new(causes, json_pack("{s:s, s:O, s:n, s:n, s:n, s:[], s:o}", "code", j->reason_code,
                                                      "text", json_object_get(j->outcome, "message"), "need", "free",
                                                      "class", "behind", "would_help", json_incref(help)));
    } else {
        (void)json_array_append_new(causes, json_pack("{s:s, s:s, s:n, s:n, s:n, s:[], s:o}", "code", j->reason_code,
                                                      "text", summary, "need", "free", "class", "behind", "would_help",
                                                      json_incref(help)));
    }
    if (j->state == JOB_SUSPENDED)
        (void)json_array_append_new(help, json_string("resume it"));
    if (j->state == JOB_FAILED)
        (void)json_array_append_new(help,
                                    json_string("read its logs; allow more restarts with retry.max or retry.user"));
    json_decref(help);
    return json_pack("{s:s, s:s, s:s, s:o}", "job", id, "state", job_state_name(j->state), "summary", summary, "causes",
                     causes);
}
