/* records - what the store keeps of nodes, links, classes, projects and jobs: how it is written there and read back
 *
 * Writes go into the turn's batch (server/store/store.h).
 */
#ifndef MUSTER_SERVER_RECORDS_H
#define MUSTER_SERVER_RECORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/cluster/array.h"
#include "server/cluster/catalog.h"
#include "server/cluster/links.h"
#include "server/cluster/project.h"
#include "server/cluster/roster.h"
#include "server/control/entry.h"
#include "server/store/job_store.h"

struct core;

/* Put a row of a table; o is taken over. False: no memory. */
bool records_put_row_new(struct core *c, enum store_table table, const char *name, json_t *o);
void records_drop_row(struct core *c, enum store_table table, const char *name);

/* 0; -EINVAL: it cannot be read; -ENOMEM; with words. */
typedef int records_take_fn(struct core *c, const struct store_row *row, struct merr *err);

/* Rows of a table, one by one. Those that cannot be read leave it, into quarantine as that kind (NULL: for good). 0;
 * -EIO, -ENOMEM with words. */
int records_take_rows(struct core *c, enum store_table table, const char *kind, records_take_fn *take,
                      struct merr *err);

/* Put what has changed of arrays. False: no memory. */
bool records_put_arrays(struct core *c);

/* Forget an array, unless a task of it is still a job that has not ended. */
void records_drop_array(struct core *c, struct array *a);

/* Put a job that has changed, or has ended. False: no memory. */
bool records_put_job(struct core *c, struct entry *e);

/* A job that has ended and is in the table again, as it was stored, goes on. */
void records_put_back(struct core *c, const struct entry *e);

/* Forget a job that has ended: record, events, and its row in the catalog, where it has one. */
void records_drop_ended(struct core *c, uint64_t job);

/* The job that a submit of this key made, and the hash of its body. 0; -ENOENT; -EIO with words. */
int records_find_submit(struct core *c, const char *key, uint64_t *ret_job, uint64_t *ret_hash, struct merr *err);
void records_put_submit(struct core *c, const char *key, uint64_t job, uint64_t hash);

/* Put the nodes that are marked as changed, and mark them as kept. False: no memory. */
bool records_put_nodes(struct core *c);

void records_put_removed(struct core *c, const struct removed *r);

/* Put the speeds of classes where runs have taught something of them. */
void records_put_speeds(struct core *c);
void records_put_kinds(struct core *c); /* those that have changed, some of them at a time */

/* Put a measurement that was made at the wall time, and drop the pairs that made room for it. */
void records_put_link(struct core *c, const struct links_news *news, double bytes_per_s, int64_t at_us);

bool records_put_project(struct core *c, const struct project *p); /* false: no memory */

/* All there is, before the first turn; of the tables in this order. What cannot be read goes into quarantine. 0; -EIO,
 * -ENOMEM with words. */
int records_read_nodes(struct core *c, struct merr *err);
int records_read_removed(struct core *c, struct merr *err);
int records_read_speeds(struct core *c, struct merr *err); /* after the nodes */
int records_read_kinds(struct core *c, struct merr *err);  /* after the nodes */
int records_read_links(struct core *c, struct merr *err);  /* after the nodes */
int records_read_projects(struct core *c, struct merr *err);

int records_read_arrays(struct core *c, struct merr *err);

/* The catalog of jobs that have ended. */
int records_read_ended(struct core *c, struct merr *err);

/* Device time of the jobs of a project that have ended; 0, too, while the store is away. */
int64_t records_read_device_us(struct core *c, const char *project);

/* Read a job that may have ended, with its spec's text (new; NULL: not wanted). 0 with *ret to be cleared; -ENOENT;
 * -EIO, -ENOMEM with words; -EINVAL with words: it cannot be read, and is in quarantine now. */
int records_read_job(struct core *c, uint64_t id, struct job *ret, char **ret_spec, struct merr *err);

/* The stored job of this number, with the document of its spec (new; NULL: not wanted). 0, -ENOENT: there is none, or
 * as above. */
int records_parse_job(uint64_t id, const struct job_stored *stored, struct job *ret, json_t **ret_doc,
                      struct merr *err);

/* Take in a node's, a project's record. */
records_take_fn records_take_node, records_take_project;

#endif
