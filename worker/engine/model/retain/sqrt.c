/* Runs of blocks of which only the input stays. The last run is kept: the backward begins with it at once. */
#include <assert.h>

#include "worker/engine/model/retain/retain_priv.h"

static int together(const struct retain_cfg *cfg)
{
    assert(cfg->run > 0);
    return cfg->run;
}

static struct retain_stay block(const struct retain_cfg *cfg, int blocks, int i)
{
    int run = together(cfg), first = i / run * run;

    if (i >= (blocks - 1) / run * run)
        return (struct retain_stay){.again = AGAIN_NOTHING};
    return (struct retain_stay){.again = AGAIN_WHOLE, .first = first, .last = first + run - 1};
}

const struct retain_ops retain_sqrt = {.name = "sqrt", .most = AGAIN_WHOLE, .together = together, .block = block};
