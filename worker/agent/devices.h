/* devices - the slots a node offers, from a text such as "gpu", "cpu:4" or "cpu:2=fast,cpu:2=slow@0.5"
 *
 * A slot is what one rank runs on; slots are numbered from 0 in the order of the text. The class is what
 * jobs ask for; it defaults to the kind, of a GPU to its model ("NVIDIA H100 80GB HBM3": "h100-80gb-hbm3").
 */
#ifndef MUSTER_WORKER_AGENT_DEVICES_H
#define MUSTER_WORKER_AGENT_DEVICES_H

#include <jansson.h>
#include <stdbool.h>

#include "base/merr.h"
#include "worker/agent/gpus.h"

#define DEVICES_MAX 256
#define DEVICES_CLASS_MAX 32

struct device {
    char kind[8]; /* "cpu", "gpu" */
    char class[DEVICES_CLASS_MAX];
    int memory_mib;   /* of a cpu slot the machine's, shared out evenly */
    double share;     /* of a processor that a rank gets, enforced (quota.h); 0: no limit */
    int gpu;          /* its number in gpus.h, -1: none */
    bool trains;      /* training may run here: on a processor always, on a GPU when the operator says so */
    char visible[96]; /* CUDA_VISIBLE_DEVICES of a rank here: a GPU's UUID; "" hides those of the node */
};

struct devices {
    struct device v[DEVICES_MAX];
    int n;
    int threads; /* for each rank */
};

/* Read text: parts KIND[:COUNT][=CLASS[@SHARE]], or "auto" for all GPUs, without any cpu:1. gpus NULL: there are none,
 * for the reason in no_gpus. threads 0: the machine's processors shared out, at least one each. -EINVAL with the part
 * of the text that is at fault; *ret is unchanged then. */
int devices_parse(const char *text, int threads, const struct gpus *gpus, const char *no_gpus, struct devices *ret,
                  struct merr *err);

/* The class of a GPU by its name: its model in lower case. */
void devices_gpu_class(const char *name, char ret[DEVICES_CLASS_MAX]);

/* A new array of the slots as `register` sends them; NULL when memory is short. */
json_t *devices_json(const struct devices *d);

#endif
