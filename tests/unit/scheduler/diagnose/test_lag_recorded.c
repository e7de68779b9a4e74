/* What is told of runs whose records were kept as their ranks told them, on a host with too few processors.
 *
 * A file has a line "place ROLE REPLICA NODE TP DP CP" for each rank, then one for each record in the order in which
 * they came: rank, first step, steps, those that count, computing, processor time, all of it, work, in calls of tp, dp
 * and cp, without a processor.
 */
#include <stdio.h>

#include "scheduler/diagnose/lag.h"
#include "tests/unit/test.h"

#define RANKS_MAX 8
#define FOLDER "tests/unit/scheduler/diagnose/recorded/"

struct row {
    const char *name;
    enum lag_class class_; /* LAG_NONE: nothing but that a host is busy */
    uint32_t rank;
    uint64_t by; /* the step at which it is told at the latest */
};

static void take(struct lag *l, const char *line)
{
    unsigned v[4];
    struct lag_sample s = {0};

    assert_int_equal(sscanf(line, "%u %u %u %u %f %f %f %f %f %f %f %f", &v[0], &v[1], &v[2], &v[3], &s.busy, &s.cpu,
                            &s.wall, &s.work, &s.call[LAG_TP], &s.call[LAG_DP], &s.call[LAG_CP], &s.starved),
                     12);
    lag_take(l, v[0], &(struct lag_span){v[1], v[2], v[3]}, &s);
}

/* The first verdict but that a host is busy, unless that is looked for. False: there is none. */
static bool verdict_of(const struct row *row, struct lag_finding *ret, uint64_t *ret_end)
{
    struct lag_place place[RANKS_MAX];
    struct lag *l = NULL;
    bool found = false;
    char path[256], line[256];
    size_t n = 0;
    FILE *f;

    (void)snprintf(path, sizeof(path), FOLDER "%s.txt", row->name);
    f = fopen(path, "r");
    if (!f)
        fail_msg("no %s", path);
    while (!found && fgets(line, sizeof(line), f)) {
        struct lag_place p = {0};
        struct lag_verdict v;

        if (line[0] == '#')
            continue;
        if (sscanf(line, "place %u %u %u %u %u %u", &p.role, &p.replica, &p.node, &p.team[LAG_TP], &p.team[LAG_DP],
                   &p.team[LAG_CP]) == 6) {
            assert_in_range(n, 0, RANKS_MAX - 1);
            place[n++] = p;
            continue;
        }
        if (!l)
            assert_int_equal(lag_new(place, n, &l), 0);
        take(l, line);
        while (!found && lag_judge(l, &v)) {
            found = v.n > 0 && (v.found[0].class_ != LAG_HOST || row->class_ == LAG_HOST) && !v.found[0].over;
            if (found) {
                *ret = v.found[0];
                *ret_end = v.end_step;
            }
        }
    }
    (void)fclose(f);
    lag_free(l);
    return found;
}

static void recorded_runs_are_told_as_what_they_were(void **state)
{
    static const struct row rows[] = {
        {"disturbed_for_a_second", .class_ = LAG_NONE},
        {"disturbed_pair", .class_ = LAG_NONE},
        {"half_a_processor", .class_ = LAG_NONE},
        {"at_its_limit", .class_ = LAG_HOST, .rank = 1, .by = 2240},
        {"slow_and_short_of_processors", .class_ = LAG_NONE}, /* it ends before the rank can be told */
        {"slow_link_among_many", .class_ = LAG_LINK, .rank = 0, .by = 100},
        {"slow_among_many", .class_ = LAG_COMPUTE, .rank = 0, .by = 100},
        {"slow_beside_little", .class_ = LAG_COMPUTE, .rank = 1, .by = 100},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct lag_finding f;
        uint64_t end = 0;
        bool found = verdict_of(&rows[i], &f, &end);

        if (!found && rows[i].class_ == LAG_NONE)
            continue;
        if (!found || f.class_ != rows[i].class_ || f.rank != rows[i].rank || end > rows[i].by)
            fail_msg("%s: %s of rank %u at step %llu", rows[i].name, found ? lag_class_name(f.class_) : "nothing",
                     found ? f.rank : 0, (unsigned long long)end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_runs_are_told_as_what_they_were)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
