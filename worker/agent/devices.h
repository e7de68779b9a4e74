/* devices - the slots a node offers, from a text such as "cpu:4" or "cpu:2=fast,cpu:2=slow"
 *
 * A slot is what one rank runs on; slots are numbered from 0 in the order of the text. The class is what
 * jobs ask for; it defaults to the kind.
 */
#ifndef MUSTER_WORKER_AGENT_DEVICES_H
#define MUSTER_WORKER_AGENT_DEVICES_H

#include <jansson.h>

#include "base/merr.h"

#define DEVICES_MAX 256
#define DEVICES_CLASS_MAX 32

struct device {
    char kind[8]; /* "cpu" */
    char class[DEVICES_CLASS_MAX];
};

struct devices {
    struct device v[DEVICES_MAX];
    int n;
    int threads;    /* for each rank */
    int memory_mib; /* of each slot: the machine's, shared out evenly */
};

/* Read text. threads 0: the machine's processors shared out, at least one each. -EINVAL with the part of
 * the text that is at fault; *ret is unchanged then. */
int devices_parse(const char *text, int threads, struct devices *ret, struct merr *err);

/* A new array of the slots as `register` sends them; NULL when memory is short. */
json_t *devices_json(const struct devices *d);

#endif
