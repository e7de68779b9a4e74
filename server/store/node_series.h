/* node_series - how nodes and their devices did over time: a file of fixed size for each node
 *
 * A file has a header and two rings: a sample each 15 s of the last 24 h, and means of 5 min of the last 30 days. The
 * place of a sample follows from its time, and each carries its time and a checksum: so nothing else is kept, a write
 * that was cut off is one sample less, and a clock that goes back writes over what it wrote before. The files of all
 * nodes together have a limit; where it is reached, those that were written longest ago make room if that was more than
 * a day ago, else a new node has none. One thread writes; others may read meanwhile.
 */
#ifndef MUSTER_SERVER_NODE_SERIES_H
#define MUSTER_SERVER_NODE_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define NODE_SERIES_FINE_S 15
#define NODE_SERIES_FINE 5760 /* samples: 24 h */
#define NODE_SERIES_COARSE_S 300
#define NODE_SERIES_COARSE 8640 /* means: 30 days */
#define NODE_SERIES_DEVICES_MAX 256
#define NODE_SERIES_BYTES (INT64_C(2) << 30) /* of all files: 1,200 nodes of 8 devices */
#define NODE_SERIES_NONE UINT32_MAX          /* not known */

enum node_series_host {
    NODE_SERIES_CPU,        /* percent of all processors */
    NODE_SERIES_MEMORY,     /* MiB in use */
    NODE_SERIES_MEMORY_ALL, /* MiB */
    NODE_SERIES_LOAD,       /* hundredths of processes that run or wait to */
    NODE_SERIES_IN,         /* KiB/s over its networks */
    NODE_SERIES_OUT,
    NODE_SERIES_DISK, /* MiB free where jobs have their folders */
    NODE_SERIES_HOST,
};

#define NODE_SERIES_BYTE_NONE UINT8_MAX
#define NODE_SERIES_WATT_NONE UINT16_MAX

struct node_series_device { /* as it is on the disk */
    uint32_t job;           /* low bits of its number; 0: free */
    uint16_t power_w;
    uint8_t slot;
    uint8_t busy;        /* percent of the time that a job had it */
    uint8_t use;         /* percent of the time that a kernel ran; NONE: as all bytes where that is not known */
    uint8_t memory;      /* percent in use */
    uint8_t temperature; /* degrees Celsius */
    uint8_t unused;
};

struct node_series_sample {
    int64_t at_s; /* wall, seconds: begin of the time that it is of */
    uint32_t host[NODE_SERIES_HOST];
    size_t n_devices;
    struct node_series_device device[NODE_SERIES_DEVICES_MAX];
};

struct node_series;

/* The folder is made; limit: bytes of all files. 0, or a negative errno with words. */
int node_series_open(const char *folder, int64_t limit, struct node_series **ret, struct merr *err);
void node_series_close(struct node_series *s); /* NULL is fine */

/* Keep a sample. 0; -ENOSPC: the limit is reached; -EINVAL: no name of a file; or another negative errno. */
int node_series_put(struct node_series *s, const char *node, const struct node_series_sample *sample);

/* Tell of the samples from one time to another, both included, in their order; step_s: 15 or 300. 0, -ENOENT: there are
 * none of that node, or another negative errno. */
typedef void node_series_fn(void *arg, const struct node_series_sample *sample);
int node_series_read(const struct node_series *s, const char *node, int64_t from_s, int64_t to_s, int step_s,
                     node_series_fn *fn, void *arg);

#endif
