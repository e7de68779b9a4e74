/* Lines of a command's metrics.jsonl: what docs/programs.md permits passes as it is, the rest is blanked out. */
#include "tests/unit/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "worker/agent/screen.h"

#define NOW_US INT64_C(1700000000000000)

static void what_is_no_metrics_is_blanked_out_where_it_stands(void **state)
{
    static const struct {
        const char *line;
        bool passes;
    } row[] = {
        {"{\"v\":1,\"step\":7,\"t\":1700000000.5,\"loss\":2.5}", true},
        {"{\"v\":1,\"step\":0,\"loss\":null}", true},
        {"{\"v\":1,\"step\":3,\"eval/loss.a-b:c_d\":1}", true},
        {"{\"step\":6,\"any name\":1}", true}, /* without a version: as before */
        {"{\"loss\":1}", true},
        {"{\"v\":1,\"loss\":1}", false},
        {"{\"v\":1,\"step\":-1}", false},
        {"{\"v\":1,\"step\":1.5}", false},
        {"{\"v\":1,\"step\":1,\"a name\":1}", false},
        {"{\"v\":1,\"step\":1,\"\":1}", false},
        {"{\"v\":1,\"step\":1,\"loss\":NaN}", false},
        {"[1]", false},
        {"7", false},
        {"{\"v\":1,\"step\":1", false},
        {"\xEF\xBF\xBD", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct screen s = {.damaged = 0};
        char text[128], want[128];
        int n = snprintf(text, sizeof(text), "%s\n", row[i].line);

        if (row[i].passes)
            memcpy(want, text, sizeof(want));
        else
            (void)snprintf(want, sizeof(want), "%*s\n", n - 1, "");
        screen_lines(&s, text, (size_t)n, NOW_US);
        if (strcmp(text, want) != 0)
            fail_msg("row %zu: '%s'", i, text);
        assert_int_equal(s.damaged, !row[i].passes);
    }
}

static void a_line_too_long_with_its_parts_and_too_many_names_are_left_out(void **state)
{
    struct screen s = {.damaged = 0};
    struct buf b;

    (void)state;
    buf_init(&b, 65536);
    (void)buf_printf(&b, "{\"v\":1,\"step\":1,\"a\":\"%0*d\"}\n", SCREEN_LINE_MAX, 0);
    screen_lines(&s, b.data, b.len, NOW_US);
    assert_int_equal(s.damaged, 1);
    assert_int_equal(strspn(b.data, " "), b.len - 1);
    memset(b.data, 'x', 1000); /* a part of one, without an end */
    screen_lines(&s, b.data, 1000, NOW_US);
    assert_int_equal(s.damaged, 2);
    for (int names = SCREEN_NAMES_MAX; names <= SCREEN_NAMES_MAX + 1; names++) {
        buf_reset(&b);
        (void)buf_addstr(&b, "{\"v\":1,\"t\":1,\"step\":1");
        for (int i = 0; i < names; i++)
            (void)buf_printf(&b, ",\"n%d\":1", i);
        (void)buf_addstr(&b, "}\n");
        screen_lines(&s, b.data, b.len, NOW_US);
        assert_int_equal(b.data[0], names == SCREEN_NAMES_MAX ? '{' : ' ');
    }
    buf_clear(&b);
}

/* Lines with these times; how many passed. */
static int passed(struct screen *s, int lines, double t, double step_s)
{
    int n = 0;

    for (int i = 0; i < lines; i++) {
        char text[128];
        int len = snprintf(text, sizeof(text), "{\"v\":1,\"step\":%d,\"t\":%.6f}\n", i, t + i * step_s);

        screen_lines(s, text, (size_t)len, NOW_US);
        n += text[0] == '{';
    }
    return n;
}

static void more_than_a_burst_is_thinned_and_what_waited_for_the_server_is_not(void **state)
{
    struct screen s = {.damaged = 0};

    (void)state;
    assert_int_equal(passed(&s, 3000, NOW_US / 1e6 - 1, 0), SCREEN_BURST);
    assert_int_equal(s.thinned, 1000);
    /* an hour of ten lines a second comes at once, since the server was away */
    s = (struct screen){.damaged = 0};
    assert_int_equal(passed(&s, 36000, NOW_US / 1e6 - 3600, 0.1), 36000);
    assert_int_equal(s.thinned, 0);
    /* times that cannot be earn nothing: to come, none, of another age */
    s = (struct screen){.damaged = 0};
    assert_int_equal(passed(&s, 3000, NOW_US / 1e6 + 10, 1), SCREEN_BURST);
    s = (struct screen){.damaged = 0};
    assert_int_equal(passed(&s, 3000, -5, 0), SCREEN_BURST);
    s = (struct screen){.damaged = 0};
    assert_true(passed(&s, 3000, 1, 1) <= SCREEN_BURST + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_metrics_is_blanked_out_where_it_stands),
        cmocka_unit_test(a_line_too_long_with_its_parts_and_too_many_names_are_left_out),
        cmocka_unit_test(more_than_a_burst_is_thinned_and_what_waited_for_the_server_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
