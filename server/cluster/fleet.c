#include "server/cluster/fleet.h"

#include <stdlib.h>
#include <string.h>

#define MONTH_DAYS 30.0 /* of a node: as much as nothing was seen, the usual is expected */
#define HOUR_US INT64_C(3600000000)
#define TOGETHER_US INT64_C(10000000)
#define OTHERS_LEAST 3
#define RACK_MOST 2

double fleet_rate(const struct cluster *cl, const struct node *n, int64_t wall_us)
{
    double incidents = HEALTH_RATE_A_DAY * MONTH_DAYS, days = MONTH_DAYS;

    for (size_t i = 0; i < cl->n_nodes; i++)
        if (cl->nodes[i] != n) {
            incidents += health_incidents(&cl->nodes[i]->health, wall_us);
            days += health_days(&cl->nodes[i]->health, wall_us);
        }
    return incidents / days;
}

static size_t most_together(const struct cluster *cl)
{
    return cl->n_nodes / 20 > 2 ? cl->n_nodes / 20 : 2;
}

static bool within_hour_of(const struct health *h, int64_t wall_us)
{
    return h->n_terms > 0 && wall_us - h->term_us[h->n_terms - 1] < HOUR_US;
}

bool fleet_rack_fails(const struct cluster *cl, const struct node *n, int64_t wall_us)
{
    size_t out = 0;

    for (size_t i = 0; *n->rack && i < cl->n_nodes; i++)
        out += cl->nodes[i] != n && strcmp(cl->nodes[i]->rack, n->rack) == 0 &&
               within_hour_of(&cl->nodes[i]->health, wall_us);
    return out >= RACK_MOST;
}

bool fleet_may_convict(const struct cluster *cl, const struct node *n, int64_t wall_us)
{
    size_t within_hour = 0, out = 0, others = 0;

    for (size_t i = 0; i < cl->n_nodes; i++) {
        const struct health *h = &cl->nodes[i]->health;

        if (cl->nodes[i] == n)
            continue;
        within_hour += within_hour_of(h, wall_us);
        out += health_is_out(h) && h->state != HEALTH_HELD;
        others += node_gives(cl->nodes[i]);
    }
    return others > 0 && within_hour < most_together(cl) && 2 * (out + 1) <= cl->n_nodes &&
           !fleet_rack_fails(cl, n, wall_us);
}

bool fleet_silent_together(const struct node *a, const struct node *b, int64_t mono_us)
{
    return a->registered && b->registered && llabs(a->seen_us - b->seen_us) <= TOGETHER_US &&
           mono_us - a->seen_us >= NODE_SILENT_US && mono_us - b->seen_us >= NODE_SILENT_US;
}

bool fleet_is_silent(const struct cluster *cl, const struct node *n, int64_t mono_us, size_t *ret)
{
    size_t silent = 0;

    for (size_t i = 0; i < cl->n_nodes; i++)
        silent += fleet_silent_together(n, cl->nodes[i], mono_us);
    if (ret)
        *ret = silent;
    return silent > most_together(cl);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

bool fleet_is_behind(const struct cluster *cl, const struct node *n, const json_t *result, const char *rate,
                     double *ret_median)
{
    double mine = json_number_value(json_object_get(result, rate)), *all = calloc(cl->n_nodes + 1, sizeof(*all));
    size_t count = 0;

    for (size_t i = 0; all && i < cl->n_nodes; i++) {
        const struct node *other = cl->nodes[i];
        double theirs = json_number_value(json_object_get(other->test.result, rate));

        if (other != n && theirs > 0 && other->n_slots > 0 && n->n_slots > 0 &&
            other->slots[0].class_ == n->slots[0].class_)
            all[count++] = theirs;
    }
    if (count > 0)
        qsort(all, count, sizeof(*all), by_value);
    *ret_median = count >= OTHERS_LEAST ? all[count / 2] : 0;
    free(all);
    return mine > 0 && mine < *ret_median / 2;
}
