/* Devices slower than others of their class: lines of metrics in, what is known of slots and what is told out. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/shares.h"
#include "server/cluster/stragglers.h"

#define JOB 7
#define GENERATION 3

static char told[256];  /* the codes of notes, each with a space before it */
static char words[256]; /* of the last one */
static int stored;      /* how often the node was left marked for the store */
static int found;       /* devices found slow */
static int64_t wall_us; /* the time */

struct scene { /* node n1 with four slots, the first two of class "a"; a job of two replicas */
    struct cluster cluster;
    struct slow_rules rules;
    struct node node, *nodes[1];
    struct slot slots[4];
    struct job_place places[2];
    struct job job;
    struct pace pace;
};

static void place(struct scene *s, int replica, int slot)
{
    struct job_place *p = &s->places[replica];

    *p = (struct job_place){.slot = slot};
    (void)snprintf(p->node, sizeof(p->node), "n1");
    memcpy(p->class_, s->cluster.classes.name[s->slots[slot].class_], sizeof(p->class_));
    s->slots[slot].job = JOB;
}

/* The replicas are on slots a and b; slots 0 and 1 are of class "a", 2 and 3 of "b". */
static struct scene *scene_new(int a, int b)
{
    struct scene *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    told[0] = '\0';
    stored = found = 0;
    wall_us = 1;
    (void)snprintf(s->cluster.classes.name[0], SPEC_NAME_MAX, "a");
    (void)snprintf(s->cluster.classes.name[1], SPEC_NAME_MAX, "b");
    s->cluster.classes.n = 2;
    s->rules = (struct slow_rules){.ratio = 1.5, .after_us = 0, .retry_us = INT64_C(3600000000)};
    (void)snprintf(s->node.name, sizeof(s->node.name), "n1");
    s->node.slots = s->slots;
    s->node.n_slots = COUNT(s->slots);
    s->nodes[0] = &s->node;
    s->cluster.nodes = s->nodes;
    s->cluster.n_nodes = 1;
    for (int i = 0; i < 4; i++)
        s->slots[i] = (struct slot){.slot = i, .class_ = (uint8_t)(i / 2)};
    s->job = (struct job){.id = JOB,
                          .kind = JOB_TRAIN,
                          .live = true,
                          .generation = GENERATION,
                          .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 2},
                          .places = s->places,
                          .n_places = 2};
    s->pace.workers = 4;
    place(s, 0, a);
    place(s, 1, b);
    return s;
}

/* What was found of the cluster is told and stored. */
static void take_notes(struct scene *s, struct notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) {
        size_t n = strlen(told);

        (void)snprintf(told + n, sizeof(told) - n, " %s", notes->v[i].code);
        (void)snprintf(words, sizeof(words), "%s", notes->v[i].text);
    }
    stored += s->node.changed;
    s->node.changed = false;
    notes_clear(notes);
}

static void learn(struct scene *s, uint32_t generation, const json_t *line)
{
    struct straggler_run run = {.job = &s->job, .pace = &s->pace, .generation = generation};
    struct notes notes = {.n = 0};

    found += stragglers_learn(&s->cluster, &s->rules, &run, line, ++wall_us, &notes);
    take_notes(s, &notes);
}

static void expire(struct scene *s)
{
    struct notes notes = {.n = 0};

    stragglers_expire(&s->cluster, ++wall_us, &notes);
    take_notes(s, &notes);
}

/* So many lines of metrics, as the server takes them in. */
static void run(struct scene *s, int lines, double ms_0, double ms_1)
{
    json_t *line = json_pack("{s:[f, f]}", "leaf_ms", ms_0, ms_1);

    for (int i = 0; i < lines; i++) {
        learn(s, s->job.generation, line);
        shares_learn(&s->cluster, &s->job, &s->pace, s->job.generation, json_object_get(line, "leaf_ms"));
        s->pace.learned_generation = s->job.generation;
    }
    json_decref(line);
}

static void one_that_is_slower_than_the_other_of_its_class_is_found_and_told_once(void **state)
{
    struct scene *s = scene_new(0, 1);
    char text[200];

    (void)state;
    run(s, 20, 10, 10);
    assert_string_equal(told, "");
    run(s, 60, 10, 30);
    assert_string_equal(told, " device_slow");
    assert_non_null(strstr(words, "times as long as others of class a"));
    assert_false(s->slots[0].slow.slow);
    assert_true(s->slots[1].slow.slow);
    assert_int_equal(s->slots[1].slow_alone, 0);
    assert_int_equal(found, 1);
    assert_int_equal(stored, 1);
    assert_true(cluster_slowness(&s->cluster, &s->places[0]) == 1);
    assert_true(cluster_slowness(&s->cluster, &s->places[1]) > 1.5);
    stragglers_name(&s->cluster, &s->job, text, sizeof(text));
    assert_non_null(strstr(text, "device 1 of n1"));
    run(s, 60, 10, 10);
    assert_string_equal(told, " device_slow device_well");
    assert_false(s->slots[1].slow.slow);
    free(s);
}

static void what_slows_both_is_no_matter(void **state)
{
    struct scene *s = scene_new(0, 1);

    (void)state;
    run(s, 30, 10, 10);
    run(s, 200, 50, 50);
    assert_string_equal(told, "");
    free(s);
}

static void of_two_classes_one_may_be_slower_from_the_start(void **state)
{
    struct scene *s = scene_new(0, 2);

    (void)state;
    run(s, 300, 10, 40);
    assert_string_equal(told, "");
    free(s);
}

