#include "tests/unit/test.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "server/store/metrics_read.h"
#include "server/store/spool_disk.h"
#include "tests/memory/spool_memory.h"
#include "server/store/spool_read.h"

#define SPOOLS(f)                                                                                                      \
    {#f "_on_disk", f, spool_on_disk, spool_leave, NULL},                                                              \
    {                                                                                                                  \
#f "_in_memory", f, spool_in_memory, spool_leave, NULL                                                         \
    }

struct scene {
    struct spool spool;
    char folder[32], jobs[48];
    struct spool_disk *disk;
    struct spool_memory *memory;
    struct metrics_cache *metrics;
};

static int spool_on_disk(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->metrics = metrics_cache_new();
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/muster-spool-XXXXXX");
    if (!mkdtemp(s->folder))
        return -1;
    (void)snprintf(s->jobs, sizeof(s->jobs), "%s/jobs", s->folder);
    if (io_mkdirs(s->jobs, 0700, NULL) < 0 ||
        spool_disk_open(&(struct spool_disk_cfg){.jobs = s->jobs}, &s->disk, &s->spool, NULL) < 0)
        return -1;
    return spool_make_job(&s->spool, 1, NULL);
}

static int spool_in_memory(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));

    *state = s;
    s->memory = spool_memory_new(&s->spool);
    s->metrics = metrics_cache_new();
    return s->memory && s->metrics ? spool_make_job(&s->spool, 1, NULL) : -1;
}

static int spool_leave(void **state)
{
    struct scene *s = *state;
    int r = s->disk ? io_remove_tree(s->folder, NULL) : 0;

    spool_disk_close(s->disk);
    spool_memory_free(s->memory);
    metrics_cache_free(s->metrics);
    free(s);
    return r;
}

static const struct spool *of(void **state)
{
    return &((struct scene *)*state)->spool;
}

/* A file of job 1 that holds this, and nothing else. */
static void write_file(const struct spool *s, const char *name, const char *text, size_t len)
{
    bool is_new = false;

    s->ops->drop_file(s->self, 1, name);
    assert_int_equal(s->ops->append(s->self, 1, name, 0, text, len, &is_new), len);
    assert_true(is_new);
}

static bool there(const struct spool *s, const char *name)
{
    int64_t length;

    return s->ops->read(s->self, 1, name, 0, NULL, 0, &length) == 0;
}

/* Hand in a piece of a log; returns the offset acknowledged and counts what was new. */
static json_int_t hand_in(const struct spool *spool, const char *job, json_int_t offset, const char *text,
                          size_t *fresh)
{
    json_t *piece =
        json_pack("{s:s, s:i, s:i, s:I, s:s}", "job", job, "generation", 1, "rank", 0, "offset", offset, "text", text);
    json_t *acks = json_array(), *new = json_array();
    json_int_t at;

    assert_int_equal(spool_take_piece(spool, piece, true, acks, new), 0);
    at = json_integer_value(json_object_get(json_array_get(acks, 0), "offset"));
    *fresh += json_array_size(new);
    json_decref(piece);
    json_decref(acks);
    json_decref(new);
    return at;
}

static void pieces_are_taken_in_once_and_in_order(void **state)
{
    const struct spool *spool = of(state);
    size_t fresh = 0;
    json_t *logs;

    assert_int_equal(hand_in(spool, "j1", 0, "one\n", &fresh), 4);
    assert_int_equal(hand_in(spool, "j1", 0, "one\n", &fresh), 4);  /* again: already there */
    assert_int_equal(hand_in(spool, "j1", 9, "late\n", &fresh), 4); /* a gap: go on from 4 */
    assert_int_equal(hand_in(spool, "j1", 4, "two\nth", &fresh), 10);
    assert_int_equal(fresh, 2);
    logs = spool_read_logs(spool, 1, -1, 0, 0, 0, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(logs, "logs"), 0), "text")),
                        "one\ntwo\nth");
    assert_int_equal(json_array_size(json_object_get(logs, "lines")), 3);
    json_decref(logs);
    logs = spool_read_logs(spool, 1, 0, 1, 0, 1, 0, NULL); /* the last line */
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

    for (size_t i = 0; i < COUNT(file); i++)
        write_file(of(state), file[i].name, "x\n", 2);
    spool_drop_generation(of(state), 1, 7);
    spool_drop_generation(of(state), 2, 7); /* a job without a folder has nothing to lose */
    for (size_t i = 0; i < COUNT(file); i++)
        assert_int_equal(there(of(state), file[i].name), !file[i].goes);
}

