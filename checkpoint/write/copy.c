#include "checkpoint/write/copy.h"

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>

#define LINE 64u
#define AHEAD 1024u /* the processor does not foresee as far as memory is away */

/* Whole lines; to lies at one. */
static void copy_lines(char *to, const char *from, size_t n)
{
    for (size_t at = 0; at < n; at += LINE) {
        __m128i part[4];

        __builtin_prefetch(from + at + AHEAD); /* harmless past the end */
        for (size_t i = 0; i < 4; i++)
            part[i] = _mm_loadu_si128((const __m128i *)(from + at) + i);
        for (size_t i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(to + at) + i, part[i]);
    }
    _mm_sfence(); /* such stores wait for nothing: whoever is told of the copy must find it */
}

void copy_past_cache(void *to, const void *from, size_t n)
{
    size_t head = -(uintptr_t)to % LINE, lines;

    if (head > n)
        head = n;
    lines = (n - head) / LINE * LINE;
    memcpy(to, from, head);
    copy_lines((char *)to + head, (const char *)from + head, lines);
    memcpy((char *)to + head + lines, (const char *)from + head + lines, n - head - lines);
}
#else
void copy_past_cache(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
}
#endif
