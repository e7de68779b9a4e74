#include "api/profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/try.h"

#define COLUMNS_MAX 6
#define NUMBER_MAX 1e15
#define MEDIAN_MAX 64 /* profiles that are looked at */
#define MIB 1048576.0
#define GIB 1073741824.0

/* --- reading ------------------------------------------------------------------------------------------------- */

static bool good(const json_t *o, double *ret)
{
    double n = json_number_value(o);

    if (!json_is_number(o) || !isfinite(n) || n <= 0 || n > NUMBER_MAX)
        return false;
    *ret = n;
    return true;
}

/* Row i of a list: at least so many numbers above 0, at most so many. How many there are, -1: it is none. */
static int read_row(const json_t *list, size_t i, size_t least, size_t most, double *v)
{
    const json_t *row = json_array_get(list, i);
    size_t n = json_array_size(row);

    if (n < least || n > most)
        return -1;
    for (size_t k = 0; k < n; k++)
        if (!good(json_array_get(row, k), &v[k]))
            return -1;
    return (int)n;
}

static int bad(const char *prefix, const char *key, const char *wants, struct merr *err)
{
    return merr_set(err, -EINVAL, "'%s%s' of the profile: want %s", prefix, key, wants);
}

static int open_list(const json_t *doc, const char *prefix, const char *key, size_t most, const json_t **ret,
                     size_t *ret_n, struct merr *err)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "%s%s", prefix, key);
    *ret = json_object_get(doc, name);
    *ret_n = json_array_size(*ret);
    if (*ret && (!json_is_array(*ret) || *ret_n > most))
        return merr_set(err, -EINVAL, "'%s' of the profile: want a list of at most %zu rows", name, most);
    return 0;
}

static int read_products(const json_t *doc, const char *prefix, struct profile_rates *r, struct merr *err)
{
    const json_t *list;
    size_t n;

    TRY(open_list(doc, prefix, "products", PROFILE_PRODUCTS_MAX, &list, &n, err));
    for (size_t i = 0; i < n; i++) {
        struct profile_product *p = &r->product[i];
        double v[COLUMNS_MAX];
        int columns = read_row(list, i, 4, 6, v);

        if ((columns != 4 && columns != 6) || v[0] > 1e9 || v[1] > 1e9 || v[2] > 1e9)
            return bad(prefix, "products", "rows [rows, outputs, inputs, TFLOP/s], with two more rates or none", err);
        *p = (struct profile_product){.rows = (int)v[0], .outputs = (int)v[1], .inputs = (int)v[2]};
        for (int form = 0; form < PROFILE_FORMS; form++)
            p->flops[form] = v[columns == 6 ? 3 + form : 3] * 1e12;
    }
    r->products = (int)n;
    return 0;
}

static int read_attention(const json_t *doc, const char *prefix, struct profile_rates *r, struct merr *err)
{
    const json_t *list;
    size_t n;

    TRY(open_list(doc, prefix, "attention", PROFILE_ATTENTIONS_MAX, &list, &n, err));
    for (size_t i = 0; i < n; i++) {
        double v[COLUMNS_MAX];

        if (read_row(list, i, 4, 4, v) < 0 || v[0] > 1e9 || v[1] > 1e9)
            return bad(prefix, "attention", "rows [length, size of a head, us forward, us back]", err);
        r->attention[i] =
            (struct profile_attention){.length = (int)v[0], .dim = (int)v[1], .s = {v[2] * 1e-6, v[3] * 1e-6}};
    }
    r->attentions = (int)n;
    return 0;
}

static int op_find(const char *name)
{
    int i = 0;

    while (i < PROFILE_OPS && strcmp(profile_op_name((enum profile_op)i), name) != 0)
        i++;
    return i < PROFILE_OPS ? i : -1;
}

