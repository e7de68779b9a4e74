/* in_double - what turns the engine's floats into doubles; mk/test.mk has it included before all else
 *
 * What lies below the engine stays as it is: the headers that say how it takes floats come first.
 */
#ifndef MUSTER_TESTS_UNIT_WORKER_IN_DOUBLE_H
#define MUSTER_TESTS_UNIT_WORKER_IN_DOUBLE_H

#include <math.h>
#include <stdlib.h>

#include "base/bf16.h"
#include "base/philox.h"
#include "worker/engine/comm/comm.h"

static inline void philox_normal8_in_double(const uint32_t key[2], uint64_t index, double ret[8])
{
    float narrow[8];

    philox_normal8(key, index, narrow);
    for (int i = 0; i < 8; i++)
        ret[i] = (double)narrow[i];
}

#define philox_normal8 philox_normal8_in_double
#define float double
#define sqrtf sqrt
#define COMM_F32 COMM_F64
#define kern_cpu kern_plain /* the only table that is plain C */

#endif
