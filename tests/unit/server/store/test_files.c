#include "tests/unit/test.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "server/store/files.h"

static int make_spool(void **state)
{
    char *dir = strdup("/tmp/muster-files-XXXXXX"), path[64];

    if (!dir || !mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/j1", dir);
    *state = dir;
    return mkdir(path, 0700);
}

static int drop_spool(void **state)
{
    int r = io_remove_tree(*state, NULL);

    free(*state);
    return r;
}

/* Hand in a piece of a log; returns the offset acknowledged and counts what was new. */
static json_int_t hand_in(const char *spool, const char *job, json_int_t offset, const char *text, size_t *fresh)
{
    json_t *piece =
        json_pack("{s:s, s:i, s:i, s:I, s:s}", "job", job, "generation", 1, "rank", 0, "offset", offset, "text", text);
    json_t *acks = json_array(), *new = json_array();
    json_int_t at;

    assert_int_equal(files_take_piece(spool, piece, true, acks, new), 0);
    at = json_integer_value(json_object_get(json_array_get(acks, 0), "offset"));
    *fresh += json_array_size(new);
    json_decref(piece);
    json_decref(acks);
    json_decref(new);
    return at;
}

static void pieces_are_taken_in_once_and_in_order(void **state)
{
    const char *spool = *state;
    size_t fresh = 0;
    json_t *logs;

    assert_int_equal(hand_in(spool, "j1", 0, "one\n", &fresh), 4);
    assert_int_equal(hand_in(spool, "j1", 0, "one\n", &fresh), 4);  /* again: already there */
    assert_int_equal(hand_in(spool, "j1", 9, "late\n", &fresh), 4); /* a gap: go on from 4 */
    assert_int_equal(hand_in(spool, "j1", 4, "two\nth", &fresh), 10);
    assert_int_equal(fresh, 2);
    logs = files_read_logs(spool, 1, -1, 0, 0, 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(logs, "logs"), 0), "text")),
                        "one\ntwo\nth");
    assert_int_equal(json_array_size(json_object_get(logs, "lines")), 3);
    json_decref(logs);
    logs = files_read_logs(spool, 1, 0, 1, 0, 1); /* the last line */
    assert_string_equal(json_string_value(json_array_get(json_object_get(logs, "lines"), 0)), "th");
    json_decref(logs);
}

static void a_generation_goes_alone_and_whole(void **state)
{
    static const struct {
        const char *name;
        bool goes;
    } file[] = {
        {"rank-00000.g7.log", true},      {"rank-00012.g7.log", true},   {"metrics.g7.jsonl", true},
        {"rank-00000.g77.log", false},    {"rank-00007.g17.log", false}, {"metrics.g70.jsonl", false},
        {"metrics.g7.jsonl.kept", false}, {"rank-00000.g7.logs", false},
    };
    char path[256];

    for (size_t i = 0; i < COUNT(file); i++) {
        (void)snprintf(path, sizeof(path), "%s/j1/%s", (const char *)*state, file[i].name);
        assert_int_equal(io_write_file(path, "x\n", 2, 0600, NULL), 0);
    }
    files_remove_generation(*state, 1, 7);
    files_remove_generation(*state, 2, 7); /* a job without a folder has nothing to lose */
    for (size_t i = 0; i < COUNT(file); i++) {
        (void)snprintf(path, sizeof(path), "%s/j1/%s", (const char *)*state, file[i].name);
        assert_int_equal(access(path, F_OK) == 0, !file[i].goes);
    }
}

static void pieces_of_unknown_jobs_are_acknowledged_and_dropped(void **state)
{
    size_t fresh = 0;
    struct stat st;
    char path[64];

    assert_int_equal(hand_in(*state, "j2", 7, "abc", &fresh), 10);
    assert_int_equal(fresh, 0);
    (void)snprintf(path, sizeof(path), "%s/j2", (const char *)*state);
    assert_int_equal(stat(path, &st), -1);
}

