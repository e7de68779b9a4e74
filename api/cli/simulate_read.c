#include "api/cli/simulate_read.h"
#include "base/try.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_PER_LEAF 32 /* unless the cluster says otherwise */
#define SECONDS_MAX 3.15e8

/* A number of an object, def without it. */
static int number(const json_t *o, const char *key, double lo, double hi, double def, double *ret, struct merr *err)
{
    const json_t *v = json_object_get(o, key);

    if (v && (!json_is_number(v) || json_number_value(v) < lo || json_number_value(v) > hi))
        return merr_set(err, -EINVAL, "'%.60s': want a number from %g to %g", key, lo, hi);
    *ret = v ? json_number_value(v) : def;
    return 0;
}

static int micros(const json_t *o, const char *key, double lo_s, int64_t *io, struct merr *err)
{
    double s;

    if (number(o, key, lo_s, SECONDS_MAX, (double)*io / 1e6, &s, err) < 0)
        return -EINVAL;
    *io = (int64_t)(s * 1e6 + 0.5);
    return 0;
}

static int count(const json_t *o, const char *key, int lo, int hi, int def, int *ret, struct merr *err)
{
    const json_t *v = json_object_get(o, key);

    if (v && (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi))
        return merr_set(err, -EINVAL, "'%.60s': want a whole number from %d to %d", key, lo, hi);
    *ret = v ? (int)json_integer_value(v) : def;
    return 0;
}

static int only(const json_t *o, const char *where, const char *const *known, struct merr *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(o))
        return merr_set(err, -EINVAL, "'%.60s': want an object", where);
    json_object_foreach ((json_t *)o, key, value) {
        size_t i = 0;

        (void)value;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return merr_set(err, -EINVAL, "'%.60s': unknown field '%.60s'", where, key);
    }
    return 0;
}

static int check_name(const char *name, const char *what, struct merr *err)
{
    size_t n = strlen(name);

    if (n < 1 || n >= SIM_NAME_MAX || strpbrk(name, ",|\"\n\r"))
        return merr_set(err, -EINVAL, "%s '%.60s': want a name of 1 to 63 bytes without , and |", what, name);
    return 0;
}

static int read_class(struct sim_setup *s, const char *name, const json_t *o, int per_leaf, uint32_t *leaf,
                      struct merr *err)
{
    /* what follows them is for `muster plan` */
    static const char *const known[] = {"nodes",      "devices_per_node", "kind",        "threads",
                                        "memory_mib", "gflops",           "bf16_gflops", "memory_bytes_per_s",
                                        "nic",        "nic_bytes_per_s",  "profile",     NULL};
    struct sched_node *v;
    double gflops;
    int nodes, devices;

    if (s->n_types == RATES_TYPES_MAX)
        return merr_set(err, -EINVAL, "'classes': more than %d", RATES_TYPES_MAX);
    if (check_name(name, "class", err) < 0 || only(o, name, known, err) < 0 ||
        count(o, "nodes", 1, SCHED_NODES_MAX, 0, &nodes, err) < 0 ||
        count(o, "devices_per_node", 1, SCHED_NODE_DEVICES_MAX, 0, &devices, err) < 0 ||
        number(o, "gflops", 0, 1e9, 0, &gflops, err) < 0)
        return -EINVAL;
    if (nodes == 0 || devices == 0)
        return merr_set(err, -EINVAL, "class '%.60s': want 'nodes' and 'devices_per_node'", name);
    if (s->n_nodes + (size_t)nodes > SCHED_NODES_MAX)
        return merr_set(err, -EINVAL, "'classes': more than %d nodes", SCHED_NODES_MAX);
    v = realloc(s->nodes, (s->n_nodes + (size_t)nodes) * sizeof(*v));
    if (!v)
        return merr_set(err, -ENOMEM, "no memory for %d nodes", nodes);
    s->nodes = v;
    for (int i = 0; i < nodes; i++) {
        struct sched_node n = {.type = (uint8_t)s->n_types, .devices = devices, .leaf = *leaf};

        s->nodes[s->n_nodes++] = n;
        *leaf += (i + 1) % per_leaf == 0 || i + 1 == nodes;
    }
    s->class_speed[s->n_types] = gflops;
    (void)snprintf(s->types[s->n_types++], SIM_NAME_MAX, "%.63s", name);
    return 0;
}

