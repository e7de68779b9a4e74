/* history: what a cluster has run, as the three files that simulate reads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"

#define TRACE_BYTES_MAX (64u << 20)
#define NAME_MAX_BYTES 64 /* of a name in a trace, with its end */

struct history {
    struct buf trace;
    json_t *rates;   /* by kind, class and number of devices: steps a second */
    json_t *tenants; /* projects */
    json_t *aliases; /* of projects, users and names; NULL: they are shown */
    int64_t first_us;
    size_t n, never_ran, no_devices, of_two; /* jobs that are in, and those that are left out, by why */
};

/* A name as one column takes it, or its alias. */
static void name_of(struct history *h, const char *sort, const char *name, char ret[NAME_MAX_BYTES])
{
    char key[512];
    size_t n = 0;

    if (h->aliases) {
        (void)snprintf(key, sizeof(key), "%s %.400s", sort, name);
        if (!json_object_get(h->aliases, key))
            (void)json_object_set_new(h->aliases, key, json_integer((json_int_t)json_object_size(h->aliases) + 1));
        (void)snprintf(ret, NAME_MAX_BYTES, "%s%lld", sort, cli_int(h->aliases, key));
        return;
    }
    for (; n < NAME_MAX_BYTES - 1 && name[n]; n++)
        ret[n] = strchr(",|#\"\r\n", name[n]) ? '_' : name[n];
    ret[n] = '\0';
}

struct run { /* what a job had */
    int64_t submit_us, span_us;
    const char *class_;
    long long devices;
};

static int64_t time_of(const json_t *job, const char *key)
{
    int64_t us = -1;

    (void)clock_read_rfc3339(cli_str(job, key), &us);
    return us;
}

/* False: it is left out, and counted by why. */
static bool read_run(struct history *h, const json_t *job, struct run *ret)
{
    const json_t *devices = json_object_get(job, "assignment"), *d;
    int64_t started = time_of(job, "started_at"), ended = time_of(job, "finished_at");
    size_t i;

    *ret = (struct run){.submit_us = time_of(job, "submitted_at"),
                        .devices = (long long)json_array_size(devices),
                        .class_ = cli_str(json_array_get(devices, 0), "class")};
    if (started < 0 || ended <= started || ret->submit_us < 0) {
        h->never_ran++;
        return false;
    }
    if (!*ret->class_) {
        h->no_devices++;
        return false;
    }
    json_array_foreach (devices, i, d)
        if (strcmp(cli_str(d, "class"), ret->class_) != 0) {
            h->of_two++;
            return false;
        }
    ret->span_us = ended - started;
    return true;
}

/* Steps a second of the kind on so many devices of the class; what jobs show is averaged. */
static void add_rate(struct history *h, const char *kind, const struct run *run, double rate)
{
    json_t *of = json_object_get(h->rates, kind), *at;
    char count[24];

    (void)snprintf(count, sizeof(count), "%lld", run->devices);
    if (!of) {
        of = json_object();
        (void)json_object_set_new(h->rates, kind, of);
    }
    at = json_object_get(of, run->class_);
    if (!at) {
        at = json_object();
        (void)json_object_set_new(of, run->class_, at);
    }
    if (json_object_get(at, count))
        rate = (rate + cli_real(at, count)) / 2;
    (void)json_object_set_new(at, count, json_real(rate));
}

/* One job. A training job's steps are its own; of a command a step is a second, and no other number of devices is
 * known to be faster. */
static void add_job(struct history *h, const json_t *job)
{
    const json_t *asked = json_object_get(job, "devices");
    char project[NAME_MAX_BYTES], user[NAME_MAX_BYTES], name[NAME_MAX_BYTES], kind[3 * NAME_MAX_BYTES];
    long long steps = cli_int(json_object_get(job, "progress"), "step"), min = cli_int(asked, "min");
    long long max = cli_int(asked, "max"), priority = cli_int(job, "priority");
    bool trains = strcmp(cli_str(job, "kind"), "train") == 0 && steps > 0;
    struct run run;
    double seconds, weight = 1;

    if (!read_run(h, job, &run))
        return;
    seconds = (double)run.span_us / 1e6;
    name_of(h, "project", cli_str(job, "project"), project);
    name_of(h, "user", cli_str(job, "user"), user);
    name_of(h, "name", cli_str(job, "name"), name);
    (void)snprintf(kind, NAME_MAX_BYTES, trains ? "%.24s/%.36s" : "%.20s/%.30s/%lld", user, name, run.devices);
    if (!trains) {
        steps = seconds < 1 ? 1 : (long long)(seconds + 0.5);
        min = max = run.devices;
    }
    for (; priority >= 55; priority -= 5)
        weight *= 1.1487; /* as sched_weight_milli() */
    for (; priority <= 45; priority += 5)
        weight /= 1.1487;
    add_rate(h, kind, &run, (double)steps / seconds);
    (void)json_object_set_new(h->tenants, project, json_object());
    (void)buf_printf(&h->trace, "%.40s,%.6f,%s,%lld,%lld,0,%lld,%.3f,%s,%s,0\n", cli_str(job, "id"),
                     (double)(run.submit_us - h->first_us) / 1e6, kind, min, max, steps, weight, project, run.class_);
    h->n++;
}

