/* quarantine - records of the store that this musterd cannot read: known by name, out of the way, kept
 *
 * One such record keeps nothing else from working: its job, node, project or token is not there until an admin has it
 * read again or drops it. It is found again at each start. What the store keeps of them: store/aside.h. Owned by the
 * core's thread, apart from quarantine_count().
 */
#ifndef MUSTER_SERVER_QUARANTINE_H
#define MUSTER_SERVER_QUARANTINE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/store/store.h"

struct core;
struct quarantine;

struct quarantine *quarantine_new(void);
void quarantine_free(struct quarantine *q); /* NULL is fine */

/* Those that the store has set aside. 0; -EIO, -ENOMEM with words. */
int quarantine_load(struct core *c, struct merr *err);

/* A job's record, or a row of a table ("node", "project"): set aside with this turn, with the reason why. */
void quarantine_job(struct core *c, uint64_t job, const char *why);
void quarantine_row(struct core *c, const char *kind, const struct store_row *row, const char *why);

/* It is no longer there. */
void quarantine_forget(struct core *c, const char *id);

/* What is told of one: {"id", "kind", "name", "why", "at"}, borrowed; NULL: there is none of that name. */
const json_t *quarantine_find(const struct core *c, const char *id);
const json_t *quarantine_find_job(const struct core *c, uint64_t job);

/* Any thread: how many there are. */
size_t quarantine_count(const struct core *c);

/* Of all: what quarantine_find() tells; and for everybody: {"records": how many, "jobs": ["j17"]}, null: none. New. */
json_t *quarantine_list(const struct core *c);
json_t *quarantine_summary(const struct core *c);

#endif
