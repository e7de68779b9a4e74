/* fake_clock - a struct clock that stands still until a test lets time pass
 *
 * One thread. wall_us may be set at will, as somebody sets a machine's clock.
 */
#ifndef MUSTER_TESTS_UNIT_FAKE_CLOCK_H
#define MUSTER_TESTS_UNIT_FAKE_CLOCK_H

#include "base/clock.h"

struct fake_clock {
    struct clock clock;
    int64_t mono_us, wall_us;
};

static inline int64_t fake_clock_mono_us(void *arg)
{
    return ((struct fake_clock *)arg)->mono_us;
}

static inline int64_t fake_clock_wall_us(void *arg)
{
    return ((struct fake_clock *)arg)->wall_us;
}

/* Returns the clock itself, which is good for as long as f is. */
static inline const struct clock *fake_clock_init(struct fake_clock *f, int64_t mono_us, int64_t wall_us)
{
    *f = (struct fake_clock){.clock = {.mono_us = fake_clock_mono_us, .wall_us = fake_clock_wall_us, .arg = f},
                             .mono_us = mono_us,
                             .wall_us = wall_us};
    return &f->clock;
}

/* Both clocks go on by so much. */
static inline void fake_clock_pass(struct fake_clock *f, int64_t us)
{
    f->mono_us += us;
    f->wall_us += us;
}

#endif