static int read_tenant(struct sim_setup *s, const char *name, const json_t *o, struct merr *err)
{
    static const char *const known[] = {"quota", "borrow", "weight", "class", NULL};
    static const char *const classes[] = {"elastic", "guaranteed", "opportunistic"};
    const char *class_ = "elastic";
    const json_t *given;
    size_t at = strcmp(name, "default") == 0 ? 0 : s->n_tenants;
    double weight;
    int quota, borrow, k = 0;

    if (check_name(name, "tenant", err) < 0 || only(o, name, known, err) < 0 ||
        count(o, "quota", 0, RATES_COUNT_MAX, 0, &quota, err) < 0 ||
        count(o, "borrow", -1, RATES_COUNT_MAX, -1, &borrow, err) < 0 ||
        number(o, "weight", 0.001, 1000, 1, &weight, err) < 0)
        return -EINVAL;
    given = json_object_get(o, "class");
    if (given)
        class_ = json_is_string(given) ? json_string_value(given) : "";
    while (k < 3 && strcmp(class_, classes[k]) != 0)
        k++;
    if (k == 3)
        return merr_set(err, -EINVAL, "tenant '%.60s': 'class': want elastic, guaranteed or opportunistic", name);
    s->tenants[at] =
        (struct sched_tenant){.quota = quota, .borrow = borrow, .weight_milli = (int64_t)(weight * 1000 + 0.5)};
    s->tenant_class[at] = (enum sched_class)k;
    (void)snprintf(s->tenant_names[at], SIM_NAME_MAX, "%.63s", name);
    s->n_tenants = at == s->n_tenants ? at + 1 : s->n_tenants;
    return 0;
}

static int read_tenants(struct sim_setup *s, const json_t *o, struct merr *err)
{
    size_t n = json_object_size(o) + 1;
    const char *name;
    json_t *value;

    if (o && !json_is_object(o))
        return merr_set(err, -EINVAL, "'tenants': want an object");
    if (n > SCHED_TENANTS_MAX)
        return merr_set(err, -EINVAL, "'tenants': more than %d", SCHED_TENANTS_MAX - 1);
    s->tenants = calloc(n, sizeof(*s->tenants));
    s->tenant_class = calloc(n, sizeof(*s->tenant_class));
    s->tenant_names = calloc(n, sizeof(*s->tenant_names));
    if (!s->tenants || !s->tenant_class || !s->tenant_names)
        return merr_set(err, -ENOMEM, "no memory for %zu tenants", n);
    s->n_tenants = 1;
    s->tenants[0] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    (void)snprintf(s->tenant_names[0], SIM_NAME_MAX, "default");
    json_object_foreach ((json_t *)o, name, value) {
        int r = read_tenant(s, name, value, err);

        if (r < 0)
            return r;
    }
    return 0;
}

int simulate_read_cluster(struct sim_setup *s, const char *text, size_t len, struct merr *err)
{
    static const char *const known[] = {"classes",      "restart_s", "bandwidth", "tenants",
                                        "checkpoint_s", "grace_s",   "failures",  "nodes_per_leaf",
                                        "starve_s",     "las_s",     NULL};
    static const char *const known_failures[] = {"mtbf_s", "repair_s", NULL};
    json_auto_t *doc = NULL;
    const json_t *classes, *failures;
    json_error_t je;
    const char *name;
    json_t *value;
    uint32_t leaf = 0;
    int per_leaf, r;

    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!doc)
        return merr_set(err, -EINVAL, "line %d: %s", je.line, je.text);
    if (only(doc, "cluster", known, err) < 0 || micros(doc, "restart_s", 0, &s->restart_us, err) < 0 ||
        micros(doc, "checkpoint_s", 0.001, &s->checkpoint_us, err) < 0 ||
        micros(doc, "grace_s", 0, &s->grace_us, err) < 0 || micros(doc, "starve_s", 1, &s->starve_us, err) < 0 ||
        micros(doc, "las_s", 1, &s->las_us, err) < 0 ||
        count(doc, "nodes_per_leaf", 1, SCHED_NODES_MAX, NODES_PER_LEAF, &per_leaf, err) < 0)
        return -EINVAL;
    failures = json_object_get(doc, "failures");
    if (failures &&
        (only(failures, "failures", known_failures, err) < 0 || micros(failures, "mtbf_s", 1, &s->mtbf_us, err) < 0 ||
         micros(failures, "repair_s", 0.001, &s->repair_us, err) < 0))
        return -EINVAL;
    classes = json_object_get(doc, "classes");
    if (!json_is_object(classes) || json_object_size(classes) == 0)
        return merr_set(err, -EINVAL, "'classes': want an object with at least one class");
    json_object_foreach ((json_t *)classes, name, value) {
        r = read_class(s, name, value, per_leaf, &leaf, err);
        if (r < 0)
            return r;
    }
    return read_tenants(s, json_object_get(doc, "tenants"), err);
}

