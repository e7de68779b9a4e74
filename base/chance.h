/* chance - where bytes come from that nobody guesses, and a source that can be another
 *
 * What decides draws nothing itself: it is given a struct chance, as it is given the time. With another one the same
 * code makes the same tokens again. Any thread.
 */
#ifndef MUSTER_BASE_CHANCE_H
#define MUSTER_BASE_CHANCE_H

#include <stdbool.h>
#include <stddef.h>

struct chance {
    bool (*draw)(void *arg, void *bytes, size_t n); /* false: there are none */
    void *arg;
};

/* The kernel's. Never NULL, never freed. */
const struct chance *chance_real(void);

/* Draw n bytes, at most 256; c is borrowed. False: there are none, and bytes holds nothing. */
static inline bool chance_draw(const struct chance *c, void *bytes, size_t n)
{
    return c->draw(c->arg, bytes, n);
}

#endif
