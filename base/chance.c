#include "base/chance.h"

#include <sys/random.h>
#include <sys/types.h>

static bool draw(void *arg, void *bytes, size_t n)
{
    (void)arg;
    return getrandom(bytes, n, 0) == (ssize_t)n;
}

const struct chance *chance_real(void)
{
    static const struct chance real = {.draw = draw};

    return &real;
}
