#include "tests/unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "worker/engine/train/report.h"

struct place {
    char dir[64], run[80], job[80];
};

static void make_place(struct place *p)
{
    (void)snprintf(p->dir, sizeof(p->dir), "%s", "/tmp/muster-report-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->run, sizeof(p->run), "%s/run", p->dir);
    (void)snprintf(p->job, sizeof(p->job), "%s/job", p->dir);
    assert_int_equal(io_mkdirs(p->run, 0755, NULL), 0);
}

static void drop_place(struct place *p)
{
    assert_int_equal(io_remove_tree(p->dir, NULL), 0);
}

static void read_all(const char *folder, const char *name, struct buf *b)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    buf_init(b, 1 << 20);
    assert_int_equal(io_read_file(path, b, NULL), 0);
}

static int lines(const struct buf *b)
{
    int n = 0;

    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

static void write_steps(struct report *r, uint64_t from, uint64_t to)
{
    for (uint64_t s = from; s < to; s++) {
        struct report_step m = {.step = s, .loss = 1.0 / 3, .grad_norm = 2, .lr = 1e-3, .ranks = 2, .generation = 1};

        assert_int_equal(report_metrics(r, &m, NULL), 0);
    }
}

static void numbers_keep_all_their_bits_and_are_json(void **state)
{
    struct report_step m = {.step = 7,
                            .loss = 0.1 + 0.2,
                            .grad_norm = NAN,
                            .lr = 6e-4,
                            .tokens = 99,
                            .tokens_per_s = 123.4567,
                            .bytes_tp = 1,
                            .bytes_pp = 2,
                            .bytes_dp = 3,
                            .generation = 4,
                            .ranks = 5,
                            .wire_ms = {0, 1.5, 0},
                            .wire_predicted_ms = {0, 2.5, 0}};
    struct place p;
    struct report *r;
    struct buf b;
    json_t *o;

    (void)state;
    make_place(&p);
    assert_int_equal(report_open(p.run, p.job, 0, &r, NULL), 0);
    assert_int_equal(report_cut(r, 0, NULL), 0);
    assert_int_equal(report_metrics(r, &m, NULL), 0);
    report_free(r);
    read_all(p.run, "metrics.jsonl", &b);
    o = json_loads(buf_text(&b), 0, NULL);
    assert_non_null(o);
    assert_true(json_real_value(json_object_get(o, "loss")) == m.loss);
    assert_true(json_is_null(json_object_get(o, "grad_norm")));
    assert_int_equal(json_integer_value(json_object_get(o, "bytes_dp")), 3);
    assert_true(json_number_value(json_object_get(o, "wire_pp_predicted_ms")) == 2.5);
    assert_null(json_object_get(o, "wire_tp_ms")); /* nothing was predicted */
    assert_int_equal(json_object_size(o), 19);
    json_decref(o);
    buf_clear(&b);
    drop_place(&p);
}

static void resuming_cuts_back_the_jobs_metrics_and_keeps_the_runs(void **state)
{
    static const struct {
        uint64_t start;
        int left;
    } t[] = {{10, 10}, {6, 6}, {0, 0}, {99, 10}};

    (void)state;
    for (size_t i = 0; i < COUNT(t); i++) {
        struct place p;
        struct report *r;
        struct buf b;

        make_place(&p);
        assert_int_equal(report_open(p.run, p.job, 0, &r, NULL), 0);
        assert_int_equal(report_cut(r, 0, NULL), 0);
        write_steps(r, 0, 10);
        report_free(r);
        assert_int_equal(report_open(p.run, p.job, 0, &r, NULL), 0);
        assert_int_equal(report_cut(r, t[i].start, NULL), 0);
        read_all(p.job, "metrics.jsonl", &b);
        assert_int_equal(lines(&b), t[i].left);
        buf_clear(&b);
        write_steps(r, t[i].start, t[i].start + 2);
        report_free(r);
        read_all(p.job, "metrics.jsonl", &b);
        assert_int_equal(lines(&b), t[i].left + 2);
        buf_clear(&b);
        read_all(p.run, "metrics.jsonl", &b);
        assert_int_equal(lines(&b), 12);
        buf_clear(&b);
        drop_place(&p);
    }
}

static void a_generation_that_is_over_does_not_write_between_the_lines(void **state)
{
    static const uint64_t start[] = {3, 2, 0};

    (void)state;
    for (size_t i = 0; i < COUNT(start); i++) {
        struct report *old, *now;
        struct place p;
        struct buf b;

        make_place(&p);
        assert_int_equal(report_open(p.run, p.job, 0, &old, NULL), 0);
        assert_int_equal(report_cut(old, 0, NULL), 0);
        write_steps(old, 0, 3);
        assert_int_equal(report_open(p.run, p.job, 0, &now, NULL), 0);
        assert_int_equal(report_cut(now, start[i], NULL), 0);
        write_steps(old, 3, 5); /* its node had stood still */
        write_steps(now, start[i], 6);
        report_free(old);
        report_free(now);
        read_all(p.job, "metrics.jsonl", &b);
        assert_int_equal(lines(&b), 6);
        buf_clear(&b);
        drop_place(&p);
    }
}

static void half_a_line_of_a_killed_rank_is_cut_off(void **state)
{
    static const char text[] = "{\"step\": 0, \"loss\": 1}\n{\"step\": 1, \"lo";
    struct place p;
    struct report *r;
    struct buf b;
    char path[160];

    (void)state;
    make_place(&p);
    assert_int_equal(io_mkdirs(p.job, 0755, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", p.job);
    assert_int_equal(io_publish_file(path, text, sizeof(text) - 1, 0644, NULL), 0);
    assert_int_equal(report_open(p.run, p.job, 0, &r, NULL), 0);
    assert_int_equal(report_cut(r, 5, NULL), 0);
    write_steps(r, 1, 2);
    report_free(r);
    read_all(p.job, "metrics.jsonl", &b);
    assert_int_equal(lines(&b), 2);
    assert_non_null(strstr(buf_text(&b), "\"loss\": 1}\n{\"step\": 1, \"loss\""));
    buf_clear(&b);
    drop_place(&p);
}

static void events_are_whole_lines_with_their_rank(void **state)
{
    struct place p;
    struct report *r;
    struct buf b;

    (void)state;
    make_place(&p);
    assert_int_equal(report_open(p.run, p.job, 3, &r, NULL), 0);
    assert_int_equal(report_event_take(r, json_pack("{s:s}", "type", "note"), NULL), 0);
    assert_int_equal(report_event_take(r, json_pack("{s:s, s:i}", "type", "fault", "rank", 1), NULL), 0);
    assert_true(report_event_take(r, NULL, NULL) < 0);
    report_free(r);
    read_all(p.run, "events.jsonl", &b);
    assert_string_equal(buf_text(&b), "{\"type\":\"note\",\"rank\":3}\n{\"type\":\"fault\",\"rank\":1}\n");
    buf_clear(&b);
    drop_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_keep_all_their_bits_and_are_json),
        cmocka_unit_test(resuming_cuts_back_the_jobs_metrics_and_keeps_the_runs),
        cmocka_unit_test(a_generation_that_is_over_does_not_write_between_the_lines),
        cmocka_unit_test(half_a_line_of_a_killed_rank_is_cut_off),
        cmocka_unit_test(events_are_whole_lines_with_their_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
