/* test_cron - times that come again: what is read, what is refused, and when they come */
#include "base/cron.h"

#include "tests/unit/test.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct zone *utc(void)
{
    struct zone *z = NULL;
    struct merr err;

    assert_int_equal(zone_open(ZONE_FOLDER, "UTC", &z, &err), 0);
    return z;
}

static int64_t at(const char *text)
{
    struct tm t = {0};

    assert_non_null(strptime(text, "%Y-%m-%d %H:%M", &t));
    return timegm(&t);
}

static void expect(const char *cron, const struct zone *z, const char *after, const char *next)
{
    struct merr err;
    struct cron c;
    int64_t got;

    if (cron_parse(cron, &c, &err) < 0)
        fail_msg("%s", err.text);
    got = cron_next_s(&c, z, at(after));
    if (got != (next ? at(next) : -1)) {
        char text[32] = "never";
        time_t t = got;

        if (got >= 0)
            (void)strftime(text, sizeof(text), "%F %R", gmtime(&t));
        fail_msg("'%s' after %s comes at %s, not %s", cron, after, text, next ? next : "never");
    }
}

static void they_come_when_crontab_says(void **state)
{
    static const struct {
        const char *cron, *after, *next;
    } t[] = {
        {"* * * * *", "2026-11-23 10:00", "2026-11-23 10:01"},
        {"30 2 * * *", "2026-11-23 02:29", "2026-11-23 02:30"},
        {"30 2 * * *", "2026-11-23 02:30", "2026-11-24 02:30"},
        {"*/15 * * * *", "2026-11-23 10:46", "2026-11-23 11:00"},
        {"5/20 * * * *", "2026-11-23 10:26", "2026-11-23 10:45"},
        {"0 9-17/4 * * *", "2026-11-23 13:00", "2026-11-23 17:00"},
        {"0 0 1 * *", "2026-12-31 23:59", "2027-01-01 00:00"},
        {"0 0 31 * *", "2026-11-23 00:00", "2026-12-31 00:00"},
        {"0 0 29 2 *", "2026-11-23 00:00", "2028-02-29 00:00"},
        {"0 0 29 feb *", "2096-03-01 00:00", "2104-02-29 00:00"}, /* 2100 is no leap year */
        {"0 0 30 2 *", "2026-11-23 00:00", NULL},
        {"0 12 * * mon-fri", "2026-11-27 12:00", "2026-11-30 12:00"},
        {"0 12 * * 7", "2026-11-23 00:00", "2026-11-29 12:00"},
        {"0 12 * * 5-7", "2026-11-28 13:00", "2026-11-29 12:00"},
        {"0 0 13 * fri", "2026-11-23 00:00", "2026-11-27 00:00"},  /* either day will do */
        {"0 0 */2 * fri", "2026-11-23 00:00", "2026-11-27 00:00"}, /* but not where one begins with * */
        {"0 0 1,15 JAN,jul *", "2026-11-23 00:00", "2027-01-01 00:00"},
        {"@hourly", "2026-11-23 10:00", "2026-11-23 11:00"},
        {"@Daily", "2026-11-23 10:00", "2026-11-24 00:00"},
        {"@weekly", "2026-11-23 10:00", "2026-11-29 00:00"},
        {"@monthly", "2026-11-23 10:00", "2026-12-01 00:00"},
        {"@yearly", "2026-11-23 10:00", "2027-01-01 00:00"},
        {" 0\t0 * * * ", "2026-11-23 10:00", "2026-11-24 00:00"},
    };
    struct zone *z = utc();

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++)
        expect(t[i].cron, z, t[i].after, t[i].next);
    zone_free(z);
}

static void what_is_no_time_is_refused_with_its_field(void **state)
{
    static const struct {
        const char *cron, *says;
    } t[] = {
        {"", "five"},
        {"* * * *", "4 fields"},
        {"* * * * * *", "more than five"},
        {"60 * * * *", "minute"},
        {"* 24 * * *", "hour"},
        {"* * 0 * *", "day of the month"},
        {"* * * 13 *", "month"},
        {"* * * * 8", "day of the week"},
        {"* * * * monday", "day of the week"},
        {"* * * mon *", "month"},
        {"5-1 * * * *", "minute"},
        {"1- * * * *", "minute"},
        {"1,,2 * * * *", "minute"},
        {"1, * * * *", "minute"},
        {"*/0 * * * *", "minute"},
        {"*/ * * * *", "minute"},
        {"*/99999999999 * * * *", "minute"},
        {"-1 * * * *", "minute"},
        {"1 2 3 4 x", "day of the week"},
        {"99999999999999999999 * * * *", "minute"},
        {"@reboot", "@hourly"},
        {"1x * * * *", "minute"},
        {"** * * * *", "minute"},
    };
    char longest[CRON_TEXT_MAX + 8];
    struct cron c;
    struct merr err;

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        assert_int_equal(cron_parse(t[i].cron, &c, &err), -EINVAL);
        if (!strstr(err.text, t[i].says))
            fail_msg("'%s': %s", t[i].cron, err.text);
    }
    memset(longest, ' ', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(cron_parse(longest, &c, &err), -EINVAL);
}

