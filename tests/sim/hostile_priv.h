/* hostile_priv - what hostile.c, hostile_agent.c and hostile_user.c share */
#ifndef MUSTER_TESTS_SIM_HOSTILE_PRIV_H
#define MUSTER_TESTS_SIM_HOSTILE_PRIV_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/sim/hostile.h"

#define HOSTILE_JOBS 64 /* a user remembers */
#define HOSTILE_BODIES 8

struct hostile {
    struct world *w, *chance; /* the latter is only drawn from */
    struct wire *n;
    const struct agents *agents;
    struct hostile_wish wish;
    struct life life;
    struct actor *v;
    struct hostile_sum sum;
};

struct actor {
    struct hostile *h;
    int i, calls;
    char node[16], incarnation[16]; /* of an agent */
    json_t *assigned;               /* what it was told to run; NULL: nothing yet */
    char *sent[HOSTILE_BODIES];     /* older reports; NULL: none */
    uint64_t jobs[HOSTILE_JOBS];    /* of a user */
    size_t n_jobs;
};

enum hostile_due {               /* what the answer must be */
                   HOSTILE_ANY,  /* not an internal error */
                   HOSTILE_NO,   /* refused */
                   HOSTILE_MINE, /* a success is about this user's own job alone */
                   HOSTILE_SETS, /* an agent's assignments: of its own node alone */
};

/* Call the server; all is copied. */
void hostile_call(struct actor *a, enum http_role role, const char *method, const char *target, const char *body,
                  const char *key, enum hostile_due due);

/* Text of the wrong kind: borrowed, the same for the same number. */
const char *hostile_nonsense(struct hostile *h);
size_t hostile_draw(struct hostile *h, size_t n);

void hostile_agent_acts(struct actor *a);
void hostile_agent_hears(struct actor *a, const json_t *assignments);
void hostile_user_acts(struct actor *a);
void hostile_user_hears(struct actor *a, uint64_t job);

#endif
