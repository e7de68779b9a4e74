/* An incident is replayed as it was judged, and told in one sentence. */
#include "api/protocol/incident.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/test.h"

#define RANKS 8
#define DP 7
#define TP 8

struct one { /* a rank of a run of eight: all are members of dp, and pairs of tp */
    bool waits, stopped;
    int64_t idle_us;
    const char *phase, *op;
    int64_t key, call;
    int peer;
    int64_t in_dp;
    bool frozen;
};

static struct report_group groups[RANKS][2];

static void fill(struct incident_rank ranks[RANKS], const struct one of[RANKS])
{
    memset(ranks, 0, RANKS * sizeof(*ranks));
    for (int i = 0; i < RANKS; i++) {
        groups[i][0] = (struct report_group){.name = "dp", .key = DP, .entered = of[i].in_dp, .size = RANKS};
        groups[i][1] = (struct report_group){.name = "tp", .key = TP + i / 2, .entered = 9, .left = 9, .size = 2};
        (void)snprintf(ranks[i].node, sizeof(ranks[i].node), "n%d", i / 2 + 1);
        ranks[i].told = (struct report_rank){.rank = i, .state = REPORT_RUNNING, .step = 90};
        (void)snprintf(ranks[i].told.phase, sizeof(ranks[i].told.phase), "%s", of[i].phase);
        ranks[i].told.stall = (struct report_stall){.idle_us = of[i].idle_us,
                                                    .gap_us = 2000,
                                                    .stopped = of[i].stopped,
                                                    .frozen = of[i].frozen,
                                                    .key = of[i].waits ? of[i].key : 0,
                                                    .call = of[i].waits ? of[i].call : 0,
                                                    .peer = of[i].waits ? of[i].peer : -1,
                                                    .groups = groups[i],
                                                    .n_groups = 2};
        if (of[i].waits)
            (void)snprintf(ranks[i].told.stall.op, sizeof(ranks[i].told.stall.op), "%s", of[i].op);
    }
}

static const struct one waits = {true, false, 8000000, "reduce", "all_reduce", DP, 412, -1, 412, false};
static const struct one loads = {false, false, 8200000, "data", NULL, 0, 0, -1, 411, false};
static const struct one stopped = {true, true, 8200000, "reduce", "all_reduce", DP, 411, -1, 411, false};
static const struct one frozen = {true, true, 8200000, "reduce", "all_reduce", DP, 411, -1, 411, true};
static const struct one goes_on = {false, false, 3000, "forward", NULL, 0, 0, -1, 411, false};

/* What a verdict says of seven ranks that wait and one that is as told. */
static void judge(const struct one *odd, int at, struct hang_verdict *ret, char text[INCIDENT_TEXT_MAX])
{
    struct incident_rank ranks[RANKS];
    struct one of[RANKS];
    struct buf b;

    for (int i = 0; i < RANKS; i++)
        of[i] = i == at ? *odd : waits;
    fill(ranks, of);
    buf_init(&b, INCIDENT_TEXT_MAX - 1);
    assert_int_equal(incident_judge(ranks, RANKS, ret, &b), 0);
    (void)snprintf(text, INCIDENT_TEXT_MAX, "%s", buf_text(&b));
    buf_clear(&b);
}

static void a_verdict_is_one_sentence_that_a_person_understands(void **state)
{
    static const struct {
        const struct one *odd;
        const char *class_, *says;
    } row[] = {
        {&loads, "phase",
         "rank 5 on n3 has not entered all-reduce 412 of 'dp' at step 90 that 7 others wait in; it has been in the "
         "data "
         "loader for 8.2 s"},
        {&stopped, "stopped",
         "rank 5 on n3: its process has been stopped for 8.2 s, by a signal or a debugger; 7 others wait, rank 0 in "
         "all-reduce 412 of 'dp' at step 90"},
        {&frozen, "stopped",
         "rank 5 on n3: its control group has been frozen for 8.2 s; 7 others wait, rank 0 in all-reduce 412 of 'dp' "
         "at step 90"},
        {&goes_on, "none", ""},
    };
    char text[INCIDENT_TEXT_MAX];
    struct hang_verdict v;

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        judge(row[i].odd, 5, &v, text);
        assert_string_equal(hang_class_name(v.class_), row[i].class_);
        assert_string_equal(text, row[i].says);
    }
}

