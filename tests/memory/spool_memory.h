/* spool_memory - the spool in this process's memory, for tests and for simulating the server
 *
 * It outlives the servers that use it, as a disk does. One thread.
 */
#ifndef MUSTER_TESTS_MEMORY_SPOOL_MEMORY_H
#define MUSTER_TESTS_MEMORY_SPOOL_MEMORY_H

#include "server/store/spool.h"

struct spool_memory;

/* Asked before each append of len bytes: 0, or the negative errno with which it fails. Of a failed one *kept bytes, at
 * first 0, stay, as where a machine stops in the middle of a write. A slow disk lets time pass in here. */
typedef int spool_fault_fn(void *arg, size_t len, size_t *kept);

/* Returns it with *ret_spool, which is good until spool_memory_free(); NULL: no memory. */
struct spool_memory *spool_memory_new(struct spool *ret_spool);
void spool_memory_free(struct spool_memory *m); /* NULL is fine */

void spool_memory_set_fault(struct spool_memory *m, spool_fault_fn *fault, void *arg); /* NULL: none */

/* Checkpoints that lie in a job's folder, as spool_ops.saved tells them; taken over. It has a place. */
void spool_memory_set_saved(struct spool_memory *m, uint64_t job, json_t *steps);

#endif
