/* classes - the classes of devices: their numbers, whose jobs they are for, and how fast runs have shown them to be
 *
 * A class has the number under which a node first offered it, for as long as the server runs. Masks have a bit for each
 * number. Plain data: owned by the thread that owns the cluster.
 */
#ifndef MUSTER_SERVER_CLASSES_H
#define MUSTER_SERVER_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"

#define CLASSES_MAX 64 /* as bits of a mask; those that nodes have: RATES_TYPES_MAX */
#define CLASSES_ANY UINT64_MAX

struct classes {
    char name[CLASSES_MAX][SPEC_NAME_MAX];
    size_t n;
    int memory_mib[CLASSES_MAX], threads[CLASSES_MAX]; /* of the smallest slot of each; 0: not told */
    uint64_t command;                                  /* mask of those with a slot that training must not use */
    double speed[CLASSES_MAX][2]; /* f32, bf16: times as fast as the planner assumes, measured; 0: not yet */
    bool learned;                 /* speeds that are not in the store yet */
};

/* The number of a class; CLASSES_MAX: no node has had it. */
uint8_t classes_find(const struct classes *k, const char *name);

/* The same, made when it is new; CLASSES_MAX: there are too many. */
uint8_t classes_add(struct classes *k, const char *name);

/* The mask of the classes that a spec lets its job use. False: it names some that no node has had. */
bool classes_of_spec(const struct classes *k, const struct job_spec *spec, uint64_t *ret);

/* Those of the mask that a job of the kind may have: no GPUs for training that has no kernels there. */
uint64_t classes_usable(const struct classes *k, enum job_kind kind, uint64_t mask);

/* Those of the mask whose slots all have so much memory and so many processors as their share; 0: as it comes. */
uint64_t classes_roomy(const struct classes *k, uint64_t mask, int memory_mib, double cpus);

/* How many times as fast as assumed devices of the class are; 1 until it is measured. */
double classes_speed(const struct classes *k, uint8_t class_, bool bf16);

/* Take in that devices of the class are so many times as fast as assumed; share is the weight of the news. */
void classes_learn_speed(struct classes *k, uint8_t class_, bool bf16, double times, double share);

#endif
