#include "server/cluster/spares.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/slots.h"

int spares_read(const char *text, struct spares *ret, struct merr *err)
{
    struct spares all = {.n = 0};

    for (const char *p = text ? text : ""; *p; p += *p == ',') {
        const char *equals = p[strcspn(p, "=,")] == '=' ? strchr(p, '=') : NULL;
        size_t len = equals ? (size_t)(equals - p) : 0;
        char *end = NULL;
        long n = equals ? strtol(equals + 1, &end, 10) : 0;

        bool warm = end && end > equals + 1 && strncmp(end, ":warm", 5) == 0;

        end += warm ? 5 : 0;
        if (len == 0 || len >= SPEC_NAME_MAX || end == equals + 1 || (*end && *end != ',') || n < 0 || n > SPARES_MAX)
            return merr_set(err, -EINVAL, "'%.64s' are no spares; want CLASS=N,… or CLASS=N:warm,…, with N of 0 to %d",
                            text, SPARES_MAX);
        if (all.n == SPARES_CLASSES_MAX)
            return merr_set(err, -EINVAL, "spares of more than %d classes", SPARES_CLASSES_MAX);
        memcpy(all.of[all.n].class_, p, len);
        all.of[all.n].warm = warm;
        all.of[all.n++].n = (int)n;
        p = end;
    }
    *ret = all;
    return 0;
}

int spares_of(const struct spares *s, const char *class_)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->of[i].class_, class_) == 0)
            return s->of[i].n;
    return 0;
}

bool spares_warm(const struct spares *s, const char *class_)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->of[i].class_, class_) == 0)
            return s->of[i].warm;
    return false;
}

int spares_on(const struct node *n, uint8_t class_)
{
    int found = 0;

    for (size_t k = 0; k < n->n_slots; k++)
        found += n->slots[k].spare && n->slots[k].class_ == class_;
    return found;
}

static bool is_calm(const struct node *n, int64_t wall_us)
{
    const struct health *h = &n->health;

    return h->n_incidents == 0 || wall_us - h->incident[h->n_incidents - 1].at_us >= SPARES_CALM_US;
}

static bool is_fit(const struct node *n, const struct slot *s)
{
    return s->job == 0 && slots_usable(s) && !s->slow.slow && node_gives(n) && !health_is_shy(&n->health);
}

/* A lower number for a node that is the better one to have spares: nothing speaks against it, and least runs on it. */
static int rank_of(const struct node *n)
{
    int busy = 0, spare = 0;

    for (size_t k = 0; k < n->n_slots; k++) {
        busy += n->slots[k].job != 0;
        spare += n->slots[k].spare;
    }
    return 2 * busy - (spare > 0) + (n->health.n_incidents > 0 ? 2 * SLOTS_MAX : 0);
}

static bool is_claimed(const struct spares_claims *claims, const struct node *n)
{
    for (size_t i = 0; i < claims->n; i++)
        if (claims->nodes[i] == n)
            return true;
    return false;
}

/* The device to be set aside next: of the last node in order of names where several are as good. NULL: none is fit. */
static struct slot *find_next(const struct cluster *cl, uint8_t class_, const struct spares_claims *claims,
                              int64_t wall_us)
{
    struct slot *best = NULL;
    int best_rank = 0;

    for (size_t i = cl->n_nodes; i-- > 0;) {
        struct node *n = cl->nodes[i];
        int rank = rank_of(n);

        if ((best && rank >= best_rank) || is_claimed(claims, n) || !is_calm(n, wall_us))
            continue;
        for (size_t k = n->n_slots; k-- > 0;)
            if (n->slots[k].class_ == class_ && !n->slots[k].spare && is_fit(n, &n->slots[k])) {
                best = &n->slots[k];
                best_rank = rank;
                break;
            }
    }
    return best;
}

void spares_settle(struct cluster *cl, const struct spares *s, const struct spares_claims *claims, int64_t wall_us)
{
    int lacks[CLASSES_MAX] = {0};
    struct slot *next;

    for (size_t i = 0; i < cl->classes.n; i++)
        lacks[i] = spares_of(s, cl->classes.name[i]) + claims->of_class[i];
    for (size_t i = 0; i < cl->n_nodes; i++)
        for (size_t k = 0; k < cl->nodes[i]->n_slots; k++) {
            struct slot *of = &cl->nodes[i]->slots[k];

            of->spare = of->spare && lacks[of->class_] > 0 && is_fit(cl->nodes[i], of);
            lacks[of->class_] -= of->spare;
        }
    for (uint8_t class_ = 0; class_ < cl->classes.n; class_++)
        for (; lacks[class_] > 0 && (next = find_next(cl, class_, claims, wall_us)); lacks[class_]--)
            next->spare = true;
}
