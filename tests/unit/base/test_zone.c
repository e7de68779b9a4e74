/* test_zone - offsets and the hours that clocks leave out or show twice; files that are none */
#include "base/zone.h"

#include "tests/unit/test.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A zone as a file has it: +1:00, from 1000000 on +2:00, from 2000000 on +1:00 again. */
static size_t zone_bytes(uint8_t ret[512])
{
    static const int64_t at[] = {1000000, 2000000};
    static const uint8_t types[] = {1, 0};
    static const int offset[] = {3600, 7200};
    uint32_t counts[6] = {0, 0, 0, htobe32(2), htobe32(2), htobe32(4)};
    size_t n = 0;

    memset(ret, 0, 512);
    memcpy(ret, "TZif2", 5);
    ret[20 + 19] = 1; /* one type in the part of the first version */
    n = 44 + 6;
    memcpy(ret + n, "TZif2", 5);
    memcpy(ret + n + 20, counts, sizeof(counts));
    n += 44;
    for (size_t i = 0; i < 2; i++, n += 8)
        memcpy(ret + n, &(uint64_t){htobe64((uint64_t)at[i])}, 8);
    memcpy(ret + n, types, 2);
    n += 2;
    for (size_t i = 0; i < 2; i++, n += 6)
        memcpy(ret + n, &(uint32_t){htobe32((uint32_t)offset[i])}, 4);
    return n + 4;
}

static struct zone *made(void)
{
    uint8_t bytes[512];
    struct zone *z = NULL;

    assert_int_equal(zone_parse(bytes, zone_bytes(bytes), &z), 0);
    return z;
}

static void offsets_change_at_their_second(void **state)
{
    struct zone *z = made();

    (void)state;
    assert_int_equal(zone_offset_s(z, -5), 3600);
    assert_int_equal(zone_offset_s(z, 999999), 3600);
    assert_int_equal(zone_offset_s(z, 1000000), 7200);
    assert_int_equal(zone_offset_s(z, 1999999), 7200);
    assert_int_equal(zone_offset_s(z, INT64_C(1) << 40), 3600);
    zone_free(z);
}

static void an_hour_that_is_left_out_is_when_that_happens_and_one_shown_twice_has_both(void **state)
{
    struct zone *z = made();
    int64_t utc[2];

    (void)state;
    assert_int_equal(zone_utc_s(z, 500000, utc), 1);
    assert_int_equal(utc[0], 500000 - 3600);
    assert_int_equal(zone_utc_s(z, 1000000 + 3600, utc), 0); /* the first second that is left out */
    assert_int_equal(utc[0], 1000000);
    assert_int_equal(zone_utc_s(z, 1000000 + 7199, utc), 0);
    assert_int_equal(utc[0], 1000000);
    assert_int_equal(zone_utc_s(z, 1000000 + 7200, utc), 1);
    assert_int_equal(utc[0], 1000000);
    assert_int_equal(zone_utc_s(z, 2000000 + 3599, utc), 1);
    assert_int_equal(zone_utc_s(z, 2000000 + 3600, utc), 2);
    assert_int_equal(utc[0], 2000000 - 3600);
    assert_int_equal(utc[1], 2000000);
    assert_int_equal(zone_utc_s(z, 2000000 + 7199, utc), 2);
    assert_int_equal(zone_utc_s(z, 2000000 + 7200, utc), 1);
    assert_int_equal(utc[0], 2000000 + 3600);
    zone_free(z);
}

static void each_local_time_comes_back_from_its_times_of_utc(void **state)
{
    struct zone *z = made();

    (void)state;
    for (int64_t utc = 900000; utc < 2100000; utc += 97) {
        int64_t back[2];
        int n = zone_utc_s(z, utc + zone_offset_s(z, utc), back);

        assert_true(n > 0 && (back[0] == utc || (n == 2 && back[1] == utc)));
    }
    zone_free(z);
}

static void bytes_that_are_no_zone_are_refused_wherever_they_end_or_change(void **state)
{
    uint8_t bytes[512];
    size_t len = zone_bytes(bytes);

    (void)state;
    for (size_t n = 0; n < len; n++) {
        uint8_t *cut = malloc(n + 1); /* so that a sanitizer sees what is read beyond */
        struct zone *z = NULL;

        memcpy(cut, bytes, n);
        assert_int_equal(zone_parse(cut, n, &z), -EBADMSG);
        free(cut);
    }
    for (size_t i = 0; i < len * 8; i++) {
        struct zone *z = NULL;

        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        if (zone_parse(bytes, len, &z) == 0)
            (void)zone_offset_s(z, 1500000);
        zone_free(z);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

static void names_lead_nowhere_else(void **state)
{
    static const char *const good[] = {"UTC", "Europe/Berlin", "America/Port-au-Prince", "Etc/GMT+5",
                                       "America/Argentina/Buenos_Aires"};
    static const char *const bad[] = {"",        "/etc/passwd", "..",  "../x", "Europe/../x", "Europe//Berlin",
                                      "Europe/", ".x",          "a b", "a\nb", "Europe/.x"};
    char folder[] = "/tmp/zone-XXXXXX", path[64];
    struct zone *z = NULL;
    struct merr err;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++)
        assert_true(zone_name_ok(good[i]));
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(zone_name_ok(bad[i]));
        assert_int_equal(zone_open("/tmp", bad[i], &z, &err), -EINVAL);
    }
    assert_non_null(mkdtemp(folder));
    assert_int_equal(zone_open(folder, "Nowhere", &z, &err), -ENOENT);
    assert_non_null(strstr(err.text, "'Nowhere'"));
    (void)snprintf(path, sizeof(path), "%s/Europe", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(zone_open(folder, "Europe", &z, &err), -ENOENT);
    assert_int_equal(rmdir(path), 0);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(zone_open(folder, "Europe", &z, &err), -EBADMSG);
    unlink(path);
    rmdir(folder);
    assert_int_equal(zone_open(folder, "UTC", &z, &err), 0);
    assert_int_equal(zone_offset_s(z, 1700000000), 0);
    zone_free(z);
}

/* Summer time of 2026 begins on 29 March at 01:00 UTC and ends on 25 October at 01:00 UTC. */
static void the_zones_of_the_system_are_read(void **state)
{
    struct zone *z = NULL;
    struct merr err;

    (void)state;
    if (access(ZONE_FOLDER "/Europe/Berlin", R_OK) != 0)
        skip();
    assert_int_equal(zone_open(ZONE_FOLDER, "Europe/Berlin", &z, &err), 0);
    assert_int_equal(zone_offset_s(z, 1774745999), 3600);
    assert_int_equal(zone_offset_s(z, 1774746000), 7200);
    assert_int_equal(zone_offset_s(z, 1792889999), 7200);
    assert_int_equal(zone_offset_s(z, 1792890000), 3600);
    zone_free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_change_at_their_second),
        cmocka_unit_test(an_hour_that_is_left_out_is_when_that_happens_and_one_shown_twice_has_both),
        cmocka_unit_test(each_local_time_comes_back_from_its_times_of_utc),
        cmocka_unit_test(bytes_that_are_no_zone_are_refused_wherever_they_end_or_change),
        cmocka_unit_test(names_lead_nowhere_else),
        cmocka_unit_test(the_zones_of_the_system_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
