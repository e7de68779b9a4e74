/* Rendezvous files of runs on several nodes: each is put once, each of the others is published once, whatever fails. */
#include "tests/unit/folder.h"
#include "tests/unit/worker/agent/fake_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/protocol/rendezvous.h"
#include "worker/agent/mirror.h"

#define SECOND INT64_C(1000000)

/* --- in place of ranks.c: one run, which a test lets end ------------------------------------------------ */

static struct run run;
static bool ended;

size_t ranks_count(const struct ranks *r)
{
    (void)r;
    return 1;
}

const struct run *ranks_at(const struct ranks *r, size_t i)
{
    (void)r;
    (void)i;
    return &run;
}

struct run *ranks_find(const struct ranks *r, const char *job, uint64_t generation)
{
    (void)r;
    return strcmp(job, run.job) == 0 && generation == run.generation ? &run : NULL;
}

bool ranks_run_ended(const struct run *of)
{
    (void)of;
    return ended;
}

/* --- the tests ------------------------------------------------------------------------------------------ */

static struct mirror *mirror;
static int64_t now_us;

static const char *path_of(const char *name)
{
    static char path[PATH_MAX + 128];

    (void)snprintf(path, sizeof(path), "%s/rendezvous/%s", run.folder, name);
    return path;
}

static void write_key(const char *name, const char *text)
{
    assert_int_equal(io_publish_file(path_of(name), text, strlen(text), 0600, NULL), 0);
}

static void tick(void)
{
    now_us += 3 * SECOND;
    assert_true(mirror_tick(mirror, now_us) > now_us);
}

static int begin(void **state)
{
    static int n;

    (void)state;
    run = (struct run){.job = "j1", .generation = 2, .nodes = 2};
    ended = false;
    now_us = INT64_C(1) << 50; /* after all that real clocks say */
    (void)snprintf(run.folder, sizeof(run.folder), "%s/%d", top, n++);
    assert_int_equal(io_mkdirs(path_of(""), 0700, NULL), 0);
    return mirror_new((struct calls *)&fake_calls, (const struct ranks *)&run, "n1", "boot-1", &mirror, NULL);
}

static int finish(void **state)
{
    (void)state;
    mirror_free(mirror);
    fake_calls_clear();
    return 0;
}

/* How often the key was put, ended calls too. */
static int puts_of(const char *key)
{
    char end[128];
    int n = 0;

    (void)snprintf(end, sizeof(end), "/2/%s?", key);
    for (size_t i = 0; i < fake_calls.n; i++)
        n += strcmp(fake_calls.v[i].method, "PUT") == 0 && strstr(fake_calls.v[i].path, end);
    return n;
}

static void a_file_is_put_once_for_the_right_run(void **state)
{
    (void)state;
    write_key("rank-0", "hello");
    tick();
    assert_int_equal(puts_of("rank-0"), 1);
    assert_string_equal(fake_call_of("rank-0")->path, "/v1/agents/n1/rendezvous/j1/2/rank-0?incarnation=boot-1");
    assert_string_equal(fake_call_of("rank-0")->body, "aGVsbG8=");
    tick(); /* it is on its way */
    assert_int_equal(puts_of("rank-0"), 1);
    fake_call_end(fake_call_of("rank-0"), 204, "");
    tick();
    tick();
    assert_int_equal(puts_of("rank-0"), 1);
}

static void what_fails_is_put_again_and_what_is_refused_is_not(void **state)
{
    static const struct {
        int status, puts;
    } rows[] = {{-EHOSTUNREACH, 2}, {503, 2}, {500, 2}, {403, 1}, {413, 1}, {422, 1}, {201, 1}};
    char key[16];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)snprintf(key, sizeof(key), "key-%zu", i);
        write_key(key, "x");
        tick();
        fake_call_end(fake_call_of(key), rows[i].status, "");
        tick();
        assert_int_equal(puts_of(key), rows[i].puts);
        if (rows[i].puts > 1)
            fake_call_end(fake_call_of(key), 200, "");
    }
}

static void while_a_file_is_on_its_way_nobody_comes_again_at_once(void **state)
{
    (void)state;
    write_key("rank-0", "hello");
    for (int i = 0; i < 5; i++)
        tick(); /* which checks when it is due: not in the past, or the agent would turn without a rest */
    fake_call_end(fake_call_of("rank-0"), 503, "");
    tick();
    tick();
}