static void malformed_pieces_are_refused(void **state)
{
    static const char *const text[] = {
        "{}",
        "[]",
        "{\"job\":\"../x\",\"generation\":1,\"text\":\"a\"}",
        "{\"job\":\"j1\",\"generation\":0,\"text\":\"a\"}",
        "{\"job\":\"j1\",\"generation\":1,\"text\":7}",
        "{\"job\":\"j1\",\"generation\":1,\"rank\":-1,\"text\":\"a\"}",
        "{\"job\":\"j1\",\"generation\":1,\"offset\":-1,\"text\":\"a\"}",
    };

    for (size_t i = 0; i < COUNT(text); i++) {
        json_t *piece = json_loads(text[i], 0, NULL), *acks = json_array(), *fresh = json_array();

        assert_int_equal(files_take_piece(*state, piece, true, acks, fresh), -EINVAL);
        json_decref(piece);
        json_decref(acks);
        json_decref(fresh);
    }
}

static void a_later_generation_replaces_the_steps_it_repeats(void **state)
{
    static const struct {
        const char *name, *text;
    } file[] = {{"metrics.g1.jsonl", "{\"step\":0,\"loss\":3}\n{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":9}\n"},
                {"metrics.g2.jsonl", "{\"step\":2,\"loss\":1}\nno json\n{\"step\":3,\"loss\":0.5}\n{\"step\":4"}};
    static const double want[] = {3, 2, 1, 0.5};
    json_t *got, *loss;

    for (size_t i = 0; i < COUNT(file); i++) {
        char path[96];

        (void)snprintf(path, sizeof(path), "%s/j1/%s", (const char *)*state, file[i].name);
        assert_int_equal(io_write_file(path, file[i].text, strlen(file[i].text), 0600, NULL), 0);
    }
    got = files_read_metrics(*state, 1, "loss", 100);
    loss = json_object_get(json_object_get(got, "metrics"), "loss");
    assert_int_equal(json_integer_value(json_object_get(got, "points")), 4);
    for (size_t i = 0; i < COUNT(want); i++)
        assert_true(json_number_value(json_array_get(loss, i)) == want[i]);
    json_decref(got);
    got = files_read_metrics(*state, 1, NULL, 2); /* thinned, the last one kept */
    loss = json_object_get(json_object_get(got, "metrics"), "step");
    assert_int_equal(json_array_size(loss), 2);
    assert_int_equal(json_integer_value(json_array_get(loss, 1)), 3);
    json_decref(got);
}

static void of_very_many_generations_the_newest_count(void **state)
{
    json_t *got, *step;

    for (int g = 1; g <= 300; g++) { /* one step each */
        char path[96], text[32];

        (void)snprintf(path, sizeof(path), "%s/j1/metrics.g%d.jsonl", (const char *)*state, g);
        (void)snprintf(text, sizeof(text), "{\"step\":%d}\n", g);
        assert_int_equal(io_write_file(path, text, strlen(text), 0600, NULL), 0);
    }
    got = files_read_metrics(*state, 1, NULL, 1000);
    step = json_object_get(json_object_get(got, "metrics"), "step");
    assert_int_equal(json_array_size(step), 256);
    for (size_t i = 0; i < 256; i++)
        assert_int_equal(json_integer_value(json_array_get(step, i)), 45 + (int)i);
    json_decref(got);
}

/* Ranks 0 and 1, generation 9, whose logs are too long for one answer: lines of ten bytes, the last not ended. */
static void write_long_logs(const char *spool, int lines)
{
    char path[96];
    struct buf text;

    buf_init(&text, 1 << 20);
    for (int i = 0; i < lines; i++)
        assert_int_equal(buf_printf(&text, "line %04d\n", i % 10000), 0);
    assert_int_equal(buf_addstr(&text, "the end"), 0);
    for (int rank = 0; rank < 2; rank++) {
        (void)snprintf(path, sizeof(path), "%s/j1/rank-%05d.g9.log", spool, rank);
        assert_int_equal(io_write_file(path, text.data, text.len, 0600, NULL), 0);
    }
    buf_clear(&text);
}

