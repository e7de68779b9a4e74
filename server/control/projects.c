#include "server/control/projects.h"

#include <errno.h>
#include <string.h>

#include "server/control/records.h"
#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/control/usage.h"
#include "server/http/call.h"

/* With what its jobs hold now and have had, those that have ended included. */
static json_t *view(struct core *c, const struct project *p)
{
    const struct catalog_name *jobs = catalog_project(&c->jobs.catalog, p->name);
    json_t *o = project_record(p);
    int64_t us = records_read_device_us(c, p->name), now = c->now.wall_us;
    json_int_t devices = 0;

    for (size_t i = 0; jobs && i < jobs->active.n; i++) {
        const struct entry *e = table_find(&c->jobs, jobs->active.v[jobs->active.first + i]->id);

        if (!e)
            continue;
        us += e->job.device_us;
        if (e->job.live) {
            devices += (json_int_t)e->job.n_places;
            us += now > e->job.changed_us ? (int64_t)e->job.n_places * (now - e->job.changed_us) : 0;
        }
    }
    if (o)
        (void)json_object_set_new(o, "used",
                                  json_pack("{s:I, s:f}", "devices", devices, "device_seconds", (double)us / 1e6));
    return o;
}

void projects_get(struct core *c, struct call *call)
{
    const char *name = http_param(call->req, 0);
    const struct project *p = project_find(&c->cluster.projects, name);
    struct project plain = project_new(name);

    if (p || strcmp(name, "default") == 0) {
        json_t *o = view(c, p ? p : &plain);

        (void)json_object_set_new(json_object_get(o, "used"), "lately_device_seconds",
                                  json_real(usage_of(c, name) / 1e6));
        call_answer_new(call, 200, o);
    } else {
        call_problem(call, 404, "unknown-project", "no project '%s'", name);
    }
}

void projects_list(struct core *c, struct call *call)
{
    json_t *all = json_array();

    for (size_t i = 0; i < c->cluster.projects.n; i++)
        (void)json_array_append_new(all, view(c, &c->cluster.projects.v[i]));
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "projects", all, "next_cursor"));
}

static bool only_known(struct call *call)
{
    static const char *const known[] = {"name",        "quota",          "borrow",
                                        "weight",      "class",          "max_priority",
                                        "max_running", "max_queued",     "max_devices_per_user",
                                        "max_time_s",  "default_time_s", "members",
                                        "parent",      "classes"};
    const char *key;
    json_t *value;

    json_object_foreach (call->body, key, value) {
        bool found = false;

        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            found = found || strcmp(key, known[i]) == 0;
        if (!found) {
            call_problem(call, 422, "unknown-field",
                         "a project has no field '%s'; known are parent, quota, borrow, classes, weight, class, "
                         "max_priority, max_running, "
                         "max_queued, max_devices_per_user, max_time_s, default_time_s and members",
                         key);
            return false;
        }
    }
    return true;
}

/* before: its record; taken over. */
static void answer_changed_new(struct core *c, struct call *call, const struct project *p, json_t *before)
{
    call_changed_new(call, before, project_record(p));
    if (!records_put_project(c, p))
        state_fatal(c, "out of memory for a project");
    c->schedule_wanted = true;
    call_answer_new(call, 200, view(c, p));
}

void projects_put(struct core *c, struct call *call)
{
    const char *name = http_param(call->req, 0), *wrong;
    const struct project *was = project_find(&c->cluster.projects, name);
    json_t *before;
    struct project p;
    int r;

    if (!only_known(call))
        return;
    if (!*name || strlen(name) >= SPEC_NAME_MAX) {
        call_problem(call, 422, "project-invalid", "a project's name has 1 to %d bytes", SPEC_NAME_MAX - 1);
        return;
    }
    p = project_new(name);
    p.members = was ? json_incref(was->members) : NULL; /* stay unless the body has some */
    wrong = project_read(call->body, &p);
    if (wrong) {
        json_decref(p.members);
        call_problem(
            call, 422, "project-invalid",
            "'%s' is not valid: quota and ceilings want a number or null, borrow as well and only with a quota, "
            "max_priority one up to 100, default_time_s no more than max_time_s, weight a number from 0.001 to %g, "
            "class elastic, guaranteed or opportunistic, parent a project's name or null, classes null or "
            "{CLASS: {\"quota\": N, \"borrow\": N or null}} of at most 16, members null or {USER: \"member\" or "
            "\"manager\"} of at most %d",
            wrong, PROJECT_WEIGHT_MAX, PROJECT_MEMBERS_MAX);
        return;
    }
    wrong = project_check_parent(&c->cluster.projects, &p);
    if (wrong) {
        json_decref(p.members);
        call_problem(call, 422, "project-invalid", "project '%s' cannot be within '%s': %s", p.name, p.parent, wrong);
        return;
    }
    before = was ? project_record(was) : NULL;
    r = project_put_take(&c->cluster.projects, &p);
    if (r < 0) {
        json_decref(before);
        call_problem(call, 503, "too-many-projects", "%d projects are the most this server keeps", PROJECT_MOST);
        return;
    }
    answer_changed_new(c, call, project_find(&c->cluster.projects, name), before);
}

