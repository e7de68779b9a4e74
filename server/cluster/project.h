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
#define PROJECT_CLASSES_MAX 16 /* of devices that one has limits for */
#define PROJECT_DEEP SCHED_WITHIN_MAX

enum project_role { PROJECT_STRANGER, PROJECT_MEMBER, PROJECT_MANAGER };

struct project_class { /* what it may have of a class of devices */
    char name[SPEC_NAME_MAX];
    int quota, borrow; /* as of a project */
};

struct project {
    char name[SPEC_NAME_MAX];
    char parent[SPEC_NAME_MAX]; /* the project that it is within: its devices count for that as well; "": none */
    struct project_class classes[PROJECT_CLASSES_MAX];
    size_t n_classes;
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

/* The one that it is within; NULL: none. */
const struct project *project_parent(const struct projects *all, const struct project *p);

/* Whether those that it is within come to an end: what was put does, what was read from a store may not. */
bool project_ends(const struct projects *all, const struct project *p);

/* Whether this one is within that one, or is it. p may be NULL. */
bool project_is_within(const struct projects *all, const struct project *p, const struct project *outer);

/* Most devices that its own jobs and those within it may hold together, of a class (NULL: of all); INT64_MAX: any
 * number. */
int64_t project_most(const struct project *p, const char *class_);

/* A quota of this class, or its limit beyond, as the scheduler takes them: -1: none. */
const struct project_class *project_class(const struct project *p, const char *class_);

/* Whether others are within it. */
bool project_has_inner(const struct projects *all, const struct project *p);

/* Whether what *p is to be within is there, and neither is within the other. Returns NULL, or what is wrong. */
const char *project_check_parent(const struct projects *all, const struct project *p);

/* Change *p as o says; members that o does not have stay. Returns NULL, or the field that is not valid. */
const char *project_read(const json_t *o, struct project *p);

/* As project_read() reads it and people see it; new. */
json_t *project_record(const struct project *p);

#endif
