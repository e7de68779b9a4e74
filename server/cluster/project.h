/* project - what a project may have of the cluster: quota, borrowing, weight and the class of its jobs; who may submit
 * into it, and up to which ceilings
 *
 * Plain data: owned by the thread that owns the cluster.
 */
#ifndef MUSTER_SERVER_PROJECT_H
#define MUSTER_SERVER_PROJECT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "scheduler/cluster/sched.h"

#define PROJECT_MOST (SCHED_TENANTS_MAX - 1) /* the first tenant is of all jobs without a project of its own */
#define PROJECT_WEIGHT_MAX 1000.0
#define PROJECT_MEMBERS_MAX 1024

enum project_role { PROJECT_STRANGER, PROJECT_MEMBER, PROJECT_MANAGER };

struct project {
    char name[SPEC_NAME_MAX];
    int quota;  /* devices; -1: none */
    int borrow; /* devices beyond it; -1: no limit */
    int64_t weight_milli;
    enum sched_class class_; /* of its jobs */
    json_t *members;         /* owned: "member" or "manager" by user; NULL: everyone is a member */
    /* ceilings; -1: none */
    int max_priority;         /* of a job; an admin's may have more */
    int max_running;          /* jobs that have devices */
    int max_queued;           /* jobs that wait for some */
    int max_devices_per_user; /* held by the jobs of one of them */
    int max_time_s;           /* of a job's limits.time_s */
    int default_time_s;       /* that of a job that names none; -1: max_time_s */
};

struct projects { /* those that were put; zeroed: none */
    struct project *v;
    size_t n;
};

/* One as it is until somebody says more of it: no quota, weight 1, elastic. */
struct project project_new(const char *name);

/* Borrowed until the next is put; NULL: none of that name was put. */
struct project *project_find(const struct projects *all, const char *name);

/* Put one in, or in its namesake's place; its members are taken over, also on failure. 0, -ENOSPC (PROJECT_MOST),
 * -ENOMEM. */
int project_put_take(struct projects *all, struct project *p);

/* It is no more; what was found of others has moved. */
void project_drop(struct projects *all, struct project *p);
void project_clear(struct projects *all);

/* What a user is to it. */
enum project_role project_role(const struct project *p, const char *user);

enum project_role project_role_parse(const char *name); /* "member", "manager"; PROJECT_STRANGER: it is neither */

/* Make a user a member or manager, or no member any more (PROJECT_STRANGER). 0; -ENOSPC (PROJECT_MEMBERS_MAX);
 * -ENOMEM. */
int project_set_role(struct project *p, const char *user, enum project_role role);

/* The time limit of a job of it that names none; 0: none. p may be NULL. */
int project_time_s(const struct project *p);

/* Most devices that its jobs may hold together; INT64_MAX: any number. p may be NULL: none of that name was put. */
int64_t project_most(const struct project *p);

/* Change *p as o says; members that o does not have stay. Returns NULL, or the field that is not valid. */
const char *project_read(const json_t *o, struct project *p);

/* As project_read() reads it and people see it; new. */
json_t *project_record(const struct project *p);

#endif
