/* schedules - jobs that are submitted again and again, at times of cron, for users who need not be there
 *
 * A schedule is its user's. What it submits is admitted as if the user did it then, with the rights that their tokens
 * have then; a user without any has their schedules switched off. A time is never made up for twice, whatever the
 * clock does: of those that passed while no server ran one run at most is made. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_SCHEDULES_H
#define MUSTER_SERVER_SCHEDULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/cron.h"
#include "base/merr.h"
#include "base/zone.h"

#define SCHEDULES_USER_MAX 64         /* of a user */
#define SCHEDULES_MAX 1024            /* of all */
#define SCHEDULES_SPEC_MAX (64 << 10) /* bytes of the spec of one */
#define SCHEDULES_ID_MAX 20
#define SCHEDULES_WHY_MAX 300

struct call;
struct core;

struct recurring {
    char id[SCHEDULES_ID_MAX], name[SPEC_NAME_MAX], user[SPEC_NAME_MAX], zone[ZONE_NAME_MAX];
    char cron[CRON_TEXT_MAX];
    struct cron times;
    struct zone *clock; /* owned */
    char *spec;         /* owned: JSON */
    bool queue;         /* while the job before runs it waits for that; else it is left out */
    bool run_once;      /* what was missed while no server ran is made up for, once */
    bool off;
    int64_t made_us, next_us, last_us; /* wall; next_us 0: never; last_us 0: not yet */
    uint64_t last_job;                 /* 0: none */
    uint64_t runs, skipped;
    char why[SCHEDULES_WHY_MAX]; /* why the newest time made no job; "": it did */
};

struct schedule_set {
    struct recurring **v; /* n of them, owned */
    size_t n, cap;
    int64_t due_us; /* wall: nothing is to be done earlier */
};

struct schedule_set *schedules_new(void); /* NULL: no memory */
void schedules_free(struct schedule_set *all);
int schedules_load(struct core *c, struct merr *err);

struct recurring *schedules_find(const struct core *c, const char *user, const char *name); /* NULL: none */
struct recurring *schedules_find_id(const struct core *c, const char *id);

int schedules_insert(struct schedule_set *all, struct recurring *s); /* it is taken over, also on -ENOMEM */
void schedules_remove(struct core *c, struct recurring *s);
void schedules_discard(struct recurring *s); /* one that is in no set */

/* Its times and its clock, as texts, which may be its own. 0; -EINVAL, -ENOENT: no such zone, -EBADMSG, -ENOMEM:
 * nothing is changed. */
int schedules_set_times(struct recurring *s, const char *cron, const char *zone, struct merr *err);
void schedules_plan(struct core *c, struct recurring *s);      /* its next time, from now on */
bool schedules_put(struct core *c, const struct recurring *s); /* into the batch; false: no memory */

/* Submit its job now. The job's number; 0: it is refused, and s->why says so. */
uint64_t schedules_run(struct core *c, struct recurring *s);

void schedules_turn(struct core *c); /* what is due */

#endif
