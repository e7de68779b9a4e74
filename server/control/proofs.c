#include "server/control/proofs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/agent_rights.h"
#include "server/control/state.h"

#define REFUSED "refused" /* in the body */

static const char *proof_of(const json_t *body, const char *job, json_int_t generation)
{
    json_t *run;
    size_t i;

    json_array_foreach (json_object_get(body, "runs"), i, run) {
        const char *of = json_string_value(json_object_get(run, "job"));

        if (of && strcmp(of, job) == 0 && json_integer_value(json_object_get(run, "generation")) == generation)
            return json_string_value(json_object_get(run, "proof"));
    }
    return NULL;
}

static bool is_proven(const struct core *c, const struct node *n, const json_t *body, const char *job,
                      json_int_t generation)
{
    uint64_t id = job_id_parse(job);
    const struct entry *e = table_find(&c->jobs, id);

    if (e && e->job.live && e->job.generation == generation && agent_has_part(&e->job, n->name))
        return true;
    return generation > 0 &&
           agent_has_proof(c->cfg.run_key, id, (uint64_t)generation, n->name, proof_of(body, job, generation));
}

size_t proofs_check(struct core *c, const struct node *n, json_t *body)
{
    const char *last = "";
    json_int_t last_generation = 0;
    bool proven = false;
    size_t refused = 0;

    (void)json_object_del(body, REFUSED); /* nobody else writes it */
    for (int k = 0; k < REPORT_KINDS; k++) {
        json_t *pieces = json_object_get(body, report_kind_names[k]), *aside = NULL;

        for (size_t i = 0; i < json_array_size(pieces);) {
            json_t *piece = json_array_get(pieces, i);
            const char *job = json_string_value(json_object_get(piece, "job"));
            json_int_t generation = json_integer_value(json_object_get(piece, "generation"));

            if (!job || strcmp(job, last) != 0 || generation != last_generation) /* pieces of a run come together */
                proven = job && is_proven(c, n, body, job, generation);
            if (proven) {
                last = job;
                last_generation = generation;
                i++;
                continue;
            }
            last = "";
            if (!aside)
                aside = json_array();
            (void)json_array_append(aside, piece);
            (void)json_array_remove(pieces, i);
            refused++;
        }
        if (!aside)
            continue;
        if (!json_object_get(body, REFUSED))
            (void)json_object_set_new(body, REFUSED, json_object());
        (void)json_object_set_new(json_object_get(body, REFUSED), report_kind_names[k], aside);
    }
    return refused;
}

int proofs_acknowledge(const json_t *body, struct report_acks *acks)
{
    for (int k = 0; k < REPORT_KINDS; k++) {
        json_t *aside = json_object_get(json_object_get(body, REFUSED), report_kind_names[k]), *piece;
        struct report_pieces *of = &acks->of[k];
        struct report_piece *grown;
        size_t i;

        if (json_array_size(aside) == 0)
            continue;
        grown = realloc(of->v, (of->n + json_array_size(aside)) * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        of->v = grown;
        json_array_foreach (aside, i, piece) {
            struct report_piece *p = &of->v[of->n];

            if (report_piece_read(piece, p, NULL) < 0)
                continue;
            p->offset += (int64_t)strlen(p->text);
            p->rank = k != REPORT_LOGS ? -1 : p->rank < 0 ? 0 : p->rank;
            p->text = NULL;
            of->n++;
        }
    }
    return 0;
}
