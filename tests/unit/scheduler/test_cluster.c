#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/philox.h"
#include "scheduler/cluster/cluster.h"

#define SLOTS_MAX 8
#define NODES_MAX 6
#define JOBS_MAX 24

struct world {
    struct cluster_slot slots[NODES_MAX][SLOTS_MAX];
    struct cluster_node nodes[NODES_MAX];
    struct cluster_job jobs[JOBS_MAX];
    size_t n_nodes, n_jobs;
};

static void add_node(struct world *w, int n, uint8_t class_)
{
    struct cluster_slot *s = w->slots[w->n_nodes];

    for (int i = 0; i < n; i++)
        s[i] = (struct cluster_slot){ .slot = i, .class_ = class_, .free = true };
    w->nodes[w->n_nodes++] = (struct cluster_node){ .slots = s, .n_slots = (size_t)n };
}

static void add_job(struct world *w, uint64_t id, int priority, int min, int max, int replica)
{
    w->jobs[w->n_jobs++] = (struct cluster_job){ .id = id, .priority = priority, .min = min, .max = max,
                                                 .replica = replica, .replicas_max = 1000,
                                                 .classes = CLUSTER_ANY_CLASS };
}

static struct cluster_plan plan_of(const struct world *w)
{
    struct cluster_plan p;

    assert_int_equal(cluster_schedule(&(struct cluster_snapshot){ .nodes = w->nodes, .n_nodes = w->n_nodes,
                                                                  .jobs = w->jobs, .n_jobs = w->n_jobs }, &p), 0);
    return p;
}

static void priority_goes_before_age_and_all_or_nothing(void **state)
{
    struct world w = { .n_nodes = 0 };
    struct cluster_plan p;

    (void)state;
    add_node(&w, 4, 0);
    add_job(&w, 1, 50, 3, 3, 1);
    add_job(&w, 2, 60, 2, 2, 1);
    add_job(&w, 3, 50, 1, 1, 1);
    p = plan_of(&w);
    assert_int_equal(p.n_assignments, 1);
    assert_int_equal(p.assignments[0].job, 1);
    assert_int_equal(p.reasons[0].code, CLUSTER_INSUFFICIENT);
    assert_int_equal(p.reasons[0].need, 3);
    assert_int_equal(p.reasons[0].free, 2);
    assert_int_equal(p.reasons[2].code, CLUSTER_BEHIND); /* it would fit, but must not delay job 1 */
    assert_int_equal(p.reasons[2].behind, 1);
    cluster_plan_clear(&p);
}

static void a_job_gets_whole_replicas_up_to_its_max(void **state)
{
    static const struct {
        int free, min, max, replica, replicas_max, got;
    } row[] = {
        { 8, 1, 8, 1, 1000, 8 }, { 7, 2, 8, 2, 1000, 6 },  { 8, 1, 8, 4, 1, 4 }, { 8, 3, 8, 4, 1000, 8 },
        { 3, 4, 8, 4, 1000, 0 }, { 8, 5, 7, 4, 1000, 0 },  { 8, 1, 3, 4, 1000, 0 }, { 5, 1, 8, 4, 1000, 4 },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct world w = { .n_nodes = 0 };
        struct cluster_plan p;

        add_node(&w, row[i].free, 0);
        add_job(&w, 1, 50, row[i].min, row[i].max, row[i].replica);
        w.jobs[0].replicas_max = row[i].replicas_max;
        p = plan_of(&w);
        if ((p.n_assignments ? (int)p.assignments[0].n : 0) != row[i].got)
            fail_msg("row %zu: got %zu", i, p.n_places);
        cluster_plan_clear(&p);
    }
}

