#include "base/merr.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int merr_set(struct merr *err, int code, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;

    if (err) {
        va_start(ap, fmt);
        (void)vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
    }
    errno = saved;
    return code;
}

int merr_errno(struct merr *err, int code, const char *fmt, ...)
{
    int saved = errno;
    char reason[128];
    va_list ap;
    int n;

    if (err) {
        va_start(ap, fmt);
        n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof(err->text))
            (void)snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s",
                           strerror_r(-code, reason, sizeof(reason)));
    }
    errno = saved;
    return code;
}

int merr_prefix(struct merr *err, int code, const char *fmt, ...)
{
    int saved = errno;
    struct merr old;
    va_list ap;
    int n;

    if (err) {
        old = *err;
        va_start(ap, fmt);
        n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof(err->text))
            (void)snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", old.text);
    }
    errno = saved;
    return code;
}
