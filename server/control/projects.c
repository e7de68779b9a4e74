#include "server/control/projects.h"

#include <string.h>

#include "server/control/records.h"
#include "server/control/state.h"
#include "server/http/call.h"

/* With what its jobs hold now and have had, those that have ended included. */
static json_t *view(struct core *c, const struct project *p)
{
    json_t *o = project_record(p);
    int64_t us = records_read_device_us(c, p->name), now = c->now.wall_us;
    json_int_t devices = 0;

    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);

        if (!e || strcmp(e->job.project, p->name) != 0)
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

    if (p || strcmp(name, "default") == 0)
        call_answer_new(call, 200, view(c, p ? p : &plain));
    else
        call_problem(call, 404, "unknown-project", "no project '%s'", name);
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
    static const char *const known[] = {"name", "quota", "borrow", "weight", "class"};
    const char *key;
    json_t *value;

    json_object_foreach (call->body, key, value) {
        bool found = false;

        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            found = found || strcmp(key, known[i]) == 0;
        if (!found) {
            call_problem(call, 422, "unknown-field",
                         "a project has no field '%s'; known are quota, borrow, weight and class", key);
            return false;
        }
    }
    return true;
}

void projects_put(struct core *c, struct call *call)
{
    const char *name = http_param(call->req, 0), *wrong;
    struct project p;
    int r;

    if (!only_known(call))
        return;
    if (!*name || strlen(name) >= SPEC_NAME_MAX) {
        call_problem(call, 422, "project-invalid", "a project's name has 1 to %d bytes", SPEC_NAME_MAX - 1);
        return;
    }
    p = project_new(name);
    wrong = project_read(call->body, &p);
    if (wrong) {
        call_problem(call, 422, "project-invalid",
                     "'%s' is not valid: quota wants devices or null, borrow as well and only with a quota, weight a "
                     "number from 0.001 to %g, class elastic, guaranteed or opportunistic",
                     wrong, PROJECT_WEIGHT_MAX);
        return;
    }
    r = project_put_take(&c->cluster.projects, &p);
    if (r < 0) {
        call_problem(call, 503, "too-many-projects", "%d projects are the most this server keeps", PROJECT_MOST);
        return;
    }
    if (!records_put_project(c, &p))
        state_fatal(c, "out of memory for a project");
    c->schedule_wanted = true;
    call_answer_new(call, 200, view(c, &p));
}
