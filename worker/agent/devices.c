#include "worker/agent/devices.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/agent/quota.h"

/* Processors this process may run on. */
static int processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    return 1; /* more than CPU_SETSIZE processors: the operator gives --threads */
}

static int memory_mib(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (int)((long long)pages * page >> 20) : 0;
}

void devices_gpu_class(const char *name, char ret[DEVICES_CLASS_MAX])
{
    static const char *const makes[] = {"nvidia ", "tesla ", "geforce ", "quadro "};
    char low[96];
    const char *p = low;
    size_t n = 0;

    (void)snprintf(low, sizeof(low), "%s", name);
    for (char *c = low; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++)
        if (strncmp(p, makes[i], strlen(makes[i])) == 0)
            p += strlen(makes[i]);
    for (; *p && n < DEVICES_CLASS_MAX - 1; p++) {
        bool word = isalnum((unsigned char)*p) || *p == '.';

        if (word || (n > 0 && ret[n - 1] != '-'))
            ret[n++] = word ? *p : '-';
    }
    while (n > 0 && ret[n - 1] == '-')
        n--;
    ret[n] = '\0';
    if (n == 0)
        (void)snprintf(ret, DEVICES_CLASS_MAX, "gpu");
}

struct reading {
    struct devices d;
    const struct gpus *gpus;
    const char *no_gpus;
    int gpus_taken;
};

static int read_count(const char *part, const char *count, int most, int *ret, struct merr *err)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(count, &end, 10);
    if (end == count || *end || errno || n < 1 || n > most || !isdigit((unsigned char)*count))
        return merr_set(err, -EINVAL, "device '%s' needs a count from 1; a node has at most %d slots", part,
                        DEVICES_MAX);
    *ret = (int)n;
    return 0;
}

/* Cut "@SHARE" off a class. */
static int read_share(char *class, double *ret, struct merr *err)
{
    char *at = strchr(class, '@'), *end;

    *ret = 0;
    if (!at)
        return 0;
    *ret = strtod(at + 1, &end);
    if (!isdigit((unsigned char)at[1]) || *end || !(*ret >= QUOTA_LEAST && *ret <= QUOTA_MOST))
        return merr_set(err, -EINVAL, "class '%s' asks for a share of the processor that is no number from %g to %g",
                        class, QUOTA_LEAST, QUOTA_MOST);
    *at = '\0';
    return 0;
}

static int check_class(const char *class, struct merr *err)
{
    if (!*class || strlen(class) >= DEVICES_CLASS_MAX ||
        strspn(class, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != strlen(class))
        return merr_set(err, -EINVAL, "class '%s' is not usable: want 1 to %d of a-z, 0-9, '-', '_', '.'", class,
                        DEVICES_CLASS_MAX - 1);
    return 0;
}

static int add_gpus(struct reading *r, int count, const char *class, struct merr *err)
{
    int there = gpus_count(r->gpus) - r->gpus_taken;

    if (!r->gpus)
        return merr_set(err, -EINVAL, "no GPU can be offered: %s", r->no_gpus);
    if (count > there || there == 0)
        return merr_set(err, -EINVAL, "%d GPUs are asked for, but this node has %d%s", count < 0 ? 1 : count, there,
                        r->gpus_taken ? " more" : "");
    if (count < 0)
        count = there;
    for (int i = 0; i < count; i++) {
        const struct nvml_gpu *g = gpus_at(r->gpus, r->gpus_taken);
        struct device *v = &r->d.v[r->d.n++];

        *v = (struct device){.kind = "gpu", .memory_mib = g->memory_mib, .gpu = r->gpus_taken++};
        (void)snprintf(v->visible, sizeof(v->visible), "%s", g->uuid);
        if (class)
            (void)snprintf(v->class, sizeof(v->class), "%s", class);
        else
            devices_gpu_class(g->name, v->class);
    }
    return 0;
}

/* One "kind[:count][=class]" of len bytes. */
static int parse_part(const char *part, size_t len, struct reading *r, struct merr *err)
{
    char text[128], whole[128], *count, *class;
    double share = 0;
    int n = -1, code;

    if (len == 0 || len >= sizeof(text))
        return merr_set(err, -EINVAL,
                        "not a device list: an empty or overlong part; write gpu, cpu:4 or "
                        "cpu:2=fast,cpu:2=slow");
    (void)snprintf(text, sizeof(text), "%.*s", (int)len, part);
    (void)snprintf(whole, sizeof(whole), "%s", text);
    class = strchr(text, '=');
    if (class)
        *class ++ = '\0';
    count = strchr(text, ':');
    if (count)
        *count++ = '\0';
    if (strcmp(text, "gpu") != 0 && strcmp(text, "cpu") != 0)
        return merr_set(err, -EINVAL, "unknown kind of device '%s'; there are cpu and gpu", text);
    if (count && (code = read_count(whole, count, DEVICES_MAX - r->d.n, &n, err)) < 0)
        return code;
    if (class && ((code = read_share(class, &share, err)) < 0 || (code = check_class(class, err)) < 0))
        return code;
    if (text[0] == 'g' && share > 0)
        return merr_set(err, -EINVAL, "device '%s': only a processor can be shared with '@'", whole);
    if (text[0] == 'g')
        return add_gpus(r, n, class, err);
    if (!count)
        return merr_set(err, -EINVAL, "device '%s' has no count; write KIND:COUNT, such as cpu:4", whole);
    for (int i = 0; i < n; i++) {
        struct device *v = &r->d.v[r->d.n++];

        *v = (struct device){.kind = "cpu", .gpu = -1, .share = share, .trains = true};
        (void)snprintf(v->class, sizeof(v->class), "%s", class ? class : "cpu");
    }
    return 0;
}

int devices_parse(const char *text, int threads, const struct gpus *gpus, const char *no_gpus, struct devices *ret,
                  struct merr *err)
{
    struct reading read = {.gpus = gpus, .no_gpus = no_gpus};
    struct devices *d = &read.d;

    if (strcmp(text, "auto") == 0)
        text = gpus_count(gpus) > 0 ? "gpu" : "cpu:1";
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        int r = parse_part(p, len, &read, err);

        if (r < 0)
            return r;
        p += len;
        if (!*p)
            break;
    }
    d->threads = threads > 0 ? threads : processors() / d->n;
    if (d->threads < 1)
        d->threads = 1;
    for (int i = 0; i < d->n; i++)
        if (d->v[i].gpu < 0)
            d->v[i].memory_mib = memory_mib() / d->n;
    *ret = *d;
    return 0;
}

json_t *devices_json(const struct devices *d)
{
    json_t *list = json_array();

    for (int i = 0; list && i < d->n; i++)
        if (json_array_append_new(list, json_pack("{s:i,s:s,s:s,s:i,s:i,s:b}", "slot", i, "kind", d->v[i].kind, "class",
                                                  d->v[i].class, "threads", d->threads, "memory_mib",
                                                  d->v[i].memory_mib, "trains", d->v[i].trains)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}
