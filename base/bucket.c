#include "base/bucket.h"

static double spent_at(const struct bucket *b, const struct bucket_rule *rule, int64_t now_us)
{
    double filled = now_us > b->at_us ? (double)(now_us - b->at_us) / 1e6 * rule->per_s : 0;

    return b->spent > filled ? b->spent - filled : 0;
}

int64_t bucket_wait_us(const struct bucket *b, const struct bucket_rule *rule, double n, int64_t now_us)
{
    double allowed = n < rule->burst ? rule->burst - n : 0, over = spent_at(b, rule, now_us) - allowed;

    return over > 0 ? (int64_t)(over / rule->per_s * 1e6) + 1 : 0;
}

int64_t bucket_take(struct bucket *b, const struct bucket_rule *rule, double n, int64_t now_us)
{
    int64_t wait_us = bucket_wait_us(b, rule, n, now_us);

    if (wait_us > 0)
        return wait_us;
    b->spent = spent_at(b, rule, now_us) + n;
    if (now_us > b->at_us)
        b->at_us = now_us;
    return 0;
}
