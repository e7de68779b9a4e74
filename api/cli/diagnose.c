/* Diagnose: who holds up a run, what each of its ranks does, and what was known of it as it stood still or failed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "api/protocol/evidence.h"
#include "api/protocol/incident.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/diagnose/words.h"

#define DUMP_BYTES (2 * INCIDENT_BYTES)
#define GROUPS_SHOWN 24
#define LOG_LINES 8

/* --- the groups -------------------------------------------------------------------------------------- */

static const struct report_group *group_of(const struct report_rank *t, int64_t key)
{
    for (size_t i = 0; i < t->stall.n_groups; i++)
        if (t->stall.groups[i].key == key)
            return &t->stall.groups[i];
    return NULL;
}

/* "0-4, 6" of the ranks of a group that have entered its newest call, or have not. */
static void list_members(const struct incident *in, int64_t key, int64_t call, bool entered, struct buf *out)
{
    int first = -1, last = -1;

    buf_reset(out);
    for (size_t i = 0; i <= in->n_ranks; i++) {
        const struct report_group *g = i < in->n_ranks ? group_of(&in->ranks[i].told, key) : NULL;
        bool is = g && (g->entered >= call) == entered;

        if (is && first >= 0 && last == (int)i - 1) {
            last = (int)i;
        } else if (first >= 0 && (is || i == in->n_ranks)) {
            (void)buf_printf(out, first == last ? "%s%d" : "%s%d-%d", out->len ? ", " : "", first, last);
            first = last = is ? (int)i : -1;
        } else if (is) {
            first = last = (int)i;
        }
    }
    if (out->len == 0)
        (void)buf_addstr(out, "-");
}

/* The newest call of a group that any of its ranks has entered, and whether one waits in it; false: seen before. */
static bool newest_call(const struct incident *in, size_t rank, size_t group, int64_t *ret_call, bool *ret_waited)
{
    int64_t key = in->ranks[rank].told.stall.groups[group].key;

    *ret_call = 0;
    *ret_waited = false;
    for (size_t i = 0; i < in->n_ranks; i++) {
        const struct report_stall *s = &in->ranks[i].told.stall;
        const struct report_group *g = group_of(&in->ranks[i].told, key);

        if (g && i < rank)
            return false;
        *ret_call = g && g->entered > *ret_call ? g->entered : *ret_call;
        *ret_waited = *ret_waited || (*s->op && s->peer < 0 && s->key == key);
    }
    return true;
}

/* Groups in which somebody waits, or all where nobody waits in any. */
static void print_groups(const struct incident *in)
{
    static const struct cli_table table = {
        .head = {"GROUP", "MEMBERS", "CALL", "ENTERED BY", "NOT BY"}, .n = 5, .right = 1 << 1 | 1 << 2, .state = -1};
    json_t *rows = json_array();
    BUF_CLEAR_AUTO struct buf by;
    BUF_CLEAR_AUTO struct buf not_by;
    size_t more = 0;

    buf_init(&by, 1 << 16);
    buf_init(&not_by, 1 << 16);
    for (size_t i = 0; i < in->n_ranks; i++)
        for (size_t k = 0; k < in->ranks[i].told.stall.n_groups; k++) {
            const struct report_group *g = &in->ranks[i].told.stall.groups[k];
            char size[16], number[24];
            int64_t call;
            bool waited;

            if (!newest_call(in, i, k, &call, &waited) || !waited)
                continue;
            if (json_array_size(rows) == GROUPS_SHOWN) {
                more++;
                continue;
            }
            list_members(in, g->key, call, true, &by);
            list_members(in, g->key, call, false, &not_by);
            (void)snprintf(size, sizeof(size), "%d", g->size);
            (void)snprintf(number, sizeof(number), "%" PRId64, call);
            (void)cli_row(rows, (const char *[]){g->name, size, number, buf_text(&by), buf_text(&not_by)}, 5);
        }
    if (json_array_size(rows) > 0) {
        (void)printf("\n");
        cli_print_table_new(&table, rows);
    } else {
        json_decref(rows);
    }
    if (more > 0)
        (void)printf("and %zu more groups\n", more);
}

