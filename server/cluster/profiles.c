#include "server/cluster/profiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/profile.h"

struct class_profiles {
    struct {
        char node[JOB_NODE_MAX];
        struct plan_profile *p;
    } of[PROFILES_NODES];
    size_t n, next; /* whose place is taken next once all are */
    struct plan_profile middle;
};

static bool offers(const struct node *n, uint8_t class_)
{
    for (size_t i = 0; i < n->n_slots; i++)
        if (n->slots[i].class_ == class_)
            return true;
    return false;
}

static struct class_profiles *profiles_in(struct cluster *cl, uint8_t class_)
{
    if (!cl->profiles[class_])
        cl->profiles[class_] = calloc(1, sizeof(*cl->profiles[class_]));
    return cl->profiles[class_];
}

/* The place of the node, or a new one, or the oldest one's. */
static size_t place_of(struct class_profiles *c, const char *node)
{
    size_t at;

    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->of[i].node, node) == 0)
            return i;
    if (c->n < PROFILES_NODES)
        return c->n++;
    at = c->next;
    c->next = (c->next + 1) % PROFILES_NODES;
    return at;
}

/* p is taken over. False: it is what was known. */
static bool put(struct class_profiles *c, const char *node, struct plan_profile *p)
{
    const struct plan_profile *all[PROFILES_NODES];
    size_t at = place_of(c, node), n = 0;

    if (c->of[at].p && strcmp(c->of[at].node, node) == 0 && memcmp(c->of[at].p, p, sizeof(*p)) == 0) {
        free(p);
        return false;
    }
    free(c->of[at].p);
    (void)snprintf(c->of[at].node, sizeof(c->of[at].node), "%s", node);
    c->of[at].p = p;
    all[n++] = p; /* the newest says which sizes there are */
    for (size_t i = 0; i < c->n; i++)
        if (i != at)
            all[n++] = c->of[i].p;
    profile_median(all, n, &c->middle);
    return true;
}

bool profiles_take(struct cluster *cl, const struct node *n, const json_t *doc, struct merr *why)
{
    const char *name;
    bool news = false;
    json_t *one;

    json_object_foreach ((json_t *)doc, name, one) {
        uint8_t class_ = classes_find(&cl->classes, name);
        struct class_profiles *c;
        struct plan_profile *p;

        if (class_ == CLASSES_MAX || !offers(n, class_)) {
            (void)merr_set(why, 0, "it offers no device of class '%.60s'", name);
            continue;
        }
        p = calloc(1, sizeof(*p));
        c = p && profile_read(one, p, why) == 0 ? profiles_in(cl, class_) : NULL;
        if (c)
            news |= put(c, n->name, p);
        else
            free(p);
    }
    return news;
}

const struct plan_profile *profiles_of(const struct cluster *cl, uint8_t class_, int threads)
{
    const struct class_profiles *c = class_ < CLASSES_MAX ? cl->profiles[class_] : NULL;

    if (!c || (threads > 0 && c->middle.threads > 0 && c->middle.threads != threads))
        return NULL;
    return &c->middle;
}

size_t profiles_nodes(const struct cluster *cl, uint8_t class_)
{
    return cl->profiles[class_] ? cl->profiles[class_]->n : 0;
}

void profiles_clear(struct cluster *cl)
{
    for (size_t i = 0; i < CLASSES_MAX; i++) {
        struct class_profiles *c = cl->profiles[i];

        for (size_t k = 0; c && k < c->n; k++)
            free(c->of[k].p);
        free(c);
        cl->profiles[i] = NULL;
    }
}
