/* coded_try - codecs by name, and a member whose block no encoder would write */
#ifndef MUSTER_TESTS_UNIT_WORKER_CODED_TRY_H
#define MUSTER_TESTS_UNIT_WORKER_CODED_TRY_H

#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/worker/test_comm.h"
#include "worker/engine/comm/coded.h"
#include "worker/engine/comm/group.h"

static inline const struct codec *named(const char *name)
{
    const struct codec *c = NULL;

    assert_int_equal(codec_by_name(name, &c, NULL), 0);
    return c;
}

/* Do by hand what rank 1 of two does in a call of one slice, of 1024 zeros for rank 0; of its block one byte, so far
 * from its end (1: the last), is another. */
static inline int send_damaged(struct comm_world *w, struct comm_group *g, const struct codec *c, enum comm_call op,
                               size_t from_end, uint8_t byte)
{
    size_t bytes = codec_size(c, 1024);
    struct group_wave v = {.req = g->req};
    char *block = malloc(bytes), *got = malloc(bytes);
    float *x = calloc(1024, sizeof(*x));
    int r;

    (void)codec_encode(c, NULL, CODEC_F32, x, 1024, block);
    block[bytes - from_end] = (char)byte;
    r = group_begin(g, op, 4 + CODEC_F32, codec_id(c), 2048 * sizeof(float));
    if (r == 0)
        r = group_recv(g, &v, 0, 0, got, bytes);
    if (r == 0)
        r = group_send(g, &v, 0, 0, block, bytes);
    if (r == 0)
        r = group_wait(g, &v);
    free(block);
    free(got);
    free(x);
    GOOD(group_end(g, r, &err));
    return 0;
}

#endif
