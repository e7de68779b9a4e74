/* A libnvidia-ml.so.1 whose GPUs are those of the JSON file named by FAKE_NVML, read at each call, so that a test may
 * change them while an agent watches:
 *
 *   {"gpus": [{"uuid": "GPU-1", "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "used_mib": 5, "util": 0,
 *              "power_mw": 70500, "temperature": 31, "throttle": 0, "ecc": 0, "remap_failed": 0, "lost": false,
 *              "lanes": 16, "lanes_most": 16, "power_limit_mw": 700000, "sm_mhz": 1980, "fabric": 3,
 *              "pids": [], "mig": [{"uuid": "MIG-1", "name": "NVIDIA H100 MIG 1g.10gb", "memory_mib": 9728}]}],
 *    "xid": {"number": 1, "gpu": 0, "code": 79}, "broken": false}
 *
 * Of "live_pids" those are listed that have not ended.
 * An xid is told once, when its number is new. What is left out is not supported by that GPU. */
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };
enum { INSTANCES = 64 };

struct device;
struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned int gpu, memory;
};
struct pci_info {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
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
    struct device *dev;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};

static json_t *read_file(void)
{
    const char *path = getenv("FAKE_NVML");
    json_t *doc = path ? json_load_file(path, 0, NULL) : NULL;

    return doc ? doc : json_object();
}

static struct device *handle(size_t gpu, size_t instance)
{
    return (struct device *)(uintptr_t)((gpu + 1) * INSTANCES + instance);
}

/* The object of a handle, borrowed from doc: a GPU, or its MIG instance. */
static json_t *find(const json_t *doc, const struct device *dev)
{
    size_t number = (uintptr_t)dev, instance = number % INSTANCES;
    json_t *gpu = json_array_get(json_object_get(doc, "gpus"), number / INSTANCES - 1);

    return instance ? json_array_get(json_object_get(gpu, "mig"), instance - 1) : gpu;
}

static int text(const struct device *dev, const char *key, char *ret, unsigned int size)
{
    json_t *doc = read_file();
    const char *value = json_string_value(json_object_get(find(doc, dev), key));
    int r = value ? OK : INVALID;

    if (value)
        (void)snprintf(ret, size, "%s", value);
    json_decref(doc);
    return r;
}

static int number(const struct device *dev, const char *key, unsigned long long *ret)
{
    json_t *doc = read_file(), *gpu = find(doc, dev), *value = json_object_get(gpu, key);
    int r = json_is_true(json_object_get(gpu, "lost")) ? LOST : json_is_integer(value) ? OK : NOT_SUPPORTED;

    *ret = r == OK ? (unsigned long long)json_integer_value(value) : 0;
    json_decref(doc);
    return r;
}

static int small(const struct device *dev, const char *key, unsigned int *ret)
{
    unsigned long long wide;
    int r = number(dev, key, &wide);

    *ret = (unsigned int)wide;
    return r;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int r);
