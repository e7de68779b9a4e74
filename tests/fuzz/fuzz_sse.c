/* Any bytes as a stream of events: those that come in pieces are those that come at once. The first byte is the size of
 * the pieces. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/client/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int note(void *arg, const char *type, const char *data)
{
    struct buf *b = arg;

    (void)buf_printf(b, "<%s|%s>", type, data);
    return strcmp(type, "stop") == 0 ? 7 : 0;
}

/* All events in pieces of a size; what the parsing ended with. */
static int feed(const char *text, size_t len, size_t piece, struct buf *events, char last_id[32])
{
    struct sse s;
    int r = 0;

    sse_init(&s);
    for (size_t at = 0; r == 0 && at < len; at += piece)
        r = sse_feed(&s, text + at, len - at < piece ? len - at : piece, note, events);
    memcpy(last_id, s.last_id, sizeof(s.last_id));
    sse_restart(&s);
    if (sse_feed(&s, "data: x\n\n", 9, note, events) != 0) /* and it can be used again */
        abort();
    sse_clear(&s);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;
    char last[2][32];
    struct buf b[2];
    int r[2];

    if (size < 2)
        return 0;
    buf_init(&b[0], 1 << 24);
    buf_init(&b[1], 1 << 24);
    r[0] = feed(text, size - 1, size, &b[0], last[0]);
    r[1] = feed(text, size - 1, data[0] % 16 + 1, &b[1], last[1]);
    if (r[0] != r[1] || strcmp(buf_text(&b[0]), buf_text(&b[1])) != 0 || strcmp(last[0], last[1]) != 0)
        abort();
    buf_clear(&b[0]);
    buf_clear(&b[1]);
    return 0;
}
