/* Everything stays. */
#include "worker/engine/model/retain/retain_priv.h"

static struct retain_stay block(const struct retain_cfg *cfg, int blocks, int i)
{
    (void)cfg;
    (void)blocks;
    (void)i;
    return (struct retain_stay){.again = AGAIN_NOTHING};
}

const struct retain_ops retain_none = {.name = "none", .most = AGAIN_NOTHING, .block = block};
