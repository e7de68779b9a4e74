/* clock - the two clocks, and deadlines on the monotonic one */
#ifndef MUSTER_BASE_CLOCK_H
#define MUSTER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_RFC3339_MAX 32

/* Microseconds on the monotonic clock: for deadlines and durations. */
int64_t clock_mono_us(void);

/* Microseconds since 1970 UTC: for people and records, never for deadlines. */
int64_t clock_wall_us(void);

/* Milliseconds from now to deadline_us for poll(2): 0 once it is past, rounded up, at most an hour. */
int clock_poll_ms(int64_t deadline_us);

/* "2026-11-21T06:05:17.123Z" of a wall time. */
void clock_rfc3339(int64_t wall_us, char out[CLOCK_RFC3339_MAX]);

#endif
