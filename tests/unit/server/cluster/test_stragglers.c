/* Devices slower than others of their class: lines of metrics in, what is known of slots and what is told out. Nothing
 * is stored: both ways out of the file are counted here. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/core.h"
#include "server/cluster/shares.h"

#define JOB 7
#define GENERATION 3

static char told[256];  /* the codes of events, each with a space before it */
static char words[256]; /* of the last one */
static int stored;

void __wrap_events_note(struct core *c, uint64_t job, const char *user, const char *type, uint32_t generation,
                        const char *actor, const char *code, const char *text, json_t *data_new);
void __wrap_agents_store(struct core *c, const struct node *n);

void __wrap_events_note(struct core *c, uint64_t job, const char *user, const char *type, uint32_t generation,
                        const char *actor, const char *code, const char *text, json_t *data_new)
{
    size_t n = strlen(told);

    (void)c, (void)job, (void)user, (void)type, (void)generation, (void)actor;
    (void)snprintf(told + n, sizeof(told) - n, " %s", code);
    (void)snprintf(words, sizeof(words), "%s", text);
    json_decref(data_new);
}

void __wrap_agents_store(struct core *c, const struct node *n)
{
    (void)c, (void)n;
    stored++;
}

struct scene { /* node n1 with four slots, the first two of class "a"; a job of two replicas */
    struct core core;
    struct node node, *nodes[1];
    struct slot slots[4];
    struct job_place places[2];
    struct entry e;
};

static void place(struct scene *s, int replica, int slot)
{
    struct job_place *p = &s->places[replica];

    *p = (struct job_place){.slot = slot};
    (void)snprintf(p->node, sizeof(p->node), "n1");
    memcpy(p->class_, s->core.classes[s->slots[slot].class_], sizeof(p->class_));
    s->slots[slot].job = JOB;
}

/* The replicas are on slots a and b; slots 0 and 1 are of class "a", 2 and 3 of "b". */
static struct scene *scene_new(int a, int b)
{
    struct scene *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    told[0] = '\0';
    stored = 0;
    (void)snprintf(s->core.classes[0], sizeof(s->core.classes[0]), "a");
    (void)snprintf(s->core.classes[1], sizeof(s->core.classes[1]), "b");
    s->core.n_classes = 2;
    s->core.cfg.slow = (struct slow_rules){.ratio = 1.5, .after_us = 0, .retry_us = INT64_C(3600000000)};
    (void)snprintf(s->node.name, sizeof(s->node.name), "n1");
    s->node.slots = s->slots;
    s->node.n_slots = COUNT(s->slots);
    s->nodes[0] = &s->node;
    s->core.nodes = s->nodes;
    s->core.n_nodes = 1;
    for (int i = 0; i < 4; i++)
        s->slots[i] = (struct slot){.slot = i, .class_ = (uint8_t)(i / 2)};
    s->e.job = (struct job){.id = JOB,
                            .kind = JOB_TRAIN,
                            .live = true,
                            .generation = GENERATION,
                            .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 2},
                            .places = s->places,
                            .n_places = 2};
    s->e.facts.virtual_workers = 4;
    place(s, 0, a);
    place(s, 1, b);
    return s;
}

/* So many lines of metrics, as the server takes them in. */
static void run(struct scene *s, int lines, double ms_0, double ms_1)
{
    json_t *line = json_pack("{s:[f, f]}", "leaf_ms", ms_0, ms_1);

    for (int i = 0; i < lines; i++) {
        stragglers_learn(&s->core, &s->e, s->e.job.generation, line);
        shares_learn(&s->core, &s->e, s->e.job.generation, json_object_get(line, "leaf_ms"));
        s->e.learned_generation = s->e.job.generation;
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
    assert_true(s->core.schedule_wanted);
    assert_int_equal(s->core.slow_found, 1);
    assert_int_equal(stored, 1);
    assert_true(stragglers_factor(&s->core, &s->places[0]) == 1);
    assert_true(stragglers_factor(&s->core, &s->places[1]) > 1.5);
    stragglers_name(&s->core, &s->e.job, text, sizeof(text));
    assert_non_null(strstr(text, "slot 1 of n1"));
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
    s->e.job.generation++;
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
    s->e.learned_generation = GENERATION;
    for (int i = 0; i < 100; i++) {
        stragglers_learn(&s->core, &s->e, GENERATION, documents);
        stragglers_learn(&s->core, &s->e, GENERATION, short_);
        stragglers_learn(&s->core, &s->e, GENERATION, none);
        stragglers_learn(&s->core, &s->e, GENERATION - 1, good); /* of a run before */
    }
    s->core.cfg.slow.ratio = 0; /* turned off */
    for (int i = 0; i < 100; i++)
        stragglers_learn(&s->core, &s->e, GENERATION, good);
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
    stragglers_load(&later->core, &later->node, slots);
    assert_false(later->slots[0].slow.slow);
    assert_int_equal(later->slots[2].slow.found_us, s->slots[2].slow.found_us);
    assert_int_equal(later->slots[2].slow.retry_at_us, s->slots[2].slow.retry_at_us);
    assert_int_equal(later->slots[2].slow.times, 1);
    assert_int_equal(later->slots[2].slow_alone, JOB);
    assert_true(later->slots[2].slow.slow && later->slots[2].slow.ratio > 1.5);
    later->slots[2].slow.slow = false;
    later->core.cfg.slow.ratio = 0; /* turned off */
    stragglers_load(&later->core, &later->node, slots);
    assert_false(later->slots[2].slow.slow);
    json_decref(slots);
    free(s);
    free(later);
}

static void a_slow_device_is_tried_again_when_it_is_idle_and_its_time_has_come_or_somebody_says_so(void **state)
{
    struct scene *s = scene_new(0, 1);

    (void)state;
    run(s, 20, 10, 10);
    run(s, 60, 10, 30);
    told[0] = '\0';
    stragglers_tick(&s->core);
    s->slots[1].slow.retry_at_us = 1;
    stragglers_tick(&s->core); /* it has work */
    assert_true(s->slots[1].slow.slow);
    s->slots[1].job = 0;
    stragglers_tick(&s->core);
    assert_false(s->slots[1].slow.slow);
    assert_string_equal(told, " device_retry");
    s->slots[1].job = JOB;
    run(s, 60, 10, 30);
    assert_true(s->slots[1].slow.slow);
    stragglers_pardon(&s->core, &s->node, "user");
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