static void pieces_of_unknown_jobs_are_acknowledged_and_dropped(void **state)
{
    size_t fresh = 0;

    assert_int_equal(hand_in(of(state), "j2", 7, "abc", &fresh), 10);
    assert_int_equal(fresh, 0);
    assert_false(of(state)->ops->known(of(state)->self, 2));
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

        assert_int_equal(spool_take_piece(of(state), piece, true, acks, fresh), -EINVAL);
        json_decref(piece);
        json_decref(acks);
        json_decref(fresh);
    }
}

static bool go_on(void *arg)
{
    (void)arg;
    return true;
}

static json_t *read_metrics(void **state, const char *names, int points)
{
    return metrics_read(((struct scene *)*state)->metrics, of(state), 1, names, points, go_on, NULL);
}

static void a_later_generation_replaces_the_steps_it_repeats(void **state)
{
    static const struct {
        const char *name, *text;
    } file[] = {{"metrics.g1.jsonl", "{\"step\":0,\"loss\":3}\n{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":9}\n"},
                {"metrics.g2.jsonl", "{\"step\":2,\"loss\":1}\nno json\n{\"step\":3,\"loss\":0.5}\n{\"step\":4"}};
    static const double want[] = {3, 2, 1, 0.5};
    json_t *got, *loss;

    for (size_t i = 0; i < COUNT(file); i++)
        write_file(of(state), file[i].name, file[i].text, strlen(file[i].text));
    got = read_metrics(state, "loss", 100);
    loss = json_object_get(json_object_get(got, "metrics"), "loss");
    assert_int_equal(json_integer_value(json_object_get(got, "points")), 4);
    for (size_t i = 0; i < COUNT(want); i++)
        assert_true(json_number_value(json_array_get(loss, i)) == want[i]);
    json_decref(got);
    got = read_metrics(state, NULL, 2); /* thinned, the last one kept */
    loss = json_object_get(json_object_get(got, "metrics"), "step");
    assert_int_equal(json_array_size(loss), 2);
    assert_int_equal(json_integer_value(json_array_get(loss, 1)), 3);
    json_decref(got);
}

static void of_very_many_generations_the_newest_count(void **state)
{
    json_t *got, *step;

    for (int g = 1; g <= 300; g++) { /* one step each */
        char name[SPOOL_NAME_MAX], text[32];

        spool_metrics_name(g, name);
        (void)snprintf(text, sizeof(text), "{\"step\":%d}\n", g);
        write_file(of(state), name, text, strlen(text));
    }
    got = read_metrics(state, NULL, 1000);
    step = json_object_get(json_object_get(got, "metrics"), "step");
    assert_int_equal(json_array_size(step), 256);
    for (size_t i = 0; i < 256; i++)
        assert_int_equal(json_integer_value(json_array_get(step, i)), 45 + (int)i);
    json_decref(got);
}

/* Ranks 0 and 1, generation 9, whose logs are too long for one answer: lines of ten bytes, the last not ended. */
static void write_long_logs(const struct spool *spool, int lines)
{
    char name[SPOOL_NAME_MAX];
    struct buf text;

    buf_init(&text, 1 << 20);
    for (int i = 0; i < lines; i++)
        assert_int_equal(buf_printf(&text, "line %04d\n", i % 10000), 0);
    assert_int_equal(buf_addstr(&text, "the end"), 0);
    for (int rank = 0; rank < 2; rank++) {
        spool_log_name(rank, 9, name);
        write_file(spool, name, text.data, text.len);
    }
    buf_clear(&text);
}

