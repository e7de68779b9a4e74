#include "worker/agent/witness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/client/calls.h"
#include "api/protocol/evidence.h"
#include "base/log.h"
#include "worker/agent/machine_evidence.h"

#define CALL_MS 10000
#define TRIES 3
#define AGAIN_US 1000000
#define BODY_MAX (6 << 20) /* of what the server takes in one call */

struct one {
    struct witness *w;
    struct one *next;
    struct report_run told; /* what its ranks told as it began */
    int64_t number;
    struct machine_evidence *gathering; /* NULL: no more, or nothing is gathered */
    int64_t began_us, again_us;
    char *body; /* once it is gathered */
    int tries;
    bool sending, done;
};

struct witness {
    struct calls *calls;
    struct machine *machine;
    const char *node, *incarnation;
    struct one *first;
    size_t n;
};

struct witness *witness_new(struct calls *calls, struct machine *h, const char *node, const char *incarnation)
{
    struct witness *w = calloc(1, sizeof(*w));

    if (w)
        *w = (struct witness){.calls = calls, .machine = h, .node = node, .incarnation = incarnation};
    return w;
}

static void one_free(struct one *o)
{
    json_decref(machine_evidence_end(o->gathering, NULL));
    report_run_clear(&o->told);
    free(o->body);
    free(o);
}

void witness_free(struct witness *w)
{
    for (struct one *o = w ? w->first : NULL, *next; o; o = next) {
        next = o->next;
        one_free(o);
    }
    free(w);
}

/* --- gathering --------------------------------------------------------------------------------------- */

static struct one *begin(struct witness *w, const struct run *run, uint64_t number, int64_t budget_us)
{
    struct machine_rank *ranks[EVIDENCE_RANKS_MAX];
    bool python = run->spec && run->spec->kind == JOB_COMMAND && number > 0;
    struct one *o = w->n < WITNESS_RUNS_MAX ? calloc(1, sizeof(*o)) : NULL;
    size_t n = 0;

    if (!o)
        return NULL;
    if (ranks_run_look(run, &o->told) < 0) {
        free(o);
        return NULL;
    }
    for (; n < EVIDENCE_RANKS_MAX && n < (size_t)run->n; n++)
        ranks[n] = run->ranks[n].on_machine;
    o->w = w;
    o->number = (int64_t)number;
    o->began_us = machine_mono_us(w->machine);
    o->gathering = machine_evidence_begin(w->machine, ranks, n, python, budget_us);
    o->next = w->first;
    w->first = o;
    w->n++;
    return o;
}

/* All of it as a body: what machines tell of ranks is left out from the last one back until it fits. */
static void write_body(struct one *o)
{
    char *kernel = NULL;
    json_t *seen = machine_evidence_end(o->gathering, &kernel), *doc;
    struct evidence e = {.generation = o->told.generation,
                         .number = o->number,
                         .took_ms = (machine_mono_us(o->w->machine) - o->began_us) / 1000,
                         .kernel = kernel};

    o->gathering = NULL;
    (void)snprintf(e.incarnation, sizeof(e.incarnation), "%s", o->w->incarnation);
    (void)snprintf(e.job, sizeof(e.job), "%s", o->told.job);
    (void)snprintf(e.proof, sizeof(e.proof), "%s", o->told.proof);
    e.ranks = calloc(o->told.n_ranks + 1, sizeof(*e.ranks));
    for (; e.ranks && e.n_ranks < o->told.n_ranks; e.n_ranks++) {
        struct evidence_rank *r = &e.ranks[e.n_ranks];
        const json_t *of = json_array_get(seen, e.n_ranks);

        r->told = o->told.ranks[e.n_ranks];
        r->flight = json_object_get(of, "flight");
        r->processes = json_object_get(of, "processes");
        r->log = json_string_value(json_object_get(of, "log"));
        if (!of)
            (void)snprintf(r->left_out, sizeof(r->left_out), "it was not looked at: there were too many, or no time");
    }
    do {
        size_t half = e.n_ranks / 2;

        free(o->body);
        doc = evidence_write(&e);
        o->body = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
        json_decref(doc);
        if (!o->body || strlen(o->body) <= BODY_MAX || e.n_ranks < 2)
            break;
        e.n_ranks = half;
    } while (true);
    free(e.ranks); /* what they point to is of others */
    json_decref(seen);
    free(kernel);
    o->done = !o->body;
}

void witness_ask(struct witness *w, struct run *run, uint64_t number)
{
    if (number == 0 || run->evidence == number)
        return;
    run->evidence = number;
    if (run->told_failure)
        return; /* it was told as it failed: its ranks are ending */
    (void)begin(w, run, number, WITNESS_US);
}

void witness_failed(void *witness, struct run *run)
{
    struct one *o = begin(witness, run, 0, WITNESS_FAILED_US);

    run->told_failure = o;
    if (o)
        write_body(o); /* waits for what is gathered: moments, and then the others may end */
}

bool witness_busy(const struct witness *w, const char *job, uint64_t generation)
{
    for (const struct one *o = w->first; o; o = o->next)
        if (o->gathering && (uint64_t)o->told.generation == generation && strcmp(o->told.job, job) == 0)
            return true;
    return false;
}

/* --- sending ----------------------------------------------------------------------------------------- */

static void sent(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct one *o = arg;

    (void)body;
    (void)len;
    o->sending = false;
    o->again_us = machine_mono_us(o->w->machine) + AGAIN_US;
    o->done = (status >= 200 && status < 500) || o->tries == TRIES;
    if (o->done && status != 200)
        log_warn("what ranks of %s generation %" PRId64 " did is not told: %s", o->told.job, o->told.generation,
                 status < 0 ? why : "the server does not take it");
}

static void post(struct one *o, int64_t now_us)
{
    char path[256];
    struct merr err;

    (void)snprintf(path, sizeof(path), "/v1/agents/%s/evidence", o->w->node);
    o->tries++;
    o->sending = calls_begin(o->w->calls,
                             &(struct call){.method = "POST",
                                            .path = path,
                                            .body = o->body,
                                            .len = strlen(o->body),
                                            .timeout_ms = CALL_MS,
                                            .done = sent,
                                            .arg = o},
                             &err) == 0;
    o->again_us = now_us + AGAIN_US;
    o->done = !o->sending && o->tries == TRIES;
}

bool witness_tick(struct witness *w, int64_t now_us, int64_t *ret_next_us)
{
    int64_t next_us = INT64_MAX;
    bool any = false;

    for (struct one **at = &w->first; *at;) {
        struct one *o = *at;

        if (!o->body && !o->done && machine_evidence_ready(o->gathering)) {
            write_body(o);
            any = true;
        }
        if (o->body && !o->sending && !o->done && now_us >= o->again_us)
            post(o, now_us);
        if (o->done && !o->sending) {
            *at = o->next;
            w->n--;
            one_free(o);
            continue;
        }
        if (o->body && !o->sending && o->again_us < next_us)
            next_us = o->again_us;
        at = &o->next;
    }
    *ret_next_us = next_us;
    return any;
}