static int read_ops(const json_t *doc, const char *prefix, struct profile_rates *r, struct merr *err)
{
    const char *op;
    char key[16];
    json_t *ops, *list;

    (void)snprintf(key, sizeof(key), "%sops", prefix);
    ops = json_object_get(doc, key);
    if (ops && !json_is_object(ops))
        return bad(prefix, "ops", "{\"gelu\": [[elements, us], ...], ...}", err);
    json_object_foreach (ops, op, list) {
        int at = op_find(op);
        size_t n = json_array_size(list);
        struct profile_curve *c;

        if (at < 0)
            return merr_set(err, -EINVAL, "'%sops' of the profile: '%.40s' is not known", prefix, op);
        c = &r->op[at];
        for (size_t i = 0; i < n && n <= PROFILE_CURVE_MAX; i++) {
            double v[COLUMNS_MAX];

            if (read_row(list, i, 2, 2, v) < 0 || (i > 0 && v[0] <= c->at[i - 1].size))
                return bad(prefix, "ops", "rows [elements, us] by growing numbers of elements", err);
            c->at[i].size = v[0];
            c->at[i].s = v[1] * 1e-6;
        }
        if (!json_is_array(list) || n < 1 || n > PROFILE_CURVE_MAX)
            return bad(prefix, "ops", "1 to 8 rows [elements, us] of each", err);
        c->n = (int)n;
    }
    return 0;
}

static int read_messages(const json_t *doc, const char *key, bool ranks, struct profile_message *v, int *ret_n,
                         struct merr *err)
{
    const json_t *list;
    size_t n;

    TRY(open_list(doc, "", key, PROFILE_MESSAGES_MAX, &list, &n, err));
    for (size_t i = 0; i < n; i++) {
        double x[COLUMNS_MAX] = {2};

        if (read_row(list, i, 2 + ranks, 2 + ranks, ranks ? x : x + 1) < 0 || x[0] < 2 || x[0] > 1e6 || x[1] < 1)
            return bad("", key, ranks ? "rows [ranks, bytes, us]" : "rows [bytes, us]", err);
        v[i] = (struct profile_message){.ranks = (int)x[0], .bytes = x[1], .s = x[2] * 1e-6};
    }
    *ret_n = (int)n;
    return 0;
}

static int read_numbers(const json_t *doc, struct plan_profile *p, struct merr *err)
{
    double threads = 0, ranks = 0, memory = 0, program = 0, context = 0;
    const struct {
        const char *key;
        double scale, *to;
    } fields[] = {
        {"call_us", 1e-6, &p->call_s},  {"step_us", 1e-6, &p->step_s},  {"copy_gbps", 1e9, &p->copy_bytes_per_s},
        {"threads", 1, &threads},       {"side_by_side", 1, &ranks},    {"memory_gib", GIB, &memory},
        {"program_mib", MIB, &program}, {"context_mib", MIB, &context}, {"cache_mib", MIB, &p->cache_bytes}};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const json_t *o = json_object_get(doc, fields[i].key);
        double n;

        if (!o)
            continue;
        if (!good(o, &n))
            return bad("", fields[i].key, "a number above 0", err);
        *fields[i].to = n * fields[i].scale;
    }
    if (threads > 1e6 || ranks > 1e6 || memory > 1e18 || program > 1e18 || context > 1e18)
        return merr_set(err, -EINVAL, "the profile has a number that no machine has");
    p->threads = (int)threads;
    p->side_by_side = (int)ranks;
    p->memory_bytes = (uint64_t)memory;
    p->program_bytes = (uint64_t)program;
    p->context_bytes = (uint64_t)context;
    return 0;
}

