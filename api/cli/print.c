/* What commands print with: documents, tables that fit the terminal, colours, words for durations and sizes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "base/clock.h"

#define NARROW 8 /* columns below which the last cell of a row is not worth showing */
#define ROOM 20  /* columns for it that are worth more than a column that may be left out */

const char *cli_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

long long cli_int(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

double cli_real(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

int cli_print_json(const json_t *doc)
{
    bool bad = json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY) < 0 || fputc('\n', stdout) == EOF;

    return bad || fflush(stdout) != 0 ? CLI_FAILED : CLI_DONE;
}

int cli_print_json_new(json_t *doc)
{
    int r = doc ? cli_print_json(doc) : cli_fail(CLI_FAILED, "no memory");

    json_decref(doc);
    return r;
}

int cli_print_json_line(const json_t *doc)
{
    bool bad = json_dumpf(doc, stdout, JSON_COMPACT | JSON_ENCODE_ANY) < 0 || fputc('\n', stdout) == EOF;

    return bad || fflush(stdout) != 0 ? -EIO : 0;
}

bool cli_is_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

int cli_columns(void)
{
    struct winsize w;

    if (!cli_is_terminal())
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

int cli_lines(void)
{
    struct winsize w;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 ? w.ws_row : 24;
}

const char *cli_colour(const char *code)
{
    const char *no = getenv("NO_COLOR");

    return cli_is_terminal() && !(no && *no) ? code : "";
}

const char *cli_state_colour(const char *state)
{
    static const struct {
        const char *state, *code;
    } rows[] = {
        {"running", "\033[32m"},    {"ready", "\033[32m"},   {"succeeded", "\033[36m"}, {"failed", "\033[31m"},
        {"lost", "\033[31m"},       {"unknown", "\033[31m"}, {"queued", "\033[33m"},    {"starting", "\033[33m"},
        {"draining", "\033[33m"},   {"drained", "\033[33m"}, {"suspended", "\033[33m"}, {"rescaling", "\033[33m"},
        {"recovering", "\033[33m"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].state, state) == 0)
            return cli_colour(rows[i].code);
    return "";
}

void cli_duration(double seconds, char out[CLI_DURATION_MAX])
{
    long s = seconds > 0 && seconds < 1e9 ? (long)(seconds + 0.5) : 0;

    if (s >= 86400)
        (void)snprintf(out, CLI_DURATION_MAX, "%ldd%02ldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        (void)snprintf(out, CLI_DURATION_MAX, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else if (s >= 60)
        (void)snprintf(out, CLI_DURATION_MAX, "%ldm%02lds", s / 60, s % 60);
    else
        (void)snprintf(out, CLI_DURATION_MAX, "%lds", s);
}

/* Seconds since 1970 of a field such as "2026-01-31T12:00:00.000Z"; 0 without it. */
static double seconds_at(const json_t *o, const char *key)
{
    struct tm tm = {0};

    return strptime(cli_str(o, key), "%Y-%m-%dT%H:%M:%S", &tm) ? (double)timegm(&tm) : 0;
}

bool cli_job_ended(const json_t *job)
{
    const char *state = cli_str(job, "state");

    return strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0;
}

void cli_job_time(const json_t *job, char out[CLI_DURATION_MAX])
{
    double from = seconds_at(job, "started_at"), to = seconds_at(job, "finished_at");

    if (from <= 0 && to <= 0)
        from = seconds_at(job, "submitted_at");
    if (from > 0)
        cli_duration((to > 0 ? to : (double)clock_wall_us() / 1e6) - from, out);
    else
        (void)snprintf(out, CLI_DURATION_MAX, "-");
}

const char *cli_job_why(const json_t *job)
{
    const char *how = cli_str(json_object_get(job, "outcome"), "message");

    if (strcmp(cli_str(job, "state"), "failed") == 0 && *how)
        return how;
    return cli_str(json_object_get(job, "reason"), "text");
}

/* --- tables -------------------------------------------------------------------------------------------- */

/* Columns that text takes: characters, not bytes. */
static size_t width(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* Bytes of the first n characters. */
static size_t bytes_of(const char *text, size_t n)
{
    size_t i = 0;

    while (text[i] && (n > 0 || ((unsigned char)text[i] & 0xc0) == 0x80)) {
        n -= ((unsigned char)text[i] & 0xc0) != 0x80;
        i++;
    }
    return i;
}

/* Text of others: what would move the cursor or change colours is shown as '?'. */
static void print_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool wide = c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0; /* U+0080 to U+009F */

        (void)fputc(c < ' ' || c == 0x7f || wide ? '?' : c, stdout);
        i += wide;
    }
}

void cli_print_text(const char *text)
{
    print_plain(text, strlen(text));
}

#define HIDDEN SIZE_MAX /* the width of a column that is left out */

static const char *cell(const json_t *row, size_t i)
{
    const char *text = json_string_value(json_array_get(row, i));

    return text ? text : "";
}

/* Leave columns out, in the order that the table gives, until the last one has room. */
static void hide_columns(const struct cli_table *t, size_t *wide, int columns)
{
    for (size_t k = 0; columns > 0 && k < sizeof(t->spare) && t->spare[k]; k++) {
        size_t used = 0;

        for (size_t i = 0; i + 1 < t->n; i++)
            used += wide[i] == HIDDEN ? 0 : wide[i] + 2;
        if (used + ROOM <= (size_t)columns || used + wide[t->n - 1] <= (size_t)columns)
            return;
        wide[t->spare[k]] = HIDDEN;
    }
}

/* One line. The last cell gets what is left of `columns` (0: all it wants) and is cut with "..." where it must. */
static void print_cells(const struct cli_table *t, const json_t *row, const size_t *wide, int columns, bool head,
                        bool marked)
{
    const char *mark = marked ? cli_colour("\033[7m") : "";
    size_t used = 0;

    if (marked && !*mark && t->clear)
        mark = "\033[7m"; /* without colours, too, it must be seen which one is chosen */
    (void)fputs(mark, stdout);

    for (size_t i = 0; i < t->n; i++) {
        if (wide[i] == HIDDEN)
            continue;
        const char *text = head ? t->head[i] : cell(row, i), *colour = "";
        size_t is = width(text), show = is, pad = wide[i] > is ? wide[i] - is : 0;
        bool last = i + 1 == t->n, right = t->right & (1u << i);

        if (last && columns > 0 && !t->whole) {
            size_t left = (size_t)columns > used ? (size_t)columns - used : 0;

            show = is <= left ? is : left >= NARROW ? left - 3 : 0;
        }
        if (!head && !marked && (int)i == t->state)
            colour = cli_state_colour(text);
        (void)printf("%*s%s", right ? (int)pad : 0, "", head ? cli_colour("\033[2m") : colour);
        print_plain(text, bytes_of(text, show));
        (void)printf("%s%s", show < is && show > 0 ? "..." : "", head || *colour ? cli_colour("\033[0m") : "");
        if (!last)
            (void)printf("%*s", right ? 2 : (int)pad + 2, "");
        used += wide[i] + 2;
    }
    (void)printf("%s%s", *mark ? "\033[0m" : "", t->clear && columns > 0 ? "\033[K\n" : "\n");
}

void cli_print_table_new(const struct cli_table *t, json_t *rows)
{
    size_t wide[CLI_TABLE_MAX] = {0}, i, k;
    json_t *row;
    int columns = cli_columns();

    for (i = 0; i < t->n; i++)
        wide[i] = width(t->head[i]);
    json_array_foreach (rows, k, row) {
        for (i = 0; i < t->n; i++)
            wide[i] = width(cell(row, i)) > wide[i] ? width(cell(row, i)) : wide[i];
    }
    hide_columns(t, wide, columns);
    print_cells(t, NULL, wide, columns, true, false);
    json_array_foreach (rows, k, row) {
        print_cells(t, row, wide, columns, false, k + 1 == t->marked);
    }
    json_decref(rows);
}

int cli_row(json_t *rows, const char *const *cells, size_t n)
{
    json_t *row = json_array();

    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(row, json_string(cells[i])) < 0 &&
            json_array_append_new(row, json_string("?")) < 0) /* no UTF-8 */
            break;
    return json_array_append_new(rows, row);
}
