/* provider - who lends nodes: a table of three calls, made one after the other by a thread that is not the core's
 *
 * request: nodes of a queue, for so long, under a name that is new; release: all of that name, which may be gone or
 * never have been; list: all that there are of names with this beginning. Each takes a document and gives one
 * (docs/slurm.md). A call may fail though it did what was asked: what is there is what the list says. Answers come back
 * to the core, in a turn of its.
 */
#ifndef MUSTER_SERVER_PROVIDER_H
#define MUSTER_SERVER_PROVIDER_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

#define PROVIDER_WAIT_MS 60000 /* for one call */

struct call;
struct queue;

enum provider_verb { PROVIDER_REQUEST, PROVIDER_RELEASE, PROVIDER_LIST };
extern const char *const provider_verbs[];

struct provider_way {
    /* *ret: new. 0, or a negative errno with words. stop: it is to end soon. */
    int (*call)(void *self, enum provider_verb verb, const json_t *ask, const _Atomic int *stop, json_t **ret,
                struct merr *err);
    void *self;
};

struct provider_answer {
    enum provider_verb verb;
    uint64_t id; /* of the allocation */
    int status;  /* 0, or a negative errno with why */
    char why[MERR_TEXT_MAX];
    json_t *doc; /* owned by who takes it */
};

/* A way by an executable and its arguments before the verb (borrowed): documents go and come as JSON. */
int provider_command(void *self, enum provider_verb verb, const json_t *ask, const _Atomic int *stop, json_t **ret,
                     struct merr *err);
struct provider_program {
    const char *argv[6]; /* the last NULL */
};

struct provider;

/* With a thread, which puts a call that runs wake into the core's queue for each answer; without, calls are made by
 * provider_send(). */
int provider_start(const struct provider_way *way, struct queue *queue, void (*wake)(void *core, struct call *call),
                   bool thread, struct provider **ret, struct merr *err);
void provider_free(struct provider *p); /* NULL is fine; a call that is under way ends within TOOL_STOP_MS */

/* Note a call; ask is taken over. It is made once provider_send() was called, which is after the commit. */
/* False: no memory. */
bool provider_ask_new(struct provider *p, enum provider_verb verb, uint64_t id, json_t *ask);
void provider_send(struct provider *p);

/* The next answer; false: there is none. */
bool provider_take(struct provider *p, struct provider_answer *ret);

#endif