static void the_reason_says_why_a_job_cannot_run_here(void **state)
{
    struct world w = { .n_nodes = 0 };
    struct cluster_plan p = plan_of(&w);

    (void)state;
    cluster_plan_clear(&p);
    add_job(&w, 1, 50, 1, 1, 1);
    p = plan_of(&w);
    assert_int_equal(p.reasons[0].code, CLUSTER_NO_NODES);
    cluster_plan_clear(&p);

    add_node(&w, 2, 0);
    add_node(&w, 2, 0);
    w.nodes[1].state = CLUSTER_NODE_DRAINED;
    w.jobs[0].min = w.jobs[0].max = 3;
    add_job(&w, 2, 50, 5, 5, 1);
    add_job(&w, 3, 50, 1, 1, 1);
    w.jobs[2].classes = 2;
    add_job(&w, 4, 50, 1, 1, 1);
    w.jobs[3].held = true;
    add_job(&w, 5, 50, 5, 7, 4);
    add_job(&w, 6, 1, 2, 2, 1);
    p = plan_of(&w);
    assert_int_equal(p.reasons[0].code, CLUSTER_NODES_DRAINED);
    assert_int_equal(p.reasons[1].code, CLUSTER_TOO_SMALL);
    assert_int_equal(p.reasons[2].code, CLUSTER_NO_CLASS);
    assert_int_equal(p.reasons[3].code, CLUSTER_HELD);
    assert_int_equal(p.reasons[4].code, CLUSTER_NO_LAYOUT);
    assert_int_equal(p.reasons[5].code, CLUSTER_ASSIGNED); /* none of those blocks it */
    cluster_plan_clear(&p);
}

static void a_blocked_job_reserves_only_its_own_classes(void **state)
{
    struct world w = { .n_nodes = 0 };
    struct cluster_plan p;

    (void)state;
    add_node(&w, 2, 0);
    add_node(&w, 2, 1);
    w.slots[0][0].free = false;
    add_job(&w, 1, 50, 2, 2, 1);
    w.jobs[0].classes = 1;
    add_job(&w, 2, 50, 1, 1, 1);
    w.jobs[1].classes = 1;
    add_job(&w, 3, 50, 2, 2, 1);
    w.jobs[2].classes = 2;
    p = plan_of(&w);
    assert_int_equal(p.reasons[0].code, CLUSTER_INSUFFICIENT);
    assert_int_equal(p.reasons[1].code, CLUSTER_BEHIND);
    assert_int_equal(p.reasons[2].code, CLUSTER_ASSIGNED);
    cluster_plan_clear(&p);
}

static void jobs_are_packed_onto_the_fewest_and_fullest_nodes(void **state)
{
    struct world w = { .n_nodes = 0 };
    struct cluster_plan p;

    (void)state;
    add_node(&w, 4, 0);
    add_node(&w, 2, 0);
    add_node(&w, 3, 0);
    add_job(&w, 1, 90, 2, 2, 1); /* the node with two */
    add_job(&w, 2, 80, 7, 7, 1); /* all of the others */
    p = plan_of(&w);
    assert_int_equal(p.n_assignments, 2);
    assert_int_equal(p.places[0].node, 1);
    assert_int_equal(p.places[1].node, 1);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(p.places[2 + i].node, i < 4 ? 0 : 2);
    cluster_plan_clear(&p);
}

static uint32_t draw(unsigned seed, uint32_t *at, uint32_t below)
{
    uint32_t ctr[4] = { (*at)++, 0, 0, 0 }, key[2] = { seed, 2 }, out[4];

    philox4x32(ctr, key, out);
    return out[0] % below;
}

static void make_world(struct world *w, unsigned seed, uint32_t *at)
{
    size_t jobs = draw(seed, at, JOBS_MAX + 1), nodes = draw(seed, at, NODES_MAX + 1);

    *w = (struct world){ .n_nodes = 0 };
    for (size_t i = 0; i < nodes; i++) {
        add_node(w, (int)draw(seed, at, SLOTS_MAX + 1), (uint8_t)draw(seed, at, 3));
        w->nodes[i].state = (enum cluster_node_state)(draw(seed, at, 3) ? 0 : draw(seed, at, 4));
        for (size_t k = 0; k < w->nodes[i].n_slots; k++)
            w->slots[i][k].free = draw(seed, at, 4) != 0;
    }
    for (size_t i = 0; i < jobs; i++) {
        int min = 1 + (int)draw(seed, at, 6);

        add_job(w, i + 1, (int)draw(seed, at, 3) * 10, min, min + (int)draw(seed, at, 6), 1 + (int)draw(seed, at, 4));
        w->jobs[i].replicas_max = 1 + (int)draw(seed, at, 4);
        w->jobs[i].classes = draw(seed, at, 2) ? CLUSTER_ANY_CLASS : 1 + draw(seed, at, 7);
        w->jobs[i].held = draw(seed, at, 8) == 0;
    }
}

