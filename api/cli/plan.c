/* muster plan: how a job would run, asked of a server or worked out here for a described cluster. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "api/profile.h"
#include "api/spec_plan.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/plan/site.h"

#define CLUSTER_BYTES_MAX (1u << 20)

/* --- printing ------------------------------------------------------------------------------------------- */

static void print_layout(const json_t *plan)
{
    const json_t *l = json_object_get(plan, "layout");

    (void)printf("the spec is good");
    if (l)
        (void)printf("; it would run as tp %lld x pp %lld x cp %lld x dp %lld", cli_int(l, "tp"), cli_int(l, "pp"),
                     cli_int(l, "cp"), cli_int(l, "dp"));
    if (cli_int(plan, "micro") > 0)
        (void)printf(", micro-batches of %lld", cli_int(plan, "micro"));
    if (cli_int(l, "pp") > 1)
        (void)printf(", %s%s", cli_str(plan, "schedule"), cli_int(plan, "chunks") > 1 ? " with chunks" : "");
    if (*cli_str(plan, "recompute") && strcmp(cli_str(plan, "recompute"), "none") != 0)
        (void)printf(", recompute %s", cli_str(plan, "recompute"));
    (void)printf("\n");
    if (*cli_str(plan, "why")) {
        (void)printf("  why            ");
        cli_print_text(cli_str(plan, "why"));
        (void)printf("\n");
    }
    (void)printf("  devices        %lld%s\n", cli_int(plan, "devices"),
                 strcmp(cli_str(plan, "rates"), "assumed") == 0
                     ? ", whose class has no profile: times are assumed and only rank layouts"
                     : "");
    if (json_object_get(plan, "free_devices"))
        (void)printf("  free now       %lld\n  starts now     %s\n", cli_int(plan, "free_devices"),
                     json_is_true(json_object_get(plan, "starts_now")) ? "yes" : "no");
}

static void print_cost(const json_t *plan)
{
    static const struct {
        const char *key, *words;
    } parts[] = {{"compute", "arithmetic"},
                 {"tp", "sums over tp"},
                 {"idle", "waits in the pipeline"},
                 {"exchange", "exchange"},
                 {"update", "update"}};
    const json_t *b = json_object_get(plan, "breakdown_ms");
    const char *before = ": ";

    if (!b)
        return;
    (void)printf("  step           %.4g ms", cli_real(plan, "step_ms"));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (cli_real(b, parts[i].key) < 0.001) /* nothing, or what rounding left of it */
            continue;
        (void)printf("%s%s %.4g", before, parts[i].words, cli_real(b, parts[i].key));
        before = ", ";
    }
    (void)printf("\n");
}

/* Which node is at each place in the order of ranks, and what that is good for. */
static void print_order(const json_t *plan)
{
    const json_t *d = json_object_get(plan, "dedication"), *order = json_object_get(d, "order");

    if (!d)
        return;
    (void)printf("  nodes          ");
    for (size_t i = 0; i < json_array_size(order); i++)
        (void)printf("%s%lld", i ? " " : "", json_integer_value(json_array_get(order, i)));
    (void)printf(" in the order of ranks; %lld group%s of replicas on several families of NICs\n",
                 cli_int(d, "mixed_groups"), cli_int(d, "mixed_groups") == 1 ? "" : "s");
}