static void long_logs_are_cut_at_a_line_and_their_tail_is_their_end(void **state)
{
    int lines = SPOOL_ANSWER_MAX / 10 + 77;
    json_t *got, *log, *text;
    size_t i;

    write_long_logs(of(state), lines);
    for (int rank = -1; rank <= 0; rank++) { /* both, one: as much of the end as there is room for */
        got = spool_read_logs(of(state), 1, rank, 9, 0, INT32_MAX, 0, NULL);
        json_array_foreach (json_object_get(got, "logs"), i, log)
            assert_int_equal(json_integer_value(json_object_get(log, "next_offset")), lines * 10 + 7);
        assert_int_equal(i, rank < 0 ? 2 : 1);
        json_decref(got);
    }
    got = spool_read_logs(of(state), 1, 0, 9, 0, 0, 0, NULL);
    text = json_object_get(json_array_get(json_object_get(got, "logs"), 0), "text");
    assert_int_equal(json_string_length(text), SPOOL_ANSWER_MAX / 10 * 10);
    log = json_array_get(json_object_get(got, "logs"), 0);
    assert_int_equal(json_integer_value(json_object_get(log, "next_offset")), SPOOL_ANSWER_MAX / 10 * 10);
    assert_int_equal(json_integer_value(json_object_get(log, "size")), lines * 10 + 7);
    json_decref(got);
}

static void a_line_longer_than_an_answer_is_cut_between_characters(void **state)
{
    struct buf text;
    int64_t at = 0;
    json_t *tail, *last;

    buf_init(&text, 1 << 20);
    assert_int_equal(buf_addstr(&text, "-"), 0);
    while (text.len <= 2 * SPOOL_ANSWER_MAX)
        assert_int_equal(buf_addstr(&text, "\xe2\x82\xac"), 0);
    write_file(of(state), "rank-00000.g1.log", text.data, text.len);
    while (at < (int64_t)text.len) {
        json_t *got = spool_read_logs(of(state), 1, 0, 1, at, 0, 0, NULL),
               *log = json_array_get(json_object_get(got, "logs"), 0);
        json_t *part = json_object_get(log, "text");

        assert_true(json_string_length(part) > 0);
        assert_memory_equal(json_string_value(part), text.data + at, json_string_length(part));
        at += (int64_t)json_string_length(part);
        assert_int_equal(json_integer_value(json_object_get(log, "next_offset")), at);
        json_decref(got);
    }
    tail = spool_read_logs(of(state), 1, 0, 1, 0, 5, 0, NULL);
    last = json_object_get(json_array_get(json_object_get(tail, "logs"), 0), "text");
    assert_null(strchr(json_string_value(last), '?')); /* the end of it begins with a whole character, too */
    assert_true(json_string_length(last) > SPOOL_ANSWER_MAX - 3);
    json_decref(tail);
    buf_clear(&text);
}

static void bytes_that_are_no_text_do_not_break_an_answer(void **state)
{
    static const char raw[] = "ok \xff\xfe\xc3\x28 \xe2\x82\xac end\n";
    json_t *logs;

    write_file(of(state), "rank-00005.g3.log", raw, sizeof(raw) - 1);
    logs = spool_read_logs(of(state), 1, 5, 0, 0, 0, 0, NULL);
    assert_string_equal(json_string_value(json_array_get(json_object_get(logs, "lines"), 0)),
                        "ok ?\?\?( \xe2\x82\xac end");
    json_decref(logs);
}

static void long_line_is(const struct spool *s, json_int_t step)
{
    json_t *line = spool_read_last_metrics(s, 1);

    assert_int_equal(json_integer_value(json_object_get(line, "step")), step);
    json_decref(line);
}

static void the_last_line_of_the_newest_metrics_is_found(void **state)
{
    static const struct {
        const char *text;
        json_int_t step; /* 0: none */
    } edge[] = {
        {"", 0},
        {"{\"step\":4", 0},
        {"{\"step\":4}\n", 4},
        {"{\"step\":4}\n{\"step\":5}\n{\"st", 5},
    };
    const struct spool *s = of(state);
    struct buf long_;

    assert_null(spool_read_last_metrics(s, 1));
    assert_null(spool_read_last_metrics(s, 7));
    write_file(s, "metrics.g1.jsonl", "{\"step\":9}\n", 11);
    for (size_t i = 0; i < COUNT(edge); i++) {
        json_t *line;

        write_file(s, "metrics.g2.jsonl", edge[i].text, strlen(edge[i].text));
        line = spool_read_last_metrics(s, 1);
        assert_int_equal(json_integer_value(json_object_get(line, "step")), edge[i].step);
        json_decref(line);
    }
    buf_init(&long_, 1 << 20);
    for (int i = 1; i <= 5000; i++)
        assert_int_equal(buf_printf(&long_, "{\"step\":%d}\n", i), 0);
    write_file(s, "metrics.g3.jsonl", long_.data, long_.len);
    buf_clear(&long_);
    long_line_is(s, 5000);
}

