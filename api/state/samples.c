#include <errno.h>
#include <stdlib.h>

#include "api/state/call.h"
#include "base/philox.h"
#include "base/try.h"
#include "scheduler/sequence/plan.h"

EXPORTED uint64_t morder_index(uint64_t seed, uint64_t i, uint64_t n)
{
    return n ? philox_order(seed, i, n) : 0;
}

static int read_cost(const struct mseq_options *o, struct seq_cost *c)
{
    static const struct seq_link none;
    const struct seq_model model = {.hidden = o->hidden, .kv_hidden = o->kv_hidden, .layers = (int)o->layers};

    if (o->lin_s > 0 || o->quad_s > 0) {
        if (!(o->lin_s >= 0) || !(o->quad_s >= 0) || !(o->micro_s >= 0))
            return merr_set(call_error(), -EINVAL, "a cost of sequences is below 0");
        *c = (struct seq_cost){.lin_s = o->lin_s, .quad_s = o->quad_s, .micro_s = o->micro_s, .forward_share = 1.0 / 3};
        return 0;
    }
    if (o->hidden < 1 || o->kv_hidden < 0 || o->layers < 1 || o->layers > 1 << 20 || !(o->flops_per_s > 0) ||
        !(o->micro_s >= 0))
        return merr_set(call_error(), -EINVAL,
                        "the cost of sequences wants a model and a rank's speed, or lin_s and quad_s");
    seq_cost_init(c, &model, o->flops_per_s, &none, o->micro_s);
    return 0;
}

EXPORTED int mseq_plan(const struct mseq_options *options, const int64_t *tokens, size_t n, char **ret)
{
    struct seq_config c = {0};
    const struct seq_batch batch = {.tokens = tokens, .n = n};
    struct mseq_options o;
    struct seq_plan plan;
    struct buf out;

    TRY(call_struct(&o, sizeof(o), options, "struct mseq_options"));
    TRY(seq_policy_find(o.policy ? o.policy : "sweep", &c.policy, call_error()));
    TRY(read_cost(&o, &c.cost));
    c.replicas = o.replicas;
    c.ranks = o.ranks;
    c.capacity = o.capacity;
    c.micro = o.micro;
    c.seed = o.seed;
    TRY(seq_plan_make(&c, &batch, &plan, call_error()));
    buf_init(&out, INT32_MAX);
    seq_plan_print(&plan, &out);
    seq_plan_clear(&plan);
    *ret = buf_detach(&out);
    buf_clear(&out);
    return *ret ? 0 : merr_set(call_error(), -ENOMEM, "no memory for a plan of %zu sequences", n);
}

EXPORTED void mseq_free(char *plan)
{
    free(plan);
}
