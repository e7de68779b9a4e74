#include "base/utf8.h"

#include <assert.h>
#include <string.h>

int utf8_length(const char *p, size_t n)
{
    const unsigned char *s = (const unsigned char *)p;
    unsigned char low = 0x80, high = 0xBF; /* what the second byte may be */
    int len;

    if (s[0] == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF)
        len = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF)
        len = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4)
        len = 4;
    else
        return 0;
    if (s[0] == 0xE0)
        low = 0xA0; /* shorter forms exist */
    else if (s[0] == 0xED)
        high = 0x9F; /* surrogates */
    else if (s[0] == 0xF0)
        low = 0x90;
    else if (s[0] == 0xF4)
        high = 0x8F; /* beyond U+10FFFF */
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if (s[i] < low || s[i] > high)
            return 0;
        low = 0x80;
        high = 0xBF;
    }
    return len;
}

size_t utf8_clean(const char *text, size_t n, int last, struct buf *out)
{
    size_t at = 0, good = 0; /* text[good..at) is well formed and not yet in out */

    while (at < n) {
        int len = utf8_length(text + at, n - at);

        if (len < 0 && !last)
            break;
        if (len > 0) {
            at += (size_t)len;
            continue;
        }
        (void)buf_add(out, text + good, at - good);
        (void)buf_addstr(out, "\xEF\xBF\xBD");
        good = ++at;
    }
    (void)buf_add(out, text + good, at - good);
    return at;
}

void utf8_patch(char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        int len = utf8_length(text + at, n - at);

        if (len > 0)
            at += (size_t)len;
        else
            text[at++] = '?';
    }
}

size_t utf8_cut(const char *text, size_t n)
{
    size_t back = 1;

    /* Only a character that begins in the last three bytes can be cut off. */
    for (; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)text[n - back];

        if (c >= 0xC0)
            return utf8_length(text + n - back, back) < 0 ? n - back : n;
        if (c < 0x80)
            break;
    }
    return n;
}

void utf8_copy(char *to, size_t size, const char *text)
{
    size_t n = strlen(text);

    assert(size > 0);
    n = n < size ? n : utf8_cut(text, size - 1);
    memcpy(to, text, n);
    to[n] = '\0';
}
