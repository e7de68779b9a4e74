/* What was measured of classes of devices, and how far plans were off. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/profile.h"
#include "base/try.h"

int profile_run(struct cli *c)
{
    char kept[PROFILE_FILE_MAX];
    bool keep = !cli_option(c, "quick") && profile_kept_file(kept);
    const char *const argv[] = {"muster-train",
                                "--profile",
                                "--devices",
                                cli_option(c, "devices"),
                                "--threads",
                                cli_option(c, "threads"),
                                cli_option(c, "quick") ? "--quick"
                                : keep                 ? "--keep"
                                                       : NULL,
                                keep ? kept : NULL,
                                NULL};

    return cli_exec("muster-train", argv);
}

/* The middle one of the rates of products. */
static double tflops(const json_t *profile)
{
    struct plan_profile *p = calloc(1, sizeof(*p));
    struct merr err;
    double rate = 0;

    if (p && profile_read(profile, p, &err) == 0)
        rate = profile_flops(&p->f32) * 1e-12;
    free(p);
    return rate;
}

int profile_list(struct cli *c)
{
    static const struct cli_table table = {
        .head = {"CLASS", "NODES", "RANKS", "THREADS", "TFLOP/S", "COPY GB/S", "PROGRAM MIB"},
        .n = 7,
        .right = 0x7e,
        .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *one;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/profiles", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    if (json_array_size(json_object_get(answer, "profiles")) == 0) {
        (void)fprintf(stderr, "no node has measured its devices yet: agents do when nothing has run for a while\n");
        return 0;
    }
    rows = json_array();
    json_array_foreach (json_object_get(answer, "profiles"), i, one) {
        const json_t *p = json_object_get(one, "profile");
        char cell[6][24];

        (void)snprintf(cell[0], sizeof(cell[0]), "%lld", cli_int(one, "nodes"));
        (void)snprintf(cell[1], sizeof(cell[0]), "%lld", cli_int(p, "side_by_side"));
        (void)snprintf(cell[2], sizeof(cell[0]), "%lld", cli_int(p, "threads"));
        (void)snprintf(cell[3], sizeof(cell[0]), "%.3g", tflops(p));
        (void)snprintf(cell[4], sizeof(cell[0]), "%.4g", cli_real(p, "copy_gbps"));
        (void)snprintf(cell[5], sizeof(cell[0]), "%.1f", cli_real(p, "program_mib"));
        (void)cli_row(rows,
                      (const char *[]){cli_str(one, "class"), cell[0], cell[1], cell[2], cell[3], cell[4], cell[5]}, 7);
    }
    cli_print_table_new(&table, rows);
    return 0;
}

int profile_show(struct cli *c)
{
    json_auto_t *answer = NULL;
    json_t *one;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/profiles", NULL, NULL, &answer));
    json_array_foreach (json_object_get(answer, "profiles"), i, one) {
        if (strcmp(cli_str(one, "class"), c->arg[0]) == 0)
            return cli_print_json(json_object_get(one, "profile"));
    }
    return cli_fail(CLI_NOT_FOUND, "no node has measured a class '%s'; muster profile list shows those that were",
                    c->arg[0]);
}

static void print_worst(const json_t *list)
{
    const json_t *p;
    size_t i;

    (void)printf("the worst\n");
    json_array_foreach (list, i, p)
        (void)printf("  %s attempt %lld on %s, %s: planned %.4g ms, took %.4g ms (%+.1f %%)\n", cli_str(p, "job"),
                     cli_int(p, "attempt"), cli_str(p, "class"), cli_str(p, "kind"), cli_real(p, "predicted_step_ms"),
                     cli_real(p, "measured_step_ms"), cli_real(p, "error_percent"));
}

int reports_predictions(struct cli *c)
{
    static const struct cli_table table = {
        .head = {"CLASS", "KIND", "RATES", "ATTEMPTS", "MEAN ERROR %", "P90 %", "BIAS %"},
        .n = 7,
        .right = 0x78,
        .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *of;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/reports/predictions", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    if (json_array_size(json_object_get(answer, "predictions")) == 0) {
        (void)fprintf(stderr, "no attempt is over yet of which steps were planned and measured\n");
        return 0;
    }
    rows = json_array();
    json_array_foreach (json_object_get(answer, "predictions"), i, of) {
        char count[24], mean[24], p90[24], bias[24];

        (void)snprintf(count, sizeof(count), "%lld", cli_int(of, "count"));
        (void)snprintf(mean, sizeof(mean), "%.1f", cli_real(of, "mean_error_percent"));
        (void)snprintf(p90, sizeof(p90), "%.1f", cli_real(of, "p90_error_percent"));
        (void)snprintf(bias, sizeof(bias), "%+.1f", cli_real(of, "bias_percent"));
        (void)cli_row(
            rows,
            (const char *[]){cli_str(of, "class"), cli_str(of, "kind"), cli_str(of, "rates"), count, mean, p90, bias},
            7);
    }
    cli_print_table_new(&table, rows);
    print_worst(json_object_get(answer, "worst"));
    return 0;
}
