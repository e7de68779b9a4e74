#include "server/cluster/powers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched.h"

int powers_read(const char *text, struct powers *ret, struct merr *err)
{
    struct powers all = {.n = 0};

    for (const char *p = text ? text : ""; *p; p += *p == ',') {
        const char *equals = p[strcspn(p, "=,")] == '=' ? strchr(p, '=') : NULL;
        size_t len = equals ? (size_t)(equals - p) : 0;
        char *end = NULL;
        long watts = equals ? strtol(equals + 1, &end, 10) : 0;

        if (len == 0 || len >= SPEC_NAME_MAX || end == equals + 1 || (*end && *end != ',') || watts < 1 ||
            watts > SCHED_DEVICE_POWER_MAX)
            return merr_set(err, -EINVAL, "'%.64s' is no power of classes; want CLASS=W,…, with W of 1 to %d", text,
                            SCHED_DEVICE_POWER_MAX);
        if (all.n == POWERS_CLASSES_MAX)
            return merr_set(err, -EINVAL, "the power of more than %d classes", POWERS_CLASSES_MAX);
        memcpy(all.of[all.n].class_, p, len);
        all.of[all.n++].watts = (int)watts;
        p = end;
    }
    *ret = all;
    return 0;
}

int powers_of(const struct powers *p, const char *class_)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->of[i].class_, class_) == 0)
            return p->of[i].watts;
    return 0;
}
