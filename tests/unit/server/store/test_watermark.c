/* The watermark: what is noted last is read back, whatever lies there otherwise is refused by name. */
#include "server/store/watermark.h"
#include "tests/unit/folder.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static char path[PATH_MAX];

static struct store_mark read_it(void)
{
    struct store_mark mark = {.epoch = 77};
    struct watermark *w;
    struct merr err = {""};

    assert_int_equal(watermark_open(path, &w, &mark, &err), 0);
    watermark_close(w);
    return mark;
}

static void what_was_noted_last_is_read_back(void **state)
{
    struct store_mark mark, none = {0};
    struct watermark *w;

    (void)state;
    assert_int_equal(watermark_open(path, &w, &mark, NULL), 0);
    assert_memory_equal(&mark, &none, sizeof(mark));
    assert_int_equal(watermark_start(w, NULL), 0);
    for (uint64_t i = 1; i <= 1000; i++)
        watermark_note(w, &(struct store_mark){.epoch = 3, .batch = i, .next_job = UINT64_MAX, .next_event = 2 * i});
    watermark_close(w);
    mark = read_it();
    assert_int_equal(mark.epoch, 3);
    assert_int_equal(mark.batch, 1000);
    assert_true(mark.next_job == UINT64_MAX);
    assert_int_equal(mark.next_event, 2000);
}

static void nothing_is_written_before_the_start(void **state)
{
    struct store_mark mark;
    struct watermark *w;

    (void)state;
    assert_int_equal(watermark_open(path, &w, &mark, NULL), 0);
    watermark_note(w, &(struct store_mark){.epoch = 9});
    watermark_close(w);
    assert_int_equal(read_it().epoch, 0);
    watermark_note(NULL, &mark);
    watermark_close(NULL);
}

static void what_is_no_watermark_is_refused_by_name(void **state)
{
    static const char *const text[] = {"x",
                                       "muster-watermark 2 1 1 1 1\n",
                                       "muster-watermark 1 1 1 1\n",
                                       "muster-watermark 1 1 1 1 1",
                                       "muster-watermark 1 1 1 1 1x\n",
                                       "\n"};
    struct store_mark mark;
    struct watermark *w;
    struct merr err = {""};

    (void)state;
    for (size_t i = 0; i < COUNT(text); i++) {
        assert_int_equal(io_write_file(path, text[i], strlen(text[i]), 0600, NULL), 0);
        assert_int_equal(watermark_open(path, &w, &mark, &err), -EINVAL);
        assert_non_null(strstr(err.text, path));
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* does not hang */
    assert_int_equal(watermark_open(path, &w, &mark, &err), -EINVAL);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(watermark_open(path, &w, &mark, &err), -ELOOP);
}

static int begin(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof(path), "%s", at("watermark"));
    (void)unlink(path);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_was_noted_last_is_read_back, begin),
        cmocka_unit_test_setup(nothing_is_written_before_the_start, begin),
        cmocka_unit_test_setup(what_is_no_watermark_is_refused_by_name, begin),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
