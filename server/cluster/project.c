#include "server/cluster/project.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const class_name[] = {"elastic", "guaranteed", "opportunistic"};

struct project project_new(const char *name)
{
    struct project p = {.quota = -1, .borrow = -1, .weight_milli = 1000, .class_ = SCHED_ELASTIC};

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

int project_put(struct projects *all, const struct project *p)
{
    struct project *at = project_find(all, p->name), *grown;

    if (at) {
        *at = *p;
        return 0;
    }
    if (all->n == PROJECT_MOST)
        return -ENOSPC;
    grown = realloc(all->v, (all->n + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    all->v = grown;
    all->v[all->n++] = *p;
    return 0;
}

static json_t *whole_or_null(int n)
{
    return n < 0 ? json_null() : json_integer(n);
}

json_t *project_record(const struct project *p)
{
    return json_pack("{s:s, s:o, s:o, s:f, s:s}", "name", p->name, "quota", whole_or_null(p->quota), "borrow",
                     whole_or_null(p->borrow), "weight", (double)p->weight_milli / 1000, "class",
                     class_name[p->class_]);
}

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
    return known ? NULL : "class";
}