static void the_newest_job_with_a_folder_is_known_when_all_else_of_it_is_gone(void **state)
{
    const struct spool *s = of(state);
    uint64_t job = 0;

    assert_int_equal(spool_newest_job(s, &job, NULL), 0);
    assert_int_equal(job, 1);
    assert_int_equal(spool_make_job(s, 12, NULL), 0);
    assert_int_equal(spool_make_job(s, 7, NULL), 0);
    assert_int_equal(spool_make_job(s, 7, NULL), 0);
    spool_drop_job(s, 12);
    assert_false(s->ops->known(s->self, 12));
    assert_int_equal(spool_newest_job(s, &job, NULL), 0);
    assert_int_equal(job, 12);
}

static void other_folders_beside_those_of_jobs_are_passed_over(void **state)
{
    static const char *const name[] = {"j99x", "99", "xj99", "j", "job99"};
    const struct scene *s = *state;
    char path[64];
    uint64_t job = 0;

    for (size_t i = 0; i < COUNT(name); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", s->jobs, name[i]);
        assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    }
    assert_int_equal(spool_newest_job(&s->spool, &job, NULL), 0);
    assert_int_equal(job, 1);
    assert_int_equal(io_remove_tree(s->jobs, NULL), 0);
    assert_int_equal(spool_newest_job(&s->spool, &job, NULL), -ENOENT);
}

static int fail_with(void *arg, size_t len, size_t *kept)
{
    const int *how = arg;

    *kept = how[1] < 0 ? len : (size_t)how[1];
    return how[0];
}

static void a_write_that_fails_is_not_acknowledged_and_goes_on_from_what_is_there(void **state)
{
    struct scene *s = *state;
    json_t *piece = json_pack("{s:s, s:i, s:i, s:i, s:s}", "job", "j1", "generation", 1, "rank", 0, "offset", 0, "text",
                              "one\ntwo\n");
    json_t *acks = json_array(), *fresh = json_array();
    int how[] = {-ENOSPC, 0};
    size_t n = 0;

    spool_memory_set_fault(s->memory, fail_with, how);
    assert_int_equal(spool_take_piece(&s->spool, piece, true, acks, fresh), -ENOSPC);
    how[1] = 6; /* torn */
    assert_int_equal(spool_take_piece(&s->spool, piece, true, acks, fresh), -ENOSPC);
    assert_int_equal(json_array_size(acks) + json_array_size(fresh), 0);
    spool_memory_set_fault(s->memory, NULL, NULL);
    assert_int_equal(hand_in(&s->spool, "j1", 0, "one\ntwo\n", &n), 6);
    assert_int_equal(hand_in(&s->spool, "j1", 6, "o\n", &n), 8);
    assert_int_equal(n, 1);
    json_decref(piece);
    json_decref(acks);
    json_decref(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPOOLS(pieces_are_taken_in_once_and_in_order),
        SPOOLS(a_generation_goes_alone_and_whole),
        SPOOLS(pieces_of_unknown_jobs_are_acknowledged_and_dropped),
        SPOOLS(malformed_pieces_are_refused),
        SPOOLS(a_later_generation_replaces_the_steps_it_repeats),
        SPOOLS(of_very_many_generations_the_newest_count),
        SPOOLS(long_logs_are_cut_at_a_line_and_their_tail_is_their_end),
        SPOOLS(a_line_longer_than_an_answer_is_cut_between_characters),
        SPOOLS(bytes_that_are_no_text_do_not_break_an_answer),
        SPOOLS(the_last_line_of_the_newest_metrics_is_found),
        SPOOLS(the_newest_job_with_a_folder_is_known_when_all_else_of_it_is_gone),
        cmocka_unit_test_setup_teardown(other_folders_beside_those_of_jobs_are_passed_over, spool_on_disk, spool_leave),
        cmocka_unit_test_setup_teardown(a_write_that_fails_is_not_acknowledged_and_goes_on_from_what_is_there,
                                        spool_in_memory, spool_leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
