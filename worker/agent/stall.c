#include "worker/agent/stall.h"

#include <stdio.h>
#include <stdlib.h>

#include "scheduler/plan/layout.h"

static void tell_groups(const struct flight *f, struct report_stall *ret)
{
    struct flight_group g[REPORT_GROUPS_MAX];
    int n = flight_read_groups(f, g, REPORT_GROUPS_MAX);

    ret->groups = calloc((size_t)n + 1, sizeof(*ret->groups));
    for (int i = 0; ret->groups && i < n; i++) {
        struct report_group *to = &ret->groups[ret->n_groups++];

        *to = (struct report_group){.key = (int64_t)(g[i].key & INT64_MAX),
                                    .entered = (int64_t)(g[i].entered & INT64_MAX),
                                    .left = (int64_t)(g[i].left & INT64_MAX),
                                    .size = g[i].size >= 0 && g[i].size <= PLAN_RANKS_MAX ? g[i].size : 0,
                                    .digest = g[i].digest};
        (void)snprintf(to->name, sizeof(to->name), "%s", g[i].name);
    }
}

static void tell_order(const struct flight *f, struct report_order *ret)
{
    struct flight_order_of o;

    flight_read_order(f, &o);
    *ret = (struct report_order){.role = o.role,
                                 .span = (int64_t)(o.span[0] & INT64_MAX),
                                 .ops = (int64_t)(o.ops[0] & INT32_MAX),
                                 .span_before = (int64_t)(o.span[1] & INT64_MAX),
                                 .ops_before = (int64_t)(o.ops[1] & INT32_MAX),
                                 .odd = (int64_t)(o.odd & INT32_MAX)};
    for (size_t i = 0; i < o.n; i++)
        (void)snprintf(ret->window + 8 * i, 9, "%08x", o.window[i]);
}

void stall_tell(const struct flight *f, struct report_stall *ret)
{
    tell_groups(f, ret);
    tell_order(f, &ret->order);
}
