/* kinds - what runs have shown of jobs that are alike: how fast they are, what a change costs them, how long they take
 *
 * Training jobs are alike that have the same model, precision, layout and micro-batch; commands that have the same
 * user, name and argv. How long a command takes is kept by its user and name alone. It is stored, now and then.
 */
#ifndef MUSTER_SERVER_KINDS_H
#define MUSTER_SERVER_KINDS_H

#include <jansson.h>

#include "scheduler/cluster/view.h"
#include "server/control/entry.h"

struct core;
struct learned_kind;

/* A run of the job was so fast on its devices, which are of one class; a change of them cost so much; some of them turn
 * out to be slow; the job has ended, having done its work. */
void kinds_take_speed(struct core *c, const struct entry *e, double steps_per_s);
void kinds_take_restart(struct core *c, const struct entry *e, double restart_s);
void kinds_forget(struct core *c, const struct entry *e);
void kinds_end(struct core *c, const struct entry *e);

/* What is expected of these classes before anything was measured on them. */
void kinds_expect(struct core *c, const uint8_t *classes, size_t n);

/* The number under which jobs have the same rates; two that are unknown may have the same. */
uint64_t kinds_rates_key(struct core *c, const struct entry *e);
/* The job's rates on n classes. Returns whether they are steps a second, not relative alone. */
bool kinds_rates(struct core *c, const struct entry *e, const uint8_t *classes, size_t n, struct rates_profile *ret);

/* What is known of its work; rated: by its rates. */
struct view_work kinds_work(struct core *c, const struct entry *e, bool rated);

/* What the store keeps of a kind, new; take it in again: false: it cannot be read. */
json_t *kinds_record(const struct core *c, const struct learned_kind *k);
bool kinds_take_record(struct core *c, uint64_t number, json_t *o);

/* The job's rates on its classes at its fewest devices, and on what each is based: new. */
json_t *kinds_view(struct core *c, const struct entry *e);

int kinds_workers(const struct entry *e); /* virtual workers: what bounds the devices that a job can use */
int kinds_replica(const struct entry *e); /* devices of a replica */

#endif
