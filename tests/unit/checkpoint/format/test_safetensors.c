#include "tests/unit/checkpoint/layouts.h"

#include <fcntl.h>

#include "checkpoint/format/safetensors.h"

static void headers_that_lie_are_refused(void **state)
{
    static const struct {
        const char *json;
        uint64_t data;
        int want;
    } row[] = {
        {"{}", 0, 0},
        {"{}", 1, -EBADMSG},
        {"", 0, -EBADMSG},
        {"[]", 0, -EBADMSG},
        {"{\"a\":1}", 0, -EBADMSG},
        {"{\"__metadata__\":{\"format\":\"pt\"},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}  ",
         24, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,9],\"data_offsets\":[0,0]}}", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,23]}}", 23, -EBADMSG},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, -EBADMSG},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, -EBADMSG},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, -EBADMSG},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,8],\"data_offsets\":[0,0]}}", 0, -EBADMSG},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, -ENOTSUP},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
         "\"data_offsets\":[1,2]}}",
         2, -EBADMSG},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
         "\"data_offsets\":[1,3]}}",
         3, -EBADMSG},
        {"{\"a\\u0001\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, -EBADMSG},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct safetensors s = {0};
        struct merr err = {.text = ""};

        if (safetensors_parse(row[i].json, strlen(row[i].json), row[i].data, &s, &err) != row[i].want)
            fail_msg("row %zu: %s", i, err.text);
        assert_int_equal(row[i].want != 0, err.text[0] != 0);
        safetensors_clear(&s);
    }
}

static void what_is_exported_can_be_imported(void **state)
{
    struct merr err = {.text = ""};
    char *dir = temp_dir(), out[100], path[128];
    struct layout *l;
    struct state s;
    struct mck *c;

    (void)state;
    seed_from_env();
    random_state(&s, 5000);
    for (int i = 0; i < s.tensors; i++) { /* masters of several types, all of which such files have */
        s.tensor[i].role = MCK_MASTER;
        if (s.tensor[i].dtype == MCK_BF16 || s.tensor[i].dtype == MCK_F16 || s.tensor[i].dtype == MCK_C128)
            s.tensor[i].dtype = MCK_F32;
        (void)snprintf(s.tensor[i].name, sizeof(s.tensor[i].name), "%sh.%d.w", i % 2 ? "transformer." : "", i);
    }
    l = random_layout(&s, 3);
    fill_layout(&s, l, 1);
    if (save_layout(l, dir, 1, 3, "plane", &err) || mck_open(dir, 3, &c, &err))
        fail_msg("%s", err.text);
    (void)snprintf(out, sizeof(out), "%s/out", dir);
    assert_int_equal(mck_export_safetensors(c, out, "f8", 0, &err), -EINVAL);
    if (mck_export_safetensors(c, out, "f32", 0, &err))
        fail_msg("%s", err.text);
    mck_free(c);
    (void)snprintf(path, sizeof(path), "%s/config.json", out);
    assert_int_equal(access(path, R_OK), 0);
    if (mck_open_safetensors(out, &c, &err))
        fail_msg("%s", err.text);
    assert_string_equal(json_string_value(json_object_get(json_object_get(mck_kv(c), "model"), "family")), "gpt2");
    wipe_layout(l);
    for (int r = 0; r < l->ranks; r++)
        for (size_t i = 0; i < l->n[r]; i++)
            if (!strncmp(l->buf[r][i].name, "transformer.", 12))
                l->buf[r][i].name += 12; /* the prefix is dropped */
    for (int r = 0; r < l->ranks; r++)
        if (mck_load(c, l->buf[r], l->n[r], &err))
            fail_msg("%s", err.text);
    check_layout(&s, l, 1);
    mck_free(c);
    free_layout(l);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", out);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(mck_open_safetensors(path, &c, &err), -EBADMSG);
    assert_int_equal(io_remove_tree(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(what_is_exported_can_be_imported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
