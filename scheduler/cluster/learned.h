/* learned - what runs have shown of kinds of jobs: how fast they are on which devices, and how much time they take
 *
 * A kind is what jobs have in common that are alike: model, precision and layout, or a command and its user; the caller
 * makes a number of it. What is learned of one job serves the next. What is not known of a kind is taken from the
 * others: how fast classes are beside each other, and how much of a step stays as long on more devices. Of many kinds
 * those that were asked for longest ago are forgotten. Plain data, not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_LEARNED_H
#define MUSTER_SCHEDULER_CLUSTER_LEARNED_H

#include "scheduler/cluster/profile.h"

#define LEARNED_KINDS_MAX 4096 /* and no more than 64 whose keys lie beside each other */
#define LEARNED_SPEEDS_MAX 24  /* of a kind: the others take the place of the one that was measured longest ago */
#define LEARNED_CLASSES_MAX 64

struct learned_speed {
    uint8_t class_;
    int32_t devices;
    double steps_per_s; /* mean, of the newest most */
    double spread;      /* standard deviation over the mean */
    double told;        /* the mean that others reckon with: it follows by steps */
    uint32_t n;         /* measurements */
};

struct learned_kind {
    uint64_t key; /* 0: none */
    bool command;
    int workers, replica; /* as in a profile */
    struct learned_speed speeds[LEARNED_SPEEDS_MAX];
    size_t n_speeds;
    double scale[LEARNED_SPEEDS_MAX]; /* of the class of each of them, and */
    double fixed;                     /* what they say together (profile.h); below 0: not enough */
    double device_s;                  /* that a job of the kind takes; 0: none has ended */
    uint32_t ended;
    double restart_s; /* that a change of devices costs such a job; 0: not measured */
    bool changed;     /* since the caller has last made it false */
    uint64_t used;    /* when it was last asked for, in turns of its own */
};

struct learned;                    /* kinds, and what they have in common */
struct learned *learned_new(void); /* NULL: no memory */
void learned_free(struct learned *l);

/* The kind, made when it is new; NULL: no memory. It stays where it is until another new one is asked for. */
struct learned_kind *learned_kind(struct learned *l, uint64_t key, bool command, int workers, int replica);
/* NULL: nothing was learned of it. */
const struct learned_kind *learned_find(const struct learned *l, uint64_t key);

/* A run of the kind was so fast on devices of a class; a job of it took so much device time. */
void learned_take_speed(struct learned *l, struct learned_kind *k, uint8_t class_, int32_t devices, double steps_per_s);
void learned_take_end(struct learned_kind *k, double device_s);
/* A change of its devices cost a job of the kind so long; what one costs, as far as is known: of others, where no job
 * of the kind was changed; 0: of none. */
void learned_take_restart(struct learned *l, struct learned_kind *k, double restart_s);
double learned_restart_s(const struct learned *l, const struct learned_kind *k);
/* What an earlier process had learned of it. */
void learned_restore(struct learned *l, struct learned_kind *k, const struct learned_speed *speed);
/* What was learned of its speed on these devices is no longer thought. */
void learned_forget(struct learned *l, struct learned_kind *k, uint8_t class_, int32_t devices);

/* A class is thought to be so fast beside others, before any job was measured there: measured products. */
void learned_expect(struct learned *l, uint8_t class_, double speed);

/* How fast a class is beside the others, by all kinds that were measured on it and on others. */
double learned_class_speed(struct learned *l, uint8_t class_);

/* What a kind's rates are thought to be on n types, whose speeds are filled in where they are to be told apart;
 * predicted: or NULL. Returns as profile_fill(). */
bool learned_rates(struct learned *l, const struct learned_kind *k, struct profile_type *types, size_t n,
                   const struct profile_speed *predicted, bool apart, struct rates_profile *ret);

/* The next kind from *io_at on, which goes behind it; NULL: there are no more. */
struct learned_kind *learned_next(struct learned *l, size_t *io_at);
/* A kind that was forgotten and has not been given back yet; 0: none. Of very many some are left out. */
uint64_t learned_dropped(struct learned *l);

/* It changes with everything that is learned of speeds. */
uint64_t learned_version(const struct learned *l);

#endif
