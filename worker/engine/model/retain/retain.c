#include "worker/engine/model/retain/retain.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/model/retain/retain_priv.h"

/* "all" is how memory.policy of a job says full. */
static const struct {
    const char *name;
    const struct retain_ops *ops;
} known[] = {{"none", &retain_none}, {"selective", &retain_selective}, {"full", &retain_full},
             {"all", &retain_full},  {"sqrt", &retain_sqrt},           {"mimose", &retain_mimose}};

/* NULL: there is none of this name. */
static const struct retain_ops *find(const char *policy)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strcmp(policy, known[i].name) == 0)
            return known[i].ops;
    return NULL;
}

static const struct retain_ops *ops_of(const struct retain_cfg *cfg)
{
    const struct retain_ops *ops = cfg->policy ? find(cfg->policy) : &retain_none;

    assert(ops);
    return ops;
}

bool retain_known(const char *policy)
{
    return find(policy) != NULL;
}

const char *retain_recompute(enum recompute recompute)
{
    static const struct retain_ops *const policy[] = {
        [RECOMPUTE_NONE] = &retain_none, [RECOMPUTE_SELECTIVE] = &retain_selective, [RECOMPUTE_FULL] = &retain_full};

    assert(recompute < RECOMPUTE_AUTO); /* the planner has chosen by now */
    return policy[recompute]->name;
}

enum retain_again retain_most(const struct retain_cfg *cfg)
{
    return ops_of(cfg)->most;
}

int retain_together(const struct retain_cfg *cfg)
{
    const struct retain_ops *ops = ops_of(cfg);

    if (ops->most == AGAIN_NOTHING)
        return 0;
    return ops->together ? ops->together(cfg) : 1;
}

bool retain_plans(const struct retain_cfg *cfg)
{
    return ops_of(cfg)->begin != NULL;
}

bool retain_alike(const struct retain_cfg *a, const struct retain_cfg *b)
{
    return ops_of(a) == ops_of(b) && retain_together(a) == retain_together(b);
}

struct retain_stay retain_block(const struct retain_cfg *cfg, int blocks, int i)
{
    return ops_of(cfg)->block(cfg, blocks, i);
}

int retain_new(const struct retain_cfg *cfg, int blocks, struct retain **ret, struct merr *err)
{
    struct retain *r = calloc(1, sizeof(*r));
    int code;

    if (!r)
        return merr_set(err, -ENOMEM, "no memory for what stays of %d blocks", blocks);
    r->ops = ops_of(cfg);
    code = r->ops->open ? r->ops->open(cfg, blocks, &r->self, err) : 0;
    if (code != 0) {
        free(r);
        return code;
    }
    *ret = r;
    return 0;
}

void retain_free(struct retain *r)
{
    if (r && r->ops->close)
        r->ops->close(r->self);
    free(r);
}

int retain_begin(struct retain *r, int rows, const struct retain_bytes *each, bool train, struct merr *err)
{
    return r->ops->begin ? r->ops->begin(r->self, rows, each, train, err) : 0;
}

struct retain_stay retain_next(struct retain *r, int i)
{
    assert(r->ops->next);
    return r->ops->next(r->self, i);
}

int retain_end(struct retain *r, bool train, struct merr *err)
{
    return r->ops->end ? r->ops->end(r->self, train, err) : 0;
}
