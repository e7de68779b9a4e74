/* Names, numbers and layouts are those of NVML's published interface, as drivers have it from 470 on. */
#include "worker/agent/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

typedef struct nvml_device *device;
typedef struct nvml_event_set *event_set;

enum { OK = 0, NOT_SUPPORTED = 3, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { NVLINKS = 18, NVLINK_COUNTERS = 4 };
enum { FABRIC_NOT_STARTED = 1, FABRIC_IN_PROGRESS = 2 };
enum { CLOCK_SM = 1 };
enum { EVENT_XID = 0x8, SLOWED = 0x8 | 0x20 | 0x40 | 0x80 /* hardware, software thermal, thermal, power brake */ };

struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned int gpu, memory;
};
struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct fabric {
    unsigned char cluster[16];
    int status;
    unsigned int clique;
    unsigned char state;
};
struct process {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
};
struct event {
    device dev;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};

/* Every function that is called: its type, our name for it, the library's, whether there is no doing without. */
#define FUNCTIONS(X)                                                                                                   \
    X(int, init, (void), "nvmlInit_v2", true)                                                                          \
    X(int, shutdown, (void), "nvmlShutdown", true)                                                                     \
    X(const char *, error, (int), "nvmlErrorString", true)                                                             \
    X(int, count, (unsigned int *), "nvmlDeviceGetCount_v2", true)                                                     \
    X(int, handle, (unsigned int, device *), "nvmlDeviceGetHandleByIndex_v2", true)                                    \
    X(int, uuid, (device, char *, unsigned int), "nvmlDeviceGetUUID", true)                                            \
    X(int, name, (device, char *, unsigned int), "nvmlDeviceGetName", true)                                            \
    X(int, memory, (device, struct memory *), "nvmlDeviceGetMemoryInfo", true)                                         \
    X(int, pci, (device, struct pci_info *), "nvmlDeviceGetPciInfo_v3", false)                                         \
    X(int, utilization, (device, struct utilization *), "nvmlDeviceGetUtilizationRates", false)                        \
    X(int, power, (device, unsigned int *), "nvmlDeviceGetPowerUsage", false)                                          \
    X(int, temperature, (device, int, unsigned int *), "nvmlDeviceGetTemperature", false)                              \
    X(int, throttle, (device, unsigned long long *), "nvmlDeviceGetCurrentClocksThrottleReasons", false)               \
    X(int, slowing, (device, unsigned long long *), "nvmlDeviceGetCurrentClocksEventReasons", false)                   \
    X(int, power_limit, (device, unsigned int *), "nvmlDeviceGetEnforcedPowerLimit", false)                            \
    X(int, clock, (device, int, unsigned int *), "nvmlDeviceGetClockInfo", false)                                      \
    X(int, pcie_width, (device, unsigned int *), "nvmlDeviceGetCurrPcieLinkWidth", false)                              \
    X(int, pcie_width_most, (device, unsigned int *), "nvmlDeviceGetMaxPcieLinkWidth", false)                          \
    X(int, fabric, (device, struct fabric *), "nvmlDeviceGetGpuFabricInfo", false)                                     \
    X(int, ecc, (device, int, int, unsigned long long *), "nvmlDeviceGetTotalEccErrors", false)                        \
    X(int, remapped, (device, unsigned int *, unsigned int *, unsigned int *, unsigned int *),                         \
      "nvmlDeviceGetRemappedRows", false)                                                                              \
    X(int, link_state, (device, unsigned int, int *), "nvmlDeviceGetNvLinkState", false)                               \
    X(int, link_errors, (device, unsigned int, int, unsigned long long *), "nvmlDeviceGetNvLinkErrorCounter", false)   \
    X(int, processes, (device, unsigned int *, struct process *), "nvmlDeviceGetComputeRunningProcesses_v3", false)    \
    X(int, mig_mode, (device, unsigned int *, unsigned int *), "nvmlDeviceGetMigMode", false)                          \
    X(int, mig_max, (device, unsigned int *), "nvmlDeviceGetMaxMigDeviceCount", false)                                 \
    X(int, mig_handle, (device, unsigned int, device *), "nvmlDeviceGetMigDeviceHandleByIndex", false)                 \
    X(int, events_new, (event_set *), "nvmlEventSetCreate", false)                                                     \
    X(int, events_of, (device, unsigned long long, event_set), "nvmlDeviceRegisterEvents", false)                      \
    X(int, events_wait, (event_set, struct event *, unsigned int), "nvmlEventSetWait_v2", false)                       \
    X(int, events_free, (event_set), "nvmlEventSetFree", false)

