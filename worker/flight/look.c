#include <unistd.h>

#include "worker/flight/flight_priv.h"

void flight_look(const struct flight *f, const volatile void *from, size_t bytes)
{
    size_t offset = (size_t)((const volatile char *)from - (const volatile char *)f->page);

    if (f->fd >= 0)
        (void)!pread(f->fd, (char *)f->page + offset, bytes, (off_t)offset);
}
