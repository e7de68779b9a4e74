#include "api/times.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

/* A whole number at *at, which moves behind it; -1: there is none, or it is too large. */
static int64_t number(const char **at)
{
    int64_t n = 0;

    if (**at < '0' || **at > '9')
        return -1;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        n = n * 10 + (**at - '0');
        if (n > INT32_MAX)
            return -1;
    }
    return n;
}

/* "4:00:00" in *v, first to last. Returns how many there are, or -EINVAL. */
static int numbers(const char *at, int64_t v[3])
{
    int n = 0;

    do {
        if (n == 3 || (v[n] = number(&at)) < 0)
            return -EINVAL;
        n++;
    } while (*at++ == ':');
    return at[-1] == '\0' ? n : -EINVAL;
}

static int fits(int64_t s, int *ret)
{
    if (s > INT32_MAX)
        return -EINVAL;
    *ret = (int)s;
    return 0;
}

int times_parse(const char *text, int *ret)
{
    static const char units[] = "smhd";
    static const int seconds[] = {1, 60, 3600, 86400};
    const char *end = text, *unit;
    int64_t first = number(&end), v[3] = {0}, days = 0;
    int n;

    if (first < 0)
        return -EINVAL;
    unit = *end ? strchr(units, *end) : NULL;
    if (unit && end[1] == '\0')
        return fits(first * seconds[unit - units], ret);
    if (*end == '-') {
        days = first;
        text = end + 1;
    }
    n = numbers(text, v);
    if (n < 0)
        return n;
    if (*end == '-') /* what follows are hours, minutes and seconds, as many as there are */
        return fits(days * 86400 + v[0] * 3600 + v[1] * 60 + v[2], ret);
    return fits(n == 1 ? v[0] * 60 : n == 2 ? v[0] * 60 + v[1] : v[0] * 3600 + v[1] * 60 + v[2], ret);
}
