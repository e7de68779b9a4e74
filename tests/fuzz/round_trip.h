/* round_trip - any bytes as a message: refused, or what is written of it is read again as the same */
#ifndef MUSTER_TESTS_FUZZ_ROUND_TRIP_H
#define MUSTER_TESTS_FUZZ_ROUND_TRIP_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/wire.h"

typedef int round_trip_read(const json_t *doc, void *ret, struct merr *err);
typedef json_t *round_trip_write(const void *from);

static inline void round_trip(const uint8_t *data, size_t size, const struct wire_message *m, round_trip_read *read,
                              round_trip_write *write)
{
    json_t *doc = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL), *told, *again;
    void *first = calloc(1, m->size), *second = calloc(1, m->size);
    struct merr err = {""};

    assert(first && second);
    if (read(doc, first, &err) == 0) {
        told = write(first);
        assert(told && read(told, second, &err) == 0);
        again = write(second);
        assert(again && json_equal(told, again));
        json_decref(told);
        json_decref(again);
        wire_clear(m, first);
        wire_clear(m, second);
    } else {
        assert(*err.text && strlen(err.text) < sizeof(err.text));
    }
    json_decref(doc);
    free(first);
    free(second);
}

#endif
