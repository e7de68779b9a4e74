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

static json_t *classes_record(const struct project *p)
{
    json_t *o = p->n_classes > 0 ? json_object() : json_null();

    for (size_t i = 0; i < p->n_classes; i++)
        (void)json_object_set_new(o, p->classes[i].name,
                                  json_pack("{s:o, s:o}", "quota", whole_or_null(p->classes[i].quota), "borrow",
                                            whole_or_null(p->classes[i].borrow)));
    return o;
}

json_t *project_record(const struct project *p)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:O?}", "name", p->name,
                     "parent", p->parent[0] ? json_string(p->parent) : json_null(), "classes", classes_record(p),
                     "quota", whole_or_null(p->quota), "borrow", whole_or_null(p->borrow), "weight",
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

const struct project *project_parent(const struct projects *all, const struct project *p)
{
    return p->parent[0] ? project_find(all, p->parent) : NULL;
}

bool project_ends(const struct projects *all, const struct project *p)
{
    int d = 0;

    while (p && d++ <= PROJECT_DEEP)
        p = project_parent(all, p);
    return !p;
}

bool project_is_within(const struct projects *all, const struct project *p, const struct project *outer)
{
    for (int d = 0; p && d <= PROJECT_DEEP; d++, p = project_parent(all, p))
        if (p == outer)
            return true;
    return false;
}

const struct project_class *project_class(const struct project *p, const char *class_)
{
    for (size_t i = 0; i < p->n_classes; i++)
        if (strcmp(p->classes[i].name, class_) == 0)
            return &p->classes[i];
    return NULL;
}

int64_t project_most(const struct project *p, const char *class_)
{
    const struct project_class *k = class_ ? project_class(p, class_) : NULL;
    int quota = k ? k->quota : p->quota, borrow = k ? k->borrow : p->borrow;

    return (class_ && !k) || borrow < 0 ? INT64_MAX : (int64_t)(quota < 0 ? 0 : quota) + borrow;
}

/* How many projects are within this one, at most one in the other. */
static int depth_below(const struct projects *all, const char *name, int at)
{
    int deepest = at;

    for (size_t i = 0; i < all->n && at <= PROJECT_DEEP; i++)
        if (strcmp(all->v[i].parent, name) == 0) {
            int d = depth_below(all, all->v[i].name, at + 1);

            deepest = d > deepest ? d : deepest;
        }
    return deepest;
}

bool project_has_inner(const struct projects *all, const struct project *p)
{
    return depth_below(all, p->name, 0) > 0;
}

const char *project_check_parent(const struct projects *all, const struct project *p)
{
    const struct project *up = project_parent(all, p);
    int depth = 0;

    if (!p->parent[0])
        return NULL;
    if (!up)
        return "its parent is no project; an admin makes one by setting its limits";
    for (; up && depth <= PROJECT_DEEP; depth++, up = project_parent(all, up))
        if (strcmp(up->name, p->name) == 0)
            return "its parent is within it, or is itself";
    return depth + depth_below(all, p->name, 0) > PROJECT_DEEP ? "projects are too deep, one within the other" : NULL;
}

/* {"h100": {"quota": 8, "borrow": 4}} */
static bool read_classes(const json_t *o, struct project *p)
{
    json_t *classes = json_object_get(o, "classes"), *v;
    const char *name, *key;
    json_t *value;

    if (!classes)
        return true;
    if (!json_is_null(classes) && (!json_is_object(classes) || json_object_size(classes) > PROJECT_CLASSES_MAX))
        return false;
    p->n_classes = 0;
    json_object_foreach (classes, name, v) {
        struct project_class k = {.quota = -1, .borrow = 0}; /* a quota alone is the limit */

        json_object_foreach (v, key, value) {
            if (strcmp(key, "quota") != 0 && strcmp(key, "borrow") != 0)
                return false;
        }
        if (!*name || strlen(name) >= SPEC_NAME_MAX || !read_count(v, "quota", &k.quota) || k.quota < 0 ||
            !read_count(v, "borrow", &k.borrow))
            return false;
        (void)snprintf(k.name, sizeof(k.name), "%s", name);
        p->classes[p->n_classes++] = k;
    }
    return true;
}

static bool read_parent(const json_t *o, struct project *p)
{
    const json_t *parent = json_object_get(o, "parent");
    const char *name = json_string_value(parent);

    if (name && (!*name || strlen(name) >= SPEC_NAME_MAX))
        return false;
    if (parent)
        (void)snprintf(p->parent, sizeof(p->parent), "%s", name ? name : "");
    return name || !parent || json_is_null(parent);
}

const char *project_read(const json_t *o, struct project *p)
{
    const json_t *weight = json_object_get(o, "weight"), *class_ = json_object_get(o, "class");
    double w = json_number_value(weight);
    bool known = !class_;

    if (!read_parent(o, p))
        return "parent";
    if (!read_classes(o, p))
        return "classes";
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
