/* Series: how a node and its devices did, as curves over the time of day. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/plot.h"
#include "api/cli/print.h"
#include "api/times.h"
#include "base/clock.h"
#include "base/try.h"

#define BUCKETS 144 /* a dot of a plot each */
#define LINES_MAX 16
#define SINCE_MAX (30 * 86400)

struct picture { /* lines over the same buckets */
    double x[BUCKETS], y[LINES_MAX][BUCKETS];
    char name[LINES_MAX][80];
    struct plot_line line[LINES_MAX];
    size_t n, left_out;
};

static const struct {
    const char *title;
    struct {
        const char *key, *name;
        double scale;
    } line[2];
} of_host[] = {
    {"Processors, percent", {{"cpu_percent", "busy", 1}}},
    {"Memory, GiB", {{"memory_mib", "in use", 1.0 / 1024}, {"memory_total_mib", "all", 1.0 / 1024}}},
    {"Load", {{"load", "processes", 1}}},
    {"Network, MiB a second", {{"in_kib_s", "in", 1.0 / 1024}, {"out_kib_s", "out", 1.0 / 1024}}},
    {"Disk of the jobs, GiB", {{"disk_free_mib", "free", 1.0 / 1024}}},
};
static const struct {
    const char *title, *key;
} of_devices[] = {
    {"Use of the devices, percent", "use"},       {"Time that jobs had the devices, percent", "busy"},
    {"Memory of the devices, percent", "memory"}, {"Temperature of the devices, degrees", "temperature_c"},
    {"Power of the devices, watts", "power_w"},
};

/* A column becomes a line, unless nobody has measured it. */
static void add_line(struct picture *p, const json_t *column, double scale, const char *name)
{
    struct plot_line *l = &p->line[p->n];
    double last = NAN;

    if (p->n == LINES_MAX) {
        p->left_out++;
        return;
    }
    l->n = 0;
    for (size_t i = 0; i < json_array_size(column) && i < BUCKETS; i++, l->n++) {
        const json_t *v = json_array_get(column, i);

        p->y[p->n][i] = json_is_number(v) ? json_number_value(v) * scale : NAN;
        last = json_is_number(v) ? p->y[p->n][i] : last;
    }
    if (isnan(last))
        return;
    (void)snprintf(p->name[p->n], sizeof(p->name[0]), "%s %.4g", name, last);
    l->name = p->name[p->n];
    l->x = p->x;
    l->y = p->y[p->n++];
}

static void print_picture(const struct picture *p, const char *title)
{
    if (p->n == 0)
        return;
    (void)printf("%s\n", title);
    plot_print(p->line, p->n, PLOT_TIMES);
    if (p->left_out > 0)
        (void)printf("and %zu more devices: -o json has all\n", p->left_out);
    (void)printf("\n");
}

static void print_series(const json_t *answer, struct picture *p)
{
    const json_t *node = json_array_get(json_object_get(answer, "nodes"), 0), *host = json_object_get(node, "host"), *d;
    size_t i;

    for (i = 0; i < BUCKETS; i++)
        p->x[i] = (double)(cli_int(answer, "from") + (long long)i * cli_int(answer, "width_s"));
    for (size_t k = 0; k < sizeof(of_host) / sizeof(of_host[0]); k++) {
        p->n = p->left_out = 0;
        for (int n = 0; n < 2 && of_host[k].line[n].key; n++)
            add_line(p, json_object_get(json_object_get(host, of_host[k].line[n].key), "mean"),
                     of_host[k].line[n].scale, of_host[k].line[n].name);
        print_picture(p, of_host[k].title);
    }
    for (size_t k = 0; k < sizeof(of_devices) / sizeof(of_devices[0]); k++) {
        p->n = p->left_out = 0;
        json_array_foreach (json_object_get(node, "devices"), i, d) {
            char name[32];

            (void)snprintf(name, sizeof(name), "device %lld", cli_int(d, "slot"));
            if (json_object_get(d, of_devices[k].key))
                add_line(p, json_object_get(d, of_devices[k].key), 1, name);
        }
        print_picture(p, of_devices[k].title);
    }
}

int series_node(struct cli *c)
{
    const char *since = cli_option(c, "since");
    struct picture *p;
    json_t *answer = NULL;
    char path[256];
    int since_s = 3600, r = 0;

    if (since && (times_parse(since, &since_s) < 0 || since_s < 60 || since_s > SINCE_MAX))
        return cli_fail(CLI_USAGE, "--since '%.64s': want a time of 1m to 30d, such as 10m, 4h, 7d", since);
    (void)snprintf(path, sizeof(path), "/v1/nodes/%.64s/series?from=%lld&buckets=%d", c->arg[0],
                   (long long)(clock_wall_us() / 1000000 - since_s), BUCKETS);
    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    p = calloc(1, sizeof(*p));
    if (c->json)
        r = cli_print_json(answer);
    else if (p)
        print_series(answer, p);
    else
        r = cli_fail(CLI_FAILED, "no memory");
    free(p);
    json_decref(answer);
    return r;
}
