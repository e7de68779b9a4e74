#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "compress/le.h"
#include "compress/symbols.h"

static void few_symbols_come_back_from_few_bytes(void **state)
{
    uint8_t in[4096], code[4096], back[4096];
    struct symbols s;
    size_t len;

    (void)state;
    assert_int_equal(symbols_init(&s), 0);
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)((i * i * i * 2654435761u >> 16) % 4); /* no patterns: 2 bits each */
    len = symbols_pack(&s, in, sizeof(in), code, sizeof(code));
    assert_in_range(len, 1, sizeof(in) / 3);
    assert_int_equal(symbols_unpack(&s, code, len, back, sizeof(back)), 0);
    assert_memory_equal(in, back, sizeof(in));
    assert_int_equal(symbols_pack(&s, in, sizeof(in), code, len / 2), 0);
    symbols_clear(&s);
}

static void what_is_no_code_of_so_many_bytes_is_refused(void **state)
{
    uint8_t in[256], code[512], back[256];
    struct symbols s;
    size_t len;

    (void)state;
    assert_int_equal(symbols_init(&s), 0);
    memset(in, 7, sizeof(in));
    len = symbols_pack(&s, in, sizeof(in), code, sizeof(code));
    assert_int_equal(symbols_unpack(&s, code, len, back, sizeof(back) - 1), -EBADMSG);
    assert_int_equal(symbols_unpack(&s, code, len - 1, back, sizeof(back)), -EBADMSG);
    code[0] ^= 1;
    assert_int_equal(symbols_unpack(&s, code, len, back, sizeof(back)), -EBADMSG);
    symbols_clear(&s);
}

static void numbers_are_little_endian(void **state)
{
    uint8_t b[9] = {0};

    (void)state;
    le_put(b + 1, 0x0102030405060708, 8);
    assert_int_equal(b[1], 8);
    assert_int_equal(b[8], 1);
    assert_int_equal(le_get(b + 1, 8), 0x0102030405060708);
    assert_int_equal(le_get(b + 1, 3), 0x060708);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_symbols_come_back_from_few_bytes),
        cmocka_unit_test(what_is_no_code_of_so_many_bytes_is_refused),
        cmocka_unit_test(numbers_are_little_endian),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
