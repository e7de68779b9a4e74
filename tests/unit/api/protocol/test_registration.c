/* How an agent makes itself known: any registration comes back as it was sent, and what cannot be one is refused. */
#include "tests/unit/test.h"

#include <errno.h>

#include "api/protocol/protocol.h"
#include "api/protocol/registration.h"

static void what_is_written_is_read_back(void **state)
{
    struct registration_answer a = {.heartbeat_s = 1, .lost_after_s = 120, .version = 1, .protocol = PROTOCOL_VERSION};
    struct registration_answer b;
    struct merr err;

    (void)state;
    for (int64_t version = 1; version < INT64_MAX / 1000; version *= 1000) {
        json_auto_t *one = NULL;

        a.version = version;
        one = registration_answer_write(&a);
        if (registration_answer_read(one, &b, &err) < 0)
            fail_msg("%s", err.text);
        assert_true(b.heartbeat_s == 1 && b.lost_after_s == 120 && b.version == version);
    }
}

static json_t *plain(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:[], s:[]}", "node", "n1", "boot_id", "b", "incarnation", "i", "address",
                     "10.0.0.1", "slots", "runs");
}

static void a_registration_is_refused_whole_with_what_is_wrong(void **state)
{
    static const struct {
        const char *field, *value; /* as JSON; NULL: left out */
        int r;
    } table[] = {
        {"rack", "\"r1\"", 0},    {"shared_account", "true", 0},  {"node", NULL, -EINVAL},
        {"node", "7", -EINVAL},   {"node", "\"\"", -EINVAL},      {"slots", NULL, -EINVAL},
        {"slots", "{}", -EINVAL}, {"incarnation", NULL, -EINVAL}, {"protocol", "1000000", -EPROTO},
        {"runs", "7", -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *doc = plain();
        struct registration reg = {.seq = -77};
        struct merr err = {""};
        int r;

        if (table[i].value)
            (void)json_object_set_new(doc, table[i].field, json_loads(table[i].value, JSON_DECODE_ANY, NULL));
        else
            (void)json_object_del(doc, table[i].field);
        r = registration_read(doc, &reg, &err);
        if (r != table[i].r || (r < 0 && reg.seq != -77))
            fail_msg("row %zu: %d, %s", i, r, err.text);
        if (r == 0) {
            json_auto_t *again = registration_write(&reg);
            struct registration back;

            if (!again || registration_read(again, &back, &err) < 0)
                fail_msg("row %zu, written: %s", i, err.text);
            assert_string_equal(back.node, "n1");
            assert_string_equal(back.rack, reg.rack);
            assert_int_equal(back.shared_account, reg.shared_account);
            registration_clear(&back);
            registration_clear(&reg);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(a_registration_is_refused_whole_with_what_is_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
