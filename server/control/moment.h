/* moment - the time of a turn, read once when it begins and passed to all that is decided in it
 *
 * Deadlines are kept on the monotonic clock, which nobody can set; the store and people are told wall time.
 */
#ifndef MUSTER_SERVER_MOMENT_H
#define MUSTER_SERVER_MOMENT_H

#include <stdint.h>

struct moment {
    int64_t mono_us, wall_us;
};

/* A deadline on the monotonic clock as wall time; 0 stays 0. */
int64_t moment_wall_of(const struct moment *now, int64_t mono_us);

/* And back: one that is past stays a deadline; 0 stays 0. */
int64_t moment_mono_of(const struct moment *now, int64_t wall_us);

#endif