static void what_is_no_plain_small_file_stays_here(void **state)
{
    static char large[RENDEZVOUS_BYTES_MAX + 1];

    (void)state;
    memset(large, 'x', sizeof(large));
    assert_int_equal(io_write_file(path_of("large"), large, sizeof(large), 0600, NULL), 0);
    write_key(".hidden", "x");
    write_key("two words", "x");
    assert_int_equal(symlink("/etc/passwd", path_of("link")), 0);
    assert_int_equal(mkdir(path_of("folder"), 0700), 0);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0); /* whoever opens it for reading waits */
    tick();
    tick();
    for (size_t i = 0; i < fake_calls.n; i++)
        assert_string_equal(fake_calls.v[i].method, "GET");
}

static void what_others_have_put_is_published_and_no_file_of_ours_is_changed(void **state)
{
    char text[64] = "";
    int fd;

    (void)state;
    write_key("mine", "as it was");
    tick();
    fake_call_end(fake_call_of("since=0"), 200,
                  "{\"next\": 3, \"keys\": [{\"key\": \"theirs\", \"value\": \"aGVsbG8=\"},"
                  " {\"key\": \"mine\", \"value\": \"aGVsbG8=\"}, {\"key\": \"broken\", \"value\": \"*\"}]}");
    fd = open(path_of("theirs"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof(text) - 1), 5);
    (void)close(fd);
    assert_string_equal(text, "hello");
    fd = open(path_of("mine"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof(text) - 1), 9);
    (void)close(fd);
    assert_int_equal(access(path_of("broken"), F_OK), -1);
    tick();
    assert_non_null(fake_call_of("since=3"));
    assert_int_equal(puts_of("theirs"), 0);
}

static void keys_that_lead_out_of_the_folder_are_not_written(void **state)
{
    (void)state;
    tick();
    fake_call_end(fake_call_of("since=0"), 200,
                  "{\"next\": 2, \"keys\": [{\"key\": \"../out\", \"value\": \"aGVsbG8=\"},"
                  " {\"key\": \".h\", \"value\": \"aGVsbG8=\"}]}");
    assert_int_equal(access(path_of("../out"), F_OK), -1);
    assert_int_equal(access(path_of(".h"), F_OK), -1);
}

static void a_server_that_has_lost_what_was_put_gets_it_again(void **state)
{
    (void)state;
    write_key("rank-0", "hello");
    tick();
    fake_call_end(fake_call_of("rank-0"), 204, "");
    fake_call_end(fake_call_of("since=0"), 200, "{\"next\": 1, \"keys\": []}");
    tick();
    assert_int_equal(puts_of("rank-0"), 1);
    fake_call_end(fake_call_of("since=1"), 200, "{\"next\": 0, \"keys\": []}");
    tick();
    assert_int_equal(puts_of("rank-0"), 2);
}

static void answers_that_come_after_the_run_has_ended_do_nothing(void **state)
{
    (void)state;
    write_key("rank-0", "hello");
    tick();
    ended = true;
    assert_int_equal(mirror_tick(mirror, now_us + SECOND), INT64_MAX);
    fake_call_end(fake_call_of("rank-0"), 503, "");
    fake_call_end(fake_call_of("since=0"), 200,
                  "{\"next\": 1, \"keys\": [{\"key\": \"late\", \"value\": \"aGVsbG8=\"}]}");
    assert_int_equal(access(path_of("late"), F_OK), -1);
    assert_int_equal(mirror_tick(mirror, now_us + 9 * SECOND), INT64_MAX);
    assert_int_equal(fake_calls.n, 2);
}

static void a_run_on_one_node_makes_no_call(void **state)
{
    (void)state;
    run.nodes = 1;
    write_key("rank-0", "hello");
    assert_int_equal(mirror_tick(mirror, now_us), INT64_MAX);
    assert_int_equal(fake_calls.n, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_put_once_for_the_right_run),
        TEST(what_fails_is_put_again_and_what_is_refused_is_not),
        TEST(while_a_file_is_on_its_way_nobody_comes_again_at_once),
        TEST(what_is_no_plain_small_file_stays_here),
        TEST(what_others_have_put_is_published_and_no_file_of_ours_is_changed),
        TEST(keys_that_lead_out_of_the_folder_are_not_written),
        TEST(a_server_that_has_lost_what_was_put_gets_it_again),
        TEST(answers_that_come_after_the_run_has_ended_do_nothing),
        TEST(a_run_on_one_node_makes_no_call),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
