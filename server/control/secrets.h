/* secrets - values of users that jobs name and nobody reads back: command.env {"HF_TOKEN": {"secret": "hf"}}
 *
 * A secret is its user's. Here and in the store it is sealed (sealing.h); it is opened for the assignment of a run that
 * names it, for the run's nodes alone. A job can be submitted if its secrets are there, and a secret stays as long as a
 * job that has not ended names it. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_SECRETS_H
#define MUSTER_SERVER_SECRETS_H

#include <jansson.h>
#include <stdbool.h>

#include "api/spec.h"
#include "base/merr.h"

#define SECRETS_USER_MAX 64     /* of a user */
#define SECRETS_MAX 16384       /* of all */
#define SECRETS_VALUE_MAX 32768 /* bytes */

struct call;
struct core;
struct secrets;

struct secrets *secrets_new(void); /* NULL: no memory */
void secrets_free(struct secrets *all);
int secrets_load(struct core *c, struct merr *err);

void secrets_put(struct core *c, struct call *call);  /* PUT /v1/secrets/{name} */
void secrets_list(struct core *c, struct call *call); /* GET /v1/secrets: names alone */
void secrets_drop(struct core *c, struct call *call); /* DELETE /v1/secrets/{name} */

/* Whether all that a spec's variables name are there and open. Else the variable, and why, in words. */
bool secrets_are_there(const struct core *c, const char *user, const struct job_spec *spec, char ret_variable[64],
                       struct merr *why);

/* What a spec (as JSON) names of its user's: {"hf": "value"}, new. NULL: it names none. */
json_t *secrets_of(const struct core *c, const char *user, const json_t *spec);

/* Values of a spec's variables are not for all who may see the job: they become SPEC_MASK. */
void secrets_mask(json_t *spec);

#endif
