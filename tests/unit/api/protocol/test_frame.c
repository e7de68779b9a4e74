#include "api/protocol/frame.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char mask[4] = {0x37, 0xfa, 0x21, 0x3d};

static void a_frame_is_as_in_the_examples_of_rfc_6455(void **state)
{
    static const unsigned char ping[] = {0x89, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58};
    struct buf b;
    struct frame f;

    (void)state;
    buf_init(&b, 100);
    assert_int_equal(frame_write(&b, FRAME_PING, "Hello", 5, mask), 0); /* section 5.7: a masked Hello */
    assert_int_equal(b.len, sizeof(ping));
    assert_memory_equal(b.data, ping, sizeof(ping));
    assert_int_equal(frame_read(b.data, b.len, true, &f), sizeof(ping));
    assert_int_equal(f.kind, FRAME_PING);
    assert_int_equal(f.len, 5);
    assert_memory_equal(f.data, "Hello", 5);
    buf_clear(&b);
}

static void frames_of_each_length_come_back_and_are_whole_before_they_are_read(void **state)
{
    static const size_t lengths[] = {0, 1, 7, 8, 125, 126, 127, 65535, 65536};
    char *data = malloc(FRAME_MAX);

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < FRAME_MAX; i++)
        data[i] = (char)(i * 31);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
        for (int masked = 0; masked < 2; masked++) {
            struct frame f;
            struct buf b;

            buf_init(&b, FRAME_MAX + FRAME_HEAD_MAX);
            assert_int_equal(frame_write(&b, FRAME_BINARY, data, lengths[i], masked ? mask : NULL), 0);
            for (size_t part = 0; part < b.len && part < 20; part++)
                assert_int_equal(frame_read(b.data, part, masked, &f), 0);
            assert_int_equal(frame_read(b.data, b.len - 1, masked, &f), 0);
            assert_int_equal(frame_read(b.data, b.len, masked, &f), b.len);
            assert_int_equal(f.len, lengths[i]);
            assert_memory_equal(f.data, data, lengths[i]);
            buf_clear(&b);
        }
    free(data);
}

static void what_is_no_frame_of_a_session_is_refused(void **state)
{
    static const struct {
        unsigned char text[16];
        size_t n;
        bool masked;
        int want;
    } rows[] = {
        {{0x82, 0x00}, 2, true, -EPROTO},              /* a client's has a mask, */
        {{0x82, 0x80, 1, 2, 3, 4}, 6, false, -EPROTO}, /* a server's has none */
        {{0x02, 0x00}, 2, false, -EPROTO},             /* a part of one */
        {{0x80, 0x00}, 2, false, -EPROTO},             /* the rest of one */
        {{0x81, 0x00}, 2, false, -EPROTO},             /* text */
        {{0xc2, 0x00}, 2, false, -EPROTO},             /* a bit that is kept for later */
        {{0x89, 126, 0, 126}, 4, false, -EPROTO},      /* a long ping */
        {{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 1}, 10, false, -EMSGSIZE},
        {{0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0}, 10, false, -EMSGSIZE},
        {{0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0}, 10, false, -EMSGSIZE},
        {{0x82, 0x05, 1, 2}, 4, false, 0},
        {{0x82}, 1, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[16];
        struct frame f;

        memcpy(text, rows[i].text, sizeof(text));
        if (frame_read(text, rows[i].n, rows[i].masked, &f) != rows[i].want)
            fail_msg("row %zu", i);
    }
}

static void a_close_tells_its_code_and_its_text_without_what_a_terminal_would_obey(void **state)
{
    char said[32], long_text[400];
    struct frame f;
    struct buf b;

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    buf_init(&b, 300);
    assert_int_equal(frame_write_close(&b, FRAME_CLOSE_IDLE, "id\033[le\n", NULL), 0);
    assert_int_equal(frame_read(b.data, b.len, false, &f), b.len);
    assert_int_equal(frame_read_close(&f, said, sizeof(said)), FRAME_CLOSE_IDLE);
    assert_string_equal(said, "id[le");
    buf_reset(&b);
    assert_int_equal(frame_write_close(&b, FRAME_CLOSE_LOST, long_text, NULL), 0);
    assert_int_equal(frame_read(b.data, b.len, false, &f), b.len);
    assert_int_equal(frame_read_close(&f, said, sizeof(said)), FRAME_CLOSE_LOST);
    assert_int_equal(strlen(said), sizeof(said) - 1);
    f.len = 1;
    assert_int_equal(frame_read_close(&f, said, sizeof(said)), FRAME_CLOSE_DONE);
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_is_as_in_the_examples_of_rfc_6455),
        cmocka_unit_test(frames_of_each_length_come_back_and_are_whole_before_they_are_read),
        cmocka_unit_test(what_is_no_frame_of_a_session_is_refused),
        cmocka_unit_test(a_close_tells_its_code_and_its_text_without_what_a_terminal_would_obey),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
