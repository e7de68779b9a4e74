#include "api/cli/described.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/profile.h"
#include "base/io.h"
#include "base/try.h"

#define FILE_BYTES_MAX (1u << 20)
#define NODES_MAX 1000000
#define NODE_DEVICES_MAX 1024
#define NAME_MAX_BYTES 64

/* --- the file ------------------------------------------------------------------------------------------------ */

static int bad(const char *file, const char *what)
{
    return cli_fail(CLI_USAGE, "'%s': %s", file, what);
}

/* Every field of an object must be among these, which NULL ends. */
static int only(const char *file, const json_t *o, const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)o, key, value) {
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return cli_fail(CLI_USAGE, "'%s': unknown field '%.60s'", file, key);
    }
    return 0;
}

/* What a cluster file may have; the simulator reads more of it. */
static int check_fields(const char *file, const json_t *doc)
{
    static const char *const all[] = {"classes",      "restart_s", "bandwidth", "tenants",
                                      "checkpoint_s", "grace_s",   "failures",  "nodes_per_leaf",
                                      "starve_s",     "las_s",     NULL};
    static const char *const of_class[] = {"nodes",      "devices_per_node", "kind",        "threads",
                                           "memory_mib", "gflops",           "bf16_gflops", "memory_bytes_per_s",
                                           "nic",        "nic_bytes_per_s",  "profile",     NULL};
    static const char *const of_links[] = {"inside", "between", "nodes", NULL};
    static const char *const of_link[] = {"latency_s", "bytes_per_s", NULL};
    const json_t *links = json_object_get(doc, "bandwidth");
    const char *name;
    json_t *o;

    TRY(only(file, doc, all));
    json_object_foreach (json_object_get(doc, "classes"), name, o)
        TRY(only(file, o, of_class));
    TRY(only(file, links, of_links));
    TRY(only(file, json_object_get(links, "inside"), of_link));
    return only(file, json_object_get(links, "between"), of_link);
}

int described_read(const char *file, json_t **ret)
{
    struct merr err = {""};
    json_error_t je;
    json_t *doc = NULL;
    struct buf text;
    int r;

    buf_init(&text, FILE_BYTES_MAX);
    r = io_read_file(file, &text, &err);
    if (r == 0) {
        doc = json_loadb(buf_text(&text), text.len, JSON_REJECT_DUPLICATES, &je);
        r = doc ? check_fields(file, doc) : cli_fail(CLI_USAGE, "'%s' line %d: %s", file, je.line, je.text);
    } else {
        r = cli_fail(r == -ENOENT ? CLI_NOT_FOUND : CLI_USAGE, "%s", err.text);
    }
    buf_clear(&text);
    if (r != 0)
        json_decref(doc);
    else
        *ret = doc;
    return r;
}

/* --- classes ------------------------------------------------------------------------------------------------- */

struct chosen { /* the classes that are planned for, in the order of ranks */
    struct {
        char name[NAME_MAX_BYTES];
        const json_t *class_;
        int devices, node_devices;
    } of[PLAN_GROUPS_MAX];
    int n;
};

static double positive(const json_t *o, const char *key, double fallback)
{
    double n = cli_real(o, key);

    return n > 0 ? n : fallback;
}

static long long devices_of(const json_t *class_)
{
    return cli_int(class_, "nodes") * cli_int(class_, "devices_per_node");
}

static bool sound(const json_t *class_)
{
    return class_ && cli_int(class_, "nodes") >= 1 && cli_int(class_, "nodes") <= NODES_MAX &&
           cli_int(class_, "devices_per_node") >= 1 && cli_int(class_, "devices_per_node") <= NODE_DEVICES_MAX;
}

/* devices 0: all of them. */
static int choose(const char *file, const json_t *classes, const char *name, long devices, struct chosen *c)
{
    const json_t *class_ = json_object_get(classes, name);

    if (!sound(class_) || strlen(name) >= NAME_MAX_BYTES)
        return cli_fail(CLI_USAGE,
                        "'%s': has no class '%.60s' with 'nodes' and 'devices_per_node'; --class names one it has",
                        file, name);
    if (devices > devices_of(class_))
        return cli_fail(CLI_REFUSED, "class '%s' has %lld devices, fewer than %ld; --devices takes a smaller number",
                        name, devices_of(class_), devices);
    for (int i = 0; i < c->n; i++)
        if (c->of[i].class_ == class_)
            return cli_fail(CLI_USAGE, "--class names '%s' twice", name);
    if (c->n == PLAN_GROUPS_MAX)
        return cli_fail(CLI_USAGE, "--class names more than %d classes, which is the most of one plan",
                        PLAN_GROUPS_MAX);
    memcpy(c->of[c->n].name, name, strlen(name) + 1);
    c->of[c->n].class_ = class_;
    c->of[c->n].node_devices = (int)cli_int(class_, "devices_per_node");
    c->of[c->n++].devices = (int)(devices > 0 ? devices : devices_of(class_));
    return 0;
}

