/* bucket - how often something may be done: a pure token bucket
 *
 * A bucket that is all zero is full. Time is given by the caller and may stand still or go back: then nothing is
 * filled in.
 */
#ifndef MUSTER_BASE_BUCKET_H
#define MUSTER_BASE_BUCKET_H

#include <stdint.h>

struct bucket_rule {
    double per_s; /* so many are filled in each second, above 0 */
    double burst; /* up to so many, at least 1 */
};

struct bucket {
    double spent; /* of the burst */
    int64_t at_us;
};

/* Take n. Returns 0, or after how many microseconds there will be enough: then nothing is taken. More than the burst
 * is taken from a full bucket, which stays empty for so much longer. */
int64_t bucket_take(struct bucket *b, const struct bucket_rule *rule, double n, int64_t now_us);

/* What bucket_take() would return, with nothing taken. */
int64_t bucket_wait_us(const struct bucket *b, const struct bucket_rule *rule, double n, int64_t now_us);

#endif
