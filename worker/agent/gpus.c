#include "worker/agent/gpus.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#define SAMPLE_MS 1000
#define END_MS 200 /* the thread ends within */

struct gpus {
    struct nvml *nvml; /* the thread's once it runs, but for what does not change */
    pthread_t thread;
    bool running;
    int end_fd; /* readable: the thread shall end */

    pthread_mutex_t lock; /* guards all below */
    struct {
        struct nvml_sample sample;
        char why[GPUS_WHY_MAX];
    } v[NVML_GPUS_MAX];
};

const char *gpus_xid_meaning(unsigned int xid)
{
    static const struct {
        unsigned int xid;
        const char *meaning;
    } ill[] = {
        {48, "double-bit ECC error"},
        {62, "internal micro-controller halt"},
        {64, "a row could not be remapped"},
        {74, "NVLink error"},
        {79, "fallen off the bus"},
        {95, "uncontained ECC error"},
        {110, "security fault"},
        {119, "GSP does not answer"},
        {120, "GSP error"},
        {140, "unrecovered ECC error"},
    };

    for (size_t i = 0; i < sizeof(ill) / sizeof(ill[0]); i++)
        if (ill[i].xid == xid)
            return ill[i].meaning;
    return NULL;
}

int gpus_open(struct gpus **ret, struct merr *err)
{
    struct gpus *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return merr_set(err, -ENOMEM, "no memory for the GPUs");
    (void)pthread_mutex_init(&g->lock, NULL);
    g->end_fd = eventfd(0, EFD_CLOEXEC);
    r = g->end_fd < 0 ? merr_errno(err, -errno, "cannot watch the GPUs") : nvml_open(&g->nvml, err);
    if (r < 0) {
        gpus_close(g);
        return r;
    }
    *ret = g;
    return 0;
}

void gpus_close(struct gpus *g)
{
    if (!g)
        return;
    if (g->running) {
        (void)eventfd_write(g->end_fd, 1);
        (void)pthread_join(g->thread, NULL);
    }
    nvml_close(g->nvml);
    io_close(&g->end_fd);
    (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

int gpus_count(const struct gpus *g)
{
    return g ? nvml_count(g->nvml) : 0;
}

const struct nvml_gpu *gpus_at(const struct gpus *g, int i)
{
    return nvml_at(g->nvml, i);
}

/* The first thing that ails a GPU stays its cause. */
static void ail(struct gpus *g, int i, const char *why)
{
    bool first;

    (void)pthread_mutex_lock(&g->lock);
    first = !*g->v[i].why;
    if (first)
        (void)snprintf(g->v[i].why, sizeof(g->v[i].why), "%s", why);
    (void)pthread_mutex_unlock(&g->lock);
    if (first)
        log_error("GPU %d (%s) is ill: %s", i, nvml_at(g->nvml, i)->uuid, why);
}

static void sample_all(struct gpus *g)
{
    for (int i = 0; i < nvml_count(g->nvml); i++) {
        struct nvml_sample s;

        nvml_sample(g->nvml, i, &s);
        if (s.lost)
            ail(g, i, "the driver has lost it");
        else if (s.remap_failed)
            ail(g, i, "a bad row of its memory cannot be replaced");
        (void)pthread_mutex_lock(&g->lock);
        g->v[i].sample = s;
        (void)pthread_mutex_unlock(&g->lock);
    }
}

/* Take the errors that come in a while. */
static void wait_a_while(struct gpus *g)
{
    int hit[NVML_GPUS_MAX], n;
    unsigned int xid;
    char why[GPUS_WHY_MAX];

    n = nvml_wait_xid(g->nvml, END_MS, hit, NVML_GPUS_MAX, &xid);
    if (n < 0) /* the driver tells of none */
        (void)poll(&(struct pollfd){.fd = g->end_fd, .events = POLLIN}, 1, END_MS);
    for (int i = 0; i < n; i++) {
        const char *meaning = gpus_xid_meaning(xid);

        (void)snprintf(why, sizeof(why), "Xid %u: %s", xid, meaning ? meaning : "the program's");
        if (meaning)
            ail(g, hit[i], why);
        else
            log_warn("GPU %d (%s): Xid %u, an error of the program that ran there", hit[i],
                     nvml_at(g->nvml, hit[i])->uuid, xid);
    }
}

static void *watch(void *arg)
{
    struct gpus *g = arg;
    struct pollfd end = {.fd = g->end_fd, .events = POLLIN};
    int64_t next_us = clock_mono_us();

    while (poll(&end, 1, 0) <= 0) {
        if (clock_mono_us() >= next_us) {
            sample_all(g);
            next_us = clock_mono_us() + SAMPLE_MS * 1000;
        }
        wait_a_while(g);
    }
    return NULL;
}

int gpus_watch(struct gpus *g, struct merr *err)
{
    int r;

    sample_all(g);
    r = -pthread_create(&g->thread, NULL, watch, g);
    if (r < 0)
        return merr_errno(err, r, "cannot start the thread that watches the GPUs");
    g->running = true;
    return 0;
}

void gpus_sample(struct gpus *g, int i, struct nvml_sample *ret, char why[GPUS_WHY_MAX])
{
    (void)pthread_mutex_lock(&g->lock);
    *ret = g->v[i].sample;
    (void)snprintf(why, GPUS_WHY_MAX, "%s", g->v[i].why);
    (void)pthread_mutex_unlock(&g->lock);
}
