#include "worker/engine/comm/failure.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int failure_keep(struct failure *f, int code, const char *fmt, ...)
{
    va_list ap;

    assert(code < 0);
    if (f->code)
        return f->code;
    va_start(ap, fmt);
    (void)vsnprintf(f->why.text, sizeof(f->why.text), fmt, ap);
    va_end(ap);
    f->code = code;
    return code;
}

void failure_add(struct failure *f, const char *fmt, ...)
{
    size_t n = strlen(f->why.text);
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(f->why.text + n, sizeof(f->why.text) - n, fmt, ap);
    va_end(ap);
}

int failure_tell(const struct failure *f, struct merr *err)
{
    assert(f->code);
    return merr_set(err, f->code, "%s", f->why.text);
}