static void print_memory(const json_t *plan)
{
    static const struct cli_table table = {
        .head = {"STAGE", "WEIGHTS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "REST", "ALL MIB", "OF"},
        .n = 8,
        .right = 0xfe,
        .state = -1};
    static const char *const keys[] = {"weights", "gradients", "optimizer", "activations", "rest", "all"};
    const json_t *list = json_object_get(plan, "memory_mib"), *m;
    json_t *rows = json_array();
    size_t i;

    json_array_foreach (list, i, m) {
        char cell[8][24];
        const char *cells[8];

        (void)snprintf(cell[0], sizeof(cell[0]), "%zu", i);
        for (size_t k = 0; k < 6; k++)
            (void)snprintf(cell[k + 1], sizeof(cell[0]), "%.1f", cli_real(m, keys[k]));
        if (json_is_number(json_object_get(plan, "memory_limit_mib")))
            (void)snprintf(cell[7], sizeof(cell[7]), "%.1f", cli_real(plan, "memory_limit_mib"));
        else
            (void)snprintf(cell[7], sizeof(cell[7]), "-");
        for (size_t k = 0; k < 8; k++)
            cells[k] = cell[k];
        (void)cli_row(rows, cells, 8);
    }
    if (json_array_size(rows) > 0)
        cli_print_table_new(&table, rows);
    else
        json_decref(rows);
}

static void print_alternatives(const json_t *plan)
{
    const json_t *list = json_object_get(plan, "alternatives"), *a;
    size_t i;

    if (json_array_size(list) > 0)
        (void)printf("it beat\n");
    json_array_foreach (list, i, a) {
        (void)printf("  ");
        cli_print_text(cli_str(a, "why"));
        (void)printf("\n");
    }
}

/* Takes the answer over. */
static int print_answer(struct cli *c, json_t *answer)
{
    const json_t *plan = json_object_get(answer, "plan");
    int r = CLI_DONE;

    if (c->json) {
        r = cli_print_json(answer);
    } else {
        print_layout(plan);
        print_cost(plan);
        print_order(plan);
        print_memory(plan);
        print_alternatives(plan);
    }
    json_decref(answer);
    return r;
}

/* --- a described cluster -------------------------------------------------------------------------------- */

static int bad(const char *file, const char *what)
{
    return cli_fail(CLI_USAGE, "'%s': %s", file, what);
}

static double positive(const json_t *o, const char *key, double fallback)
{
    double n = cli_real(o, key);

    return n > 0 ? n : fallback;
}

static void read_link(const json_t *o, struct plan_link *l)
{
    l->latency_s = positive(o, "latency_s", l->latency_s);
    l->bytes_per_s = positive(o, "bytes_per_s", l->bytes_per_s);
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

/* The class that was asked for, else the one with most devices. */
static const json_t *class_of(const json_t *classes, const char *wanted, const char **ret_name)
{
    const json_t *best = NULL;
    const char *name;
    json_t *o;

    json_object_foreach ((json_t *)classes, name, o) {
        long long n = cli_int(o, "nodes") * cli_int(o, "devices_per_node");

        if (wanted ? strcmp(name, wanted) == 0
                   : !best || n > cli_int(best, "nodes") * cli_int(best, "devices_per_node")) {
            best = o;
            *ret_name = name;
        }
    }
    return best;
}

/* "nic" of a class: one family for all of its nodes, or a list of one for each. */
static int read_nics(const char *file, const json_t *class_, struct plan_part *part, int n)
{
    const json_t *nic = json_object_get(class_, "nic");

    for (int i = 0; i < n; i++) {
        const json_t *one = json_is_array(nic) ? json_array_get(nic, (size_t)i) : nic;

        part[i].bytes_per_s = positive(class_, "nic_bytes_per_s", 0);
        part[i].nic = plan_nic_parse(json_string_value(one));
        if (nic && part[i].nic == PLAN_NIC_UNKNOWN)
            return bad(file, "'nic' wants infiniband, roce or ethernet, or a list of these, one for each node");
    }
    return 0;
}

/* "bandwidth": {"nodes": {CLASS: [[bytes a second from node to node, ...], ...]}}. */
static int read_matrix(const char *file, const json_t *matrix, struct plan_net *net)
{
    for (int a = 0; a < net->n; a++)
        for (int b = 0; b < net->n; b++) {
            double rate = json_number_value(json_array_get(json_array_get(matrix, (size_t)a), (size_t)b));

            if (a == b)
                continue;
            if (!(rate > 0))
                return bad(file, "'bandwidth': 'nodes' wants a row for each node of the class, with bytes a second to "
                                 "each node");
            plan_net_measured(net, a, b, rate);
        }
    return 0;
}

/* The nodes of the class that the devices are on, where they are said to reach each other unlike. */
static int read_net(const char *file, const char *class_name, const json_t *class_, const json_t *links,
                    const struct plan_site *site, struct plan_net **ret)
{
    const json_t *matrix = json_object_get(json_object_get(links, "nodes"), class_name);
    int n = (site->group[0].n + site->node_devices - 1) / site->node_devices, r;
    struct plan_part part[PLAN_PARTS_MAX];

    if (n < 2 || (!matrix && !json_object_get(class_, "nic") && !json_object_get(class_, "nic_bytes_per_s")))
        return 0;
    if (n > PLAN_PARTS_MAX)
        return bad(file, "'nic' and 'bandwidth': 'nodes' are for at most 256 nodes");
    for (int i = 0; i < n; i++)
        part[i] =
            (struct plan_part){.devices = i + 1 < n ? site->node_devices : site->group[0].n - i * site->node_devices};
    r = read_nics(file, class_, part, n);
    if (r != 0)
        return r;
    *ret = plan_net_new(part, n, site->between.bytes_per_s);
    if (!*ret)
        return cli_fail(CLI_FAILED, "out of memory");
    return matrix ? read_matrix(file, matrix, *ret) : 0;
}

/* profile stays all zeros where the class has none. */
static int read_profile(const char *file, const json_t *doc, struct plan_profile *profile, bool bf16,
                        struct plan_site *site)
{
    struct merr err;

    if (!doc)
        return 0;
    if (profile_read(doc, profile, &err) < 0)
        return bad(file, err.text);
    site->group[0].device = plan_device_measured(site->group[0].device, profile, bf16);
    plan_links_measured(site, profile);
    return 0;
}

/* *ret_net is the caller's to free, also on failure; NULL: links are all alike. */
static int read_site(struct cli *c, const json_t *doc, const struct job_spec *spec, struct plan_profile *profile,
                     struct plan_site *ret, struct plan_net **ret_net)
{
    const char *file = cli_option(c, "cluster"), *wanted = cli_option(c, "class"), *kind, *name = "";
    const json_t *o = class_of(json_object_get(doc, "classes"), wanted, &name);
    const json_t *links = json_object_get(doc, "bandwidth");
    bool bf16 = spec->train.precision == PRECISION_BF16;
    struct plan_site site = {.groups = 1};
    struct plan_device *d = &site.group[0].device;
    long devices = cli_number(c, "devices", spec->devices.max);

    if (!o || cli_int(o, "nodes") < 1 || cli_int(o, "devices_per_node") < 1 || cli_int(o, "nodes") > 1000000 ||
        cli_int(o, "devices_per_node") > 1024)
        return bad(file, wanted ? "has no such class with 'nodes' and 'devices_per_node'; --class names one it has"
                                : "want {\"classes\": {NAME: {\"nodes\": N, \"devices_per_node\": N, ...}}}");
    kind = *cli_str(o, "kind") ? cli_str(o, "kind") : "gpu";
    *d = plan_device_assumed(kind, (int)positive(o, "threads", 1), bf16, (uint64_t)positive(o, "memory_mib", 0) << 20);
    plan_links_assumed(kind, &site);
    d->flops = positive(o, bf16 ? "bf16_gflops" : "gflops", d->flops / 1e9) * 1e9;
    d->bytes_per_s = positive(o, "memory_bytes_per_s", d->bytes_per_s);
    TRY(read_profile(file, json_object_get(o, "profile"), profile, bf16, &site));
    read_link(json_object_get(links, "inside"), &site.inside);
    read_link(json_object_get(links, "between"), &site.between);
    site.node_devices = (int)cli_int(o, "devices_per_node");
    if (devices > cli_int(o, "nodes") * cli_int(o, "devices_per_node"))
        return cli_fail(CLI_REFUSED, "the class has %lld devices, fewer than %ld; --devices takes a smaller number",
                        cli_int(o, "nodes") * cli_int(o, "devices_per_node"), devices);
    site.group[0].n = (int)devices;
    *ret = site;
    return read_net(file, name, o, links, &site, ret_net);
}

static int read_cluster(const char *file, json_t **ret)
{
    struct merr err = {""};
    json_error_t je;
    struct buf text;
    int r;

    buf_init(&text, CLUSTER_BYTES_MAX);
    r = io_read_file(file, &text, &err);
    if (r == 0) {
        *ret = json_loadb(buf_text(&text), text.len, JSON_REJECT_DUPLICATES, &je);
        if (!*ret)
            r = cli_fail(CLI_USAGE, "'%s' line %d: %s", file, je.line, je.text);
    } else {
        r = cli_fail(r == -ENOENT ? CLI_NOT_FOUND : CLI_USAGE, "%s", err.text);
    }
    buf_clear(&text);
    return r;
}

static int plan_measured(struct cli *c, const struct job_spec *spec, const json_t *cluster,
                         struct plan_profile *profile, json_t **ret)
{
    struct plan_job job = spec_plan_job(spec);
    struct plan_wish wish = spec_plan_wish(spec);
    struct plan_result plan;
    struct plan_site site;
    struct plan_net *net = NULL;
    struct merr err = {""};
    int r = read_site(c, cluster, spec, profile, &site, &net);

    if (r != 0) {
        plan_net_free(net);
        return r;
    }
    site.net = net;
    job.program_bytes = profile->program_bytes;
    r = plan_search(&job, &wish, &site, &plan, &err);
    plan_net_free(net);
    if (r < 0)
        return cli_fail(CLI_REFUSED, "%s", err.text);
    *ret = spec_plan_json(&plan);
    return *ret ? 0 : cli_fail(CLI_FAILED, "out of memory");
}

static int plan_here(struct cli *c, const struct job_spec *spec, const json_t *cluster, json_t **ret)
{
    struct plan_profile *profile = calloc(1, sizeof(*profile));
    int r = profile ? plan_measured(c, spec, cluster, profile, ret) : cli_fail(CLI_FAILED, "out of memory");

    free(profile);
    return r;
}

static int plan_spec(struct cli *c, const struct job_spec *spec)
{
    json_auto_t *cluster = NULL;
    json_t *plan;

    if (spec->kind != JOB_TRAIN)
        return cli_fail(CLI_REFUSED, "a command has no layout to plan; its devices are all there is to choose");
    TRY(read_cluster(cli_option(c, "cluster"), &cluster));
    TRY(check_fields(cli_option(c, "cluster"), cluster));
    TRY(plan_here(c, spec, cluster, &plan));
    return print_answer(c, json_pack("{s:b, s:o, s:o}", "dry_run", 1, "plan", plan, "spec", spec_to_json(spec)));
}

static int offline(struct cli *c, json_t *doc)
{
    struct job_spec *spec = NULL;
    struct faults f = {.n = 0};
    int r;

    TRY(cli_check_spec(c->arg[0], doc));
    r = spec_from_json(doc, &spec, &f);
    faults_clear(&f);
    if (r < 0)
        return cli_fail(CLI_FAILED, "out of memory");
    r = plan_spec(c, spec);
    spec_free(spec);
    return r;
}

/* --- the command ---------------------------------------------------------------------------------------- */

int plan_dry_run(struct cli *c, json_t *doc)
{
    json_t *answer = NULL;
    int r = cli_send_spec(c, "/v1/jobs?dry_run=1", c->arg[0], doc, NULL, &answer);

    return r ? r : print_answer(c, answer);
}

/* The plans of the first steps of a job on documents. The trainer reads corpora, so it makes them: it gets the spec as
 * its standard input. */
static int plan_steps(struct cli *c, const json_t *doc)
{
    const char *const argv[] = {"muster-train", "--print-batches", "--steps", cli_option(c, "steps"), NULL};
    char *text = json_dumps(doc, JSON_COMPACT);
    IO_CLOSE_AUTO int fd = memfd_create("spec", MFD_CLOEXEC);
    int r = text && fd >= 0 ? io_write_all(fd, text, strlen(text)) : -ENOMEM;

    free(text);
    if (r < 0 || lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0)
        return cli_fail(CLI_FAILED, "cannot pass on the spec: %s", strerror(r < 0 ? -r : errno));
    return cli_exec("muster-train", argv);
}

int plan_main(struct cli *c)
{
    json_auto_t *doc = NULL;

    if (!cli_option(c, "cluster") && (cli_option(c, "class") || cli_option(c, "devices")))
        return cli_fail(CLI_USAGE, "--class and --devices go with --cluster; a server knows its own devices");
    TRY(cli_read_spec(c, c->arg[0], &doc));
    if (cli_option(c, "steps")) {
        TRY(cli_check_spec(c->arg[0], doc));
        return plan_steps(c, doc);
    }
    return cli_option(c, "cluster") ? offline(c, doc) : plan_dry_run(c, doc);
}
