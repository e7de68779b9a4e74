/* backoff - when to try again: doubled from 0.2 s to 10 s, times 0.5 to 1.5 by chance
 *
 * The jitter keeps a thousand agents of one server from coming back in step.
 */
#ifndef MUSTER_WORKER_AGENT_BACKOFF_H
#define MUSTER_WORKER_AGENT_BACKOFF_H

#include <stdint.h>

#include "base/philox.h"

#define BACKOFF_FIRST_US 200000
#define BACKOFF_LAST_US 10000000

struct backoff {
    uint32_t failures; /* in a row */
    uint32_t key[2];
    int64_t until_us; /* not before */
};

static inline void backoff_failed(struct backoff *b, int64_t now_us)
{
    uint32_t ctr[4] = {b->failures, 0, 0, 0}, word[4];
    int64_t wait_us = BACKOFF_FIRST_US << (b->failures < 6 ? b->failures : 6);

    if (wait_us > BACKOFF_LAST_US)
        wait_us = BACKOFF_LAST_US;
    philox4x32(ctr, b->key, word);
    b->failures++;
    b->until_us = now_us + (int64_t)((double)wait_us * (0.5 + (double)philox_unit(word[0])));
}

static inline void backoff_worked(struct backoff *b)
{
    b->failures = 0;
    b->until_us = 0;
}

#endif