static bool before(const struct cluster_job *a, const struct cluster_job *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

static void check_plan(const struct world *w, const struct cluster_plan *p, unsigned seed)
{
    bool taken[NODES_MAX][SLOTS_MAX] = { { false } };
    size_t assigned = 0;

    for (size_t i = 0; i < p->n_assignments; i++) {
        const struct cluster_assignment *a = &p->assignments[i];
        const struct cluster_job *j = &w->jobs[a->job];

        if (a->n % (size_t)j->replica || (int)a->n < j->min || (int)a->n > j->max ||
            (int)a->n / j->replica > j->replicas_max || j->held)
            fail_msg("seed %u: job %zu has %zu devices", seed, a->job, a->n);
        for (size_t k = a->first; k < a->first + a->n; k++) {
            const struct cluster_place *at = &p->places[k];
            const struct cluster_slot *s = &w->slots[at->node][at->slot];

            if (taken[at->node][at->slot] || !s->free || w->nodes[at->node].state != CLUSTER_NODE_READY ||
                !(j->classes >> s->class_ & 1) || s->class_ != at->class_)
                fail_msg("seed %u: job %zu must not have slot %d of node %u", seed, a->job, at->slot, at->node);
            taken[at->node][at->slot] = true;
        }
        for (size_t k = 0; k < w->n_jobs; k++) /* nobody is overtaken by one that uses its classes */
            if (before(&w->jobs[k], j) && (w->jobs[k].classes & j->classes) &&
                (p->reasons[k].code == CLUSTER_INSUFFICIENT || p->reasons[k].code == CLUSTER_BEHIND))
                fail_msg("seed %u: job %zu overtakes job %zu", seed, a->job, k);
    }
    for (size_t i = 0; i < w->n_jobs; i++)
        assigned += p->reasons[i].code == CLUSTER_ASSIGNED;
    assert_int_equal(assigned, p->n_assignments);
}

static void any_plan_keeps_the_rules_and_does_not_depend_on_the_order_of_the_list(void **state)
{
    unsigned seed = (unsigned)time(NULL);
    uint32_t at = 0;

    (void)state;
    print_message("seed %u\n", seed);
    for (int run = 0; run < 3000; run++) {
        struct world w;
        struct cluster_plan p, q;

        make_world(&w, seed, &at);
        p = plan_of(&w);
        check_plan(&w, &p, seed);
        for (size_t i = 0; i < w.n_jobs / 2; i++) { /* the same jobs the other way round */
            struct cluster_job swap = w.jobs[i];

            w.jobs[i] = w.jobs[w.n_jobs - 1 - i];
            w.jobs[w.n_jobs - 1 - i] = swap;
        }
        q = plan_of(&w);
        assert_int_equal(p.n_places, q.n_places);
        for (size_t i = 0; i < p.n_places; i++) {
            assert_int_equal(p.places[i].node, q.places[i].node);
            assert_int_equal(p.places[i].slot, q.places[i].slot);
        }
        for (size_t i = 0; i < w.n_jobs; i++)
            assert_int_equal(p.reasons[i].code, q.reasons[w.n_jobs - 1 - i].code);
        cluster_plan_clear(&p);
        cluster_plan_clear(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priority_goes_before_age_and_all_or_nothing),
        cmocka_unit_test(a_job_gets_whole_replicas_up_to_its_max),
        cmocka_unit_test(the_reason_says_why_a_job_cannot_run_here),
        cmocka_unit_test(a_blocked_job_reserves_only_its_own_classes),
        cmocka_unit_test(jobs_are_packed_onto_the_fewest_and_fullest_nodes),
        cmocka_unit_test(any_plan_keeps_the_rules_and_does_not_depend_on_the_order_of_the_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
