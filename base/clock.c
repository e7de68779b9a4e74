#include "base/clock.h"

#include <stdio.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;

    (void)clock_gettime(id, &ts); /* cannot fail for these two clocks */
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_wall_us(void)
{
    return read_us(CLOCK_REALTIME);
}

static int64_t real_mono_us(void *arg)
{
    (void)arg;
    return clock_mono_us();
}

static int64_t real_wall_us(void *arg)
{
    (void)arg;
    return clock_wall_us();
}

const struct clock *clock_real(void)
{
    static const struct clock real = {.mono_us = real_mono_us, .wall_us = real_wall_us};

    return &real;
}

int clock_poll_ms(int64_t deadline_us)
{
    int64_t left_us = deadline_us - clock_mono_us();

    if (left_us <= 0)
        return 0;
    if (left_us > INT64_C(3600000000))
        return 3600000;
    return (int)((left_us + 999) / 1000);
}

void clock_rfc3339(int64_t wall_us, char out[CLOCK_RFC3339_MAX])
{
    int64_t second = wall_us / 1000000, rest = wall_us % 1000000;
    time_t t;
    struct tm tm;
    size_t n;

    if (rest < 0) {
        second--;
        rest += 1000000;
    }
    t = (time_t)second;
    (void)gmtime_r(&t, &tm);
    n = strftime(out, CLOCK_RFC3339_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, CLOCK_RFC3339_MAX - n, ".%03dZ", (int)(rest / 1000));
}
