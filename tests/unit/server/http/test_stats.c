/* What musterd counts of itself, in the text that Prometheus reads. */
#include "tests/unit/test.h"

#include <string.h>

#include "server/http/stats.h"

static void expect(struct stats *s, const char *line)
{
    BUF_CLEAR_AUTO struct buf out;

    buf_init(&out, 1 << 16);
    stats_print(s, &out);
    assert_false(out.failed);
    if (!strstr(buf_text(&out), line))
        fail_msg("no line '%s' in\n%s", line, buf_text(&out));
}

static void times_fall_into_the_buckets_up_to_which_they_took(void **state)
{
    struct stats *s = stats_new();

    (void)state;
    expect(s, "muster_commit_seconds_count 0\n");
    stats_observe(s, STATS_COMMIT, -5); /* a clock that went back */
    stats_observe(s, STATS_COMMIT, 500);
    stats_observe(s, STATS_COMMIT, 501);
    stats_observe(s, STATS_COMMIT, INT64_C(3600000001));
    expect(s, "muster_commit_seconds_bucket{le=\"0.0005\"} 2\n");
    expect(s, "muster_commit_seconds_bucket{le=\"0.001\"} 3\n");
    expect(s, "muster_commit_seconds_bucket{le=\"3600\"} 3\n");
    expect(s, "muster_commit_seconds_bucket{le=\"+Inf\"} 4\n");
    expect(s, "muster_commit_seconds_count 4\n");
    expect(s, "muster_commit_seconds_sum 3600.001002\n");
    expect(s, "muster_request_seconds_count 0\n");
    stats_free(s);
}

static void answers_are_counted_by_hundreds(void **state)
{
    static const int status[] = {200, 204, 404, 429, 500, 599, 0, -1, 600, 100000};
    struct stats *s = stats_new();

    (void)state;
    for (size_t i = 0; i < COUNT(status); i++)
        stats_answer(s, status[i]);
    expect(s, "muster_requests_total{status=\"2xx\"} 2\n");
    expect(s, "muster_requests_total{status=\"3xx\"} 0\n");
    expect(s, "muster_requests_total{status=\"4xx\"} 2\n");
    expect(s, "muster_requests_total{status=\"5xx\"} 2\n");
    stats_limited(s, true);
    stats_calls(s, 3);
    stats_calls(s, 4);
    expect(s, "muster_rate_limited_total{by=\"address\"} 0\nmuster_rate_limited_total{by=\"token\"} 1\n");
    expect(s, "muster_calls_total 7\n");
    stats_free(s);
    stats_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_fall_into_the_buckets_up_to_which_they_took),
        cmocka_unit_test(answers_are_counted_by_hundreds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