/* Classes with their nodes; of nodes that differ in number the class has as many as hold all its devices. New. */
static json_t *classes_of(const json_t *nodes)
{
    json_t *classes = json_object(), *node, *slot;
    const char *name;
    json_t *most;
    size_t i, k;
    void *next;

    json_array_foreach (nodes, i, node) {
        json_auto_t *here = json_object();

        json_array_foreach (json_object_get(node, "slots"), k, slot)
            (void)json_object_set_new(here, cli_str(slot, "class"),
                                      json_integer(cli_int(here, cli_str(slot, "class")) + 1));
        json_object_foreach (here, name, most) {
            json_t *c = json_object_get(classes, name);

            if (!c) {
                c = json_pack("{s:i, s:i}", "nodes", 0, "devices_per_node", 0);
                (void)json_object_set_new(classes, name, c);
            }
            (void)json_object_set_new(c, "nodes", json_integer(cli_int(c, "nodes") + json_integer_value(most)));
            if (json_integer_value(most) > cli_int(c, "devices_per_node"))
                (void)json_object_set(c, "devices_per_node", most);
        }
    }
    for (next = json_object_iter(classes); next; next = json_object_iter_next(classes, next)) {
        json_t *c = json_object_iter_value(next);
        long long each = cli_int(c, "devices_per_node"), all = cli_int(c, "nodes"); /* devices so far */

        (void)json_object_set_new(c, "nodes", json_integer((all + each - 1) / each));
    }
    return classes;
}

static int write_json(const char *folder, const char *name, const json_t *doc)
{
    char path[4096];
    char *text = json_dumps(doc, JSON_INDENT(1) | JSON_SORT_KEYS);
    struct merr err;
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    r = text ? io_write_file(path, text, strlen(text), 0644, &err) : merr_set(&err, -12, "no memory");
    free(text);
    return r < 0 ? cli_fail(CLI_FAILED, "%s", err.text) : 0;
}

static int write_all(const struct history *h, const json_t *nodes, const char *folder)
{
    json_auto_t *cluster = json_pack("{s:o, s:O}", "classes", classes_of(nodes), "tenants", h->tenants);
    char path[4096];
    struct merr err;

    if (mkdir(folder, 0755) < 0 && access(folder, W_OK) < 0)
        return cli_fail(CLI_FAILED, "cannot make the folder '%s'", folder);
    (void)snprintf(path, sizeof(path), "%s/trace.csv", folder);
    if (buf_failed(&h->trace))
        return cli_fail(CLI_FAILED, "the trace is larger than %u bytes; --limit takes fewer jobs", TRACE_BYTES_MAX);
    if (io_write_file(path, buf_text(&h->trace), h->trace.len, 0644, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    TRY(write_json(folder, "cluster.json", cluster));
    return write_json(folder, "throughputs.json", h->rates);
}

static int64_t first_of(const json_t *jobs)
{
    int64_t first = INT64_MAX;
    const json_t *job;
    size_t i;

    json_array_foreach (jobs, i, job) {
        int64_t at = time_of(job, "submitted_at");

        first = at >= 0 && at < first ? at : first;
    }
    return first;
}

int history_export(struct cli *c)
{
    const char *folder = cli_option(c, "trace");
    json_auto_t *answer = NULL, *cluster = NULL, *rates = json_object(), *tenants = json_object();
    json_auto_t *aliases = cli_option(c, "pseudonyms") ? json_object() : NULL;
    struct history h = {.rates = rates, .tenants = tenants, .aliases = aliases};
    BUF_CLEAR_AUTO struct buf trace;
    const json_t *jobs;
    int status;

    buf_init(&trace, TRACE_BYTES_MAX);
    if (!folder)
        return cli_fail(CLI_USAGE, "want --trace FOLDER, where the files for `muster simulate` go");
    TRY(cli_pages(c, "/v1/jobs", "&state=succeeded,failed,cancelled", "jobs", cli_number(c, "limit", 0), &answer));
    TRY(cli_pages(c, "/v1/nodes", "", "nodes", 100000, &cluster));
    jobs = json_object_get(answer, "jobs");
    h.first_us = first_of(jobs);
    h.trace = trace;
    (void)buf_printf(&h.trace, "id,submit_s,job_type,min_devices,max_devices,virtual_workers,total_steps,weight,tenant,"
                               "classes,hetero_ok\n");
    for (size_t i = json_array_size(jobs); i-- > 0;) /* the newest came first */
        add_job(&h, json_array_get(jobs, i));
    status = h.n == 0 ? 0 : write_all(&h, json_object_get(cluster, "nodes"), folder);
    trace = h.trace;
    if (h.n == 0)
        (void)fprintf(stderr, "no job has run and ended yet: there is nothing to export\n");
    if (status != 0 || h.n == 0)
        return status;
    (void)fprintf(
        stderr,
        "%zu jobs; left out: %zu that never ran, %zu whose devices are not known, %zu on two classes, jobs that "
        "have not ended, failures of nodes, time limits, quotas\n",
        h.n, h.never_ran, h.no_devices, h.of_two);
    (void)printf("muster simulate --trace %s/trace.csv --cluster %s/cluster.json --throughputs %s/throughputs.json\n",
                 folder, folder, folder);
    return 0;
}
