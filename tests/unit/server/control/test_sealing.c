/* test_sealing - what is sealed opens with its key and its owner, and with nothing else */
#include "tests/unit/folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "server/control/sealing.h"

static const struct sealing_key key = {"0123456789abcdef0123456789abcdef"},
                                other = {"0123456789abcdef0123456789abcdeF"};

static void what_was_sealed_opens_and_two_sealings_differ(void **state)
{
    static const char *const texts[] = {"", "x", "a longer text, with \xc3\xa4 and \x01"};

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        char *one = sealing_close(chance_real(), &key, "ann/hf", texts[i]),
             *two = sealing_close(chance_real(), &key, "ann/hf", texts[i]);
        char *text = sealing_open(&key, "ann/hf", one);

        assert_string_equal(text, texts[i]);
        assert_string_not_equal(one, two);
        assert_null(sealing_open(&other, "ann/hf", one));
        assert_null(sealing_open(&key, "bob/hf", one)); /* put into another's place */
        assert_null(sealing_open(&key, "ann/h", one));
        free(one);
        free(two);
        free(text);
    }
}

static void a_sealed_text_that_was_changed_or_cut_does_not_open(void **state)
{
    char *sealed = sealing_close(chance_real(), &key, "ann/hf", "value");
    size_t len = strlen(sealed);

    (void)state;
    for (size_t i = 0; i < len; i++) {
        char was = sealed[i];

        sealed[i] = was == '0' ? '1' : '0';
        assert_null(sealing_open(&key, "ann/hf", sealed));
        sealed[i] = was;
    }
    for (size_t i = len; i-- > 0;) {
        sealed[i] = '\0';
        assert_null(sealing_open(&key, "ann/hf", sealed));
    }
    free(sealed);
    assert_null(sealing_open(&key, "ann/hf", "no hexadecimal digits, but as long as these would have to be......"));
}

static void the_key_is_made_once_kept_from_others_and_refused_when_it_is_none(void **state)
{
    struct sealing_key one, two;
    struct merr err;
    struct stat st;

    (void)state;
    assert_int_equal(sealing_read_key(at("key"), &one, &err), 0);
    assert_int_equal(sealing_read_key(at("key"), &two, &err), 0);
    assert_memory_equal(&one, &two, sizeof(one));
    assert_int_equal(stat(at("key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(io_write_file(at("key"), "0123\n", 5, 0600, NULL), 0);
    assert_int_equal(sealing_read_key(at("key"), &two, &err), -EINVAL);
    assert_int_equal(io_write_file(at("key"), "0123\n", 5, 0644, NULL), 0);
    assert_int_equal(sealing_read_key(at("key"), &two, &err), -EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sealed_opens_and_two_sealings_differ),
        cmocka_unit_test(a_sealed_text_that_was_changed_or_cut_does_not_open),
        cmocka_unit_test(the_key_is_made_once_kept_from_others_and_refused_when_it_is_none),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