/* --- ranks ------------------------------------------------------------------------------------------- */

static bool is_root(const struct incident *in, int rank)
{
    for (size_t i = 0; i < in->verdict.n_roots; i++)
        if (in->verdict.roots[i] == rank)
            return true;
    return false;
}

static const char *doing(const struct incident *in, const struct report_rank *t)
{
    if (is_root(in, t->rank))
        return "root";
    if (t->state == REPORT_EXITED)
        return "ended";
    if (t->stall.stopped)
        return t->stall.frozen ? "frozen" : "stopped";
    return *t->stall.op ? "waits" : *t->phase ? "works" : t->state == REPORT_RUNNING ? "runs" : "-";
}

static void print_ranks(const struct incident *in)
{
    static const struct cli_table table = {.head = {"RANK", "NODE", "DOES", "STEP", "PHASE", "FOR", "WAITS IN"},
                                           .n = 7,
                                           .right = 1 << 0 | 1 << 3 | 1 << 5,
                                           .state = -1,
                                           .spare = {4}};
    json_t *rows = json_array();

    for (size_t i = 0; i < in->n_ranks; i++) {
        const struct report_rank *t = &in->ranks[i].told;
        const struct report_group *g = group_of(t, t->stall.key);
        char rank[16], step[24] = "-", idle[24] = "-", wait[96] = "-";

        (void)snprintf(rank, sizeof(rank), "%zu", i);
        if (t->step >= 0 && *t->phase)
            (void)snprintf(step, sizeof(step), "%" PRId64, t->step);
        if (t->stall.idle_us > 0)
            (void)snprintf(idle, sizeof(idle), "%.1f s", (double)t->stall.idle_us / 1e6);
        if (*t->stall.op && t->stall.peer >= 0)
            (void)snprintf(wait, sizeof(wait), "%s, rank %d in '%s'", t->stall.op, t->stall.peer, g ? g->name : "?");
        else if (*t->stall.op)
            (void)snprintf(wait, sizeof(wait), "%s %" PRId64 " of '%s'", t->stall.op, t->stall.call, g ? g->name : "?");
        (void)cli_row(rows,
                      (const char *[]){rank, in->ranks[i].node, doing(in, t), step,
                                       *t->phase ? words_of_phase(t->phase) : "-", idle, wait},
                      7);
    }
    (void)printf("\n");
    cli_print_table_new(&table, rows);
}

/* --- what machines told ------------------------------------------------------------------------------ */

/* Text of others, each line under a mark; the last of them, at most so many. */
static void print_lines(const char *mark, const char *text, size_t most)
{
    size_t lines = 0;
    const char *p = text + strlen(text);

    while (p > text && (p[-1] != '\n' || p[0] == '\0' || ++lines < most))
        p--;
    while (*p) {
        size_t n = strcspn(p, "\n");

        (void)printf("  %s", mark);
        cli_print_visible(stdout, p, n);
        (void)printf("\n");
        p += n + (p[n] == '\n');
    }
}

static void print_process(const json_t *p, bool all)
{
    const json_t *t;
    size_t i;

    (void)printf("  process %lld ", cli_int(p, "pid"));
    cli_print_text(cli_str(p, "name"));
    (void)printf(": %s", cli_str(p, "state"));
    if (*cli_str(p, "wait"))
        (void)printf(", in %s", cli_str(p, "wait"));
    (void)printf("\n");
    if (*cli_str(p, "stack"))
        print_lines("kernel | ", cli_str(p, "stack"), SIZE_MAX);
    if (*cli_str(p, "python"))
        print_lines("python | ", cli_str(p, "python"), SIZE_MAX);
    json_array_foreach (json_object_get(p, "threads"), i, t) {
        if (!all && i >= 4)
            break;
        (void)printf("    thread %lld ", cli_int(t, "tid"));
        cli_print_text(cli_str(t, "name"));
        (void)printf(": %s%s%s\n", cli_str(t, "state"), *cli_str(t, "wait") ? ", in " : "", cli_str(t, "wait"));
    }
}