/* Alone in its class: what it used to take says so, and that is kept with the finding. */
static void one_alone_in_its_class_is_found_by_its_own_past(void **state)
{
    struct scene *s = scene_new(0, 2);

    (void)state;
    run(s, 100, 10, 40);
    run(s, 100, 10, 120);
    assert_string_equal(told, " device_slow");
    assert_non_null(strstr(words, "times as long as is usual in class b"));
    assert_false(s->slots[0].slow.slow);
    assert_true(s->slots[2].slow.slow);
    assert_int_equal(s->slots[2].slow_alone, JOB);
    free(s);
}

/* It was moved, and the device after seems as slow: it is the comparison that is wrong, and both are well. */
static void when_the_next_device_seems_as_slow_both_are_well(void **state)
{
    struct scene *s = scene_new(0, 2);

    (void)state;
    run(s, 100, 10, 40);
    run(s, 100, 10, 120);
    assert_true(s->slots[2].slow.slow);
    s->slots[2].job = 0;
    place(s, 1, 3);
    s->job.generation++;
    run(s, 100, 10, 120);
    assert_string_equal(told, " device_slow device_retry");
    assert_false(s->slots[2].slow.slow);
    assert_false(s->slots[3].slow.slow);
    run(s, 300, 10, 120); /* what is usual is learned anew */
    assert_false(s->slots[3].slow.slow);
    free(s);
}

static void lines_that_say_nothing_are_left_out(void **state)
{
    struct scene *s = scene_new(0, 1);
    json_t *documents = json_pack("{s:[f, f], s:i}", "leaf_ms", 10., 90., "documents", 3);
    json_t *short_ = json_pack("{s:[f]}", "leaf_ms", 10.), *none = json_object();
    json_t *good = json_pack("{s:[f, f]}", "leaf_ms", 10., 90.);

    (void)state;
    s->pace.learned_generation = GENERATION;
    for (int i = 0; i < 100; i++) {
        learn(s, GENERATION, documents);
        learn(s, GENERATION, short_);
        learn(s, GENERATION, none);
        learn(s, GENERATION - 1, good); /* of a run before */
    }
    s->rules.ratio = 0; /* turned off */
    for (int i = 0; i < 100; i++)
        learn(s, GENERATION, good);
    assert_string_equal(told, "");
    assert_false(s->slots[1].slow.slow);
    json_decref(documents);
    json_decref(short_);
    json_decref(none);
    json_decref(good);
    free(s);
}

static void what_is_known_goes_to_the_store_and_back(void **state)
{
    struct scene *s = scene_new(0, 2), *later = scene_new(0, 2);
    json_t *slots = json_array();

    (void)state;
    run(s, 100, 10, 40);
    run(s, 100, 10, 120);
    for (int i = 0; i < 4; i++)
        (void)json_array_append_new(slots, json_pack("{s:o*}", "slow", stragglers_record(&s->slots[i])));
    assert_null(stragglers_record(&s->slots[0]));
    stragglers_load(&later->node, &later->rules, slots);
    assert_false(later->slots[0].slow.slow);
    assert_int_equal(later->slots[2].slow.found_us, s->slots[2].slow.found_us);
    assert_int_equal(later->slots[2].slow.retry_at_us, s->slots[2].slow.retry_at_us);
    assert_int_equal(later->slots[2].slow.times, 1);
    assert_int_equal(later->slots[2].slow_alone, JOB);
    assert_true(later->slots[2].slow.slow && later->slots[2].slow.ratio > 1.5);
    later->slots[2].slow.slow = false;
    later->rules.ratio = 0; /* turned off */
    stragglers_load(&later->node, &later->rules, slots);
    assert_false(later->slots[2].slow.slow);
    json_decref(slots);
    free(s);
    free(later);
}

static void a_slow_device_is_tried_again_when_it_is_idle_and_its_time_has_come_or_somebody_says_so(void **state)
{
    struct scene *s = scene_new(0, 1);
    struct notes forgiven = {.n = 0};

    (void)state;
    run(s, 20, 10, 10);
    run(s, 60, 10, 30);
    told[0] = '\0';
    expire(s);
    s->slots[1].slow.retry_at_us = 1;
    expire(s); /* it has work */
    assert_true(s->slots[1].slow.slow);
    s->slots[1].job = 0;
    expire(s);
    assert_false(s->slots[1].slow.slow);
    assert_string_equal(told, " device_retry");
    s->slots[1].job = JOB;
    run(s, 60, 10, 30);
    assert_true(s->slots[1].slow.slow);
    stragglers_forgive(&s->node, &forgiven);
    take_notes(s, &forgiven);
    assert_false(s->slots[1].slow.slow);
    assert_string_equal(told, " device_retry device_slow device_retry");
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_slower_than_the_other_of_its_class_is_found_and_told_once),
        cmocka_unit_test(what_slows_both_is_no_matter),
        cmocka_unit_test(of_two_classes_one_may_be_slower_from_the_start),
        cmocka_unit_test(one_alone_in_its_class_is_found_by_its_own_past),
        cmocka_unit_test(when_the_next_device_seems_as_slow_both_are_well),
        cmocka_unit_test(lines_that_say_nothing_are_left_out),
        cmocka_unit_test(what_is_known_goes_to_the_store_and_back),
        cmocka_unit_test(a_slow_device_is_tried_again_when_it_is_idle_and_its_time_has_come_or_somebody_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