/* "a100=8,v100=4". */
static int choose_several(const char *file, const json_t *classes, const char *text, struct chosen *c)
{
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ","), digits = n;
        char name[NAME_MAX_BYTES];
        long devices = 0;

        while (digits > 0 && at[digits - 1] != '=')
            digits--;
        for (size_t i = digits; digits > 0 && i < n && devices <= PLAN_RANKS_MAX; i++)
            devices = at[i] >= '0' && at[i] <= '9' ? devices * 10 + (at[i] - '0') : PLAN_RANKS_MAX + 1;
        if (digits < 2 || digits > NAME_MAX_BYTES || devices < 1 || devices > PLAN_RANKS_MAX)
            return cli_fail(CLI_USAGE,
                            "--class '%.100s': want one class, or several with their devices (1 to %d) in the order "
                            "of ranks, as a100=8,v100=4",
                            text, PLAN_RANKS_MAX);
        memcpy(name, at, digits - 1);
        name[digits - 1] = '\0';
        TRY(choose(file, classes, name, devices, c));
        at += n + (at[n] == ',');
    }
    return 0;
}

static int choose_most(const char *file, const json_t *classes, long devices, struct chosen *c)
{
    const char *name, *best = NULL;
    json_t *o;

    json_object_foreach ((json_t *)classes, name, o)
        if (sound(o) && (!best || devices_of(o) > devices_of(json_object_get(classes, best))))
            best = name;
    if (!best)
        return bad(file, "want {\"classes\": {NAME: {\"nodes\": N, \"devices_per_node\": N, ...}}}");
    return choose(file, classes, best, devices, c);
}

/* --- links --------------------------------------------------------------------------------------------------- */

static void read_link(const json_t *o, struct plan_link *l)
{
    l->latency_s = positive(o, "latency_s", l->latency_s);
    l->bytes_per_s = positive(o, "bytes_per_s", l->bytes_per_s);
}

static int nodes_of(const struct chosen *c, int i)
{
    return (c->of[i].devices + c->of[i].node_devices - 1) / c->of[i].node_devices;
}

/* "nic" of a class: one family for all of its nodes, or a list of one for each. */
static int read_parts(const char *file, const struct chosen *c, int i, struct plan_part *part)
{
    const json_t *class_ = c->of[i].class_, *nic = json_object_get(class_, "nic");

    for (int k = 0; k < nodes_of(c, i); k++) {
        const json_t *one = json_is_array(nic) ? json_array_get(nic, (size_t)k) : nic;
        int left = c->of[i].devices - k * c->of[i].node_devices;

        part[k] = (struct plan_part){.devices = left < c->of[i].node_devices ? left : c->of[i].node_devices,
                                     .kind = i,
                                     .nic = plan_nic_parse(json_string_value(one)),
                                     .bytes_per_s = positive(class_, "nic_bytes_per_s", 0)};
        if (nic && part[k].nic == PLAN_NIC_UNKNOWN)
            return bad(file, "'nic' wants infiniband, roce or ethernet, or a list of these, one for each node");
    }
    return 0;
}

/* "bandwidth": {"nodes": {CLASS: [[bytes a second from node to node, ...], ...]}}, of n nodes from first on. */
static int read_matrix(const char *file, const json_t *matrix, struct plan_net *net, int first, int n)
{
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            double rate = json_number_value(json_array_get(json_array_get(matrix, (size_t)a), (size_t)b));

            if (a == b)
                continue;
            if (!(rate > 0))
                return bad(file, "'bandwidth': 'nodes' wants a row for each node of the class, with bytes a second to "
                                 "each node");
            plan_net_measured(net, first + a, first + b, rate);
        }
    return 0;
}

/* Whether nodes are said to reach each other unlike, or are of unlike sizes. */
static bool unlike(const struct chosen *c, const json_t *matrices)
{
    for (int i = 0; i < c->n; i++)
        if (json_object_get(matrices, c->of[i].name) || json_object_get(c->of[i].class_, "nic") ||
            json_object_get(c->of[i].class_, "nic_bytes_per_s") || c->of[i].node_devices != c->of[0].node_devices)
            return true;
    return false;
}

