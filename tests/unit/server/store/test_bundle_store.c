/* The store of uploads: pieces, quotas, and what goes once no job needs it. */
#include "server/store/bundle_store.h"
#include "tests/unit/folder.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "api/bundle.h"
#include "base/clock.h"

#define DAY_US INT64_C(86400000000)

static struct bundle_store *open_it(uint64_t user_bytes)
{
    struct bundle_store_cfg cfg = {.jobs = top, .bytes_max = 1000, .user_bytes = user_bytes, .keep_us = 7 * DAY_US};
    struct bundle_store *b;
    struct merr err;

    assert_int_equal(bundle_store_open(&cfg, &b, &err), 0);
    return b;
}

/* One of a single file; returns its name. */
static const char *make(char letter, struct buf *b, char name[BUNDLE_NAME_BYTES])
{
    char data[200];
    struct bundle_entry e = {.kind = BUNDLE_FILE, .path = "a", .data = data, .size = sizeof(data)};

    memset(data, letter, sizeof(data));
    buf_reset(b);
    assert_int_equal(bundle_begin(b), 0);
    assert_int_equal(bundle_add(b, &e, NULL), 0);
    return bundle_name(b->data, b->len, name);
}

static int put(struct bundle_store *s, const char *user, char letter, char name[BUNDLE_NAME_BYTES])
{
    struct bundle_state is;
    struct merr err;
    struct buf b;
    int r;

    buf_init(&b, 4096);
    (void)make(letter, &b, name);
    r = bundle_store_put(s, user, name, b.len, 0, b.data, b.len, &is, &err);
    buf_clear(&b);
    return r;
}

static void an_upload_goes_on_after_a_restart_of_the_server(void **state)
{
    struct bundle_store *s = open_it(10000);
    char name[BUNDLE_NAME_BYTES];
    struct bundle_state is;
    struct merr err;
    struct buf b;

    (void)state;
    buf_init(&b, 4096);
    (void)make('r', &b, name);
    assert_int_equal(bundle_store_put(s, "ann", name, b.len, 0, b.data, 100, &is, &err), 0);
    bundle_store_close(s);
    s = open_it(10000);
    assert_int_equal(bundle_store_look(s, "ann", name, &is), 0);
    assert_int_equal(is.stored, 100);
    assert_false(is.complete);
    assert_int_equal(bundle_store_use(s, "ann", name, 0), -ENOENT);
    assert_int_equal(bundle_store_put(s, "ann", name, b.len, 0, b.data, b.len, &is, &err), -ESTALE);
    assert_int_equal(is.stored, 100);
    assert_int_equal(bundle_store_put(s, "ann", name, b.len, 100, b.data + 100, b.len - 100, &is, &err), 0);
    assert_true(is.complete);
    assert_int_equal(bundle_store_look(s, "bob", name, &is), -ENOENT);
    buf_clear(&b);
    bundle_store_close(s);
}

static void limits_are_held_before_anything_is_written(void **state)
{
    struct bundle_store *s = open_it(500);
    char name[BUNDLE_NAME_BYTES];
    struct bundle_state is;
    struct merr err;
    struct stat st;

    (void)state;
    assert_int_equal(bundle_store_put(s, "cat", "0", 1001, 0, "x", 1, &is, &err), -E2BIG);
    assert_int_equal(put(s, "cat", '1', name), 0);
    assert_int_equal(put(s, "cat", '1', name), 0); /* the same again is none more */
    assert_int_equal(put(s, "cat", '2', name), 0);
    assert_int_equal(put(s, "cat", '3', name), -EDQUOT);
    assert_int_equal(bundle_store_look(s, "cat", name, &is), -ENOENT);
    assert_int_equal(put(s, "dan", '3', name), 0);
    assert_int_equal(stat(at(".bundles"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0711); /* a rank opens what it was given, and lists nothing */
    bundle_store_close(s);
}

static void what_no_job_needs_goes_with_time_and_what_is_needed_stays(void **state)
{
    struct bundle_store *s = open_it(10000);
    char needed[BUNDLE_NAME_BYTES], used[BUNDLE_NAME_BYTES], idle[BUNDLE_NAME_BYTES];
    int64_t now = clock_wall_us() + 30 * DAY_US;
    json_t *list = json_object();
    char key[100];
    struct bundle_state is;

    (void)state;
    assert_int_equal(put(s, "eve", 'n', needed) | put(s, "eve", 'u', used) | put(s, "eve", 'i', idle), 0);
    (void)snprintf(key, sizeof(key), "ueve/%s", needed);
    (void)json_object_set_new(list, key, json_true());
    assert_int_equal(bundle_store_sweep(s, list, clock_wall_us()), 0);
    assert_int_equal(bundle_store_use(s, "eve", used, now - 6 * DAY_US), 0);
    assert_true(bundle_store_sweep(s, list, now) >= 1);
    assert_int_equal(bundle_store_look(s, "eve", needed, &is), 0);
    assert_int_equal(bundle_store_look(s, "eve", used, &is), 0);
    assert_int_equal(bundle_store_look(s, "eve", idle, &is), -ENOENT);
    json_object_clear(list);
    assert_int_equal(bundle_store_sweep(s, list, now + 2 * DAY_US), 2);
    assert_int_equal(bundle_store_look(s, "eve", used, &is), -ENOENT);
    assert_int_equal(rmdir(at(".bundles/ueve")), 0); /* nothing is left behind */
    json_decref(list);
    bundle_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upload_goes_on_after_a_restart_of_the_server),
        cmocka_unit_test(limits_are_held_before_anything_is_written),
        cmocka_unit_test(what_no_job_needs_goes_with_time_and_what_is_needed_stays),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