int nvmlDeviceGetCount_v2(unsigned int *ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, struct device **ret);
int nvmlDeviceGetUUID(struct device *dev, char *ret, unsigned int size);
int nvmlDeviceGetName(struct device *dev, char *ret, unsigned int size);
int nvmlDeviceGetMemoryInfo(struct device *dev, struct memory *ret);
int nvmlDeviceGetPciInfo_v3(struct device *dev, struct pci_info *ret);
int nvmlDeviceGetUtilizationRates(struct device *dev, struct utilization *ret);
int nvmlDeviceGetPowerUsage(struct device *dev, unsigned int *ret);
int nvmlDeviceGetTemperature(struct device *dev, int sensor, unsigned int *ret);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *dev, unsigned long long *ret);
int nvmlDeviceGetEnforcedPowerLimit(struct device *dev, unsigned int *ret);
int nvmlDeviceGetClockInfo(struct device *dev, int kind, unsigned int *ret);
int nvmlDeviceGetCurrPcieLinkWidth(struct device *dev, unsigned int *ret);
int nvmlDeviceGetMaxPcieLinkWidth(struct device *dev, unsigned int *ret);
int nvmlDeviceGetGpuFabricInfo(struct device *dev, struct fabric *ret);
int nvmlDeviceGetTotalEccErrors(struct device *dev, int type, int counter, unsigned long long *ret);
int nvmlDeviceGetRemappedRows(struct device *dev, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failed);
int nvmlDeviceGetNvLinkState(struct device *dev, unsigned int link, int *ret);
int nvmlDeviceGetNvLinkErrorCounter(struct device *dev, unsigned int link, int kind, unsigned long long *ret);
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *dev, unsigned int *count, struct process *ret);
int nvmlDeviceGetMigMode(struct device *dev, unsigned int *now, unsigned int *pending);
int nvmlDeviceGetMaxMigDeviceCount(struct device *dev, unsigned int *ret);
int nvmlDeviceGetMigDeviceHandleByIndex(struct device *dev, unsigned int i, struct device **ret);
int nvmlEventSetCreate(void **ret);
int nvmlDeviceRegisterEvents(struct device *dev, unsigned long long types, void *set);
int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned int timeout_ms);
int nvmlEventSetFree(void *set);

int nvmlDeviceGetEnforcedPowerLimit(struct device *dev, unsigned int *ret)
{
    return small(dev, "power_limit_mw", ret);
}

int nvmlDeviceGetClockInfo(struct device *dev, int kind, unsigned int *ret)
{
    return kind == 1 ? small(dev, "sm_mhz", ret) : INVALID;
}

int nvmlDeviceGetCurrPcieLinkWidth(struct device *dev, unsigned int *ret)
{
    return small(dev, "lanes", ret);
}

int nvmlDeviceGetMaxPcieLinkWidth(struct device *dev, unsigned int *ret)
{
    return small(dev, "lanes_most", ret);
}

/* "fabric": its state, 1 not started, 2 in progress, 3 completed. */
int nvmlDeviceGetGpuFabricInfo(struct device *dev, struct fabric *ret)
{
    unsigned int state = 0;
    int r = small(dev, "fabric", &state);

    *ret = (struct fabric){.state = (unsigned char)state};
    return r;
}

int nvmlInit_v2(void)
{
    json_t *doc = read_file();
    int r = json_is_true(json_object_get(doc, "broken")) ? DRIVER_NOT_LOADED : OK;

    json_decref(doc);
    return r;
}

int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int r)
{
    return r == DRIVER_NOT_LOADED ? "Driver Not Loaded" : r == LOST ? "GPU is lost" : "some other error";
}

int nvmlDeviceGetCount_v2(unsigned int *ret)
{
    json_t *doc = read_file();

    *ret = (unsigned int)json_array_size(json_object_get(doc, "gpus"));
    json_decref(doc);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int i, struct device **ret)
{
    *ret = handle(i, 0);
    return OK;
}

int nvmlDeviceGetUUID(struct device *dev, char *ret, unsigned int size)
{
    return text(dev, "uuid", ret, size);
}

int nvmlDeviceGetName(struct device *dev, char *ret, unsigned int size)
{
    return text(dev, "name", ret, size);
}

int nvmlDeviceGetMemoryInfo(struct device *dev, struct memory *ret)
{
    unsigned long long used;
    int r = number(dev, "memory_mib", &ret->total);

    (void)number(dev, "used_mib", &used);
    ret->total <<= 20;
    ret->used = used << 20;
    ret->free = ret->total - ret->used;
    return r;
}

int nvmlDeviceGetPciInfo_v3(struct device *dev, struct pci_info *ret)
{
    *ret = (struct pci_info){.domain = 0, .bus = (unsigned int)((uintptr_t)dev / INSTANCES)};
    (void)snprintf(ret->bus_id, sizeof(ret->bus_id), "00000000:%02X:00.0", ret->bus);
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct device *dev, struct utilization *ret)
{
    ret->memory = 0;
    return small(dev, "util", &ret->gpu);
}

