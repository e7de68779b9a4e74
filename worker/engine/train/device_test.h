/* device_test - how fast a rank's device is by itself: some products and copies between two steps, for a server that
 * doubts it and compares it with another rank's
 *
 * The flight page has the number of the newest test that is wanted. All ranks agree on a test in the step's sum, so the
 * others wait meanwhile, for a third of a second, and the steps beside it are not taken for slow ones.
 */
#ifndef MUSTER_WORKER_TRAIN_DEVICE_TEST_H
#define MUSTER_WORKER_TRAIN_DEVICE_TEST_H

#include "worker/engine/train/rank.h"

/* Whether this rank is to test its device; done: the number of the last test that it made, 0: none. */
bool device_test_wanted(const struct rank *rank, uint32_t done);

/* Test it if that is wanted, and tell what came of it. No memory for it is no failure: nothing is told then. */
int device_test_run(const struct rank *rank, uint32_t *done, struct merr *err);

#endif
