/* check [--quick] [--cases|--bench] [--seed N] [--json FILE]: see check.h. Exit status: 0, 1 when something is wrong,
 * 77 without GPU. */
#include "tests/gpu/check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/clock.h"

#define GUARD 256
#define GUARD_BYTE 0x5A
#define ROWS_MAX 1024

static struct row {
    char what[96], wrong[160];
    double error, limit;
    bool is_figure;
    double value, ratio;
    const char *unit, *reference;
} rows[ROWS_MAX];
static int n_rows;

uint64_t check_word(struct check *c)
{
    uint64_t z = c->state += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

int check_range(struct check *c, int lo, int hi)
{
    return lo + (int)(check_word(c) % (uint64_t)(hi - lo + 1));
}

float check_uniform(struct check *c)
{
    return (float)(check_word(c) >> 40) * 0x1p-23f - 1;
}

static struct row *next_row(const char *what)
{
    struct row *r = &rows[n_rows];

    if (n_rows == ROWS_MAX) {
        (void)fprintf(stderr, "check: more than %d cases\n", ROWS_MAX);
        exit(1);
    }
    n_rows++;
    (void)snprintf(r->what, sizeof(r->what), "%s", what);
    return r;
}

void check_note(struct check *c, const char *what, double error, double limit, const char *wrong)
{
    struct row *r = next_row(what);

    r->error = error;
    r->limit = limit;
    (void)snprintf(r->wrong, sizeof(r->wrong), "%s", wrong);
    c->cases++;
    if (wrong[0]) {
        c->failed++;
        (void)printf("FAILED %s: %s (seed %llu)\n", what, wrong, (unsigned long long)c->seed);
        (void)fflush(stdout);
    }
}

void check_figure(struct check *c, const char *what, double value, const char *unit, const char *reference,
                  double ratio)
{
    struct row *r = next_row(what);

    (void)c;
    (void)printf("%-64s %10.4g %-8s %8.3f of %s\n", what, value, unit, ratio, reference);
    (void)fflush(stdout); /* whoever is killed for time has told what it knew */
    r->is_figure = true;
    r->value = value;
    r->unit = unit;
    r->reference = reference;
    r->ratio = ratio;
}

/* --- one case ----------------------------------------------------------------------------------------------------- */

static void die(const char *what, const struct merr *err)
{
    (void)fprintf(stderr, "check: %s: %s\n", what, err->text);
    exit(1);
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);

    if (!p) {
        (void)fprintf(stderr, "check: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static float number(const struct check_array *a, const void *p, size_t i)
{
    return a->type == KERN_BF16 ? bf16_to_float(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static size_t bytes_of(const struct check_array *a)
{
    return a->n * kern_size(a->type);
}

/* What an array holds at first, between guards. */
static char *first_content(struct check *c, const struct check_array *a)
{
    size_t bytes = bytes_of(a);
    char *p = room(bytes + 2 * GUARD);

    memset(p, GUARD_BYTE, bytes + 2 * GUARD);
    for (size_t i = 0; i < a->n; i++) {
        float x = a->size > 0 ? a->size * check_uniform(c) : a->size < 0 ? NAN : 0;

        if (a->type == KERN_BF16)
            ((uint16_t *)(void *)(p + GUARD))[i] = bf16_from_float(x);
        else
            ((float *)(void *)(p + GUARD))[i] = x;
    }
    if (a->init)
        memcpy(p + GUARD, a->init, bytes);
    return p;
}

/* Run a case on one table: what[] is its arrays' content, before and after. */
static int run_once(const struct kern_ops *k, struct kern_stream *s, check_fn fn, const struct check_array *a, int n,
                    char *const *what, const void *arg, struct merr *err)
{
    struct check_array at[CHECK_ARRAYS] = {0};
    void *whole[CHECK_ARRAYS];
    int r = 0;

    for (int i = 0; i < n; i++) {
        size_t bytes = bytes_of(&a[i]) + 2 * GUARD;

        at[i] = a[i];
        if (k->mem_alloc(s, bytes, &whole[i], err) || k->copy(s, whole[i], what[i], bytes, err))
            die("memory", err);
        at[i].p = (char *)whole[i] + GUARD;
    }
    r = fn(k, s, at, arg, err);
    if (r == 0)
        r = k->stream_sync(s, err);
    for (int i = 0; i < n; i++) {
        if (r == 0)
            r = k->copy(s, what[i], whole[i], bytes_of(&a[i]) + 2 * GUARD, err);
        k->mem_free(s, whole[i]);
    }
    return r;
}

static bool guards_stand(const char *p, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        if (p[i] != GUARD_BYTE || p[GUARD + bytes + i] != GUARD_BYTE)
            return false;
    return true;
}

/* Largest error of an output in units of its limit; what is wrong goes to wrong. */
static double compare(const struct check_array *a, const char *want, const char *got, char *wrong, size_t size)
{
    double worst = 0;

    for (size_t i = 0; i < a->n; i++) {
        double x = (double)number(a, want + GUARD, i), y = (double)number(a, got + GUARD, i);
        double e = x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y) / (1 + fabs(x));

        if (!(e <= (double)a->limit) && !wrong[0])
            (void)snprintf(wrong, size, "%s[%zu of %zu] is %.9g, the processor gives %.9g", a->name, i, a->n, y, x);
        if (!(e <= worst))
            worst = e;
    }
    return worst;
}

void check_run(struct check *c, const char *what, check_fn fn, struct check_array *a, int n, const void *arg)
{
    char *first[CHECK_ARRAYS], *got[3][CHECK_ARRAYS], wrong[160] = "";
    double worst = 0, limit = 0;
    struct merr err = {""};

    for (int i = 0; i < n; i++) {
        size_t bytes = bytes_of(&a[i]) + 2 * GUARD;

        first[i] = first_content(c, &a[i]);
        for (int t = 0; t < 3; t++)
            got[t][i] = memcpy(room(bytes), first[i], bytes);
    }
    if (run_once(kern_plain(), c->plain, fn, a, n, got[0], arg, &err))
        die(what, &err);
    for (int t = 1; t < 3 && !wrong[0]; t++)
        if (run_once(c->gpu->kernels, c->s, fn, a, n, got[t], arg, &err))
            (void)snprintf(wrong, sizeof(wrong), "%.150s", err.text);
    for (int i = 0; i < n && !wrong[0]; i++) {
        size_t bytes = bytes_of(&a[i]);

        if (!guards_stand(got[1][i], bytes))
            (void)snprintf(wrong, sizeof(wrong), "it wrote beyond %s", a[i].name);
        else if (a[i].limit < 0 && memcmp(got[1][i], first[i], bytes + 2 * GUARD) != 0)
            (void)snprintf(wrong, sizeof(wrong), "it changed %s, which is not its own", a[i].name);
        else if (memcmp(got[1][i], got[2][i], bytes + 2 * GUARD) != 0)
            (void)snprintf(wrong, sizeof(wrong), "%s has other bits the second time", a[i].name);
        if (a[i].limit >= 0 && !wrong[0]) {
            double e = compare(&a[i], got[0][i], got[1][i], wrong, sizeof(wrong));

            if (!(e <= worst)) {
                worst = e;
                limit = (double)a[i].limit;
            }
        }
    }
    check_note(c, what, worst, limit, wrong);
    for (int i = 0; i < n; i++) {
        free(first[i]);
        for (int t = 0; t < 3; t++)
            free(got[t][i]);
    }
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static void print_table(const struct check *c)
{
    (void)printf("\n%-64s %10s %10s\n", "case", "error", "limit");
    for (int i = 0; i < n_rows; i++)
        if (!rows[i].is_figure)
            (void)printf("%-64s %10.2g %10.2g%s\n", rows[i].what, rows[i].error, rows[i].limit,
                         rows[i].wrong[0] ? "  FAILED" : "");
    (void)printf("\n%d cases, %d failed, seed %llu\n", c->cases, c->failed, (unsigned long long)c->seed);
}

static int write_json(const struct check *c)
{
    FILE *f = fopen(c->json, "we");

    if (!f) {
        (void)fprintf(stderr, "check: cannot write '%s': %s\n", c->json, strerror(errno));
        return 1;
    }
    for (int i = 0; i < n_rows; i++) {
        const struct row *r = &rows[i];

        if (r->is_figure)
            (void)fprintf(f,
                          "{\"bench\": \"gpu\", \"metric\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", "
                          "\"reference\": \"%s\", \"ratio\": %.4f}\n",
                          r->what, r->value, r->unit, r->reference, r->ratio);
        else
            (void)fprintf(f, "{\"check\": \"%s\", \"error\": %.6g, \"limit\": %.6g, \"ok\": %s}\n", r->what,
                          isfinite(r->error) ? r->error : -1, r->limit, r->wrong[0] ? "false" : "true");
    }
    return fclose(f) == 0 ? 0 : 1;
}

static int read_arguments(struct check *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            c->quick = true;
        } else if (strcmp(argv[i], "--cases") == 0) {
            c->no_bench = true;
        } else if (strcmp(argv[i], "--attention") == 0) {
            c->only_attention = true;
        } else if (strcmp(argv[i], "--bench") == 0) {
            c->no_cases = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            c->seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            c->json = argv[++i];
        } else {
            (void)fprintf(stderr, "usage: check [--quick] [--cases|--bench|--attention] [--seed N] [--json FILE]\n");
            return 2;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct check c = {.seed = (uint64_t)clock_mono_us()};
    struct kern_cfg cfg = {.threads = 1, .own = true};
    struct merr err = {""};
    int r = read_arguments(&c, argc, argv);

    if (r)
        return r;
    c.state = c.seed;
    if (cuda_backend_open(sizeof(struct kern_ops), &c.gpu, &err)) {
        (void)printf("nothing is checked: %s\n", err.text);
        return 77;
    }
    r = c.gpu->kernels->stream_new(&cfg, &c.s, &err);
    if (r == -ENODEV) { /* memory that is not shared is enough for ranks that are alone */
        (void)printf("only a rank that is alone can train here: %s\n", err.text);
        c.apart = cfg.apart = true;
        r = c.gpu->kernels->stream_new(&cfg, &c.s, &err);
    }
    if (r) {
        (void)printf("nothing is checked: %s\n", err.text);
        return r == -ENODEV ? 77 : 1;
    }
    cfg.own = false;
    if (c.gpu->kernels->stream_new(&cfg, &c.library, &err))
        die("a second stream", &err);
    if (kern_plain()->stream_new(&cfg, &c.plain, &err))
        die("the plain table", &err);
    (void)printf("seed %llu\n", (unsigned long long)c.seed);
    if (c.only_attention) {
        check_large_heads(&c);
        check_library_attention(&c);
    } else if (!c.no_cases) {
        check_device(&c);
        check_record(&c);
        check_codecs(&c);
        check_kernels(&c);
        check_attention(&c);
    }
    if (!c.no_bench && !c.quick && !c.only_attention)
        check_bench(&c);
    c.gpu->kernels->stream_free(c.s);
    c.gpu->kernels->stream_free(c.library);
    kern_plain()->stream_free(c.plain);
    print_table(&c);
    if (c.json && write_json(&c))
        return 1;
    return c.failed > 0;
}
