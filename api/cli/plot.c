#include "api/cli/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/cli/print.h"

#define ROWS 12
#define COLUMNS 72
#define WIDE (2 * COLUMNS) /* dots */
#define HIGH (4 * ROWS)

struct plot {
    double x_lo, x_hi, y_lo, y_hi;
    unsigned char dots[ROWS][COLUMNS], line[ROWS][COLUMNS]; /* line: whose dots a character has, the last one's */
};

static const char *const colours[] = {"\033[32m", "\033[34m", "\033[35m", "\033[33m", "\033[31m", "\033[36m"};

static const char *colour_of(size_t line)
{
    return cli_colour(colours[line % (sizeof(colours) / sizeof(colours[0]))]);
}

/* The axes of all lines. Whether there is a point. */
static int span(struct plot *p, const struct plot_line *lines, size_t n)
{
    p->x_lo = p->y_lo = INFINITY;
    p->x_hi = p->y_hi = -INFINITY;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < lines[k].n; i++) {
            if (!isfinite(lines[k].y[i]))
                continue;
            p->x_lo = fmin(p->x_lo, lines[k].x[i]);
            p->x_hi = fmax(p->x_hi, lines[k].x[i]);
            p->y_lo = fmin(p->y_lo, lines[k].y[i]);
            p->y_hi = fmax(p->y_hi, lines[k].y[i]);
        }
    return p->x_lo <= p->x_hi;
}

static int place(double v, double lo, double hi, int dots)
{
    return hi > lo ? (int)lround((v - lo) / (hi - lo) * (dots - 1)) : dots / 2;
}

static void dot(struct plot *p, int x, int y, size_t line)
{
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

    y = HIGH - 1 - y;
    p->dots[y / 4][x / 2] |= bit[y % 4][x % 2];
    p->line[y / 4][x / 2] = (unsigned char)line;
}

static void draw(struct plot *p, const struct plot_line *l, size_t line)
{
    int before_x = -1, before_y = 0;

    for (size_t i = 0; i < l->n; i++) {
        int x, y, steps;

        if (!isfinite(l->y[i]))
            continue;
        x = place(l->x[i], p->x_lo, p->x_hi, WIDE);
        y = place(l->y[i], p->y_lo, p->y_hi, HIGH);
        before_y = before_x < 0 ? y : before_y;
        before_x = before_x < 0 ? x : before_x;
        steps = abs(x - before_x) > abs(y - before_y) ? abs(x - before_x) : abs(y - before_y);
        for (int k = 0; k <= steps; k++)
            dot(p, before_x + (steps ? k * (x - before_x) / steps : 0),
                before_y + (steps ? k * (y - before_y) / steps : 0), line);
        before_x = x;
        before_y = y;
    }
}

static void print_end(const struct plot *p, double x, enum plot_axis axis, char ret[24])
{
    time_t at = (time_t)x;
    struct tm tm;

    if (axis == PLOT_STEPS || !localtime_r(&at, &tm))
        (void)snprintf(ret, 24, "%.10g", x);
    else
        (void)strftime(ret, 24, p->x_hi - p->x_lo < 86400 ? "%H:%M:%S" : "%d %b %H:%M", &tm);
}

static void print_dots(const struct plot *p, enum plot_axis axis)
{
    char first[24], last[24];

    for (int row = 0; row < ROWS; row++) {
        char edge[16] = "";

        if (row == 0 || row == ROWS - 1)
            (void)snprintf(edge, sizeof(edge), "%.4g", row ? p->y_lo : p->y_hi);
        (void)printf("%10s │", edge);
        for (int k = 0; k < COLUMNS; k++) {
            unsigned c = p->dots[row][k];

            if (c) /* U+2800 and the dots */
                (void)printf("%s\xe2%c%c%s", colour_of(p->line[row][k]), (char)(0xa0 + (c >> 6)),
                             (char)(0x80 + (c & 63)), cli_colour("\033[0m"));
            else
                (void)putchar(' ');
        }
        (void)putchar('\n');
    }
    print_end(p, p->x_lo, axis, first);
    print_end(p, p->x_hi, axis, last);
    (void)printf("%10s  %-*s%*s\n", axis == PLOT_STEPS ? "step" : "", COLUMNS / 2, first, COLUMNS / 2, last);
}

void plot_print(const struct plot_line *lines, size_t n, enum plot_axis axis)
{
    const bool together = *cli_colour("\033[0m");
    struct plot p = {.x_lo = 0};

    if (!span(&p, lines, n))
        return;
    for (size_t k = 0; k < n; k++) {
        draw(&p, &lines[k], k);
        (void)printf("%s%s%s%s", colour_of(k), lines[k].name, cli_colour("\033[0m"),
                     together && k + 1 < n ? "  " : "\n");
        if (together)
            continue;
        print_dots(&p, axis);
        memset(p.dots, 0, sizeof(p.dots));
    }
    if (together)
        print_dots(&p, axis);
}
