#include "worker/engine/text/unicode.h"

struct range {
    uint32_t first, last;
};

#include "worker/engine/text/unicode_tables.h"

static const struct range blanks[] = {
    {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
};

size_t unicode_get(const char *text, size_t len, uint32_t *ret)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    uint32_t c;

    if (n == 0 || n > len)
        return 0;
    c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *ret = c;
    return n;
}

static bool within(const struct range *v, size_t n, uint32_t c)
{
    size_t lo = 0, hi = n; /* the range that may hold c is in [lo, hi) */

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (c > v[mid].last)
            lo = mid + 1;
        else if (c < v[mid].first)
            hi = mid;
        else
            return true;
    }
    return false;
}

#define WITHIN(table, c) within(table, sizeof(table) / sizeof((table)[0]), c)

enum unicode_class unicode_class_of(uint32_t c)
{
    if (c < 0x80) {
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
            return UNICODE_LETTER;
        if (c >= '0' && c <= '9')
            return UNICODE_NUMBER;
        return c == ' ' || (c >= 0x9 && c <= 0xd) ? UNICODE_SPACE : UNICODE_OTHER;
    }
    return WITHIN(letters, c)   ? UNICODE_LETTER
           : WITHIN(numbers, c) ? UNICODE_NUMBER
           : WITHIN(blanks, c)  ? UNICODE_SPACE
                                : UNICODE_OTHER;
}