static int check_keys(const json_t *doc, struct merr *err)
{
    static const char *const known[] = {
        "version",      "measured",          "seconds",       "quick",        "threads",
        "side_by_side", "products",          "bf16_products", "attention",    "bf16_attention",
        "ops",          "bf16_ops",          "call_us",       "step_us",      "copy_gbps",
        "all_reduce",   "messages",          "memory_gib",    "program_mib",  "context_mib",
        "far_products", "far_bf16_products", "far_ops",       "far_bf16_ops", "cache_mib"};
    const char *key;
    json_t *o;

    json_object_foreach ((json_t *)doc, key, o) {
        size_t i = 0;

        while (i < sizeof(known) / sizeof(known[0]) && strcmp(key, known[i]) != 0)
            i++;
        if (i == sizeof(known) / sizeof(known[0]))
            return merr_set(err, -EINVAL, "'%.40s' of the profile is not known", key);
    }
    return 0;
}

int profile_read(const json_t *doc, struct plan_profile *ret, struct merr *err)
{
    const json_t *version = json_object_get(doc, "version");
    struct plan_profile *p;
    int r;

    if (!json_is_object(doc))
        return merr_set(err, -EINVAL, "a profile is an object");
    if (version && (!json_is_integer(version) || json_integer_value(version) != PROFILE_VERSION))
        return merr_set(err, -EPROTO, "the profile is not of version %d", PROFILE_VERSION);
    TRY(check_keys(doc, err));
    p = calloc(1, sizeof(*p));
    if (!p)
        return merr_set(err, -ENOMEM, "no memory for a profile");
    if ((r = read_products(doc, "", &p->f32, err)) == 0 && (r = read_products(doc, "bf16_", &p->bf16, err)) == 0 &&
        (r = read_attention(doc, "", &p->f32, err)) == 0 && (r = read_attention(doc, "bf16_", &p->bf16, err)) == 0 &&
        (r = read_ops(doc, "", &p->f32, err)) == 0 && (r = read_ops(doc, "bf16_", &p->bf16, err)) == 0 &&
        (r = read_products(doc, "far_", &p->far_f32, err)) == 0 &&
        (r = read_products(doc, "far_bf16_", &p->far_bf16, err)) == 0 &&
        (r = read_ops(doc, "far_", &p->far_f32, err)) == 0 &&
        (r = read_ops(doc, "far_bf16_", &p->far_bf16, err)) == 0 &&
        (r = read_messages(doc, "all_reduce", true, p->all_reduce, &p->all_reduces, err)) == 0 &&
        (r = read_messages(doc, "messages", false, p->message, &p->messages, err)) == 0 &&
        (r = read_numbers(doc, p, err)) == 0) {
        profile_settle(p);
        *ret = *p;
    }
    free(p);
    return r;
}

/* --- writing ------------------------------------------------------------------------------------------------- */

/* Sizes as they are; of what was measured four digits are more than it has. */
static json_t *number(double n)
{
    char text[32];

    if (n == floor(n))
        return json_integer((json_int_t)n);
    (void)snprintf(text, sizeof(text), "%.4g", n);
    return json_real(strtod(text, NULL));
}

static void add_row(json_t *list, const double *v, int n)
{
    json_t *row = json_array();

    for (int i = 0; i < n; i++)
        (void)json_array_append_new(row, number(v[i]));
    (void)json_array_append_new(list, row);
}

static void put_list(json_t *doc, const char *prefix, const char *key, json_t *list)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "%s%s", prefix, key);
    if (json_array_size(list) + json_object_size(list) > 0)
        (void)json_object_set(doc, name, list);
    json_decref(list);
}

static void write_rates(json_t *doc, const char *prefix, const struct profile_rates *r)
{
    json_t *products = json_array(), *attention = json_array(), *ops = json_object();

    for (int i = 0; i < r->products; i++) {
        const struct profile_product *p = &r->product[i];

        add_row(
            products,
            (double[]){p->rows, p->outputs, p->inputs, p->flops[0] * 1e-12, p->flops[1] * 1e-12, p->flops[2] * 1e-12},
            6);
    }
    for (int i = 0; i < r->attentions; i++) {
        const struct profile_attention *a = &r->attention[i];

        add_row(attention, (double[]){a->length, a->dim, a->s[0] * 1e6, a->s[1] * 1e6}, 4);
    }
    for (int op = 0; op < PROFILE_OPS; op++) {
        json_t *list = json_array();

        for (int i = 0; i < r->op[op].n; i++)
            add_row(list, (double[]){r->op[op].at[i].size, r->op[op].at[i].s * 1e6}, 2);
        put_list(ops, "", profile_op_name((enum profile_op)op), list);
    }
    put_list(doc, prefix, "products", products);
    put_list(doc, prefix, "attention", attention);
    put_list(doc, prefix, "ops", ops);
}

