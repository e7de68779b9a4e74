#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define LINE_MAX_BYTES 4096

static const char *program_name = "muster";
static enum log_level least_level = LOG_LEVEL_INFO;
const char *const log_level_names[] = {"debug", "info", "warn", "error", NULL};

void log_init(const char *program, enum log_level least)
{
    program_name = program;
    least_level = least;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES], now[CLOCK_RFC3339_MAX];
    int saved = errno;
    size_t len;
    va_list ap;
    int n;

    if (level < least_level)
        return;
    clock_rfc3339(clock_wall_us(), now);
    n = snprintf(line, sizeof(line), "%s %-5s %s: ", now, log_level_names[level], program_name);
    va_start(ap, fmt);
    (void)vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    len = strlen(line);
    line[len++] = '\n';
    /* One write a line, so that lines of several threads and processes never mix. A log that cannot be
     * written must not stop the program. */
    (void)!write(STDERR_FILENO, line, len);
    errno = saved;
}
