#include "server/cluster/project.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const class_name[] = {"elastic", "guaranteed", "opportunistic"};

struct project project_new(const char *name)
{
    struct project p = {.quota = -1,
                        .borrow = -1,
                        .weight_milli = 1000,
                        .class_ = SCHED_ELASTIC,
                        .max_priority = -1,
                        .max_running = -1,
                        .max_queued = -1,
                        .max_devices_per_user = -1,
                        .max_time_s = -1,
                        .default_time_s = -1};

    (void)snprintf(p.name, sizeof(p.name), "%s", name);
    return p;
}

struct project *project_find(const struct projects *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->v[i].name, name) == 0)
            return &all->v[i];
    return NULL;
}

int project_put_take(struct projects *all, struct project *p)
{
    struct project *at = project_find(all, p->name), *grown;
    int r = all->n == PROJECT_MOST ? -ENOSPC : -ENOMEM;

    if (at) {
        json_decref(at->members);
        *at = *p;
        return 0;
    }
    grown = r == -ENOSPC ? NULL : realloc(all->v, (all->n + 1) * sizeof(*grown));
    if (!grown) {
        json_decref(p->members);
        return r;
    }
    all->v = grown;
    all->v[all->n++] = *p;
    return 0;
}

void project_drop(struct projects *all, struct project *p)
{
    json_decref(p->members);
    memmove(p, p + 1, (size_t)(all->v + all->n - (p + 1)) * sizeof(*p));
    all->n--;
}

void project_clear(struct projects *all)
{
    for (size_t i = 0; i < all->n; i++)
        json_decref(all->v[i].members);
    free(all->v);
    *all = (struct projects){.n = 0};
}

/* --- members ----------------------------------------------------------------------------------------- */

/* "member", "manager"; NULL: PROJECT_STRANGER. */
static const char *role_name(enum project_role role)
{
    static const char *const names[] = {[PROJECT_STRANGER] = NULL, "member", "manager"};

    return names[role];
}

enum project_role project_role_parse(const char *name)
{
    return !name                          ? PROJECT_STRANGER
           : strcmp(name, "member") == 0  ? PROJECT_MEMBER
           : strcmp(name, "manager") == 0 ? PROJECT_MANAGER
                                          : PROJECT_STRANGER;
}

enum project_role project_role(const struct project *p, const char *user)
{
    return p->members ? project_role_parse(json_string_value(json_object_get(p->members, user))) : PROJECT_MEMBER;
}

int project_set_role(struct project *p, const char *user, enum project_role role)
{
    json_t *members = p->members ? json_copy(p->members) : json_object();

    if (members && role == PROJECT_STRANGER)
        (void)json_object_del(members, user);
    else if (!members || json_object_set_new(members, user, json_string(role_name(role))) < 0) {
        json_decref(members);
        return -ENOMEM;
    }
    if (json_object_size(members) > PROJECT_MEMBERS_MAX) {
        json_decref(members);
        return -ENOSPC;
    }
    json_decref(p->members);
    p->members = members;
    return 0;
}

static bool read_members(const json_t *o, struct project *p)
{
    json_t *members = json_object_get(o, "members"), *role;
    const char *user;

    if (!members)
        return true;
    if (!json_is_null(members) && (!json_is_object(members) || json_object_size(members) > PROJECT_MEMBERS_MAX))
        return false;
    json_object_foreach (members, user, role) {
        if (!*user || strlen(user) >= SPEC_NAME_MAX || project_role_parse(json_string_value(role)) == PROJECT_STRANGER)
            return false;
    }
    json_decref(p->members);
    p->members = json_is_null(members) ? NULL : json_deep_copy(members);
    return true;
}

/* --- as JSON ----------------------------------------------------------------------------------------- */

static json_t *whole_or_null(int n)
{
    return n < 0 ? json_null() : json_integer(n);
}

json_t *project_record(const struct project *p)
{
    return json_pack("{s:s, s:o, s:o, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:O?}", "name", p->name, "quota",
                     whole_or_null(p->quota), "borrow", whole_or_null(p->borrow), "weight",
                     (double)p->weight_milli / 1000, "class", class_name[p->class_], "max_priority",
                     whole_or_null(p->max_priority), "max_running", whole_or_null(p->max_running), "max_queued",
                     whole_or_null(p->max_queued), "max_devices_per_user", whole_or_null(p->max_devices_per_user),
                     "max_time_s", whole_or_null(p->max_time_s), "default_time_s", whole_or_null(p->default_time_s),
                     "members", p->members);
}

/* A whole number or null. False: it is neither. */
static bool read_whole(const json_t *o, const char *key, int least, int most, int *ret)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= most)
        *ret = (int)json_integer_value(v);
    else if (json_is_null(v))
        *ret = -1;
    else if (v)
        return false;
    return true;
}

static bool read_count(const json_t *o, const char *key, int *ret)
{
    return read_whole(o, key, 0, RATES_COUNT_MAX, ret);
}

int project_time_s(const struct project *p)
{
    int time_s = !p ? 0 : p->default_time_s > 0 ? p->default_time_s : p->max_time_s;

    return time_s > 0 ? time_s : 0;
}

int64_t project_most(const struct project *p)
{
    return p && p->borrow >= 0 ? (int64_t)(p->quota < 0 ? 0 : p->quota) + p->borrow : INT64_MAX;
}

const char *project_read(const json_t *o, struct project *p)
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
    if (weight && (!json_is_number(weight) || !(w >= 0.001) || w > PROJECT_WEIGHT_MAX))
        return "weight";
    if (weight)
        p->weight_milli = (int64_t)lround(w * 1000);
    for (size_t i = 0; json_is_string(class_) && i < sizeof(class_name) / sizeof(class_name[0]); i++)
        if (strcmp(json_string_value(class_), class_name[i]) == 0) {
            p->class_ = (enum sched_class)i;
            known = true;
        }
    if (!known)
        return "class";
    if (!read_count(o, "max_priority", &p->max_priority) || p->max_priority > 100)
        return "max_priority";
    if (!read_count(o, "max_running", &p->max_running))
        return "max_running";
    if (!read_count(o, "max_queued", &p->max_queued))
        return "max_queued";
    if (!read_count(o, "max_devices_per_user", &p->max_devices_per_user))
        return "max_devices_per_user";
    if (!read_whole(o, "max_time_s", 1, SPEC_TIME_S_MAX, &p->max_time_s))
        return "max_time_s";
    if (!read_whole(o, "default_time_s", 1, SPEC_TIME_S_MAX, &p->default_time_s) ||
        (p->max_time_s > 0 && p->default_time_s > p->max_time_s))
        return "default_time_s";
    return read_members(o, p) ? NULL : "members";
}