static int by_count(const void *a, const void *b)
{
    const struct rates_point *x = a, *y = b;

    return (x->count > y->count) - (x->count < y->count);
}

/* "4": 7.25: steps a second on four devices. */
static int read_point(const char *key, const json_t *v, struct rates_point *ret)
{
    long n = 0;
    const char *p = key;

    for (; *p >= '0' && *p <= '9' && n <= RATES_COUNT_MAX; p++)
        n = n * 10 + (*p - '0');
    if (*p || p == key || n < 1 || n > RATES_COUNT_MAX || !json_is_number(v) || json_number_value(v) < 1e-6 ||
        json_number_value(v) > 1e9)
        return -EINVAL;
    *ret = (struct rates_point){.count = (int32_t)n, .rate_ups = (int64_t)(json_number_value(v) * 1e6 + 0.5)};
    return 0;
}

static int read_profile(struct sim_setup *s, struct rates_profile *p, const char *name, const json_t *o,
                        struct merr *err)
{
    const char *class_, *key;
    json_t *points, *v;

    if (!json_is_object(o))
        return merr_set(err, -EINVAL, "'%.60s': want an object of classes", name);
    json_object_foreach ((json_t *)o, class_, points) {
        int type = sim_find_type(s, class_);

        if (!json_is_object(points) || json_object_size(points) > RATES_POINTS_MAX)
            return merr_set(err, -EINVAL, "'%.60s': '%.60s': want an object of up to %d counts", name, class_,
                            RATES_POINTS_MAX);
        if (type < 0)
            continue; /* measured on devices that this cluster does not have */
        json_object_foreach (points, key, v) {
            if (read_point(key, v, &p->points[type][p->n[type]]) < 0)
                return merr_set(err, -EINVAL, "'%.60s': '%.60s': '%.20s': want a count of devices and steps a second",
                                name, class_, key);
            p->n[type]++;
        }
        if (p->n[type] > 0)
            qsort(p->points[type], p->n[type], sizeof(p->points[type][0]), by_count);
        for (int i = 1; i < p->n[type]; i++)
            if (p->points[type][i].count == p->points[type][i - 1].count)
                return merr_set(err, -EINVAL, "'%.60s': '%.60s': %d devices twice", name, class_,
                                p->points[type][i].count);
    }
    return 0;
}

int simulate_read_throughputs(struct sim_setup *s, const char *text, size_t len, struct merr *err)
{
    json_auto_t *doc = NULL;
    json_error_t je;
    const char *name;
    json_t *value;
    size_t n;

    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!doc)
        return merr_set(err, -EINVAL, "line %d: %s", je.line, je.text);
    n = json_object_size(doc);
    if (n == 0 || n > SIM_PROFILES_MAX)
        return merr_set(err, -EINVAL, "want an object of 1 to %d kinds of jobs", SIM_PROFILES_MAX);
    s->profiles = calloc(n, sizeof(*s->profiles));
    s->profile_names = calloc(n, sizeof(*s->profile_names));
    if (!s->profiles || !s->profile_names)
        return merr_set(err, -ENOMEM, "no memory for %zu kinds of jobs", n);
    json_object_foreach (doc, name, value) {
        TRY(check_name(name, "kind of job", err));
        TRY(read_profile(s, &s->profiles[s->n_profiles], name, value, err));
        (void)snprintf(s->profile_names[s->n_profiles++], SIM_NAME_MAX, "%.63s", name);
    }
    s->n_rated = s->n_profiles;
    return 0;
}
