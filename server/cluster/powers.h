/* powers - what a device of each class draws while it works, as whoever starts the server says
 *
 * Plain data.
 */
#ifndef MUSTER_SERVER_POWERS_H
#define MUSTER_SERVER_POWERS_H

#include <stddef.h>

#include "api/spec.h"
#include "base/merr.h"

#define POWERS_CLASSES_MAX 64

struct powers {
    struct {
        char class_[SPEC_NAME_MAX];
        int watts;
    } of[POWERS_CLASSES_MAX];
    size_t n;
};

/* Read "h100=700,cpu=15"; NULL: none. Returns 0, or -EINVAL with words and *ret unchanged. */
int powers_read(const char *text, struct powers *ret, struct merr *err);

/* Of a class, by its name; 0: it was not told. */
int powers_of(const struct powers *p, const char *class_);

#endif
