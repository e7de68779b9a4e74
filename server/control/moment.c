#include "server/control/moment.h"

int64_t moment_wall_of(const struct moment *now, int64_t mono_us)
{
    return mono_us == 0 ? 0 : now->wall_us + mono_us - now->mono_us;
}

int64_t moment_mono_of(const struct moment *now, int64_t wall_us)
{
    int64_t mono_us = wall_us == 0 ? 0 : now->mono_us + wall_us - now->wall_us;

    return wall_us != 0 && mono_us < 1 ? 1 : mono_us;
}