/* --- members ----------------------------------------------------------------------------------------- */

/* The project of the path, which the caller may change members of; NULL: the call is answered. */
static struct project *managed(struct core *c, struct call *call)
{
    const char *name = http_param(call->req, 0);
    struct project *p = project_find(&c->cluster.projects, name);

    if (!p)
        call_problem(call, 404, "unknown-project", "no project '%s'; an admin makes one by setting its limits", name);
    else if (!rights_manages(c, http_identity(call->req), name))
        call_problem(call, 403, "not-a-manager", "user '%s' is no manager of project '%s'",
                     http_identity(call->req)->user, name);
    return call->status == 0 ? p : NULL;
}

static void set_role(struct core *c, struct call *call, struct project *p, enum project_role role)
{
    const char *user = http_param(call->req, 1);
    json_t *before = project_record(p);
    int r = *user && strlen(user) < SPEC_NAME_MAX ? project_set_role(p, user, role) : -EINVAL;

    if (r == -EINVAL)
        call_problem(call, 422, "user-invalid", "a user's name has 1 to %d bytes", SPEC_NAME_MAX - 1);
    else if (r < 0)
        call_problem(call, r == -ENOSPC ? 409 : 503, r == -ENOSPC ? "too-many-members" : "no-memory",
                     "project '%s' has room for %d members", p->name, PROJECT_MEMBERS_MAX);
    else
        answer_changed_new(c, call, p, json_incref(before));
    json_decref(before);
}

void projects_put_member(struct core *c, struct call *call)
{
    struct project *p = managed(c, call);
    enum project_role role = project_role_parse(json_string_value(json_object_get(call->body, "role")));

    if (p && (role == PROJECT_STRANGER || json_object_size(call->body) != 1))
        call_problem(call, 422, "role-invalid", "want {\"role\": \"member\"} or \"manager\"");
    else if (p)
        set_role(c, call, p, role);
}

void projects_drop_member(struct core *c, struct call *call)
{
    struct project *p = managed(c, call);

    if (p && !json_object_get(p->members, http_param(call->req, 1)))
        call_problem(call, 404, "unknown-member", "'%s' is no member of project '%s'", http_param(call->req, 1),
                     p->name);
    else if (p)
        set_role(c, call, p, PROJECT_STRANGER);
}

void projects_remove(struct core *c, struct call *call)
{
    const char *name = http_param(call->req, 0);
    struct project *p = project_find(&c->cluster.projects, name);
    const struct catalog_name *jobs = catalog_project(&c->jobs.catalog, name);

    if (!p) {
        call_problem(call, 404, "unknown-project", "no project '%s'", name);
    } else if (project_has_inner(&c->cluster.projects, p)) {
        call_problem(call, 409, "project-in-use", "other projects are within '%s'; give them another parent first",
                     name);
    } else if (jobs && jobs->active.n > 0) {
        call_problem(call, 409, "project-in-use", "%zu jobs of project '%s' have not ended; cancel them first",
                     jobs->active.n, name);
    } else {
        call_changed_new(call, project_record(p), NULL);
        call_answer_new(call, 200, view(c, p));
        records_drop_row(c, STORE_PROJECTS, p->name);
        project_drop(&c->cluster.projects, p);
        c->schedule_wanted = true;
    }
}
