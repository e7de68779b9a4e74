#include "scheduler/cluster/learned.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DROPPED_MAX 256
#define PROBES 64   /* kinds looked at for one key */
#define MEMORY 20   /* measurements that the mean reaches back for */
#define SWEEPS 4    /* over all kinds, for the classes' speeds */
#define BELIEF 1.0  /* what is expected of a class counts as so many kinds */
#define RESTART 0.3 /* share of the newest restart */
#define CHANGE 0.02 /* a mean that moves by less changes nothing that others may notice */

struct learned {
    struct learned_kind *kinds[LEARNED_KINDS_MAX]; /* by key, or the next free place within PROBES */
    uint64_t dropped[DROPPED_MAX];
    size_t n_dropped;
    uint64_t turns, version, common_version; /* the last: of speed and fixed below */
    double expected[LEARNED_CLASSES_MAX], speed[LEARNED_CLASSES_MAX];
    double fixed;     /* mean of the kinds' */
    double restart_s; /* of all kinds */
};

struct learned *learned_new(void)
{
    struct learned *l = calloc(1, sizeof(*l));

    for (int c = 0; l && c < LEARNED_CLASSES_MAX; c++)
        l->expected[c] = l->speed[c] = 1;
    return l;
}

void learned_free(struct learned *l)
{
    for (size_t i = 0; l && i < LEARNED_KINDS_MAX; i++)
        free(l->kinds[i]);
    free(l);
}

uint64_t learned_version(const struct learned *l)
{
    return l->version;
}

const struct learned_kind *learned_find(const struct learned *l, uint64_t key)
{
    for (size_t i = 0; i < PROBES; i++) {
        const struct learned_kind *k = l->kinds[(key + i) % LEARNED_KINDS_MAX];

        if (!k || k->key == key) /* a free place: it would be here, since no place becomes free again */
            return k;
    }
    return NULL;
}

struct learned_kind *learned_kind(struct learned *l, uint64_t key, bool command, int workers, int replica)
{
    struct learned_kind *k = (struct learned_kind *)learned_find(l, key), **at = &l->kinds[key % LEARNED_KINDS_MAX];

    assert(key != 0 && workers >= 1 && replica >= 1);
    for (size_t i = 0; !k && i < PROBES && *at; i++) { /* a free place, else that of who was asked for longest ago */
        struct learned_kind **next = &l->kinds[(key + i) % LEARNED_KINDS_MAX];

        at = !*next || (*next)->used < (*at)->used ? next : at;
    }
    if (!k) {
        k = *at ? *at : calloc(1, sizeof(*k));
        if (!k)
            return NULL;
        if (*at && l->n_dropped < DROPPED_MAX)
            l->dropped[l->n_dropped++] = k->key;
        *at = k;
        *k = (struct learned_kind){.key = key, .fixed = -1};
    }
    k->command = command;
    k->workers = workers > k->workers ? workers : k->workers;
    k->replica = replica;
    k->used = ++l->turns;
    return k;
}

struct learned_kind *learned_next(struct learned *l, size_t *io_at)
{
    while (*io_at < LEARNED_KINDS_MAX)
        if (l->kinds[(*io_at)++])
            return l->kinds[*io_at - 1];
    return NULL;
}

uint64_t learned_dropped(struct learned *l)
{
    return l->n_dropped > 0 ? l->dropped[--l->n_dropped] : 0;
}

/* --- speeds ------------------------------------------------------------------------------------------------- */

static struct profile_job job_of(const struct learned_kind *k, struct profile_speed speeds[LEARNED_SPEEDS_MAX])
{
    for (size_t i = 0; i < k->n_speeds; i++)
        speeds[i] = (struct profile_speed){k->speeds[i].class_, k->speeds[i].devices, k->speeds[i].steps_per_s};
    return (struct profile_job){
        .command = k->command, .workers = k->workers, .replica = k->replica, .speeds = speeds, .n_speeds = k->n_speeds};
}

/* The kind has shown something else than was thought. */
static void weigh(struct learned *l, struct learned_kind *k)
{
    struct profile_speed speeds[LEARNED_SPEEDS_MAX];
    struct profile_job job = job_of(k, speeds);

    k->changed = true;
    k->fixed = -1;
    (void)profile_fixed(&job, &k->fixed);
    for (size_t i = 0; i < k->n_speeds; i++)
        k->scale[i] = profile_scale(&job, speeds[i].class_, k->fixed < 0 ? l->fixed : k->fixed);
    l->version++;
}

static struct learned_speed *speed_at(struct learned_kind *k, uint8_t class_, int32_t devices)
{
    for (size_t i = 0; i < k->n_speeds; i++)
        if (k->speeds[i].class_ == class_ && k->speeds[i].devices == devices)
            return &k->speeds[i];
    return NULL;
}

