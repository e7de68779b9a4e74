/* When an agent measures its devices, what it keeps, and what it does not believe. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/profile.h"
#include "base/clock.h"
#include "base/io.h"
#include "worker/agent/profiles.h"

#define SECOND INT64_C(1000000)
#define GOOD "{\"version\": 1, \"products\": [[64, 64, 64, 1]]}"

static char folder[64], program[96];
static struct devices devices;

/* What is started instead of muster-train: it notes that it was, and does this. */
static void engine(const char *script)
{
    char text[1024];
    int n = snprintf(text, sizeof(text), "#!/bin/sh\necho \"$@\" >>%s/started\n%s\n", folder, script);

    assert_int_equal(io_publish_file(program, text, (size_t)n, 0700, NULL), 0);
}

static int started(void)
{
    char path[96], text[4096];
    IO_CLOSE_AUTO int fd = -1;
    int lines = 0;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/started", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, text, sizeof(text));
    for (ssize_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

static struct profiles *begin(int idle_s)
{
    struct profiles *p;
    struct profiles_cfg cfg = {.state = folder, .train = program, .devices = &devices, .idle_s = idle_s};

    assert_int_equal(profiles_new(&cfg, &p, NULL), 0);
    return p;
}

/* Tick at this time until there is more to tell; false: not within ten seconds of the real clock. */
static bool measured(struct profiles *p, int64_t at_us)
{
    int64_t deadline_us = clock_mono_us() + 10 * SECOND, next_us;

    while (clock_mono_us() < deadline_us) {
        if (profiles_tick(p, false, at_us, &next_us))
            return true;
        if (next_us == INT64_MAX)
            return false;
        (void)poll(NULL, 0, 5);
    }
    return false;
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/muster-profiles.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    (void)snprintf(program, sizeof(program), "%s/engine", folder);
    memset(&devices, 0, sizeof(devices));
    devices.threads = 2;
    devices.n = 3;
    for (int i = 0; i < 3; i++)
        devices.v[i] = (struct device){.kind = "cpu", .class = "fast", .gpu = -1, .trains = true};
    (void)snprintf(devices.v[2].class, sizeof(devices.v[2].class), "slow");
    devices.v[2].share = 0.5; /* of which no process here takes as much as a rank would */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return io_remove_tree(folder, NULL);
}

static void devices_are_measured_once_when_nothing_has_run_for_a_while_and_kept(void **state)
{
    struct profiles *p = begin(60);
    int64_t next_us;
    json_t *of;

    (void)state;
    engine("echo some library says hello; echo '" GOOD "'");
    assert_false(profiles_tick(p, true, 1 * SECOND, &next_us));
    assert_false(profiles_tick(p, false, 10 * SECOND, &next_us));
    assert_int_equal(next_us, 70 * SECOND);
    assert_false(profiles_tick(p, false, 69 * SECOND, &next_us));
    assert_int_equal(started(), 0);
    assert_null(profiles_json(p));
    assert_true(measured(p, 70 * SECOND));
    of = profiles_json(p);
    assert_int_equal(json_object_size(of), 1); /* a class that is held to a share is not measured */
    assert_non_null(json_object_get(of, "fast"));
    json_decref(of);
    assert_int_equal(started(), 1);
    profiles_free(p);
    p = begin(60); /* the next agent */
    of = profiles_json(p);
    assert_non_null(json_object_get(of, "fast"));
    json_decref(of);
    assert_false(profiles_tick(p, false, 1000 * SECOND, &next_us));
    assert_int_equal(next_us, INT64_MAX);
    assert_int_equal(started(), 1);
    profiles_free(p);
}

static void what_was_found_is_kept_for_muster_run_unless_its_user_has_measured(void **state)
{
    char file[PROFILE_FILE_MAX];
    struct profiles *p = begin(1);
    int64_t next_us;
    struct buf text;

    (void)state;
    engine("echo '" GOOD "'");
    assert_true(profile_kept_file(file));
    assert_non_null(strstr(file, folder));
    assert_false(profiles_tick(p, false, 1 * SECOND, &next_us));
    assert_true(measured(p, 10 * SECOND));
    profiles_free(p);
    buf_init(&text, 4096);
    assert_int_equal(io_read_file(file, &text, NULL), 0);
    assert_non_null(strstr(buf_text(&text), "products"));
    buf_clear(&text);
    assert_int_equal(io_publish_file(file, "mine", 4, 0600, NULL), 0);
    devices.n = 2; /* measured anew */
    p = begin(1);
    assert_false(profiles_tick(p, false, 1 * SECOND, &next_us));
    assert_true(measured(p, 10 * SECOND));
    profiles_free(p);
    buf_init(&text, 4096);
    assert_int_equal(io_read_file(file, &text, NULL), 0);
    assert_string_equal(buf_text(&text), "mine");
    buf_clear(&text);
}

static void other_devices_are_measured_anew(void **state)
{
    struct profiles *p = begin(1);
    int64_t next_us;
    json_t *of;

    (void)state;
    engine("echo '" GOOD "'");
    (void)profiles_tick(p, false, SECOND, &next_us); /* quiet since now */
    assert_true(measured(p, 3 * SECOND));
    profiles_free(p);
    devices.n = 1;
    p = begin(1);
    of = profiles_json(p);
    assert_null(of);
    profiles_free(p);
}

static void a_run_ends_the_measurement_which_is_made_again_later(void **state)
{
    struct profiles *p = begin(1);
    int64_t deadline_us = clock_mono_us() + 10 * SECOND, next_us;
    char meeting[96];

    (void)state;
    engine("mkdir \"$3\" && touch \"$3/card\"; [ -e \"$0.again\" ] || exec sleep 1000; echo '" GOOD "'");
    assert_false(profiles_tick(p, false, 1 * SECOND, &next_us));
    assert_false(profiles_tick(p, false, 2 * SECOND, &next_us)); /* begins */
    while (started() == 0 && clock_mono_us() < deadline_us)
        (void)poll(NULL, 0, 5);
    assert_int_equal(started(), 1);
    for (next_us = 0; next_us != INT64_MAX && clock_mono_us() < deadline_us; (void)poll(NULL, 0, 5))
        assert_false(profiles_tick(p, true, 3 * SECOND, &next_us));
    assert_int_equal(next_us, INT64_MAX); /* it is over, not after a thousand seconds */
    assert_null(profiles_json(p));
    (void)snprintf(meeting, sizeof(meeting), "%s/measuring", folder);
    assert_int_equal(access(meeting, F_OK), -1); /* where its ranks met is gone */
    {
        char again[128];

        (void)snprintf(again, sizeof(again), "%s.again", program);
        assert_int_equal(io_publish_file(again, "", 0, 0600, NULL), 0);
    }
    assert_false(profiles_tick(p, false, 4 * SECOND, &next_us)); /* a second of quiet begins anew */
    assert_int_equal(next_us, 5 * SECOND);
    assert_true(measured(p, 5 * SECOND));
    profiles_free(p);
}

static void what_prints_no_profile_is_not_told_nor_tried_again(void **state)
{
    static const char *const bad[] = {"exit 1", "true", "echo '[1]'", "echo '{\"products\": 7}'",
                                      "echo '" GOOD "'; exit 3"};
    int64_t next_us;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct profiles *p = begin(1);

        engine(bad[i]);
        (void)profiles_tick(p, false, SECOND, &next_us);
        assert_false(measured(p, 3 * SECOND));
        assert_null(profiles_json(p));
        assert_int_equal(started(), i + 1);
        profiles_free(p);
    }
}

static void a_damaged_file_is_not_believed(void **state)
{
    static const char *const bad[] = {"", "{", "{\"of\": 1, \"profiles\": {}}", "[]"};
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/" PROFILES_FILE, folder);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct profiles *p;

        assert_int_equal(io_publish_file(path, bad[i], strlen(bad[i]), 0600, NULL), 0);
        p = begin(1);
        assert_null(profiles_json(p));
        profiles_free(p);
    }
}

static void with_0_nothing_is_measured(void **state)
{
    struct profiles *p = begin(0);
    int64_t next_us;

    (void)state;
    engine("echo '" GOOD "'");
    (void)profiles_tick(p, false, SECOND, &next_us);
    assert_false(measured(p, 100000 * SECOND));
    assert_int_equal(started(), 0);
    profiles_free(p);
    assert_false(profiles_tick(NULL, false, SECOND, &next_us));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(devices_are_measured_once_when_nothing_has_run_for_a_while_and_kept),
        TEST(what_was_found_is_kept_for_muster_run_unless_its_user_has_measured),
        TEST(other_devices_are_measured_anew),
        TEST(a_run_ends_the_measurement_which_is_made_again_later),
        TEST(what_prints_no_profile_is_not_told_nor_tried_again),
        TEST(a_damaged_file_is_not_believed),
        TEST(with_0_nothing_is_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
