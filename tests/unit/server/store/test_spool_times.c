#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "server/store/spool_parts.h"
#include "server/store/spool_read.h"
#include "server/store/spool_times.h"
#include "tests/memory/spool_memory.h"
#include "tests/unit/fake_clock.h"

#define SECOND INT64_C(1000000)

struct scene {
    struct spool_memory *memory;
    struct spool spool;
    struct fake_clock clock;
    int64_t length;
};

static int enter(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->memory = spool_memory_new(&s->spool);
    s->spool.clock = fake_clock_init(&s->clock, 0, 1700000000 * SECOND);
    return spool_make_job(&s->spool, 1, NULL);
}

static int leave(void **state)
{
    struct scene *s = *state;

    spool_memory_free(s->memory);
    free(s);
    return 0;
}

/* A line of the log of rank 0 comes now. */
static void come(struct scene *s, const char *line)
{
    json_t *acks = json_array(), *fresh = json_array();
    json_t *piece = json_pack("{s:s, s:i, s:i, s:I, s:s}", "job", "j1", "generation", 1, "rank", 0, "offset",
                              (json_int_t)s->length, "text", line);

    assert_int_equal(spool_take_piece(&s->spool, piece, true, acks, fresh), 0);
    s->length += (int64_t)strlen(line);
    json_decref(piece);
    json_decref(acks);
    json_decref(fresh);
}

static void expect_since(struct scene *s, int since_s, const char *text)
{
    json_t *answer = spool_read_logs(&s->spool, 1, 0, 1, 0, 0, since_s, NULL);

    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(answer, "logs"), 0), "text")),
                        text);
    json_decref(answer);
}

static void what_came_in_the_last_seconds_is_read_and_at_most_ten_seconds_more(void **state)
{
    struct scene *s = *state;

    come(s, "1\n");
    fake_clock_pass(&s->clock, 5 * SECOND);
    come(s, "2\n"); /* belongs to the note of 1 */
    fake_clock_pass(&s->clock, 6 * SECOND);
    come(s, "3\n");
    fake_clock_pass(&s->clock, 3600 * SECOND);
    come(s, "4\n");
    fake_clock_pass(&s->clock, 100 * SECOND);
    expect_since(s, 1, "");
    expect_since(s, 60, "");
    expect_since(s, 101, "4\n");
    expect_since(s, 3600, "4\n");
    expect_since(s, 3700, "3\n4\n");
    expect_since(s, 3711, "1\n2\n3\n4\n");
    expect_since(s, INT32_MAX, "1\n2\n3\n4\n");
    expect_since(s, 0, "1\n2\n3\n4\n");
}

static void notes_are_few_and_go_with_their_generation_and_with_the_logs_of_their_job(void **state)
{
    struct scene *s = *state;
    int64_t length;

    for (int i = 0; i < 1000; i++) {
        come(s, "line\n");
        fake_clock_pass(&s->clock, SECOND / 10);
    }
    assert_true(s->spool.ops->read(s->spool.self, 1, "rank-00000.g1.log.t", 0, NULL, 0, &length) >= 0);
    assert_int_equal(length, 10 * 32);
    spool_drop_generation(&s->spool, 1, 1);
    assert_true(s->spool.ops->read(s->spool.self, 1, "rank-00000.g1.log.t", 0, NULL, 0, &length) < 0);
}

static void a_clock_that_is_set_back_hides_nothing(void **state)
{
    struct scene *s = *state;

    come(s, "1\n");
    s->clock.wall_us -= 1000 * SECOND;
    come(s, "2\n");
    fake_clock_pass(&s->clock, 5 * SECOND);
    expect_since(s, 1, "1\n2\n");
}

static void a_log_without_notes_is_read_from_its_beginning(void **state)
{
    struct scene *s = *state;

    s->spool.clock = NULL;
    come(s, "1\n");
    s->spool.clock = fake_clock_init(&s->clock, 0, 1700000000 * SECOND);
    expect_since(s, 1, "1\n");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)
    static const struct CMUnitTest tests[] = {
        TEST(what_came_in_the_last_seconds_is_read_and_at_most_ten_seconds_more),
        TEST(notes_are_few_and_go_with_their_generation_and_with_the_logs_of_their_job),
        TEST(a_clock_that_is_set_back_hides_nothing),
        TEST(a_log_without_notes_is_read_from_its_beginning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
