#include "server/control/replay.h"

#include <stdio.h>
#include <string.h>

#include "api/protocol/cause.h"
#include "server/cluster/slots.h"
#include "server/control/care.h"
#include "server/control/events.h"
#include "server/control/state.h"

static const char *outcome_of(const struct job *j, const char *key)
{
    const char *text = json_string_value(json_object_get(j->outcome, key));

    return text ? text : "";
}

/* Whether the node has devices like the one that rank has now, whose arithmetic has the same bits. */
static bool is_alike(const struct core *c, const struct job *j, const char *node, json_int_t rank)
{
    const struct node *n = cluster_node(&c->cluster, node);
    uint8_t of = rank >= 0 && (size_t)rank < j->n_places ? classes_find(&c->cluster.classes, j->places[rank].class_)
                                                         : CLASSES_MAX;

    for (size_t k = 0; n && k < n->n_slots; k++)
        if (n->slots[k].class_ == of)
            return true;
    return false;
}

static bool is_of_run(const struct job *j, const char *node)
{
    for (size_t i = 0; i < j->n_places; i++)
        if (strcmp(j->places[i].node, node) == 0)
            return true;
    return false;
}

/* Whether any layout and any device of a class gives the same bits. */
static bool is_strict(const struct entry *e)
{
    json_auto_t *spec = json_loads(e->spec_text, 0, NULL);
    const char *exact = json_string_value(json_object_get(json_object_get(spec, "parallel"), "exact"));

    return exact && strcmp(exact, "strict") == 0;
}

/* The run before this one ended since its numbers were bad, and this one has just passed that step. */
static bool has_passed(const struct entry *e, uint32_t generation, json_int_t step)
{
    const struct job *j = &e->job;
    json_int_t bad = j->past.signature_step;

    return j->live && generation == j->generation && j->past.incident != 0 &&
           j->past.incident == job_incident(j, generation - 1) && bad >= 0 && step > bad &&
           json_integer_value(json_object_get(j->progress, "step")) <= bad &&
           strcmp(outcome_of(j, "cause"), exit_cause_names[EXIT_CAUSE_NUMBERS]) == 0 && *outcome_of(j, "node");
}

void replay_measured(struct core *c, struct entry *e, uint32_t generation, json_int_t step)
{
    const struct job *j = &e->job;
    const char *was = outcome_of(j, "node"), *now;
    json_int_t rank = json_integer_value(json_object_get(j->outcome, "rank")), bad = j->past.signature_step;
    size_t replicas = (size_t)j->layout.dp * (size_t)j->layout.cp;
    bool strict, alone;
    char text[400];

    if (!has_passed(e, generation, step) || !is_alike(c, j, was, rank))
        return;
    now = j->places[rank].node;
    strict = is_strict(e);
    alone = !is_of_run(j, was);
    if (alone)
        (void)snprintf(text, sizeof(text),
                       "step %lld, whose numbers were bad on %s, is well without it: rank %lld is on %s now, with the "
                       "same data. %s alone gave them: it is a device%s, not the data or the model%s",
                       (long long)bad, was, (long long)rank, now, was,
                       replicas > 1 ? " there, or of a replica whose gradients were added to its" : "",
                       strict ? "" : " (as far as parallel.exact relaxed can tell)");
    else
        (void)snprintf(text, sizeof(text),
                       "step %lld, whose numbers were bad on %s, is well there the second time, with the same data: it "
                       "is not the data or the model%s",
                       (long long)bad, was, strict ? "" : " (as far as parallel.exact relaxed can tell)");
    events_note(c, j->id, j->user, "note", generation, "scheduler", "replayed", text,
                json_pack("{s:s, s:s, s:I, s:s, s:s, s:b}", "type", "replayed", "verdict", alone ? "device" : "passing",
                          "step", bad, "bad", was, "well", now, "exact", strict));
    if (alone && strict)
        care_blame(c, e, was, ACT_REPLICA, replicas, text);
}
