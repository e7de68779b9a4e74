/* A plan for each micro-batch, from what those before it took. Each block has two parts that are decided on: what is
 * cheap to make again, and the rest. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "worker/engine/model/retain/retain_priv.h"

#define PARTS 2

struct planned {
    struct mimose *model;
    int blocks;
    size_t budget; /* bytes of a micro-batch */
    /* of the micro-batch that goes forward */
    int rows;
    struct retain_bytes each;
    uint8_t *drop;  /* [PARTS][blocks]: what is cheap; the rest */
    bool sheltered; /* it is measured */
    bool lacked;    /* something did not fit */
    size_t kept;    /* bytes so far */
};

struct mimose *retain_mimose_model(struct retain *r)
{
    assert(r->ops == &retain_mimose);
    return ((struct planned *)r->self)->model;
}

static void close_plans(void *self)
{
    struct planned *p = self;

    if (!p)
        return;
    mimose_free(p->model);
    free(p->drop);
    free(p);
}

static int open_plans(const struct retain_cfg *cfg, int blocks, void **ret, struct merr *err)
{
    struct planned *p = calloc(1, sizeof(*p));
    int r = -ENOMEM;

    if (p)
        p->drop = calloc(PARTS * (size_t)blocks, sizeof(*p->drop));
    if (!p || !p->drop) {
        (void)merr_set(err, r, "no memory for plans of %d blocks", blocks);
        goto fail;
    }
    p->blocks = blocks;
    p->budget = cfg->keep_bytes;
    /* a budget that leaves no byte drops every block */
    r = mimose_new(PARTS * blocks, p->budget > 0 ? (double)p->budget : 1, 0, &p->model, err);
    if (r != 0)
        goto fail;
    mimose_prefer(p->model, blocks);
    *ret = p;
    return 0;
fail:
    close_plans(p);
    return r;
}

static struct retain_stay block(const struct retain_cfg *cfg, int blocks, int i)
{
    (void)cfg;
    (void)blocks;
    return retain_whole(i);
}

static int begin(void *self, int rows, const struct retain_bytes *each, bool train, struct merr *err)
{
    struct planned *p = self;
    struct mimose_plan plan;

    p->rows = rows;
    p->each = *each;
    p->kept = 0;
    p->lacked = p->sheltered = false;
    if (!train) {
        memset(p->drop, 1, PARTS * (size_t)p->blocks);
        return 0;
    }
    TRY(mimose_plan(p->model, rows, &plan, err));
    memcpy(p->drop, plan.checkpoint, PARTS * (size_t)p->blocks);
    p->sheltered = plan.sheltered;
    return 0;
}

static struct retain_stay next(void *self, int i)
{
    struct planned *p = self;
    struct retain_stay whole = retain_whole(i);
    bool cheap = p->drop[i];
    size_t bytes = p->each.rest + (cheap ? 0 : p->each.cheap);

    if (p->drop[p->blocks + i])
        return whole;
    if (p->kept + bytes > p->budget) { /* the plan asked for too much: this block is made again like those it dropped */
        p->lacked = whole.lacked = true;
        return whole;
    }
    p->kept += bytes;
    return (struct retain_stay){.again = cheap ? AGAIN_CHEAP : AGAIN_NOTHING};
}

/* What the parts of each block of these rows take, as counted in placing them. */
static int learn(struct planned *p, struct merr *err)
{
    double bytes[MIMOSE_BLOCKS_MAX], cheap = (double)p->each.cheap, rest = (double)p->each.rest;

    for (int i = 0; i < p->blocks; i++) {
        bytes[i] = cheap;
        bytes[p->blocks + i] = rest;
    }
    return mimose_sample(p->model, p->rows, bytes, (cheap + rest) * p->blocks, err);
}

static int end(void *self, bool train, struct merr *err)
{
    struct planned *p = self;

    if (!train)
        return 0;
    if (p->sheltered)
        return learn(p, err);
    if (p->lacked)
        mimose_overflow(p->model, p->rows);
    else
        (void)mimose_observe(p->model, p->rows, (double)p->kept);
    return 0;
}

const struct retain_ops retain_mimose = {.name = "mimose",
                                         .most = AGAIN_WHOLE,
                                         .block = block,
                                         .open = open_plans,
                                         .close = close_plans,
                                         .begin = begin,
                                         .next = next,
                                         .end = end};