int nvmlDeviceGetPowerUsage(struct device *dev, unsigned int *ret)
{
    return small(dev, "power_mw", ret);
}

int nvmlDeviceGetTemperature(struct device *dev, int sensor, unsigned int *ret)
{
    return sensor == 0 ? small(dev, "temperature", ret) : INVALID;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *dev, unsigned long long *ret)
{
    return number(dev, "throttle", ret);
}

int nvmlDeviceGetTotalEccErrors(struct device *dev, int type, int counter, unsigned long long *ret)
{
    return counter == 0 ? number(dev, type == 1 ? "ecc" : "ecc_corrected", ret) : INVALID;
}

/* "nvlinks": how many of two are up; "nvlink_errors": what the first one has counted of each kind. */
int nvmlDeviceGetNvLinkState(struct device *dev, unsigned int link, int *ret)
{
    unsigned int up;
    int r = link < 2 ? small(dev, "nvlinks", &up) : INVALID;

    *ret = r == OK && link < up;
    return r;
}

int nvmlDeviceGetNvLinkErrorCounter(struct device *dev, unsigned int link, int kind, unsigned long long *ret)
{
    return link == 0 && kind < 4 ? number(dev, "nvlink_errors", ret) : INVALID;
}

int nvmlDeviceGetRemappedRows(struct device *dev, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failed)
{
    *corrected = *uncorrected = 0;
    if (small(dev, "remap_pending", pending) != OK)
        *pending = 0;
    return small(dev, "remap_failed", failed);
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *dev, unsigned int *count, struct process *ret)
{
    json_t *doc = read_file(), *gpu = find(doc, dev), *pid;
    unsigned int n = 0, most = *count;
    size_t i;

    json_array_foreach (json_object_get(gpu, "pids"), i, pid)
        if (n++ < most)
            ret[n - 1] = (struct process){.pid = (unsigned int)json_integer_value(pid)};
    json_array_foreach (json_object_get(gpu, "live_pids"), i, pid)
        if (kill((pid_t)json_integer_value(pid), 0) == 0 && n++ < most)
            ret[n - 1] = (struct process){.pid = (unsigned int)json_integer_value(pid)};
    *count = n;
    json_decref(doc);
    return n <= most ? OK : INVALID;
}

int nvmlDeviceGetMigMode(struct device *dev, unsigned int *now, unsigned int *pending)
{
    json_t *doc = read_file();

    *now = *pending = json_is_array(json_object_get(find(doc, dev), "mig"));
    json_decref(doc);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *dev, unsigned int *ret)
{
    (void)dev;
    *ret = 7;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *dev, unsigned int i, struct device **ret)
{
    json_t *doc = read_file();
    bool there = i < json_array_size(json_object_get(find(doc, dev), "mig"));

    *ret = handle((uintptr_t)dev / INSTANCES - 1, i + 1);
    json_decref(doc);
    return there ? OK : NOT_FOUND;
}

int nvmlEventSetCreate(void **ret)
{
    *ret = calloc(1, sizeof(json_int_t)); /* number of the last xid told */
    return *ret ? OK : INVALID;
}

int nvmlDeviceRegisterEvents(struct device *dev, unsigned long long types, void *set)
{
    (void)dev;
    (void)set;
    return types == 8 ? OK : INVALID;
}

int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned int timeout_ms)
{
    json_int_t *told = set, gpu, code, count;

    for (unsigned int waited = 0; waited < timeout_ms; waited += 10) {
        json_t *doc = read_file();
        bool any = json_unpack(json_object_get(doc, "xid"), "{s:I, s:I, s:I}", "number", &count, "gpu", &gpu, "code",
                               &code) == 0;

        json_decref(doc);
        if (any && count > *told) {
            *told = count;
            *ret = (struct event){.dev = handle((size_t)gpu, 0), .type = 8, .data = (unsigned long long)code};
            return OK;
        }
        (void)poll(NULL, 0, 10);
    }
    return TIMEOUT;
}

int nvmlEventSetFree(void *set)
{
    free(set);
    return OK;
}
