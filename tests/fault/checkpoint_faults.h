/* checkpoint_faults - the n-th system call that checkpoint code makes is the last, or fails
 *
 * The linker's --wrap (FAULTS_WRAPPED in mk/test.mk) puts each call through a counter of the whole process. */
#ifndef MUSTER_TESTS_FAULT_CHECKPOINT_FAULTS_H
#define MUSTER_TESTS_FAULT_CHECKPOINT_FAULTS_H

#include <stdbool.h>

/* Count from now on. error 0: SIGKILL in place of the n-th call of any kind. Else the n-th of those that change the
 * disk fails with error, once. */
void faults_arm(int n, int error);

/* Whether files' writes wait from now on, until they need not any more. */
void faults_hold(bool hold);

/* From now on a file opened with O_DIRECT is made, but not opened, as on tmpfs before Linux 6.6. */
void faults_no_direct(void);

/* From now on io_uring takes nothing: it is short of memory so many times, then fails with error. 0, 0: as it is. */
void faults_ring(int short_of, int error);

/* Requests that io_uring got: writes from registered memory, other writes, syncs of data. */
void faults_requests(int *ret_fixed, int *ret_plain, int *ret_syncs);

/* Large reads, past the page cache and through it, since the last call. */
void faults_reads(int *ret_direct, int *ret_cached);

/* Was the n-th reached? */
bool faults_hit(void);

#endif
