/* Fields of a model's config.json: taken, left to their usual value, or refused by name. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "worker/engine/model/model.h"

static void a_size_is_a_number_from_1_to_what_fits(void **state)
{
    static const struct {
        const char *json;
        int fallback, r, value;
    } table[] = {
        {"{\"k\": 1}", 0, 0, 1},
        {"{\"k\": 16777216}", 0, 0, 16777216},
        {"{}", 7, 0, 7},
        {"{\"k\": null}", 7, 0, 7},
        {"{}", 0, -EINVAL, 0}, /* which must be there */
        {"{\"k\": null}", 0, -EINVAL, 0},
        {"{\"k\": 0}", 7, -EINVAL, 0},
        {"{\"k\": -1}", 7, -EINVAL, 0},
        {"{\"k\": 16777217}", 7, -EINVAL, 0},
        {"{\"k\": 1.5}", 7, -EINVAL, 0},
        {"{\"k\": \"1\"}", 7, -EINVAL, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].json, 0, NULL);
        struct merr err = {""};
        int value = 0, r = model_want_int(o, "k", table[i].fallback, &value, &err);

        if (r != table[i].r || value != table[i].value || (r < 0 && !strstr(err.text, "'k'")))
            fail_msg("row %zu: %d, %d, %s", i, r, value, err.text);
    }
}

static void a_number_is_above_0(void **state)
{
    static const struct {
        const char *json;
        double fallback;
        int r;
        double value;
    } table[] = {
        {"{\"k\": 1e-5}", 0, 0, 1e-5},
        {"{\"k\": 2}", 0, 0, 2},
        {"{}", 0.5, 0, 0.5},
        {"{\"k\": null}", 0.5, 0, 0.5},
        {"{}", 0, -EINVAL, 0},
        {"{\"k\": 0}", 0.5, -EINVAL, 0},
        {"{\"k\": -1}", 0.5, -EINVAL, 0},
        {"{\"k\": \"x\"}", 0.5, -EINVAL, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].json, 0, NULL);
        double value = 0;
        struct merr err;

        if (model_want_number(o, "k", table[i].fallback, &value, &err) != table[i].r || value < table[i].value ||
            value > table[i].value)
            fail_msg("row %zu: %g", i, value);
    }
}

static void a_word_is_the_one_that_is_built_or_not_there(void **state)
{
    static const struct {
        const char *json;
        int r;
    } table[] = {{"{\"k\": \"silu\"}", 0}, {"{}", 0},
                 {"{\"k\": null}", 0},     {"{\"k\": \"gelu\"}", -ENOTSUP},
                 {"{\"k\": 1}", -ENOTSUP}, {"{\"k\": \"\"}", -ENOTSUP}};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].json, 0, NULL);
        struct merr err = {""};

        if (model_want_word(o, "k", "silu", &err) != table[i].r || (table[i].r && !strstr(err.text, "only 'silu'")))
            fail_msg("row %zu: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_is_a_number_from_1_to_what_fits),
        cmocka_unit_test(a_number_is_above_0),
        cmocka_unit_test(a_word_is_the_one_that_is_built_or_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
