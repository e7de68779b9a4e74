#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/program/handle.h"

_Atomic int handle_forks;

static __thread char words[256];

int handle_fail(int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(words, sizeof(words), fmt, ap);
    va_end(ap);
    return code;
}

EXPORTED const char *muster_last_error(void)
{
    return words;
}

bool handle_live(const struct muster *m)
{
    return m && m->forks == atomic_load_explicit(&handle_forks, memory_order_relaxed);
}

bool handle_name_ok(const char *name, size_t max)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:-");

    return n >= 1 && n <= max && name[n] == '\0';
}
