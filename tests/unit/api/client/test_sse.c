#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/client/sse.h"

static int note(void *arg, const char *type, const char *data)
{
    struct buf *b = arg;

    buf_printf(b, "<%s|%s>", type, data);
    return strcmp(type, "stop") == 0 ? 7 : 0;
}

static void events_come_whole_from_pieces_of_any_size(void **state)
{
    static const char text[] = ":\n\nid: 5\nevent: state\ndata: a\ndata:b\n\ndata: c\r\n\r\nid:6\rdata\r\rdata: cut";

    (void)state;
    for (size_t piece = 1; piece <= sizeof(text); piece++) {
        struct sse s;
        struct buf b;

        sse_init(&s);
        buf_init(&b, 4096);
        for (size_t at = 0; at < sizeof(text) - 1; at += piece)
            assert_int_equal(
                sse_feed(&s, text + at, at + piece < sizeof(text) - 1 ? piece : sizeof(text) - 1 - at, note, &b), 0);
        assert_string_equal(buf_text(&b), "<state|a\nb><message|c><message|>");
        assert_string_equal(s.last_id, "6");
        sse_restart(&s);
        assert_int_equal(sse_feed(&s, "event: stop\ndata: x\n\ndata: y\n\n", 31, note, &b), 7);
        assert_string_equal(s.last_id, "6");
        buf_clear(&b);
        sse_clear(&s);
    }
}

static void an_endless_event_is_refused(void **state)
{
    static char much[65536];
    struct sse s;
    struct buf b;
    int r = 0;

    (void)state;
    memset(much, 'x', sizeof(much));
    sse_init(&s);
    buf_init(&b, 64);
    for (size_t n = 0; r == 0 && n < 2 * SSE_EVENT_MAX; n += sizeof(much))
        r = sse_feed(&s, much, sizeof(much), note, &b);
    assert_int_equal(r, -EMSGSIZE);
    sse_clear(&s);
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_whole_from_pieces_of_any_size),
        cmocka_unit_test(an_endless_event_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
