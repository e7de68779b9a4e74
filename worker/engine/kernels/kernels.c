#include "worker/engine/kernels/kernels.h"

#include <errno.h>
#include <string.h>

#include "compress/cuda_backend.h"

int kern_find(const char *name, const struct kern_ops **ret, struct merr *err)
{
    const struct cuda_backend *cuda;
    int r;

    if (strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0) {
        *ret = kern_cpu();
    } else if (strcmp(name, "plain") == 0) {
        *ret = kern_plain();
    } else if (strcmp(name, "cuda") == 0) {
        r = cuda_backend_open(sizeof(struct kern_ops), &cuda, err);
        if (r)
            return r;
        *ret = cuda->kernels;
    } else {
        return merr_set(err, -EINVAL, "no kernels are named '%.64s'; there are cpu, cuda, plain and auto", name);
    }
    return 0;
}

int kern_recorded(const struct kern_ops *k, struct kern_stream *s, const struct kern_key *key, kern_calls calls,
                  void *arg, struct merr *err)
{
    return k->recorded ? k->recorded(s, key, calls, arg, err) : calls(arg, err);
}