/* The verdict of a saved incident, as it is written. */
static char *replay(const char *saved)
{
    json_t *doc = json_loads(saved, 0, NULL), *told;
    struct incident_verdict again;
    struct incident i;
    struct hang_verdict v;
    struct merr err;
    struct buf b;
    char *text;

    buf_init(&b, INCIDENT_TEXT_MAX - 1);
    assert_int_equal(incident_read(doc, &i, &err), 0);
    assert_int_equal(incident_judge(i.ranks, i.n_ranks, &v, &b), 0);
    assert_int_equal(incident_verdict(&v, buf_text(&b), &again), 0);
    told = wire_write(&incident_verdict_message, &again);
    text = json_dumps(told, JSON_SORT_KEYS);
    wire_clear(&incident_verdict_message, &again);
    incident_clear(&i);
    json_decref(told);
    json_decref(doc);
    buf_clear(&b);
    return text;
}

static void a_saved_incident_gives_the_same_verdict_byte_for_byte(void **state)
{
    static const struct one *const odd[] = {&loads, &stopped, &goes_on, &waits};

    (void)state;
    for (size_t k = 0; k < COUNT(odd); k++)
        for (int at = 0; at < RANKS; at++) {
            struct incident_rank ranks[RANKS];
            struct one of[RANKS];
            struct incident i = {
                .job = "j17", .generation = 3, .number = 1, .layout = {.tp = 2, .pp = 1, .cp = 1, .dp = 4}};
            struct hang_verdict v;
            json_t *doc;
            char text[INCIDENT_TEXT_MAX], *saved, *first, *again;

            judge(odd[k], at, &v, text);
            for (int r = 0; r < RANKS; r++)
                of[r] = r == at ? *odd[k] : waits;
            fill(ranks, of);
            i.ranks = ranks;
            i.n_ranks = RANKS;
            assert_int_equal(incident_verdict(&v, text, &i.verdict), 0);
            doc = wire_write(&incident_verdict_message, &i.verdict);
            first = json_dumps(doc, JSON_SORT_KEYS);
            json_decref(doc);
            doc = incident_write(&i);
            saved = json_dumps(doc, 0);
            json_decref(doc);
            again = replay(saved);
            assert_string_equal(first, again);
            wire_clear(&incident_verdict_message, &i.verdict);
            free(saved);
            free(first);
            free(again);
        }
}

static void what_is_no_incident_of_this_version_is_refused_in_words(void **state)
{
    static const struct {
        const char *doc;
        int code;
        const char *says;
    } row[] = {
        {"{\"version\": 7, \"job\": \"j1\", \"generation\": 1}", -EPROTO,
         "the dump is of version 7, this program reads version 1"},
        {"{\"job\": \"j1\", \"generation\": 1}", -EINVAL, "version"},
        {"[]", -EINVAL, ""},
        {"{\"version\": 1, \"job\": \"j1\", \"generation\": 1, \"ranks\": [{\"node\": \"n1\", \"told\": {\"rank\": "
         "1}}]}",
         -EINVAL, "ranks[0] is rank 1"},
    };
    struct incident i;
    struct merr err;

    (void)state;
    for (size_t k = 0; k < COUNT(row); k++) {
        json_t *doc = json_loads(row[k].doc, 0, NULL);

        assert_non_null(doc);
        assert_int_equal(incident_read(doc, &i, &err), row[k].code);
        if (!strstr(err.text, row[k].says))
            fail_msg("'%s' does not say '%s'", err.text, row[k].says);
        json_decref(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_is_one_sentence_that_a_person_understands),
        cmocka_unit_test(a_saved_incident_gives_the_same_verdict_byte_for_byte),
        cmocka_unit_test(what_is_no_incident_of_this_version_is_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
