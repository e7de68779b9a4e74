/* What a run says in numbers, lines and a picture. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/cluster/view.h"
#include "scheduler/sim/sim_priv.h"

#define SVG_COLUMNS 600 /* points along the picture */
#define SVG_WIDTH 960
#define SVG_HEIGHT 280
#define SVG_LEFT 60
#define SVG_TOP 30

double sim_rho(const struct sim_setup *s, const int32_t total[RATES_TYPES_MAX], const struct sim_job *j, double took_s,
               double contention)
{
    const struct sched_job view = {
        .min = j->min, .max = j->max, .workers = j->workers, .profile = &s->profiles[j->profile]};
    double rho = 0, weight = 0, all = 0;

    contention = contention > 1 ? contention : 1;
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        all += total[t];
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        double rate = (j->types >> t & 1) && total[t] > 0 ? view_share_rate_of(&view, t, all / contention) : 0;

        if (rate <= 0)
            continue;
        rho += total[t] * (took_s * rate / ((double)j->steps * 1e6));
        weight += total[t];
    }
    return weight > 0 ? rho / weight : 0;
}

static int by_int(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int by_real(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The value that a share of the sorted ones does not exceed: nearest rank. */
static double quantile(const double *v, size_t n, double share)
{
    size_t rank = (size_t)(share * (double)n + 0.999999);

    return v[rank < 1 ? 0 : rank > n ? n - 1 : rank - 1];
}

void sim_summarise_times(struct durations *d, struct sim_times *ret)
{
    *ret = (struct sim_times){.n = d->n};
    if (d->n == 0)
        return;
    qsort(d->v, d->n, sizeof(*d->v), by_int);
    for (size_t i = 0; i < d->n; i++)
        ret->total_us += d->v[i];
    ret->p50_us = d->v[(d->n - 1) / 2];
    ret->p99_us = d->v[(d->n - 1) * 99 / 100];
    ret->max_us = d->v[d->n - 1];
}

int sim_summarise(const struct sim_trace *trace, struct sim_result *r)
{
    double *jct = calloc(r->n_jobs + 1, sizeof(*jct)), *rho = calloc(r->n_jobs + 1, sizeof(*rho));
    double n = (double)r->n_jobs;
    int64_t last = 0;
    size_t over = 0;

    if (!jct || !rho) {
        free(jct);
        free(rho);
        return -ENOMEM;
    }
    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct sim_outcome *o = &r->jobs[i];

        jct[i] = (double)(o->finish_us - trace->jobs[i].submit_us) / 1e6;
        rho[i] = o->rho;
        over += o->rho > 1.05;
        last = o->finish_us > last ? o->finish_us : last;
        r->jct_avg_s += jct[i] / n;
        r->wait_avg_s += (double)(o->start_us - trace->jobs[i].submit_us) / 1e6 / n;
        r->restarts += (size_t)o->restarts;
    }
    if (r->n_jobs > 0) {
        qsort(jct, r->n_jobs, sizeof(*jct), by_real);
        qsort(rho, r->n_jobs, sizeof(*rho), by_real);
        r->jct_median_s = quantile(jct, r->n_jobs, 0.5);
        r->jct_p99_s = quantile(jct, r->n_jobs, 0.99);
        r->makespan_s = (double)(last - trace->jobs[0].submit_us) / 1e6;
        r->rho_worst = rho[r->n_jobs - 1];
        r->rho_over = (double)over / n;
        for (int i = 0; i < SIM_CDF_POINTS; i++)
            r->rho_cdf[i] = quantile(rho, r->n_jobs, (double)i / (SIM_CDF_POINTS - 1));
    }
    r->utilisation = r->capacity_us > 0 ? (double)r->used_us / (double)r->capacity_us : 0;
    free(jct);
    free(rho);
    return 0;
}

int sim_print_csv(const struct sim_setup *s, const struct sim_result *r, struct buf *out)
{
    (void)buf_addstr(out, "time_s,capacity,used,running,waiting");
    for (size_t t = 0; t < s->n_types; t++)
        (void)buf_printf(out, ",used_%s", s->types[t]);
    (void)buf_addstr(out, "\n");
    for (size_t i = 0; i < r->n_samples; i++) {
        const struct sim_sample *p = &r->samples[i];

        (void)buf_printf(out, "%.6f,%d,%d,%d,%d", (double)p->at_us / 1e6, p->capacity, p->used, p->running, p->waiting);
        for (size_t t = 0; t < s->n_types; t++)
            (void)buf_printf(out, ",%d", p->by_type[t]);
        (void)buf_addstr(out, "\n");
    }
    return buf_failed(out) ? -EMSGSIZE : 0;
}

struct picture {
    const struct sim_result *r;
    int64_t from_us, span_us;
    double top; /* value at the upper edge */
};

static double x_of(int column)
{
    return SVG_LEFT + (double)column * (SVG_WIDTH - SVG_LEFT - 20) / SVG_COLUMNS;
}

static double y_of(const struct picture *p, double value)
{
    return SVG_TOP + SVG_HEIGHT - value / p->top * SVG_HEIGHT;
}

/* Index of the sample that holds at a column. */
static size_t at_column(const struct picture *p, int column, size_t from)
{
    int64_t at = p->from_us + p->span_us / SVG_COLUMNS * column;

    while (from + 1 < p->r->n_samples && p->r->samples[from + 1].at_us <= at)
        from++;
    return from;
}

/* A stepped line of one value; type < 0: waiting jobs, else devices of types 0..type used. */
static void draw(const struct picture *p, int type, const char *style, struct buf *out)
{
    size_t at = 0;

    (void)buf_printf(out, "<path %s d=\"M%.1f %.1f", style, x_of(0), y_of(p, 0));
    for (int c = 0; c <= SVG_COLUMNS; c++) {
        double v = 0;

        at = at_column(p, c, at);
        if (type < 0)
            v = p->r->samples[at].waiting;
        for (int t = 0; t <= type; t++)
            v += p->r->samples[at].by_type[t];
        (void)buf_printf(out, "L%.1f %.1f", x_of(c), y_of(p, v));
    }
    (void)buf_printf(out, "L%.1f %.1f\"/>\n", x_of(SVG_COLUMNS), y_of(p, 0));
}

/* Names go into the picture as text: what XML would take for itself is left out. */
static void add_name(const char *name, struct buf *out)
{
    for (; *name; name++)
        if (*name != '<' && *name != '>' && *name != '&' && (unsigned char)*name >= ' ')
            (void)buf_add(out, name, 1);
}

int sim_print_svg(const struct sim_setup *s, const struct sim_result *r, struct buf *out)
{
    static const char *const colour[] = {"#2a6fbb", "#e08214", "#3a9a4d", "#b2468c",
                                         "#8c6d31", "#5e9fa3", "#c44e52", "#777777"};
    struct picture p = {.r = r, .top = 1, .span_us = 1};
    char style[96];

    for (size_t i = 0; i < r->n_samples; i++) {
        p.top = r->samples[i].capacity > p.top ? r->samples[i].capacity : p.top;
        p.top = r->samples[i].waiting > p.top ? r->samples[i].waiting : p.top;
    }
    if (r->n_samples > 1) {
        p.from_us = r->samples[0].at_us;
        p.span_us = r->samples[r->n_samples - 1].at_us - p.from_us + 1;
    }
    (void)buf_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                     "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                     SVG_WIDTH, SVG_HEIGHT + SVG_TOP + 60);
    for (int t = (int)s->n_types - 1; t >= 0 && r->n_samples > 0; t--) {
        (void)snprintf(style, sizeof(style), "fill=\"%s\"", colour[t % 8]);
        draw(&p, t, style, out);
    }
    if (r->n_samples > 0)
        draw(&p, -1, "fill=\"none\" stroke=\"#000\"", out);
    for (int i = 0; i <= 4; i++)
        (void)buf_printf(out,
                         "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n<text x=\"%.1f\" y=\"%d\" "
                         "text-anchor=\"middle\">%.1f h</text>\n",
                         SVG_LEFT - 6, y_of(&p, p.top * i / 4) + 4, p.top * i / 4, x_of(SVG_COLUMNS * i / 4),
                         SVG_TOP + SVG_HEIGHT + 18, (double)p.span_us / 3.6e9 * i / 4);
    (void)buf_printf(out, "<text x=\"%d\" y=\"18\">devices in use by class; line: jobs waiting</text>\n", SVG_LEFT);
    for (size_t t = 0; t < s->n_types; t++) {
        (void)buf_printf(out, "<text x=\"%zu\" y=\"%d\" fill=\"%s\">", SVG_LEFT + t * 110, SVG_TOP + SVG_HEIGHT + 42,
                         colour[t % 8]);
        add_name(s->types[t], out);
        (void)buf_addstr(out, "</text>\n");
    }
    (void)buf_addstr(out, "</svg>\n");
    return buf_failed(out) ? -EMSGSIZE : 0;
}
