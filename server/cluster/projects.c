#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/control/core.h"

#define WEIGHT_MAX 1000.0

static const char *const class_name[] = {"elastic", "guaranteed", "opportunistic"};

struct project *projects_find(struct core *c, const char *name)
{
    for (size_t i = 0; i < c->n_projects; i++)
        if (strcmp(c->projects[i].name, name) == 0)
            return &c->projects[i];
    return NULL;
}

static struct project new_project(const char *name)
{
    struct project p = {.quota = -1, .borrow = -1, .weight_milli = 1000, .class_ = SCHED_ELASTIC};

    (void)snprintf(p.name, sizeof(p.name), "%s", name);
    return p;
}

/* Put one in, or in its namesake's place. -ENOSPC, -ENOMEM. */
static int put(struct core *c, const struct project *p)
{
    struct project *at = projects_find(c, p->name), *grown;

    if (at) {
        *at = *p;
        return 0;
    }
    if (c->n_projects == CORE_PROJECTS_MAX)
        return -ENOSPC;
    grown = realloc(c->projects, (c->n_projects + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    c->projects = grown;
    c->projects[c->n_projects++] = *p;
    return 0;
}

static json_t *whole_or_null(int n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *as_kept(const struct project *p)
{
    return json_pack("{s:s, s:o, s:o, s:f, s:s}", "name", p->name, "quota", whole_or_null(p->quota), "borrow",
                     whole_or_null(p->borrow), "weight", (double)p->weight_milli / 1000, "class",
                     class_name[p->class_]);
}

/* With what its jobs hold now and have had, those that have ended included. */
static json_t *view(struct core *c, const struct project *p)
{
    json_t *o = as_kept(p);
    int64_t us = store_read_device_us(c->store, p->name), now = clock_wall_us();
    json_int_t devices = 0;

    for (size_t i = 0; i < c->n_order; i++) {
        const struct entry *e = core_find(c, c->order[i]);

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

void projects_job_ended(struct core *c, const struct job *j)
{
    store_add_device_us(c->store, j->project, j->device_us);
}

/* --- reading --------------------------------------------------------------------------------------------- */

/* A whole number or null. False: it is neither. */
static bool read_count(const json_t *o, const char *key, int *ret)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= RATES_COUNT_MAX)
        *ret = (int)json_integer_value(v);
    else if (json_is_null(v))
        *ret = -1;
    else if (v)
        return false;
    return true;
}

/* Change *p as o says. Returns NULL, or the field that is not valid. */
static const char *read_fields(const json_t *o, struct project *p)
{
    const json_t *weight = json_object_get(o, "weight"), *class_ = json_object_get(o, "class");
    double w = json_number_value(weight);
    bool known = !class_;

    if (!read_count(o, "quota", &p->quota))
        return "quota";
    if (!json_object_get(o, "borrow"))
        p->borrow = p->quota < 0 ? -1 : 0; /* a quota alone is the limit */
    if (!read_count(o, "borrow", &p->borrow))
        return "borrow";
    if (p->quota < 0 && p->borrow >= 0)
        return "borrow";
    if (weight && (!json_is_number(weight) || !(w >= 0.001) || w > WEIGHT_MAX))
        return "weight";
    if (weight)
        p->weight_milli = (int64_t)lround(w * 1000);
    for (size_t i = 0; json_is_string(class_) && i < sizeof(class_name) / sizeof(class_name[0]); i++)
        if (strcmp(json_string_value(class_), class_name[i]) == 0) {
            p->class_ = (enum sched_class)i;
            known = true;
        }
    return known ? NULL : "class";
}

int projects_load(struct core *c, struct merr *err)
{
    struct store_rows all = {0};
    int r = store_read_rows(c->store, STORE_PROJECTS, &all, err);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        json_t *o = json_loads(all.v[i].text, 0, NULL);
        struct project p = new_project(all.v[i].name);

        r = o && !read_fields(o, &p) ? put(c, &p) : -EINVAL;
        if (r < 0)
            (void)merr_set(err, r, "the store's record of project '%s' cannot be read", p.name);
        json_decref(o);
    }
    store_rows_clear(&all);
    return r;
}

/* --- routes ---------------------------------------------------------------------------------------------- */

void projects_get(struct core *c, struct call *call)
{
    const char *name = http_param(call->req, 0);
    const struct project *p = projects_find(c, name);
    struct project plain = new_project(name);

    if (p || strcmp(name, "default") == 0)
        call_answer_new(call, 200, view(c, p ? p : &plain));
    else
        call_problem(call, 404, "unknown-project", "no project '%s'", name);
}

void projects_list(struct core *c, struct call *call)
{
    json_t *all = json_array();

    for (size_t i = 0; i < c->n_projects; i++)
        (void)json_array_append_new(all, view(c, &c->projects[i]));
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
    json_t *kept;
    char *text;
    int r;

    if (!only_known(call))
        return;
    if (!*name || strlen(name) >= SPEC_NAME_MAX) {
        call_problem(call, 422, "project-invalid", "a project's name has 1 to %d bytes", SPEC_NAME_MAX - 1);
        return;
    }
    p = new_project(name);
    wrong = read_fields(call->body, &p);
    if (wrong) {
        call_problem(call, 422, "project-invalid",
                     "'%s' is not valid: quota wants devices or null, borrow as well and only with a quota, weight a "
                     "number from 0.001 to %g, class elastic, guaranteed or opportunistic",
                     wrong, WEIGHT_MAX);
        return;
    }
    r = put(c, &p);
    if (r < 0) {
        call_problem(call, 503, "too-many-projects", "%d projects are the most this server keeps", CORE_PROJECTS_MAX);
        return;
    }
    kept = as_kept(&p);
    text = kept ? json_dumps(kept, JSON_COMPACT) : NULL;
    json_decref(kept);
    if (text)
        store_put(c->store, STORE_PROJECTS, name, text);
    else
        c->cfg.fatal(c->cfg.arg, "out of memory for a project");
    free(text);
    c->schedule_wanted = true;
    call_answer_new(call, 200, view(c, &p));
}
