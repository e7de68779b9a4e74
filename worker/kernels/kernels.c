#include "worker/kernels/kernels.h"

#include <string.h>

const struct kern_ops *kern_find(const char *name)
{
    if (strcmp(name, "auto") == 0 || strcmp(name, "plain") == 0)
        return kern_plain();
    return NULL;
}