/* Summer time of 2026 begins on 29 March at 02:00, which is 03:00 then, and ends on 25 October at 03:00. */
static void where_clocks_are_set_a_daily_time_comes_once_and_an_hourly_one_each_hour(void **state)
{
    static const struct {
        const char *cron, *after, *next; /* of UTC */
    } t[] = {
        {"30 2 * * *", "2026-03-28 12:00", "2026-03-29 01:00"}, /* left out: as soon as that happens */
        {"30 2 * * *", "2026-03-29 01:00", "2026-03-30 00:30"},
        {"30 2 * * *", "2026-10-24 12:00", "2026-10-25 00:30"}, /* shown twice: the first time */
        {"30 2 * * *", "2026-10-25 00:30", "2026-10-26 01:30"},
        {"30 * * * *", "2026-03-29 00:30", "2026-03-29 01:30"},
        {"30 * * * *", "2026-10-25 00:30", "2026-10-25 01:30"},
        {"30 * * * *", "2026-10-25 01:30", "2026-10-25 02:30"},
        {"*/20 * * * *", "2026-10-25 00:40", "2026-10-25 01:00"},
        {"0 3 * * *", "2026-10-24 12:00", "2026-10-25 02:00"},
    };
    struct zone *z = NULL;
    struct merr err;

    (void)state;
    if (access(ZONE_FOLDER "/Europe/Berlin", R_OK) != 0)
        skip();
    assert_int_equal(zone_open(ZONE_FOLDER, "Europe/Berlin", &z, &err), 0);
    for (size_t i = 0; i < COUNT(t); i++)
        expect(t[i].cron, z, t[i].after, t[i].next);
    zone_free(z);
}

static bool is_in(const struct cron *c, int64_t s)
{
    time_t at_s = s;
    struct tm t;
    bool day, weekday;

    (void)gmtime_r(&at_s, &t);
    day = c->days >> t.tm_mday & 1;
    weekday = c->weekdays >> t.tm_wday & 1;
    return (c->minutes >> t.tm_min & 1) && (c->hours >> t.tm_hour & 1) && (c->months >> (t.tm_mon + 1) & 1) &&
           (c->any_day || c->any_weekday ? day && weekday : day || weekday);
}

static void no_minute_is_left_out_and_none_comes_that_is_not_meant(void **state)
{
    unsigned seed = (unsigned)time(NULL);
    struct zone *z = utc();

    (void)state;
    print_message("seed %u\n", seed);
    for (int i = 0; i < 300; i++) {
        struct cron c = {.minutes = (1 + (uint64_t)rand_r(&seed)) & ((UINT64_C(1) << 60) - 1),
                         .hours = (1U << rand_r(&seed) % 24) | (1U << rand_r(&seed) % 24),
                         .days = (uint32_t)rand_r(&seed) & 0xfffffffe,
                         .months = 0x1ffe,
                         .weekdays = (1U << rand_r(&seed) % 7) | (uint32_t)(rand_r(&seed) & 0x7f),
                         .any_day = rand_r(&seed) % 2 == 0,
                         .any_weekday = rand_r(&seed) % 2 == 0};
        int64_t after = at("2026-01-01 00:00") + (int64_t)(rand_r(&seed) % (3 * 365 * 86400)),
                s = after - after % 60 + 60, end = s + 90 * 86400;

        while (s < end && !is_in(&c, s))
            s += 60;
        if (s < end)
            assert_int_equal(cron_next_s(&c, z, after), s);
    }
    zone_free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_come_when_crontab_says),
        cmocka_unit_test(what_is_no_time_is_refused_with_its_field),
        cmocka_unit_test(where_clocks_are_set_a_daily_time_comes_once_and_an_hourly_one_each_hour),
        cmocka_unit_test(no_minute_is_left_out_and_none_comes_that_is_not_meant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
