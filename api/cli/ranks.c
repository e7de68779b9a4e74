/* Ranks: where those of a running job spend their steps, by pipeline stage and one by one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "base/try.h"

#define BAR 24 /* characters */

static const struct part {
    const char *head, *sign; /* sign: of the bar; "": none */
    const char *field[5];    /* that it is the sum of */
} parts[] = {
    {"STEP", "", {"step_ms"}},
    {"COMPUTE", "█", {"compute_ms"}},
    {"EXCHANGE", "▓", {"tp_ms", "pp_ms", "dp_ms", "cp_ms", "other_ms"}},
    {"DATA", "▒", {"data_ms"}},
    {"STALL", "░", {"save_ms"}},
    {"REST", "·", {"rest_ms"}},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

/* Milliseconds; NAN: not known. */
static double part_of(const json_t *o, const struct part *p)
{
    const json_t *of = json_object_get(o, "parts");
    double sum = 0;

    for (size_t i = 0; i < 5 && p->field[i]; i++) {
        const json_t *v = json_object_get(of, p->field[i]);

        if (!json_is_number(v))
            return NAN;
        sum += json_number_value(v);
    }
    return sum;
}

static void print_bar(const json_t *o, double longest, char ret[4 * BAR + 1])
{
    double sum = 0;
    size_t len = 0;
    int at = 0;

    for (size_t i = 1; i < PARTS && longest > 0; i++) {
        sum += part_of(o, &parts[i]);
        for (; isfinite(sum) && at < BAR && at < (int)lround(sum / longest * BAR); at++) {
            memcpy(ret + len, parts[i].sign, strlen(parts[i].sign));
            len += strlen(parts[i].sign);
        }
    }
    ret[len] = '\0';
}

/* The cells of all parts, behind those that the row begins with. */
static void add_row(json_t *rows, const char *const *first, size_t n_first, const json_t *o, double longest)
{
    char text[PARTS][24], sent[24] = "-", memory[24] = "", bar[4 * BAR + 1];
    const char *cells[CLI_TABLE_MAX];
    size_t n = 0;

    for (; n < n_first; n++)
        cells[n] = first[n];
    for (size_t i = 0; i < PARTS; i++) {
        double v = part_of(o, &parts[i]);

        (void)snprintf(text[i], sizeof(text[i]), isfinite(v) ? v >= 100 ? "%.0f" : "%.1f" : "-", v);
        cells[n++] = text[i];
    }
    if (json_is_number(json_object_get(json_object_get(o, "parts"), "sent_kib")))
        (void)snprintf(sent, sizeof(sent), "%.1f", cli_real(json_object_get(o, "parts"), "sent_kib") / 1024);
    if (json_is_integer(json_object_get(o, "memory_percent")))
        (void)snprintf(memory, sizeof(memory), "%lld %%", cli_int(o, "memory_percent"));
    else if (json_object_get(o, "memory_percent"))
        (void)snprintf(memory, sizeof(memory), "-");
    print_bar(o, longest, bar);
    cells[n++] = sent;
    cells[n++] = memory;
    cells[n++] = bar;
    (void)cli_row(rows, cells, n);
}

static double longest_of(const json_t *list)
{
    double longest = 0;
    const json_t *o;
    size_t i;

    json_array_foreach (list, i, o)
        longest = fmax(longest, part_of(o, &parts[0]));
    return longest;
}

static void print_ranks(const json_t *answer)
{
    static const struct cli_table by_stage = {
        .head = {"STAGE", "RANKS", "STEP", "COMPUTE", "EXCHANGE", "DATA", "STALL", "REST", "MIB SENT", "", ""},
        .n = 11,
        .right = 0x1ff,
        .state = -1};
    static const struct cli_table by_rank = {.head = {"RANK", "NODE", "DEVICE", "STAGE", "STEP", "COMPUTE", "EXCHANGE",
                                                      "DATA", "STALL", "REST", "MIB SENT", "MEMORY", ""},
                                             .n = 13,
                                             .right = 0xffd,
                                             .state = -1,
                                             .spare = {10, 3, 11, 9}};
    const json_t *ranks = json_object_get(answer, "ranks"), *stages = json_object_get(answer, "stages"), *o;
    json_t *rows = json_array();
    double longest = longest_of(ranks);
    size_t i;

    if (json_array_size(stages) > 1) {
        json_array_foreach (stages, i, o) {
            char stage[24], count[24];

            (void)snprintf(stage, sizeof(stage), "%zu", i);
            (void)snprintf(count, sizeof(count), "%lld", cli_int(o, "ranks"));
            add_row(rows, (const char *[]){stage, count}, 2, o, longest);
        }
        cli_print_table_new(&by_stage, rows);
        (void)printf("\n");
        rows = json_array();
    }
    json_array_foreach (ranks, i, o) {
        char rank[24], slot[24], stage[24];

        (void)snprintf(rank, sizeof(rank), "%zu", i);
        (void)snprintf(slot, sizeof(slot), "%lld", cli_int(o, "slot"));
        (void)snprintf(stage, sizeof(stage), "%lld", cli_int(o, "stage"));
        add_row(rows, (const char *[]){rank, cli_str(o, "node"), slot, stage}, 4, o, longest);
    }
    cli_print_table_new(&by_rank, rows);
    (void)printf("\nmilliseconds of a step, of late; %s compute, %s exchange, %s data, %s checkpoint stall, %s rest\n",
                 parts[1].sign, parts[2].sign, parts[3].sign, parts[4].sign, parts[5].sign);
    if (!(longest > 0))
        (void)printf("no rank has told of its steps yet; those of the built-in engine do, after the first few\n");
}

int ranks_show(struct cli *c)
{
    json_t *answer = NULL;
    char path[256];
    int r = 0;

    TRY(cli_job_path(c->arg[0], "/ranks", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    if (c->json)
        r = cli_print_json(answer);
    else
        print_ranks(answer);
    json_decref(answer);
    return r;
}