static int read_net(const char *file, const struct chosen *c, const json_t *links, struct described *d)
{
    const json_t *matrices = json_object_get(links, "nodes");
    struct plan_part part[PLAN_PARTS_MAX];
    int n = 0, first = 0;

    for (int i = 0; i < c->n; i++)
        n += nodes_of(c, i);
    if (n < 2 || !unlike(c, matrices))
        return 0;
    if (n > PLAN_PARTS_MAX)
        return bad(file, "'nic', 'bandwidth': 'nodes' and several classes are for at most 256 nodes");
    for (int i = 0; i < c->n; first += nodes_of(c, i++))
        TRY(read_parts(file, c, i, &part[first]));
    d->site.net = d->net = plan_net_new(part, n, d->site.between.bytes_per_s);
    if (!d->net)
        return cli_fail(CLI_FAILED, "out of memory");
    first = 0;
    for (int i = 0; i < c->n; first += nodes_of(c, i++)) {
        const json_t *matrix = json_object_get(matrices, c->of[i].name);

        if (matrix)
            TRY(read_matrix(file, matrix, d->net, first, nodes_of(c, i)));
    }
    return 0;
}

/* --- the site ------------------------------------------------------------------------------------------------ */

static void take_slower(struct plan_link *l, const struct plan_link *other)
{
    if (l->bytes_per_s <= 0 || other->bytes_per_s < l->bytes_per_s)
        *l = *other;
}

static int add_class(const char *file, const struct chosen *c, int i, bool bf16, struct described *d)
{
    const json_t *o = c->of[i].class_, *profile = json_object_get(o, "profile");
    const char *kind = *cli_str(o, "kind") ? cli_str(o, "kind") : "gpu";
    struct plan_group *g = &d->site.group[d->site.groups];
    struct plan_site links = {.groups = 0};
    struct merr err;

    d->profile[i] = calloc(1, sizeof(*d->profile[i]));
    if (!d->profile[i])
        return cli_fail(CLI_FAILED, "out of memory");
    g->n = c->of[i].devices;
    g->device =
        plan_device_assumed(kind, (int)positive(o, "threads", 1), bf16, (uint64_t)positive(o, "memory_mib", 0) << 20);
    g->device.flops = positive(o, bf16 ? "bf16_gflops" : "gflops", g->device.flops / 1e9) * 1e9;
    g->device.bytes_per_s = positive(o, "memory_bytes_per_s", g->device.bytes_per_s);
    plan_links_assumed(kind, &links);
    if (profile) {
        if (profile_read(profile, d->profile[i], &err) < 0)
            return bad(file, err.text);
        g->device = plan_device_measured(g->device, d->profile[i], bf16);
        plan_links_measured(&links, d->profile[i]);
    }
    take_slower(&d->site.inside, &links.inside);
    take_slower(&d->site.between, &links.between);
    if (d->site.groups++ == 0 || c->of[i].node_devices < d->site.node_devices)
        d->site.node_devices = c->of[i].node_devices;
    if (d->profile[i]->program_bytes > d->program_bytes)
        d->program_bytes = d->profile[i]->program_bytes;
    return 0;
}

static int make(const char *file, const json_t *doc, const struct chosen *c, bool bf16, bool pairs, struct described *d)
{
    const json_t *links = json_object_get(doc, "bandwidth");
    int all = 0;

    for (int i = 0; i < c->n; i++)
        all += c->of[i].devices;
    if (pairs && all > PLAN_RANKS_MAX)
        return cli_fail(CLI_REFUSED, "%d devices are more than one job can have, which is %d", all, PLAN_RANKS_MAX);
    for (int i = 0; i < c->n; i++)
        TRY(add_class(file, c, i, bf16, d));
    read_link(json_object_get(links, "inside"), &d->site.inside);
    read_link(json_object_get(links, "between"), &d->site.between);
    return pairs ? read_net(file, c, links, d) : 0;
}

int described_site(const char *file, const json_t *doc, const char *classes, long devices, bool bf16,
                   struct described *ret)
{
    const json_t *all = json_object_get(doc, "classes");
    struct described d = {.net = NULL};
    struct chosen c = {.n = 0};
    int r;

    if (!classes)
        TRY(choose_most(file, all, devices, &c));
    else if (strchr(classes, '=') && !json_object_get(all, classes))
        TRY(choose_several(file, all, classes, &c));
    else
        TRY(choose(file, all, classes, devices, &c));
    r = make(file, doc, &c, bf16, devices > 0, &d);
    if (r != 0)
        described_clear(&d);
    else
        *ret = d;
    return r;
}

void described_clear(struct described *d)
{
    plan_net_free(d->net);
    for (int i = 0; i < PLAN_GROUPS_MAX; i++)
        free(d->profile[i]);
    *d = (struct described){.net = NULL};
}
