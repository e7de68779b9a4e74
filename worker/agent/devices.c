#include "worker/agent/devices.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* One "kind:count[=class]" of len bytes. */
static int parse_part(const char *part, size_t len, struct devices *d, struct merr *err)
{
    char text[128], *colon, *equals, *end;
    const char *class;
    long count;

    if (len == 0 || len >= sizeof(text))
        return merr_set(err, -EINVAL, "not a device list: an empty or overlong part; write cpu:4 or "
                        "cpu:2=fast,cpu:2=slow");
    memcpy(text, part, len);
    text[len] = '\0';
    colon = strchr(text, ':');
    if (!colon)
        return merr_set(err, -EINVAL, "device '%s' has no count; write KIND:COUNT, such as cpu:4", text);
    *colon = '\0';
    if (strcmp(text, "gpu") == 0)
        return merr_set(err, -EINVAL, "GPUs cannot be offered by this version; offer cpu:N");
    if (strcmp(text, "cpu") != 0)
        return merr_set(err, -EINVAL, "unknown kind of device '%s'; this version offers cpu", text);
    errno = 0;
    count = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || errno || count < 1 || count > DEVICES_MAX - d->n || !isdigit((unsigned char)colon[1]))
        return merr_set(err, -EINVAL, "device '%s:%s' needs a count from 1; a node has at most %d slots", text,
                        colon + 1, DEVICES_MAX);
    equals = end;
    if (*equals != '\0' && *equals != '=')
        return merr_set(err, -EINVAL, "'%s' after the count of '%s' is not understood; a class follows as =CLASS",
                        equals, text);
    class = *equals ? equals + 1 : text;
    if (strchr(class, '@'))
        return merr_set(err, -EINVAL, "class '%s' asks for a share of the processor with '@', which this version "
                        "cannot enforce; leave '@…' out", class);
    if (!*class || strlen(class) >= DEVICES_CLASS_MAX ||
        strspn(class, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != strlen(class))
        return merr_set(err, -EINVAL, "class '%s' is not usable: want 1 to %d of a-z, 0-9, '-', '_', '.'", class,
                        DEVICES_CLASS_MAX - 1);
    for (long i = 0; i < count; i++) {
        struct device *v = &d->v[d->n++];

        (void)snprintf(v->kind, sizeof(v->kind), "%s", "cpu");
        (void)snprintf(v->class, sizeof(v->class), "%s", class);
    }
    return 0;
}

int devices_parse(const char *text, int threads, struct devices *ret, struct merr *err)
{
    struct devices d = { .n = 0 };

    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        int r = parse_part(p, len, &d, err);

        if (r < 0)
            return r;
        p += len;
        if (!*p)
            break;
    }
    d.threads = threads > 0 ? threads : processors() / d.n;
    if (d.threads < 1)
        d.threads = 1;
    d.memory_mib = memory_mib() / d.n;
    *ret = d;
    return 0;
}

json_t *devices_json(const struct devices *d)
{
    json_t *list = json_array();

    for (int i = 0; list && i < d->n; i++)
        if (json_array_append_new(list, json_pack("{s:i,s:s,s:s,s:i,s:i}", "slot", i, "kind", d->v[i].kind, "class",
                                                  d->v[i].class, "threads", d->threads, "memory_mib",
                                                  d->memory_mib)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}
