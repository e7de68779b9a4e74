#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;

    (void)clock_gettime(id, &ts); /* cannot fail for these clocks */
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_thread_us(void)
{
    return read_us(CLOCK_THREAD_CPUTIME_ID);
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

int clock_read_rfc3339(const char *text, int64_t *ret_us)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd"; /* d: a digit */
    struct tm tm = {0}, back;
    int64_t us = 0, unit = 100000;
    const char *at = text;
    time_t t;

    for (const char *f = form; *f; f++, at++)
        if (*f == 'd' ? *at < '0' || *at > '9' : *at != *f)
            return -EINVAL;
    if (*at == '.') {
        if (*++at < '0' || *at > '9')
            return -EINVAL;
        for (; *at >= '0' && *at <= '9'; at++, unit /= 10)
            us += (*at - '0') * unit;
    }
    if (at[0] != 'Z' || at[1])
        return -EINVAL;
    tm.tm_year = (int)strtol(text, NULL, 10) - 1900;
    tm.tm_mon = (int)strtol(text + 5, NULL, 10) - 1;
    tm.tm_mday = (int)strtol(text + 8, NULL, 10);
    tm.tm_hour = (int)strtol(text + 11, NULL, 10);
    tm.tm_min = (int)strtol(text + 14, NULL, 10);
    tm.tm_sec = (int)strtol(text + 17, NULL, 10);
    back = tm;
    t = timegm(&back);
    if (t < 0 || back.tm_mon != tm.tm_mon || back.tm_mday != tm.tm_mday || back.tm_hour != tm.tm_hour ||
        back.tm_min != tm.tm_min || back.tm_sec != tm.tm_sec) /* there is no such day or time */
        return -EINVAL;
    *ret_us = (int64_t)t * 1000000 + us;
    return 0;
}
