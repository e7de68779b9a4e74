/* clock - the two clocks, deadlines on the monotonic one, and a clock that can be another
 *
 * What decides never reads a clock: the owner of a loop holds a struct clock, reads it once a turn and passes the time
 * down. With another struct clock the same code runs in simulated time. Programs' edges and waits in the kernel use the
 * plain functions.
 */
#ifndef MUSTER_BASE_CLOCK_H
#define MUSTER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_RFC3339_MAX 32

/* Microseconds on the monotonic clock: for deadlines and durations. */
int64_t clock_mono_us(void);

/* Microseconds that the calling thread has had a processor: what else runs on the machine does not count in them. */
int64_t clock_thread_us(void);

/* Microseconds since 1970 UTC: for people and records, never for deadlines. */
int64_t clock_wall_us(void);

/* Where the time comes from. Both functions are given arg, and answer as the plain functions of their name do. Read by
 * the thread that owns the loop. */
struct clock {
    int64_t (*mono_us)(void *arg);
    int64_t (*wall_us)(void *arg);
    void *arg;
};

/* The clock of this machine; any thread. Never NULL, never freed. */
const struct clock *clock_real(void);

/* Read one; c is borrowed. */
static inline int64_t clock_read_mono_us(const struct clock *c)
{
    return c->mono_us(c->arg);
}

static inline int64_t clock_read_wall_us(const struct clock *c)
{
    return c->wall_us(c->arg);
}

/* Milliseconds from now to deadline_us for poll(2): 0 once it is past, rounded up, at most an hour. */
int clock_poll_ms(int64_t deadline_us);

/* "2026-11-21T06:05:17.123Z" of a wall time. */
void clock_rfc3339(int64_t wall_us, char out[CLOCK_RFC3339_MAX]);
/* The wall time of such a text, from the year 1970 on, with or without parts of a second. 0, or -EINVAL with *ret_us
 * unchanged. */
int clock_read_rfc3339(const char *text, int64_t *ret_us);

#endif
