/* Text of others on a terminal: what would do something there is shown instead. */
#include <stdint.h>
#include <stdio.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "base/utf8.h"

/* The character of n bytes at p. */
static uint32_t decode(const unsigned char *p, int n)
{
    return n == 2   ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu)
           : n == 3 ? (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu)
                    : p[0];
}

/* Control characters beyond ASCII, and those that change the direction of writing. */
static bool acts(uint32_t c)
{
    return (c >= 0x80 && c < 0xa0) || c == 0x61c || (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

void cli_print_visible(FILE *to, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        const unsigned char *p = (const unsigned char *)text + at;
        int n = utf8_length(text + at, len - at);

        n = n > 0 ? n : 1;
        if ((*p < ' ' && *p != '\n' && *p != '\t') || *p == 0x7f)
            (void)fprintf(to, "^%c", *p ^ 0x40);
        else if (n > 1 && acts(decode(p, n)))
            (void)fprintf(to, "<U+%04X>", (unsigned)decode(p, n));
        else
            (void)fwrite(p, 1, (size_t)n, to);
        at += (size_t)n;
    }
}
