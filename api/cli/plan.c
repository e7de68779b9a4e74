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
#include "api/cli/described.h"
#include "api/spec_plan.h"
#include "base/io.h"
#include "base/try.h"

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

/* Layers of all stages that the rank of a place in the pipeline has: its chunks are pp stages apart. */
static long long layers_at(const json_t *plan, size_t place, size_t pp)
{
    const json_t *layers = json_object_get(plan, "layers");
    long long n = 0;

    for (size_t i = place; i < json_array_size(layers); i += pp)
        n += json_integer_value(json_array_get(layers, i));
    return n;
}

static void print_memory(const json_t *plan)
{
    static const struct cli_table table = {
        .head = {"STAGE", "LAYERS", "WEIGHTS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "REST", "ALL MIB", "OF"},
        .n = 9,
        .right = 0x1fe,
        .state = -1};
    static const char *const keys[] = {"weights", "gradients", "optimizer", "activations", "rest", "all", "limit"};
    const json_t *list = json_object_get(plan, "memory_mib"), *m;
    json_t *rows = json_array();
    size_t i;

    json_array_foreach (list, i, m) {
        char cell[9][24] = {"", "", "", "", "", "", "", "", "-"};
        const char *cells[9];

        (void)snprintf(cell[0], sizeof(cell[0]), "%zu", i);
        (void)snprintf(cell[1], sizeof(cell[0]), "%lld", layers_at(plan, i, json_array_size(list)));
        for (size_t k = 0; k < 7; k++)
            if (json_is_number(json_object_get(m, keys[k])))
                (void)snprintf(cell[k + 2], sizeof(cell[0]), "%.1f", cli_real(m, keys[k]));
        for (size_t k = 0; k < 9; k++)
            cells[k] = cell[k];
        (void)cli_row(rows, cells, 9);
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

static int plan_here(const struct job_spec *spec, const struct described *d, json_t **ret)
{
    struct plan_job job = spec_plan_job(spec);
    struct plan_wish wish = spec_plan_wish(spec);
    struct plan_result plan;
    struct merr err = {""};

    job.program_bytes = d->program_bytes;
    if (plan_search(&job, &wish, &d->site, &plan, &err) < 0)
        return cli_fail(CLI_REFUSED, "%s", err.text);
    *ret = spec_plan_json(&plan);
    return *ret ? 0 : cli_fail(CLI_FAILED, "out of memory");
}

static int plan_spec(struct cli *c, const struct job_spec *spec)
{
    const char *file = cli_option(c, "cluster"), *classes = cli_option(c, "class");
    json_auto_t *cluster = NULL;
    struct described d;
    json_t *plan;
    int r;

    if (spec->kind != JOB_TRAIN)
        return cli_fail(CLI_REFUSED, "a command has no layout to plan; its devices are all there is to choose");
    TRY(described_read(file, &cluster));
    TRY(described_site(file, cluster, classes, cli_number(c, "devices", spec->devices.max),
                       spec->train.precision == PRECISION_BF16, &d));
    r = plan_here(spec, &d, &plan);
    described_clear(&d);
    if (r != 0)
        return r;
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
