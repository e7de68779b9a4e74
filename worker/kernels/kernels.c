#include "worker/kernels/kernels.h"

#include <string.h>

const struct kern_ops *kern_find(const char *name)
{
    if (strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0)
        return kern_cpu();
    if (strcmp(name, "plain") == 0)
        return kern_plain();
    return NULL;
}