static void put_number(json_t *doc, const char *key, double n)
{
    if (n > 0)
        (void)json_object_set_new(doc, key, number(n));
}

json_t *profile_write(const struct plan_profile *p, bool quick, long long measured_s, double took_s)
{
    json_t *doc = json_pack("{s:i}", "version", PROFILE_VERSION);
    json_t *sums = json_array(), *messages = json_array();

    if (measured_s > 0)
        (void)json_object_set_new(doc, "measured", json_integer(measured_s));
    if (measured_s > 0)
        (void)json_object_set_new(doc, "quick", json_boolean(quick));
    put_number(doc, "seconds", took_s);
    for (int i = 0; i < p->all_reduces; i++)
        add_row(sums, (double[]){p->all_reduce[i].ranks, p->all_reduce[i].bytes, p->all_reduce[i].s * 1e6}, 3);
    for (int i = 0; i < p->messages; i++)
        add_row(messages, (double[]){p->message[i].bytes, p->message[i].s * 1e6}, 2);
    put_number(doc, "threads", p->threads);
    put_number(doc, "side_by_side", p->side_by_side);
    write_rates(doc, "", &p->f32);
    write_rates(doc, "bf16_", &p->bf16);
    write_rates(doc, "far_", &p->far_f32);
    write_rates(doc, "far_bf16_", &p->far_bf16);
    put_list(doc, "", "all_reduce", sums);
    put_list(doc, "", "messages", messages);
    put_number(doc, "call_us", p->call_s * 1e6);
    put_number(doc, "step_us", p->step_s * 1e6);
    put_number(doc, "copy_gbps", p->copy_bytes_per_s * 1e-9);
    put_number(doc, "memory_gib", (double)p->memory_bytes / GIB);
    put_number(doc, "program_mib", (double)p->program_bytes / MIB);
    put_number(doc, "context_mib", (double)p->context_bytes / MIB);
    put_number(doc, "cache_mib", p->cache_bytes / MIB);
    return doc;
}

/* --- the file that is kept ----------------------------------------------------------------------------------- */

bool profile_kept_file(char ret[PROFILE_FILE_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && *cache;

    if (!given && (!home || !*home))
        return false;
    (void)snprintf(ret, PROFILE_FILE_MAX, "%.3900s%s/muster/profile.json", given ? cache : home,
                   given ? "" : "/.cache");
    return true;
}

int profile_keep(const char *file, const json_t *doc, struct merr *err)
{
    char folder[PROFILE_FILE_MAX], *end, *text;
    int r = 0;

    (void)snprintf(folder, sizeof(folder), "%s", file);
    end = strrchr(folder, '/');
    if (end && end > folder) {
        *end = '\0';
        r = io_mkdirs(folder, 0700, err);
    }
    if (r < 0)
        return r;
    text = json_dumps(doc, JSON_COMPACT);
    r = text ? io_publish_file(file, text, strlen(text), 0600, err) : merr_set(err, -ENOMEM, "no memory for a profile");
    free(text);
    return r;
}

/* --- of several nodes ---------------------------------------------------------------------------------------- */

static bool same_rates(const struct profile_rates *a, const struct profile_rates *b)
{
    bool same = a->products == b->products && a->attentions == b->attentions;

    for (int i = 0; same && i < a->products; i++)
        same = memcmp(a->product[i].size, b->product[i].size, sizeof(a->product[i].size)) == 0;
    for (int i = 0; same && i < a->attentions; i++)
        same = a->attention[i].length == b->attention[i].length && a->attention[i].dim == b->attention[i].dim;
    for (int op = 0; same && op < PROFILE_OPS; op++) {
        same = a->op[op].n == b->op[op].n;
        for (int i = 0; same && i < a->op[op].n; i++)
            same = a->op[op].at[i].size == b->op[op].at[i].size;
    }
    return same;
}

static bool same_messages(const struct profile_message *a, const struct profile_message *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].ranks != b[i].ranks || a[i].bytes != b[i].bytes)
            return false;
    return true;
}

