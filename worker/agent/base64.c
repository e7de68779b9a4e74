#include "worker/agent/base64.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(const void *data, size_t len, struct buf *out)
{
    const unsigned char *p = data;
    int r = 0;

    for (size_t i = 0; i < len && r == 0; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t v = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0);
        char text[4] = {digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                        n > 2 ? digits[v & 63] : '='};

        r = buf_add(out, text, 4);
    }
    return r;
}

int base64_decode(const char *text, size_t len, struct buf *out)
{
    int r = 0;

    if (len % 4)
        return -EPROTO;
    for (size_t i = 0; i < len && r == 0; i += 4) {
        size_t n = 4;
        uint32_t v = 0;
        unsigned char bytes[3];

        if (i + 4 == len) /* padding stands at the very end only */
            n = text[i + 3] != '=' ? 4 : text[i + 2] != '=' ? 3 : 2;
        for (size_t j = 0; j < 4; j++) {
            const char *d = j < n && text[i + j] ? strchr(digits, text[i + j]) : NULL;

            if (j < n && !d)
                return -EPROTO;
            v = v << 6 | (d ? (uint32_t)(d - digits) : 0);
        }
        if ((n == 2 && (v & 0xFFFF)) || (n == 3 && (v & 0xFF)))
            return -EPROTO; /* bits that no byte holds */
        bytes[0] = (unsigned char)(v >> 16);
        bytes[1] = (unsigned char)(v >> 8);
        bytes[2] = (unsigned char)v;
        r = buf_add(out, bytes, n - 1);
    }
    return r;
}
