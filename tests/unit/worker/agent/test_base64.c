#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/philox.h"
#include "worker/agent/base64.h"

static void base64_is_the_one_of_the_rfc(void **state)
{
    static const struct {
        const char *bytes, *text;
    } table[] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct buf b;

        buf_init(&b, 64);
        assert_int_equal(base64_encode(table[i].bytes, strlen(table[i].bytes), &b), 0);
        assert_string_equal(buf_text(&b), table[i].text);
        buf_reset(&b);
        assert_int_equal(base64_decode(table[i].text, strlen(table[i].text), &b), 0);
        assert_string_equal(buf_text(&b), table[i].bytes);
        buf_clear(&b);
    }
}

static void damaged_base64_is_refused(void **state)
{
    static const char *const table[] = {"Z", "Zg=", "Zg===", "Z!==", "Zg==Zg==", "Zh==", "Zm9=", "===="};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct buf b;

        buf_init(&b, 64);
        assert_int_equal(base64_decode(table[i], strlen(table[i]), &b), -EPROTO);
        buf_clear(&b);
    }
}

static void random_bytes_come_back_from_base64(void **state)
{
    static const uint32_t key[2] = {42, 0};
    struct buf text, bytes;

    (void)state;
    print_message("seed %u\n", key[0]);
    buf_init(&text, 4096);
    buf_init(&bytes, 4096);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t w[4];

        philox4x32((uint32_t[4]){i, 0, 0, 0}, key, w);
        buf_reset(&text);
        buf_reset(&bytes);
        assert_int_equal(base64_encode(w, i % 16, &text), 0);
        assert_int_equal(base64_decode(buf_text(&text), text.len, &bytes), 0);
        assert_int_equal(bytes.len, i % 16);
        assert_memory_equal(buf_text(&bytes), w, i % 16);
    }
    buf_clear(&text);
    buf_clear(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_is_the_one_of_the_rfc),
        cmocka_unit_test(damaged_base64_is_refused),
        cmocka_unit_test(random_bytes_come_back_from_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
