/* The same of each block but the last few: selective, full. */
#include "worker/engine/model/retain/retain_priv.h"

static bool stays(const struct retain_cfg *cfg, int blocks, int i)
{
    return i >= blocks - cfg->kept;
}

static struct retain_stay selective(const struct retain_cfg *cfg, int blocks, int i)
{
    return (struct retain_stay){.again = stays(cfg, blocks, i) ? AGAIN_NOTHING : AGAIN_CHEAP};
}

static struct retain_stay full(const struct retain_cfg *cfg, int blocks, int i)
{
    if (stays(cfg, blocks, i))
        return (struct retain_stay){.again = AGAIN_NOTHING};
    return retain_whole(i);
}

const struct retain_ops retain_selective = {.name = "selective", .most = AGAIN_CHEAP, .block = selective};
const struct retain_ops retain_full = {.name = "full", .most = AGAIN_WHOLE, .block = full};