static void long_logs_are_cut_at_a_line_and_their_tail_is_their_end(void **state)
{
    int lines = FILES_ANSWER_MAX / 10 + 77;
    json_t *got, *log, *text;
    size_t i;

    write_long_logs(*state, lines);
    for (int rank = -1; rank <= 0; rank++) { /* both, one: as much of the end as there is room for */
        got = files_read_logs(*state, 1, rank, 9, 0, INT32_MAX);
        json_array_foreach (json_object_get(got, "logs"), i, log)
            assert_int_equal(json_integer_value(json_object_get(log, "next_offset")), lines * 10 + 7);
        assert_int_equal(i, rank < 0 ? 2 : 1);
        json_decref(got);
    }
    got = files_read_logs(*state, 1, 0, 9, 0, 0);
    text = json_object_get(json_array_get(json_object_get(got, "logs"), 0), "text");
    assert_int_equal(json_string_length(text), FILES_ANSWER_MAX / 10 * 10);
    log = json_array_get(json_object_get(got, "logs"), 0);
    assert_int_equal(json_integer_value(json_object_get(log, "next_offset")), FILES_ANSWER_MAX / 10 * 10);
    assert_int_equal(json_integer_value(json_object_get(log, "size")), lines * 10 + 7);
    json_decref(got);
}

static void a_line_longer_than_an_answer_is_cut_between_characters(void **state)
{
    struct buf text;
    char path[96];
    int64_t at = 0;
    json_t *tail, *last;

    buf_init(&text, 1 << 20);
    assert_int_equal(buf_addstr(&text, "-"), 0);
    while (text.len <= 2 * FILES_ANSWER_MAX)
        assert_int_equal(buf_addstr(&text, "\xe2\x82\xac"), 0);
    (void)snprintf(path, sizeof(path), "%s/j1/rank-00000.g1.log", (const char *)*state);
    assert_int_equal(io_write_file(path, text.data, text.len, 0600, NULL), 0);
    while (at < (int64_t)text.len) {
        json_t *got = files_read_logs(*state, 1, 0, 1, at, 0), *log = json_array_get(json_object_get(got, "logs"), 0);
        json_t *part = json_object_get(log, "text");

        assert_true(json_string_length(part) > 0);
        assert_memory_equal(json_string_value(part), text.data + at, json_string_length(part));
        at += (int64_t)json_string_length(part);
        assert_int_equal(json_integer_value(json_object_get(log, "next_offset")), at);
        json_decref(got);
    }
    tail = files_read_logs(*state, 1, 0, 1, 0, 5);
    last = json_object_get(json_array_get(json_object_get(tail, "logs"), 0), "text");
    assert_null(strchr(json_string_value(last), '?')); /* the end of it begins with a whole character, too */
    assert_true(json_string_length(last) > FILES_ANSWER_MAX - 3);
    json_decref(tail);
    buf_clear(&text);
}

static void bytes_that_are_no_text_do_not_break_an_answer(void **state)
{
    static const char raw[] = "ok \xff\xfe\xc3\x28 \xe2\x82\xac end\n";
    char path[96];
    json_t *logs;

    (void)snprintf(path, sizeof(path), "%s/j1/rank-00005.g3.log", (const char *)*state);
    assert_int_equal(io_write_file(path, raw, sizeof(raw) - 1, 0600, NULL), 0);
    logs = files_read_logs(*state, 1, 5, 0, 0, 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(logs, "lines"), 0)),
                        "ok ?\?\?( \xe2\x82\xac end");
    json_decref(logs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_are_taken_in_once_and_in_order, make_spool, drop_spool),
        cmocka_unit_test_setup_teardown(a_generation_goes_alone_and_whole, make_spool, drop_spool),
        cmocka_unit_test_setup_teardown(pieces_of_unknown_jobs_are_acknowledged_and_dropped, make_spool, drop_spool),
        cmocka_unit_test_setup_teardown(malformed_pieces_are_refused, make_spool, drop_spool),
        cmocka_unit_test_setup_teardown(a_later_generation_replaces_the_steps_it_repeats, make_spool, drop_spool),
        cmocka_unit_test_setup_teardown(of_very_many_generations_the_newest_count, make_spool, drop_spool),
        cmocka_unit_test_setup_teardown(a_line_longer_than_an_answer_is_cut_between_characters, make_spool, drop_spool),
        cmocka_unit_test_setup_teardown(long_logs_are_cut_at_a_line_and_their_tail_is_their_end, make_spool,
                                        drop_spool),
        cmocka_unit_test_setup_teardown(bytes_that_are_no_text_do_not_break_an_answer, make_spool, drop_spool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
