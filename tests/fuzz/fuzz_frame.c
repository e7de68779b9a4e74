/* Any bytes as frames of a session, masked or not: refused, or frames that are written again as they were. */
#include "api/protocol/frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int masked = 0; masked < 2; masked++) {
        char *text = malloc(size + 1), said[64];
        size_t at = 0;

        assert(text);
        memcpy(text, data, size);
        while (at < size) {
            struct frame f, again;
            struct buf b;
            ssize_t n = frame_read(text + at, size - at, masked, &f);

            assert(n <= (ssize_t)(size - at));
            if (n <= 0)
                break;
            assert(f.len <= FRAME_MAX && f.data >= text + at && f.data + f.len == text + at + n);
            (void)frame_read_close(&f, said, sizeof(said));
            assert(strlen(said) < sizeof(said));
            buf_init(&b, FRAME_MAX + FRAME_HEAD_MAX);
            assert(frame_write(&b, f.kind, f.data, f.len, NULL) == 0);
            assert(frame_read(b.data, b.len, false, &again) == (ssize_t)b.len);
            assert(again.kind == f.kind && again.len == f.len && memcmp(again.data, f.data, f.len) == 0);
            buf_clear(&b);
            at += (size_t)n;
        }
        free(text);
    }
    return 0;
}
