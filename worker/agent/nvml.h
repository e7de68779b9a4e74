/* nvml - NVIDIA's management library, loaded at run time: which GPUs there are, and how they do
 *
 * Neither headers nor the library are needed to build; a machine without the driver has no GPUs. Calls may take long
 * when a GPU is in trouble: gpus.h asks from a thread of its own. One owner thread at a time.
 */
#ifndef MUSTER_WORKER_AGENT_NVML_H
#define MUSTER_WORKER_AGENT_NVML_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/merr.h"

#define NVML_GPUS_MAX 128     /* MIG instances count each */
#define NVML_PROCESSES_MAX 64 /* of a GPU, the first ones */

struct nvml;

struct nvml_gpu {
    char uuid[96]; /* "GPU-…", "MIG-…": what CUDA_VISIBLE_DEVICES takes */
    char name[96]; /* "NVIDIA H200" */
    char pci[32];  /* "00000000:1B:00.0", of its parent for a MIG instance */
    int memory_mib;
    int numa; /* node, -1: not known */
    bool mig;
};

struct nvml_sample {  /* -1: this GPU does not say */
    int64_t taken_us; /* monotonic: when it was begun */
    int utilization;  /* percent of the time that some kernel ran */
    int memory_used_mib;
    int power_w, temperature_c;
    int power_limit_w, sm_mhz;
    int pcie_width, pcie_width_most; /* lanes now, and what the GPU and its slot can have */
    bool slowed;                     /* clocks are held down for heat or power braking */
    bool lost;                       /* the driver cannot reach it any more */
    bool remap_failed;               /* a row of its memory is bad and cannot be replaced */
    bool remap_pending;              /* one is replaced at the next reset */
    long long ecc_uncorrected;       /* since the driver was loaded */
    long long ecc_corrected;         /* likewise */
    int nvlinks;                     /* that are up */
    long long nvlink_errors;         /* of them all */
    bool fabric_pending;             /* it is part of an NVSwitch fabric that is not up: CUDA cannot start */
    int n_processes;
    pid_t process[NVML_PROCESSES_MAX];
};

/* Load the library and ask it in; a GPU that does not answer is left out. -ENOENT: there is no driver here; -EIO: it
 * does not work, with its own words. */
int nvml_open(struct nvml **ret, struct merr *err);
void nvml_close(struct nvml *n);

/* The GPUs, in the order of their PCI addresses; of one cut by MIG its instances. */
int nvml_count(const struct nvml *n);
const struct nvml_gpu *nvml_at(const struct nvml *n, int i);

/* Keep those alone that a list such as "0,2" or "GPU-…,MIG-…" names, as CUDA_VISIBLE_DEVICES has it; they are numbered
 * anew. -EINVAL with words: there is no such GPU, and all stay. */
int nvml_keep(struct nvml *n, const char *list, struct merr *err);

/* How GPU i does now. */
void nvml_sample(struct nvml *n, int i, struct nvml_sample *ret);

/* Wait until the driver reports an Xid error, at most timeout_ms. Returns the number of GPUs hit, put into ret (at
 * most max; all instances of a cut GPU), with the error in *ret_xid; 0 when none came; -ENOTSUP when the driver does
 * not tell: the caller then waits by itself. */
int nvml_wait_xid(struct nvml *n, int timeout_ms, int *ret, int max, unsigned int *ret_xid);

#endif
