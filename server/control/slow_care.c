#include "server/control/slow_care.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/state.h"

#define TESTS_MAX 16 /* of a run: each holds it up for a moment */
#define TEST_US INT64_C(120000000)
#define SLOWER 1.075 /* 1 / 0.93: two devices that are well differ by less */
#define TIME_MAX 1e9

/* One of the same class that is as fast as it should be; on another node where there is one, and of that the next one:
 * ranks of a node may share what is slow. -1: none. */
static int find_peer(const struct entry *e, int rank)
{
    const struct job *j = &e->job;
    int found = -1;

    for (size_t k = 1; k < j->n_places; k++) {
        size_t i = ((size_t)rank + k) % j->n_places;

        if (strcmp(j->places[i].class_, j->places[rank].class_) != 0 || lag_is_slow(e->run.lag, i))
            continue;
        if (strcmp(j->places[i].node, j->places[rank].node) != 0)
            return (int)i;
        found = found < 0 ? (int)i : found;
    }
    return found;
}

void slow_care_found(struct core *c, struct entry *e, const struct lag_finding *f)
{
    struct entry_test *t = &e->run.test;
    int peer = find_peer(e, (int)f->rank);

    if (peer < 0 || t->number >= TESTS_MAX || (t->asked && c->now.mono_us < t->deadline_us))
        return;
    *t = (struct entry_test){
        .number = t->number + 1, .asked = true, .rank = {(int)f->rank, peer}, .deadline_us = c->now.mono_us + TEST_US};
    change_orders(c, &e->job);
}

/* The rank's finding stands with these words instead of those that nobody has tested it. */
static void amend(struct entry *e, const char *words, bool confirmed, int rank, char *ret, size_t size)
{
    json_t *all = json_array(), *one;
    size_t i;

    json_array_foreach (e->run.slow, i, one) {
        const char *text = json_string_value(json_object_get(one, "text")), *end = strstr(text, SLOW_CARE_UNTESTED);
        json_t *kept = json_copy(one);

        if (end && json_integer_value(json_object_get(one, "rank")) == rank) {
            (void)snprintf(ret, size, "%.*s%s", (int)(end - text), text, words);
            (void)json_object_set_new(kept, "text", json_string(ret));
            (void)json_object_set_new(kept, "confirmed", json_boolean(confirmed));
        }
        (void)json_array_append_new(all, kept);
    }
    json_decref(e->run.slow); /* answers under way may have the old one */
    e->run.slow = all;
}

static void conclude(struct core *c, struct entry *e, struct slow_care_verdict *ret)
{
    const struct entry_test *t = &e->run.test;
    const struct job_place *p = &e->job.places[t->rank[0]], *peer = &e->job.places[t->rank[1]];
    double copies = t->copy_us[0] / t->copy_us[1];
    bool by_copies;
    char words[256];

    *ret = (struct slow_care_verdict){.rank = t->rank[0], .ratio = t->product_us[0] / t->product_us[1]};
    by_copies = ret->ratio < SLOWER && copies >= SLOWER;
    ret->ratio = by_copies ? copies : ret->ratio;
    ret->confirmed = ret->ratio >= SLOWER;
    (void)snprintf(words, sizeof(words), "%s by a test of the device: a %s takes it %.3f ms, and rank %d on %s %.3f ms",
                   ret->confirmed ? "Confirmed" : "Not confirmed", by_copies ? "copy" : "product",
                   (by_copies ? t->copy_us : t->product_us)[0] / 1e3, t->rank[1], peer->node,
                   (by_copies ? t->copy_us : t->product_us)[1] / 1e3);
    (void)snprintf(ret->text, sizeof(ret->text), "rank %d on %s (device %d): %s", t->rank[0], p->node, p->slot, words);
    amend(e, words, ret->confirmed, t->rank[0], ret->text, sizeof(ret->text));
    log_info("job j%llu: %s", (unsigned long long)e->job.id, ret->text);
    events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", "slow-tested", ret->text,
                json_pack("{s:s, s:b, s:i, s:s, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:f}", "type", "slow-tested",
                          "confirmed", ret->confirmed, "rank", t->rank[0], "node", p->node, "slot", p->slot, "peer",
                          t->rank[1], "peer_node", peer->node, "factor", ret->ratio, "product_us", t->product_us[0],
                          "peer_product_us", t->product_us[1], "copy_us", t->copy_us[0], "peer_copy_us",
                          t->copy_us[1]));
}

bool slow_care_tested(struct core *c, struct entry *e, const json_t *event, struct slow_care_verdict *ret)
{
    struct entry_test *t = &e->run.test;
    json_int_t rank = json_integer_value(json_object_get(event, "rank"));
    double product = json_number_value(json_object_get(event, "product_us"));
    double copy = json_number_value(json_object_get(event, "copy_us"));
    int at = rank == t->rank[0] ? 0 : 1;

    if (!t->asked || json_integer_value(json_object_get(event, "number")) != t->number || rank != t->rank[at] ||
        !(product > 0) || !(product < TIME_MAX) || !(copy > 0) || !(copy < TIME_MAX))
        return false;
    t->product_us[at] = product;
    t->copy_us[at] = copy;
    if (!(t->product_us[0] > 0) || !(t->product_us[1] > 0))
        return false;
    t->asked = false;
    conclude(c, e, ret);
    return true;
}