static void print_evidence(const char *node, const struct evidence_rank *r)
{
    const json_t *p;
    size_t i;

    (void)printf("\nrank %d on %s%s%s\n", r->told.rank, node, *r->left_out ? "; left out: " : "", r->left_out);
    if (r->told.state == REPORT_EXITED && *r->told.exit.why)
        print_lines("ended | ", r->told.exit.why, 1);
    json_array_foreach (r->processes, i, p) {
        print_process(p, false);
    }
    if (r->log)
        print_lines("log | ", r->log, LOG_LINES);
}

/* Those at fault; of a run that goes on without one, the first few. */
static void print_parts(const struct incident *in)
{
    size_t i, shown = 0;
    const json_t *part;

    json_array_foreach (in->parts, i, part) {
        const char *node = cli_str(part, "node");
        struct evidence e;

        if (evidence_read(part, &e, NULL) < 0)
            continue;
        for (size_t k = 0; k < e.n_ranks; k++) {
            int rank = e.ranks[k].told.rank;
            bool failed = in->kind == INCIDENT_FAILURE && e.ranks[k].told.state == REPORT_EXITED;

            if (is_root(in, rank) || failed || (in->verdict.n_roots == 0 && shown < 2)) {
                print_evidence(node, &e.ranks[k]);
                shown++;
            }
        }
        if (e.kernel && in->kind != INCIDENT_LOOK && *e.kernel) {
            (void)printf("\nkernel of %s\n", node);
            print_lines("| ", e.kernel, LOG_LINES);
        }
        evidence_clear(&e);
    }
}

static const char *verdict_of(const struct incident *in)
{
    if (*in->verdict.text)
        return in->verdict.text;
    return in->kind == INCIDENT_FAILURE ? "a rank failed" : "no rank holds up the others for longer than it may";
}

static int print_incident(const struct cli *c, const struct incident *in, const json_t *doc)
{
    const struct layout *l = &in->layout;
    char at[CLOCK_RFC3339_MAX];

    if (c->json)
        return cli_print_json(doc);
    clock_rfc3339(in->at_ms * 1000, at);
    (void)printf("%s attempt %" PRId64 ", %zu rank%s, ", in->job, in->generation, in->n_ranks,
                 in->n_ranks == 1 ? "" : "s");
    if ((size_t)l->tp * (size_t)l->pp * (size_t)l->cp * (size_t)l->dp == in->n_ranks && in->n_ranks > 1)
        (void)printf("tp %d x pp %d x cp %d x dp %d, ", l->tp, l->pp, l->cp, l->dp);
    (void)printf("%s %s\n%s%s%s: ", in->kind == INCIDENT_LOOK ? "looked at" : "at", at,
                 in->verdict.n_roots ? cli_colour("\033[31m") : "", in->verdict.class_,
                 in->verdict.n_roots ? cli_colour("\033[0m") : "");
    cli_print_text(verdict_of(in));
    (void)printf("\n");
    print_groups(in);
    if (in->n_ranks > 0)
        print_ranks(in);
    print_parts(in);
    return ferror(stdout) ? CLI_FAILED : CLI_DONE;
}

/* --- where it comes from ----------------------------------------------------------------------------- */

