/* world - simulated time: events in one order, chance from one seed, lives that end
 *
 * The whole cluster runs in one thread. Whatever happens is an event at a time; events of one time happen in the order
 * in which they were asked for. Chance comes from the seed alone, so a seed and its faults replay to the byte: the
 * world's hash is over every line that was noted.
 *
 * A life is a process that can die: events of a life that has ended are dropped, events of one that is held (SIGSTOP,
 * a machine that swaps) come later.
 */
#ifndef MUSTER_TESTS_SIM_WORLD_H
#define MUSTER_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SECOND INT64_C(1000000)

struct world;

struct life {
    uint64_t number; /* changes with each birth and death; 0 is never a life's */
    bool alive;
    int64_t held_until_us;
};

typedef void world_fn(void *arg);

struct world *world_new(uint64_t seed);
void world_end(struct world *w); /* drops what is still to come */
void world_free(struct world *w);

int64_t world_now_us(const struct world *w);  /* since the beginning */
uint64_t world_events(const struct world *w); /* that have happened */

/* fn(arg) at a time (not before now), as part of a life (NULL: the world's own). Exactly one of fn and drop is called;
 * drop may be NULL when there is nothing to free. */
void world_at(struct world *w, int64_t at_us, const struct life *life, world_fn *fn, world_fn *drop, void *arg);

/* Let the next event happen. False: there is none before until_us, which is the time then. */
bool world_step(struct world *w, int64_t until_us);

void life_begin(struct world *w, struct life *l);
void life_end(struct world *w, struct life *l);
void life_hold(struct world *w, struct life *l, int64_t until_us);

/* Chance. n > 0: a number below it. */
uint64_t world_draw(struct world *w, uint64_t n);
bool world_chance(struct world *w, double p);
int64_t world_between(struct world *w, int64_t lo, int64_t hi); /* both included */

/* Note what happened: it becomes part of the hash, and a line of the trace where there is one. */
void world_note(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_trace(struct world *w, FILE *to); /* NULL: no trace */
uint64_t world_hash(const struct world *w);

/* An invariant does not hold. The first stands; the simulation is over at the next step. */
void world_broken(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *world_why_broken(const struct world *w); /* NULL: all holds */

#endif
