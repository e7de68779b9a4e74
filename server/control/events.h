/* events - what has happened, kept in the store and sent to those who follow
 *
 * An event of a turn is published once the turn is durable; a follower that is too slow is let go and comes back by the
 * id of the last event it has. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_EVENTS_H
#define MUSTER_SERVER_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "server/cluster/job.h"
#include "server/cluster/notes.h"
#include "server/http/http_req.h"

#define EVENTS_FOLLOWERS_MAX 16384
#define EVENTS_NOTE_BYTES 4096     /* of an event that a rank writes, as it is kept */
#define EVENTS_JOB_BYTES (1 << 20) /* of a job's events that are not of its state: the newest stay */
#define EVENTS_LATE_NOTES 250      /* taken in after a job has ended; more are counted */

struct call;
struct core;

struct events;
struct follower;

struct events *events_new(void);      /* NULL: no memory */
void events_free(struct events *all); /* streams must have ended; NULL is fine */

/* --- what happens; job 0: of none --- */

/* Give an event its id if it is to be kept, and publish it after the commit; user is whose it is. note: it is not of
 * the job's state; last: the job has ended. event is taken over. */
void events_emit_new(struct core *c, uint64_t job, const char *user, json_t *event, bool keep, bool note, bool last);

/* The same for an event that is not of a job's state, of its parts; data is taken over, NULL: none. */
void events_note(struct core *c, uint64_t job, const char *user, const char *type, uint32_t generation,
                 const char *actor, const char *code, const char *text, json_t *data_new);

/* What was found of the cluster: notes of a job are of this one, j NULL: there are none such. */
void events_tell(struct core *c, const struct job *j, const char *actor, const struct notes *notes);

/* A piece of what a rank has printed: not kept. It is taken over. */
void events_log_new(struct core *c, uint64_t job, const char *user, int rank, json_t *piece);

/* What something looks like now that it has changed: not kept, and for those alone who follow changes. view is taken
 * over. */
void events_change_new(struct core *c, uint64_t job, const char *user, const char *type, json_t *view);

/* The id of the next event that is kept: as it was stored, and to be stored. */
void events_set_next(struct core *c, uint64_t id);
uint64_t events_next(const struct core *c);

/* Those of this turn that are kept, before the turn's commit. No further ones may come meanwhile. */
typedef void events_each_fn(void *arg, uint64_t id, uint64_t job, const char *type, const char *text);
void events_each(struct core *c, events_each_fn *fn, void *arg);

/* --- those who follow --- */

size_t events_followers(const struct core *c);        /* how many there are */
size_t events_change_followers(const struct core *c); /* of changes, too */

/* Turn the call into a follower of its job, or of all jobs. The caller has answered nothing yet; the call is used up.
 * NULL: it is answered. */
struct follower *events_follow(struct core *c, struct call *call);

/* Follow the output of a rank, -1: of all of them, instead of events. */
void events_follow_logs(struct follower *f, int rank);

/* Follow changes beside events. */
void events_follow_changes(struct follower *f);

/* Send an event to this one alone; id 0: none. One that does not take it is let go, as is one for
 * which there is no memory (text NULL): it comes back by the id that it has. */
void events_send(struct follower *f, uint64_t id, const char *type, const char *text);

/* It has not been sent all that there is, but all up to this id: it is let go, and comes back by that. */
void events_lag(struct follower *f, uint64_t id);

/* Nothing more will come: say so and end the newest follower. */
void events_end(struct core *c, struct follower *f);

void events_publish(struct core *c); /* the turn is durable */
void events_tick(struct core *c);    /* let go of followers whose client has left */
void events_stop(struct core *c);    /* end all streams */

/* The token is not valid any more: what its holder follows ends. */
void events_drop_token(struct core *c, const char *token);

#endif
