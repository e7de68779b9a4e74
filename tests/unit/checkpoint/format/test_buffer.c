/* What a caller may say of its memory, and the names of codecs. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "checkpoint/format/buffer.h"
#include "checkpoint/format/coding.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/format.h"

#pragma GCC diagnostic ignored "-Woverride-init" /* a row says in what it differs from GOOD */

static char memory[64];

#define GOOD                                                                                                           \
    .name = "w", .role = MCK_WEIGHT, .dtype = MCK_F32, .ndim = 2, .shape = {4, 4}, .len = {2, 4}, .data = memory

static void a_buffer_is_refused_with_what_is_wrong_with_it(void **state)
{
    static char long_name[MCK_NAME_MAX + 2];
    const struct {
        struct mck_buffer b;
        const char *says; /* NULL: it is good */
    } table[] = {
        {{GOOD}, NULL},
        {{GOOD, .ndim = 0}, NULL}, /* a single element */
        {{GOOD, .off = {2, 0}}, NULL},
        {{GOOD, .off = {3, 0}}, "passes the tensor's shape in dim 0"},
        {{GOOD, .off = {UINT64_MAX, 0}}, "passes the tensor's shape in dim 0"},
        {{GOOD, .len = {2, 5}}, "passes the tensor's shape in dim 1"},
        {{GOOD, .shape = {UINT64_MAX, UINT64_MAX}}, "shape is too large"},
        {{GOOD, .sub_begin = 3, .sub_end = 8}, NULL},
        {{GOOD, .sub_begin = 3, .sub_end = 9}, "range passes its box"},
        {{GOOD, .sub_begin = 3, .sub_end = 2}, "range passes its box"},
        {{GOOD, .name = ""}, "has no name"},
        {{GOOD, .name = NULL}, "has no name"},
        {{GOOD, .name = "a\nb"}, "has no name"},
        {{GOOD, .name = long_name}, "has no name"},
        {{GOOD, .role = (enum mck_role) - 1}, "unknown type or role"},
        {{GOOD, .role = (enum mck_role)MCK_ROLES}, "unknown type or role"},
        {{GOOD, .dtype = (enum mck_dtype)99}, "unknown type or role"},
        {{GOOD, .ndim = MCK_DIMS_MAX + 1}, "dims"},
        {{GOOD, .ndim = -1}, "dims"},
        {{GOOD, .bucket = -1}, "bucket"},
        {{GOOD, .pad = MCK_PAD_MAX + 1}, "padding"},
        {{GOOD, .data = NULL}, "has no memory"},
        {{GOOD, .data = NULL, .len = {0, 4}}, NULL}, /* and needs none */
    };

    (void)state;
    memset(long_name, 'x', sizeof(long_name) - 1);
    for (size_t i = 0; i < COUNT(table); i++) {
        struct merr err = {""};
        int r = buffer_check(&table[i].b, &err);

        if (r != (table[i].says ? -EINVAL : 0) || (table[i].says && !strstr(err.text, table[i].says)))
            fail_msg("row %zu: %d, %s", i, r, err.text);
    }
}

static void its_bytes_are_those_of_its_range(void **state)
{
    (void)state;
    assert_int_equal(mck_buffer_bytes(&(struct mck_buffer){GOOD}), 32);
    assert_int_equal(mck_buffer_bytes(&(struct mck_buffer){GOOD, .sub_begin = 3, .sub_end = 8}), 20);
    assert_int_equal(mck_buffer_bytes(&(struct mck_buffer){GOOD, .dtype = MCK_U8, .ndim = 0}), 1);
    assert_int_equal(mck_buffer_bytes(&(struct mck_buffer){GOOD, .len = {0, 4}}), 0);
}

static void a_codec_that_can_be_asked_for_has_the_name_that_is_printed(void **state)
{
    static const struct {
        const char *name;
        int codec;
    } table[] = {{"none", CHUNK_RAW}, {"zstd", CHUNK_ZSTD}, {"lz4", CHUNK_LZ4}, {"plane", CHUNK_PLANE},
                 {"", -EINVAL},       {"ZSTD", -EINVAL},    {"auto", -EINVAL},  {"optq-m", -EINVAL}};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_int_equal(coding_parse(table[i].name), table[i].codec);
        if (table[i].codec >= 0)
            assert_string_equal(coding_name(table[i].codec), table[i].name);
    }
    assert_string_equal(coding_name(CHUNK_MOMENT1), "optq-m");
    assert_string_equal(coding_name(CHUNK_CODECS), "?");
    assert_string_equal(coding_name(-1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_is_refused_with_what_is_wrong_with_it),
        cmocka_unit_test(its_bytes_are_those_of_its_range),
        cmocka_unit_test(a_codec_that_can_be_asked_for_has_the_name_that_is_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
