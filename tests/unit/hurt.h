/* hurt.h - damage to a file that stays until it is done again */
#ifndef MUSTER_TESTS_UNIT_HURT_H
#define MUSTER_TESTS_UNIT_HURT_H

#include "tests/unit/test.h"

#include <fcntl.h>
#include <unistd.h>

/* Turn every bit of 4096 bytes at. */
static inline void hurt(const char *path, int64_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char b[4096];

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, b, sizeof(b), at), sizeof(b));
    for (size_t i = 0; i < sizeof(b); i++)
        b[i] = (char)~b[i];
    assert_int_equal(pwrite(fd, b, sizeof(b), at), sizeof(b));
    (void)close(fd);
}

#endif