void learned_take_speed(struct learned *l, struct learned_kind *k, uint8_t class_, int32_t devices, double steps_per_s)
{
    struct learned_speed *s = speed_at(k, class_, devices);
    double was, off, share;

    if (!(steps_per_s > 0) || class_ >= LEARNED_CLASSES_MAX || devices < 1)
        return;
    if (!s) {
        if (k->n_speeds == LEARNED_SPEEDS_MAX)
            memmove(k->speeds, k->speeds + 1, --k->n_speeds * sizeof(k->speeds[0]));
        s = &k->speeds[k->n_speeds++];
        *s = (struct learned_speed){.class_ = class_, .devices = devices};
    }
    s->n += s->n < UINT32_MAX;
    share = 1.0 / (s->n < MEMORY ? s->n : MEMORY);
    was = s->steps_per_s;
    off = steps_per_s - was;
    s->steps_per_s += share * off;
    if (s->n > 1)
        s->spread = sqrt((1 - share) * (s->spread * s->spread * was * was + share * off * off)) / s->steps_per_s;
    if (s->n == 1 || fabs(s->steps_per_s - s->told) > CHANGE * s->told) {
        s->told = s->steps_per_s;
        weigh(l, k);
    }
}

void learned_restore(struct learned *l, struct learned_kind *k, const struct learned_speed *speed)
{
    struct learned_speed *s;

    learned_take_speed(l, k, speed->class_, speed->devices, speed->steps_per_s);
    s = speed_at(k, speed->class_, speed->devices);
    if (s) {
        s->n = speed->n;
        s->spread = speed->spread;
    }
}

void learned_forget(struct learned *l, struct learned_kind *k, uint8_t class_, int32_t devices)
{
    struct learned_speed *s = speed_at(k, class_, devices);

    if (!s)
        return;
    *s = k->speeds[--k->n_speeds];
    weigh(l, k);
}

void learned_take_end(struct learned_kind *k, double device_s)
{
    k->changed = true;
    k->ended += k->ended < MEMORY;
    k->device_s += (device_s - k->device_s) / k->ended;
}

static double blend(double old, double value, double share)
{
    return old > 0 ? old + share * (value - old) : value;
}

void learned_take_restart(struct learned *l, struct learned_kind *k, double restart_s)
{
    k->changed = true;
    k->restart_s = blend(k->restart_s, restart_s, RESTART);
    l->restart_s = blend(l->restart_s, restart_s, RESTART / 4);
}

double learned_restart_s(const struct learned *l, const struct learned_kind *k)
{
    return k && k->restart_s > 0 ? k->restart_s : l->restart_s;
}

void learned_expect(struct learned *l, uint8_t class_, double speed)
{
    if (class_ >= LEARNED_CLASSES_MAX || !(speed > 0) || l->expected[class_] == speed)
        return;
    l->expected[class_] = speed;
    l->version++;
}

/* --- what kinds have in common --------------------------------------------------------------------------------- */

/* How much faster each class was for the kind than the kind is on a class of speed 1. */
static void compare(const struct learned *l, const struct learned_kind *k, double *sums, double *counts)
{
    double scale[LEARNED_CLASSES_MAX] = {0}, usual = 0, n = 0;

    for (size_t i = 0; i < k->n_speeds; i++)
        scale[k->speeds[i].class_] = k->scale[i];
    for (int c = 0; c < LEARNED_CLASSES_MAX; c++) {
        usual += scale[c] / l->speed[c];
        n += scale[c] > 0;
    }
    for (int c = 0; n > 1 && c < LEARNED_CLASSES_MAX; c++)
        if (scale[c] > 0) {
            sums[c] += scale[c] / (usual / n);
            counts[c] += 1;
        }
}

static void find_common(struct learned *l)
{
    double fixed = 0, n = 0;

    if (l->common_version == l->version)
        return;
    l->common_version = l->version;
    memcpy(l->speed, l->expected, sizeof(l->speed));
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double sums[LEARNED_CLASSES_MAX] = {0}, counts[LEARNED_CLASSES_MAX] = {0};

        for (size_t i = 0; i < LEARNED_KINDS_MAX; i++)
            if (l->kinds[i] && l->kinds[i]->n_speeds > 1)
                compare(l, l->kinds[i], sums, counts);
        for (int c = 0; c < LEARNED_CLASSES_MAX; c++)
            l->speed[c] = (BELIEF * l->expected[c] + sums[c]) / (BELIEF + counts[c]);
    }
    for (size_t i = 0; i < LEARNED_KINDS_MAX; i++)
        if (l->kinds[i] && l->kinds[i]->fixed >= 0) {
            fixed += l->kinds[i]->fixed;
            n += 1;
        }
    l->fixed = n > 0 ? fixed / n : 0;
}

double learned_class_speed(struct learned *l, uint8_t class_)
{
    find_common(l);
    return l->speed[class_];
}

bool learned_rates(struct learned *l, const struct learned_kind *k, struct profile_type *types, size_t n,
                   const struct profile_speed *predicted, bool apart, struct rates_profile *ret)
{
    struct profile_speed speeds[LEARNED_SPEEDS_MAX];
    struct profile_job job = job_of(k, speeds);

    find_common(l);
    job.fixed = l->fixed;
    if (predicted)
        job.predicted = *predicted;
    for (size_t t = 0; t < n && apart; t++)
        types[t].speed = l->speed[types[t].class_];
    return profile_fill(&job, types, n, ret);
}
