/* strikes - what a node is charged with: failures of jobs that were not their users' fault
 *
 * One failure says little, and one user's jobs may all fail for a reason of their own. A node is suspected once
 * STRIKES_MOST failures within STRIKES_WINDOW_US are of at least two users. Failures within STRIKES_APART_US are of one
 * incident and count once.
 */
#ifndef MUSTER_SERVER_STRIKES_H
#define MUSTER_SERVER_STRIKES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRIKES_MOST 3
#define STRIKES_WINDOW_US (INT64_C(24) * 3600 * 1000000)
#define STRIKES_APART_US (INT64_C(60) * 1000000)
#define STRIKES_KEPT 16

struct strikes { /* of a node; zeroed: none */
    struct {
        uint64_t user; /* a hash of the name */
        int64_t at_us; /* monotonic */
    } v[STRIKES_KEPT]; /* oldest first */
    size_t n;
};

/* A job of this user failed on the node at now_us, and not by its own fault. Returns whether the node is suspected. */
bool strikes_add(struct strikes *s, const char *user, int64_t now_us);

#endif
