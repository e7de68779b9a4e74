/* short.h - how often to repeat a case */
#ifndef MUSTER_TESTS_UNIT_SHORT_H
#define MUSTER_TESTS_UNIT_SHORT_H

#include <stdbool.h>
#include <stdlib.h>

/* Whether to leave out what repeats itself: under a sanitizer, where all takes five to twenty times as long and the
 * plain build has run every case, unless `make test-all` gives time. */
static inline bool test_in_short(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return !getenv("MUSTER_TEST_LONG");
#else
    return false;
#endif
}

/* Rounds to make of what draws anew in each. */
static inline int test_rounds(int usual)
{
    return test_in_short() ? (usual + 4) / 5 : usual;
}

#endif
