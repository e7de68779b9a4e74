#include "server/control/device_uses.h"

#include <stdio.h>
#include <string.h>

#include "server/cluster/slots.h"
#include "server/control/entry.h"

static const char *const use_names[DEVICE_USES] = {"free", "busy", "unusable"};

static struct device_uses_row *row_of(struct device_uses *u, const char *class_, const char *project)
{
    struct device_uses_row *r = u->row;

    while (r < u->row + u->n && (strcmp(r->class_, class_) != 0 || strcmp(r->project, project) != 0))
        r++;
    if (r < u->row + u->n || u->n == DEVICE_USES_MAX)
        return r; /* the one beyond the last is of all others, and has no names */
    (void)snprintf(r->class_, sizeof(r->class_), "%s", class_);
    (void)snprintf(r->project, sizeof(r->project), "%s", project);
    u->n++;
    return r;
}

void device_uses_add(struct device_uses *u, const struct classes *k, const struct table *jobs, const struct node *n)
{
    for (size_t i = 0; i < n->n_slots; i++) {
        const struct slot *s = &n->slots[i];
        const struct entry *e = s->job ? table_find(jobs, s->job) : NULL;
        enum device_use use = s->job                                                     ? DEVICE_BUSY
                              : !slots_usable(s) || n->drain || n->contact != NODE_READY ? DEVICE_UNUSABLE
                                                                                         : DEVICE_FREE;

        row_of(u, k->name[s->class_], e ? e->job.project : "")->n[use]++;
    }
}

size_t device_uses_sum(const struct device_uses *u, enum device_use use)
{
    size_t sum = u->row[DEVICE_USES_MAX].n[use];

    for (size_t i = 0; i < u->n; i++)
        sum += u->row[i].n[use];
    return sum;
}

static void print_row(const struct device_uses_row *r, struct buf *out)
{
    for (int use = 0; use < DEVICE_USES; use++)
        if (r->n[use] > 0)
            (void)buf_printf(out, "muster_devices{class=\"%s\",state=\"%s\",project=\"%s\"} %zu\n", r->class_,
                             use_names[use], r->project, r->n[use]);
}

void device_uses_print(const struct device_uses *u, struct buf *out)
{
    (void)buf_addstr(out, "# HELP muster_slots Devices by use\n# TYPE muster_slots gauge\n");
    for (int use = 0; use < DEVICE_USES; use++)
        (void)buf_printf(out, "muster_slots{state=\"%s\"} %zu\n", use_names[use], device_uses_sum(u, use));
    (void)buf_addstr(out, "# HELP muster_devices Devices by class, use and the project that has them\n"
                          "# TYPE muster_devices gauge\n");
    for (size_t i = 0; i < u->n; i++)
        print_row(&u->row[i], out);
    print_row(&u->row[DEVICE_USES_MAX], out);
}