/* A file: the verdict is found again. What it has beyond that is printed as it is. */
static int replay(const struct cli *c, const char *file)
{
    BUF_CLEAR_AUTO struct buf bytes;
    BUF_CLEAR_AUTO struct buf text;
    json_auto_t *doc = NULL;
    struct incident_verdict again = {.waiter = -1};
    struct hang_verdict v;
    struct incident in;
    json_error_t je;
    struct merr err;
    int r;

    buf_init(&bytes, DUMP_BYTES);
    buf_init(&text, INCIDENT_TEXT_MAX - 1);
    if (io_read_file(file, &bytes, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    doc = json_loadb(buf_text(&bytes), bytes.len, JSON_REJECT_DUPLICATES, &je);
    if (!doc)
        return cli_fail(CLI_FAILED, "'%s' is no dump: line %d: %s", file, je.line, je.text);
    if (incident_read(doc, &in, &err) < 0)
        return cli_fail(CLI_FAILED, "'%s': %s", file, err.text);
    if (in.kind != INCIDENT_FAILURE) { /* that a rank failed is a fact: nobody judged */
        r = incident_judge(in.ranks, in.n_ranks, &v, &text);
        if (r < 0 || incident_verdict(&v, buf_text(&text), &again) < 0) {
            incident_clear(&in);
            return cli_fail(CLI_FAILED, "no memory");
        }
        wire_clear(&incident_verdict_message, &in.verdict);
        in.verdict = again;
        (void)json_object_set_new(doc, "verdict", wire_write(&incident_verdict_message, &in.verdict));
    }
    r = print_incident(c, &in, doc);
    incident_clear(&in);
    return r;
}

static int print_answer(const struct cli *c, const json_t *doc)
{
    struct incident in;
    struct merr err;
    int r;

    if (incident_read(doc, &in, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    r = print_incident(c, &in, doc);
    incident_clear(&in);
    return r;
}

static int print_list(const struct cli *c, const json_t *answer)
{
    static const struct cli_table table = {.head = {"INCIDENT", "AT", "WHAT"}, .n = 3, .state = -1};
    json_t *rows = json_array();
    const json_t *one;
    size_t i;

    if (c->json) {
        json_decref(rows);
        return cli_print_json(answer);
    }
    json_array_foreach (json_object_get(answer, "incidents"), i, one)
        (void)cli_row(rows, (const char *[]){cli_str(one, "id"), cli_str(one, "at"), cli_str(one, "text")}, 3);
    if (json_array_size(rows) == 0)
        (void)fprintf(stderr, "no incidents of %s\n", c->arg[0]);
    cli_print_table_new(&table, rows);
    return CLI_DONE;
}

static int show(struct cli *c, const char *tail)
{
    json_auto_t *doc = NULL;
    char path[256];

    TRY(cli_job_path(c->arg[0], tail, path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &doc));
    return print_answer(c, doc);
}

/* A run that lives is looked at; of a job without one the newest incident is shown. */
static int now_or_newest(struct cli *c)
{
    json_auto_t *job = NULL, *list = NULL;
    const char *newest;
    char path[256], tail[80];

    TRY(cli_job_path(c->arg[0], "", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &job));
    if (strcmp(cli_str(job, "state"), "running") == 0 || strcmp(cli_str(job, "state"), "starting") == 0)
        return show(c, "/diagnosis");
    TRY(cli_job_path(c->arg[0], "/incidents", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &list));
    newest = cli_str(json_array_get(json_object_get(list, "incidents"), 0), "id");
    if (!*newest)
        return cli_fail(CLI_FAILED, "%s is %s: none of its ranks runs, and it has had no incident; `muster explain %s`",
                        c->arg[0], cli_str(job, "state"), c->arg[0]);
    (void)snprintf(tail, sizeof(tail), "/incidents/%.40s", newest);
    return show(c, tail);
}

int diagnose_main(struct cli *c)
{
    const char *dump = cli_option(c, "dump"), *incident = cli_option(c, "incident");
    json_auto_t *answer = NULL;
    char path[256], tail[80];

    if (dump && (c->n > 0 || incident || cli_option(c, "list")))
        return cli_fail(CLI_USAGE, "want a job, or --dump FILE alone");
    if (dump)
        return replay(c, dump);
    if (c->n == 0)
        return cli_fail(CLI_USAGE, "want a job, or --dump FILE");
    if (incident && strspn(incident, "0123456789-") != strlen(incident))
        return cli_fail(CLI_USAGE, "--incident '%.40s': want one of `muster diagnose %s --list`, as 3-1", incident,
                        c->arg[0]);
    if (incident) {
        (void)snprintf(tail, sizeof(tail), "/incidents/%.40s", incident);
        return show(c, tail);
    }
    if (!cli_option(c, "list"))
        return now_or_newest(c);
    TRY(cli_job_path(c->arg[0], "/incidents", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    return print_list(c, answer);
}
