/* jump - whether a loss or a gradient norm is far above what it was of late
 *
 * A run of noisy numbers is compared with the median of its last finite ones and with how far these are from it, so a
 * few odd ones change nothing. A jump is told once, when it begins. It ends once the numbers have been low again for a
 * while; those that stay high are the new level.
 */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_JUMP_H
#define MUSTER_SCHEDULER_DIAGNOSE_JUMP_H

#include <stdbool.h>

#define JUMP_WINDOW 32  /* numbers that make a level; nothing is a jump before */
#define JUMP_TIMES 5    /* of the level */
#define JUMP_SIGMAS 10  /* and so many robust standard deviations above it */
#define JUMP_LOW 2      /* times the level: below that a number is low again, */
#define JUMP_QUIET 8    /* and so many low ones in a row end a jump */
#define JUMP_LONGEST 64 /* high numbers are the new level then */

struct jump { /* zeroed: nothing is known of the level */
    double recent[JUMP_WINDOW];
    int n, next;
    int low, length; /* of a jump: low numbers in a row, and all */
    bool is_on;
};

/* The next number. Whether a jump begins with it; ret_level: what it is compared with. */
bool jump_take(struct jump *j, double value, double *ret_level);

#endif