struct functions {
#define X(type, name, args, symbol, needed) type(*name) args;
    FUNCTIONS(X)
#undef X
};

struct nvml {
    void *library;
    struct functions f;
    event_set events; /* NULL: the driver does not tell */
    int n;
    struct {
        struct nvml_gpu about;
        device dev, parent; /* the same unless it is a MIG instance */
    } v[NVML_GPUS_MAX];
};

static int load(struct nvml *n, struct merr *err)
{
    static const char soname[] = "libnvidia-ml.so.1";

    n->library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return merr_set(err, -ENOENT, "no GPU driver here (%s is not found)", soname);
#define X(type, name, args, symbol, needed)                                                                            \
    n->f.name = (type(*) args)dlsym(n->library, symbol);                                                               \
    if (needed && !n->f.name)                                                                                          \
        return merr_set(err, -EIO, "%s has no %s; the driver is too old", soname, symbol);
    FUNCTIONS(X)
#undef X
    return 0;
}

/* NUMA node of a PCI function; sysfs has its domain in four digits, in lower case. */
static int numa_of(const char *pci)
{
    char path[96], id[32];
    struct buf b;
    int node = -1;

    (void)snprintf(id, sizeof(id), "%s", strlen(pci) > 12 ? pci + strlen(pci) - 12 : pci);
    for (char *p = id; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
    buf_init(&b, 64);
    if (io_read_file(path, &b, NULL) == 0)
        node = (int)strtol(buf_text(&b), NULL, 10);
    buf_clear(&b);
    return node;
}

/* One that does not answer is left out: the others work. */
static void add(struct nvml *n, device dev, device parent)
{
    struct nvml_gpu *g;
    struct memory memory;
    struct pci_info pci = {.bus_id = ""};
    int r;

    if (n->n == NVML_GPUS_MAX) {
        log_warn("GPUs past the first %d are not offered", NVML_GPUS_MAX);
        return;
    }
    g = &n->v[n->n].about;
    *g = (struct nvml_gpu){.mig = dev != parent};
    r = n->f.uuid(dev, g->uuid, sizeof(g->uuid));
    if (r == OK)
        r = n->f.name(dev, g->name, sizeof(g->name));
    if (r == OK)
        r = n->f.memory(dev, &memory);
    if (r != OK) {
        log_warn("a GPU is not offered, since it does not answer: %s", n->f.error(r));
        return;
    }
    g->memory_mib = (int)(memory.total >> 20);
    if (n->f.pci && n->f.pci(parent, &pci) == OK)
        (void)snprintf(g->pci, sizeof(g->pci), "%.31s", pci.bus_id);
    g->numa = *g->pci ? numa_of(g->pci) : -1;
    n->v[n->n].dev = dev;
    n->v[n->n++].parent = parent;
}

/* The instances of a GPU; false when MIG has not cut it. */
static bool add_instances(struct nvml *n, device parent)
{
    unsigned int now = 0, pending, most = 0;
    device dev;

    if (!n->f.mig_mode || !n->f.mig_max || !n->f.mig_handle || n->f.mig_mode(parent, &now, &pending) != OK || !now)
        return false;
    (void)n->f.mig_max(parent, &most);
    for (unsigned int i = 0; i < most; i++)
        if (n->f.mig_handle(parent, i, &dev) == OK) /* numbers without an instance are not found */
            add(n, dev, parent);
    return true;
}

static int find_gpus(struct nvml *n, struct merr *err)
{
    unsigned int count = 0;
    int r = n->f.count(&count);

    if (r != OK)
        return merr_set(err, -EIO, "cannot count the GPUs: %s", n->f.error(r));
    for (unsigned int i = 0; i < count; i++) {
        device dev;

        r = n->f.handle(i, &dev);
        if (r != OK)
            log_warn("GPU %u is not offered, since it does not answer: %s", i, n->f.error(r));
        else if (!add_instances(n, dev))
            add(n, dev, dev);
    }
    return 0;
}

static void listen(struct nvml *n)
{
    bool any = false;

    if (!n->f.events_new || !n->f.events_of || !n->f.events_wait || !n->f.events_free ||
        n->f.events_new(&n->events) != OK) {
        n->events = NULL;
        return;
    }
    for (int i = 0; i < n->n; i++)
        if (i == 0 || n->v[i].parent != n->v[i - 1].parent)
            any |= n->f.events_of(n->v[i].parent, EVENT_XID, n->events) == OK;
    if (!any) {
        (void)n->f.events_free(n->events);
        n->events = NULL;
    }
}

int nvml_open(struct nvml **ret, struct merr *err)
{
    struct nvml *n = calloc(1, sizeof(*n));
    int r;

    if (!n)
        return merr_set(err, -ENOMEM, "no memory for the GPUs");
    r = load(n, err);
    if (r == 0) {
        int code = n->f.init();

        if (code != OK)
            r = merr_set(err, -EIO, "the GPU driver does not work: %s", n->f.error(code));
        else if ((r = find_gpus(n, err)) < 0)
            (void)n->f.shutdown();
    }
    if (r < 0) {
        if (n->library)
            (void)dlclose(n->library);
        free(n);
        return r;
    }
    listen(n);
    *ret = n;
    return 0;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    if (n->events)
        (void)n->f.events_free(n->events);
    (void)n->f.shutdown();
    (void)dlclose(n->library);
    free(n);
}

int nvml_count(const struct nvml *n)
{
    return n->n;
}

const struct nvml_gpu *nvml_at(const struct nvml *n, int i)
{
    return &n->v[i].about;
}

/* The GPU that a word of so many bytes names; -1: none. */
static int find(const struct nvml *n, const char *word, size_t len)
{
    for (int i = 0; i < n->n; i++) {
        char number[16];

        (void)snprintf(number, sizeof(number), "%d", i);
        if ((strlen(number) == len && strncmp(number, word, len) == 0) ||
            (len > 4 && strncmp(n->v[i].about.uuid, word, len) == 0)) /* the beginning of one will do */
            return i;
    }
    return -1;
}

int nvml_keep(struct nvml *n, const char *list, struct merr *err)
{
    bool kept[NVML_GPUS_MAX] = {false};
    int at = 0;

    for (const char *word = list; *word;) {
        size_t len = strcspn(word, ",");
        int i = find(n, word, len);

        if (i < 0)
            return merr_set(err, -EINVAL, "'%.*s' is none of the %d GPUs of this node", len < 100 ? (int)len : 100,
                            word, n->n);
        kept[i] = true;
        word += len + (word[len] == ',');
    }
    for (int i = 0; i < n->n; i++)
        if (kept[i])
            n->v[at++] = n->v[i];
    n->n = at;
    return 0;
}

static void sample_processes(struct nvml *n, device dev, struct nvml_sample *ret)
{
    struct process p[NVML_PROCESSES_MAX];
    unsigned int count = NVML_PROCESSES_MAX;

    if (!n->f.processes || n->f.processes(dev, &count, p) != OK)
        return; /* more than fit is told as an error: then none are known */
    ret->n_processes = (int)count;
    for (unsigned int i = 0; i < count; i++)
        ret->process[i] = (pid_t)p[i].pid;
}

/* Links that are up, and what they have counted of errors: replays, recoveries and both kinds of wrong checksums. */
static void sample_links(struct nvml *n, device dev, struct nvml_sample *ret)
{
    unsigned long long count;
    int up;

    for (unsigned int link = 0; n->f.link_state && link < NVLINKS; link++) {
        int r = n->f.link_state(dev, link, &up);

        if (r != OK)
            break; /* there are no more */
        ret->nvlinks = (ret->nvlinks < 0 ? 0 : ret->nvlinks) + (up == 1);
        for (int kind = 0; n->f.link_errors && up == 1 && kind < NVLINK_COUNTERS; kind++)
            if (n->f.link_errors(dev, link, kind, &count) == OK)
                ret->nvlink_errors = (ret->nvlink_errors < 0 ? 0 : ret->nvlink_errors) + (long long)count;
    }
}

static void sample_clocks(struct nvml *n, device dev, struct nvml_sample *ret)
{
    unsigned long long why = 0;
    unsigned int value = 0;

    /* Drivers that know it by its new name may have lost the old one. */
    if (n->f.slowing ? n->f.slowing(dev, &why) == OK : n->f.throttle && n->f.throttle(dev, &why) == OK)
        ret->slowed = why & SLOWED;
    if (n->f.clock && n->f.clock(dev, CLOCK_SM, &value) == OK)
        ret->sm_mhz = (int)value;
    if (n->f.power_limit && n->f.power_limit(dev, &value) == OK)
        ret->power_limit_w = (int)((value + 500) / 1000);
}

static void sample_ways(struct nvml *n, device dev, struct nvml_sample *ret)
{
    struct fabric fabric = {.state = 0};
    unsigned int value = 0;

    if (n->f.pcie_width && n->f.pcie_width(dev, &value) == OK)
        ret->pcie_width = (int)value;
    if (n->f.pcie_width_most && n->f.pcie_width_most(dev, &value) == OK)
        ret->pcie_width_most = (int)value;
    if (n->f.fabric && n->f.fabric(dev, &fabric) == OK)
        ret->fabric_pending = fabric.state == FABRIC_NOT_STARTED || fabric.state == FABRIC_IN_PROGRESS;
}

void nvml_sample(struct nvml *n, int i, struct nvml_sample *ret)
{
    device dev = n->v[i].dev, parent = n->v[i].parent;
    struct utilization u;
    struct memory memory;
    unsigned long long wide;
    unsigned int value, corrected, uncorrected, pending = 0, failed;
    int r;

    *ret = (struct nvml_sample){.taken_us = clock_mono_us(),
                                .utilization = -1,
                                .memory_used_mib = -1,
                                .power_w = -1,
                                .temperature_c = -1,
                                .power_limit_w = -1,
                                .sm_mhz = -1,
                                .pcie_width = -1,
                                .pcie_width_most = -1,
                                .ecc_uncorrected = -1,
                                .ecc_corrected = -1,
                                .nvlinks = -1,
                                .nvlink_errors = -1};
    r = n->f.memory(dev, &memory);
    ret->lost = r == GPU_IS_LOST;
    if (r == OK)
        ret->memory_used_mib = (int)(memory.used >> 20);
    if (ret->lost)
        return;
    if (n->f.utilization && n->f.utilization(dev, &u) == OK)
        ret->utilization = (int)u.gpu;
    if (n->f.power && n->f.power(parent, &value) == OK)
        ret->power_w = (int)((value + 500) / 1000);
    if (n->f.temperature && n->f.temperature(parent, 0, &value) == OK)
        ret->temperature_c = (int)value;
    sample_clocks(n, parent, ret);
    sample_ways(n, parent, ret);
    if (n->f.ecc && n->f.ecc(parent, 1, 0, &wide) == OK)
        ret->ecc_uncorrected = (long long)wide;
    if (n->f.ecc && n->f.ecc(parent, 0, 0, &wide) == OK)
        ret->ecc_corrected = (long long)wide;
    if (n->f.remapped && n->f.remapped(parent, &corrected, &uncorrected, &pending, &failed) == OK)
        ret->remap_failed = failed != 0;
    ret->remap_pending = n->f.remapped && !ret->remap_failed && pending != 0;
    sample_links(n, parent, ret);
    sample_processes(n, dev, ret);
}

int nvml_wait_xid(struct nvml *n, int timeout_ms, int *ret, int max, unsigned int *ret_xid)
{
    struct event e;
    int hit = 0, r;

    if (!n->events)
        return -ENOTSUP;
    r = n->f.events_wait(n->events, &e, (unsigned int)timeout_ms);
    if (r == TIMEOUT)
        return 0;
    if (r != OK)
        return -ENOTSUP;
    if (e.type != EVENT_XID)
        return 0;
    *ret_xid = (unsigned int)e.data;
    for (int i = 0; i < n->n && hit < max; i++)
        if (n->v[i].parent == e.dev)
            ret[hit++] = i;
    return hit;
}