static bool same_tables(const struct plan_profile *a, const struct plan_profile *b)
{
    return a->threads == b->threads && a->side_by_side == b->side_by_side && same_rates(&a->f32, &b->f32) &&
           same_rates(&a->bf16, &b->bf16) && same_rates(&a->far_f32, &b->far_f32) &&
           same_rates(&a->far_bf16, &b->far_bf16) && a->all_reduces == b->all_reduces && a->messages == b->messages &&
           same_messages(a->all_reduce, b->all_reduce, a->all_reduces) &&
           same_messages(a->message, b->message, a->messages);
}

struct several {
    const struct plan_profile *const *p;
    size_t n;
    struct plan_profile *ret;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The number at this place of the result becomes the middle one. */
static void middle(const struct several *s, double *at)
{
    size_t offset = (size_t)((char *)at - (char *)s->ret);
    double v[MEDIAN_MAX] = {0};

    for (size_t i = 0; i < s->n; i++)
        memcpy(&v[i], (const char *)s->p[i] + offset, sizeof(v[i]));
    qsort(v, s->n, sizeof(*v), by_value);
    *at = s->n % 2 ? v[s->n / 2] : (v[s->n / 2 - 1] + v[s->n / 2]) / 2;
}

static void middle_rates(const struct several *s, struct profile_rates *r)
{
    for (int i = 0; i < r->products; i++)
        for (int form = 0; form < PROFILE_FORMS; form++)
            middle(s, &r->product[i].flops[form]);
    for (int i = 0; i < r->attentions; i++)
        for (int back = 0; back < 2; back++)
            middle(s, &r->attention[i].s[back]);
    for (int op = 0; op < PROFILE_OPS; op++)
        for (int i = 0; i < r->op[op].n; i++)
            middle(s, &r->op[op].at[i].s);
}

void profile_median(const struct plan_profile *const *p, size_t n, struct plan_profile *ret)
{
    const struct plan_profile *alike[MEDIAN_MAX] = {NULL};
    struct several s = {.p = alike, .ret = ret};

    for (size_t i = 0; i < n && s.n < MEDIAN_MAX; i++)
        if (i == 0 || same_tables(p[0], p[i]))
            alike[s.n++] = p[i];
    *ret = *p[0];
    middle_rates(&s, &ret->f32);
    middle_rates(&s, &ret->bf16);
    middle_rates(&s, &ret->far_f32);
    middle_rates(&s, &ret->far_bf16);
    for (int i = 0; i < ret->all_reduces; i++)
        middle(&s, &ret->all_reduce[i].s);
    for (int i = 0; i < ret->messages; i++)
        middle(&s, &ret->message[i].s);
    middle(&s, &ret->call_s);
    middle(&s, &ret->step_s);
    middle(&s, &ret->copy_bytes_per_s);
    middle(&s, &ret->cache_bytes);
    for (size_t i = 0; i < s.n; i++) { /* a plan is to fit on each */
        ret->program_bytes =
            alike[i]->program_bytes > ret->program_bytes ? alike[i]->program_bytes : ret->program_bytes;
        ret->context_bytes =
            alike[i]->context_bytes > ret->context_bytes ? alike[i]->context_bytes : ret->context_bytes;
        ret->memory_bytes = alike[i]->memory_bytes < ret->memory_bytes ? alike[i]->memory_bytes : ret->memory_bytes;
    }
    profile_settle(ret);
}
