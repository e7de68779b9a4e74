/* What a reader of tables does not know it refuses by name. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "checkpoint/format/dtype.h"
#include "checkpoint/format/index.h"

static int decode_type(unsigned dtype, struct merr *err)
{
    char strings[] = "layer.weightrank-00000.mck", kv[] = "{\"step\":1}";
    struct mck_tensor tensor = {.name_len = 12, .dtype = (uint8_t)dtype, .ndim = 1, .shape = {0, 1, 1, 1, 1, 1}};
    struct mck_file file = {.name_off = 12, .name_len = 14};
    struct mck_index ix = {.writers = 1,
                           .strings = strings,
                           .strings_len = strlen(strings),
                           .file = &file,
                           .files = 1,
                           .tensor = &tensor,
                           .tensors = 1,
                           .kv = kv,
                           .kv_len = strlen(kv)};
    struct mck_index back;
    struct buf b;
    int r;

    buf_init(&b, 1 << 20);
    assert_int_equal(index_encode(&ix, MCK_INDEX_MANIFEST, &b, err), 0);
    r = index_decode(b.data, b.len, MCK_INDEX_MANIFEST, &back, err);
    if (r == 0)
        index_clear(&back);
    buf_clear(&b);
    return r;
}

static void a_type_of_elements_that_is_not_known_is_refused_by_the_name_of_its_tensor(void **state)
{
    struct merr err = {""};

    (void)state;
    for (unsigned i = 0; i < MCK_DTYPES; i++)
        if (decode_type(i, &err))
            fail_msg("type %u: %s", i, err.text);
    assert_int_equal(decode_type(MCK_DTYPES, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "tensor 'layer.weight' is of type 17, which this version does not know"));
}

static void each_type_has_a_name_and_a_size(void **state)
{
    (void)state;
    for (int i = 0; i < MCK_DTYPES; i++) {
        assert_int_equal(dtype_parse(dtype_name(i)), i);
        assert_true(dtype_size(i) % dtype_part_size(i) == 0 && dtype_part_size(i) <= 8);
    }
    assert_int_equal(dtype_size(MCK_C128), 16);
    assert_int_equal(dtype_size(MCK_DTYPES), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_type_of_elements_that_is_not_known_is_refused_by_the_name_of_its_tensor),
        cmocka_unit_test(each_type_has_a_name_and_a_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
