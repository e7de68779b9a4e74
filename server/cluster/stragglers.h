/* stragglers - devices that are slower than others of their class: found by what runs on them, kept, and tried again
 *
 * What is found is changed in the slots, their nodes are marked as changed for the store, and what people are to be
 * told comes back as notes: of the job "device_slow" and "device_well", of a node "device_retry". Plain data.
 */
#ifndef MUSTER_SERVER_STRAGGLERS_H
#define MUSTER_SERVER_STRAGGLERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/cluster/cluster.h"
#include "server/cluster/notes.h"
#include "server/cluster/pace.h"

/* The slow devices of a run, in words. */
void stragglers_name(const struct cluster *cl, const struct job *j, char *ret, size_t size);

struct straggler_run { /* a run whose metrics are taken in */
    const struct job *job;
    struct pace *pace;
    uint32_t generation; /* that the line is of */
};

/* Take in a line of metrics at the wall time. Returns how many devices were found slow by it: what runs there should
 * move. */
int stragglers_learn(struct cluster *cl, const struct slow_rules *rules, const struct straggler_run *run,
                     const json_t *line, int64_t wall_us, struct notes *notes);

/* A test has shown that the device of the run's place takes so many times as long as another of its class. True: it is
 * slow by that, and was not before. */
bool stragglers_confirm(struct cluster *cl, const struct slow_rules *rules, const struct job *j, size_t place,
                        double ratio, int64_t wall_us, struct notes *notes);

/* Let idle ones be tried again whose time has come. */
void stragglers_expire(struct cluster *cl, int64_t wall_us, struct notes *notes);

/* The node's devices are taken to be well. */
void stragglers_forgive(struct node *n, struct notes *notes);

/* The wall clock was set by so much: what is measured with it goes along. */
void stragglers_shift(struct node *n, int64_t by_us);

/* Devices that are known to be slow now. */
size_t stragglers_count(const struct cluster *cl);

json_t *stragglers_record(const struct slot *s); /* for the store, new; NULL: it is well */
json_t *stragglers_view(const struct slot *s);   /* new; NULL: it is well */

/* Back from the records of the node's slots, in their order; without rules nothing is slow. */
void stragglers_load(struct node *n, const struct slow_rules *rules, const json_t *slots);

#endif
