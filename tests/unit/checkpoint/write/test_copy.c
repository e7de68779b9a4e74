/* A copy past the cache is a copy: at every place in a line, of every length around one, and nothing beside it. */
#include "tests/unit/test.h"

#include <string.h>

#include "checkpoint/write/copy.h"

#define LINE 64
#define ROOM 512

static void every_place_and_length_copies_what_memcpy_does(void **state)
{
    static unsigned char from[ROOM], to[ROOM], want[ROOM];

    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 131 + 7);
    for (size_t at = 0; at <= LINE; at++)
        for (size_t n = 0; n <= 3 * LINE + 1; n++) {
            size_t begin = n * 7 % LINE; /* the source lies otherwise */

            memset(to, 0xee, sizeof(to));
            memset(want, 0xee, sizeof(want));
            memcpy(want + at, from + begin, n);
            copy_past_cache(to + at, from + begin, n);
            assert_memory_equal(to, want, sizeof(to));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_and_length_copies_what_memcpy_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
