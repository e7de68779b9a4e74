/* checkpoint_faults - the n-th system call that checkpoint code makes is the last, or fails
 *
 * The linker's --wrap (FAULTS_WRAPPED in mk/checkpoint.mk) puts each call through a counter of the whole process. */
#ifndef MUSTER_TESTS_FAULT_CHECKPOINT_FAULTS_H
#define MUSTER_TESTS_FAULT_CHECKPOINT_FAULTS_H

#include <stdbool.h>

/* Count from now on. error 0: SIGKILL in place of the n-th call of any kind. Else the n-th of those that change the
 * disk fails with error, once. */
void faults_arm(int n, int error);

/* From now on each write of a file takes at least ms. */
void faults_slow(int ms);

/* Was the n-th reached? */
bool faults_hit(void);

#endif
