#include "worker/agent/gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#define SAMPLE_MS 1000
#define END_MS 200                  /* the thread ends within */
#define BURST_US INT64_C(5000000)   /* findings within it are of one cause, which the first one tells */
#define TOLD_US INT64_C(30000000)   /* a finding is reported for so long */
#define DAY_US INT64_C(86400000000) /* two failures of a link within it are one too many */
#define LINE_BYTES 1024
#define LINK_WINDOW_US INT64_C(60000000)
#define LINK_ERRORS 15
#define HOUR_US INT64_C(3600000000)
#define HOUR_ECC 100
#define BAD_HOURS 3

struct gpus {
    struct nvml *nvml; /* the thread's once it runs, but for what does not change */
    pthread_t thread;
    bool running;
    int end_fd; /* readable: the thread shall end */

    char kernel_log[256];
    int log_fd; /* -1: it cannot be read */
    char line[LINE_BYTES];
    size_t line_len;

    struct history {             /* of a GPU, the thread's */
        int64_t link_us;         /* when a link of it failed last; 0: never */
        int nvlinks;             /* most that were up */
        int64_t window_us;       /* when that of link errors began, with */
        long long window_errors; /* so many */
        int64_t hour_us;         /* and that of corrected errors of memory */
        long long hour_ecc;
        int bad_hours;
        bool lost, remap_failed, remap_pending; /* that was told */
        int links_told, lanes_told;
    } history[NVML_GPUS_MAX];

    atomic_bool hurry;    /* the next samples are wanted at once */
    pthread_mutex_t lock; /* guards all below */
    struct {
        struct nvml_sample sample;
        char why[GPUS_WHY_MAX];
        enum xid_level level; /* of why */
        struct gpus_finding finding;
        int64_t found_us;
    } v[NVML_GPUS_MAX];
};

int gpus_open(struct gpus **ret, struct merr *err)
{
    struct gpus *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return merr_set(err, -ENOMEM, "no memory for the GPUs");
    (void)pthread_mutex_init(&g->lock, NULL);
    g->log_fd = -1;
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
    io_close(&g->log_fd);
    (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

int gpus_keep(struct gpus *g, const char *list, struct merr *err)
{
    return nvml_keep(g->nvml, list, err);
}

int gpus_count(const struct gpus *g)
{
    return g ? nvml_count(g->nvml) : 0;
}

const struct nvml_gpu *gpus_at(const struct gpus *g, int i)
{
    return nvml_at(g->nvml, i);
}

/* --- findings ---------------------------------------------------------------------------------------- */

/* The first thing that ails a GPU stays its cause; what is found is told once. */
static void find(struct gpus *g, int i, struct gpus_finding found)
{
    int64_t now_us = clock_mono_us();
    bool burst, first;

    (void)pthread_mutex_lock(&g->lock);
    burst = g->v[i].found_us != 0 && now_us - g->v[i].found_us < BURST_US && g->v[i].finding.blame >= found.blame;
    if (!burst) {
        g->v[i].finding = found;
        g->v[i].found_us = now_us;
    }
    first = found.level > XID_WATCH && !*g->v[i].why;
    if (first)
        (void)snprintf(g->v[i].why, sizeof(g->v[i].why), "%s", found.what);
    if (found.level > g->v[i].level)
        g->v[i].level = found.level;
    (void)pthread_mutex_unlock(&g->lock);
    if (first)
        log_error("GPU %d (%s) is ill: %s", i, nvml_at(g->nvml, i)->uuid, found.what);
    else if (!burst)
        log_warn("GPU %d (%s): %s", i, nvml_at(g->nvml, i)->uuid, found.what);
}

static void find_xid(struct gpus *g, int i, unsigned int code)
{
    const struct xid *xid = xid_find(code);
    struct gpus_finding found = {
        .code = code, .level = xid->level, .blame = xid->blame, .node = xid->class_ == XID_NODE};
    struct history *h = &g->history[i];
    int64_t now_us = clock_mono_us();

    if (xid->class_ == XID_LINK && now_us - h->link_us >= BURST_US) {
        if (h->link_us != 0 && now_us - h->link_us < DAY_US)
            found.level = XID_DRAIN;
        h->link_us = now_us;
    }
    (void)snprintf(found.what, sizeof(found.what), "Xid %u: %s", code, xid->meaning);
    find(g, i, found);
}

static void find_links(struct gpus *g, int i, const struct nvml_sample *s, int64_t now_us)
{
    struct history *h = &g->history[i];
    struct gpus_finding found = {.level = XID_DRAIN, .blame = 500};

    if (s->nvlinks >= 0 && s->nvlinks < h->nvlinks && s->nvlinks != h->links_told) {
        h->links_told = s->nvlinks;
        (void)snprintf(found.what, sizeof(found.what), "%d of its %d NVLinks are up", s->nvlinks, h->nvlinks);
        find(g, i, found);
    }
    h->nvlinks = s->nvlinks > h->nvlinks ? s->nvlinks : h->nvlinks;
    if (s->nvlink_errors < 0)
        return;
    if (h->window_us != 0 && s->nvlink_errors - h->window_errors >= LINK_ERRORS) {
        found = (struct gpus_finding){.level = XID_WATCH, .blame = 300};
        (void)snprintf(found.what, sizeof(found.what), "its NVLinks counted %lld errors within a minute",
                       s->nvlink_errors - h->window_errors);
        find(g, i, found);
        h->window_us = 0;
    }
    if (h->window_us == 0 || now_us - h->window_us >= LINK_WINDOW_US) {
        h->window_us = now_us;
        h->window_errors = s->nvlink_errors;
    }
}

/* Fewer lanes than it could have: it was trained so, after an error or in a bad slot. It works, slowly. */
static void find_lanes(struct gpus *g, int i, const struct nvml_sample *s)
{
    struct gpus_finding found = {.level = XID_WATCH, .blame = 200};
    bool fewer = s->pcie_width > 0 && s->pcie_width < s->pcie_width_most;

    if (fewer && s->pcie_width != g->history[i].lanes_told) {
        (void)snprintf(found.what, sizeof(found.what), "%d of its %d PCIe lanes are in use", s->pcie_width,
                       s->pcie_width_most);
        find(g, i, found);
    }
    g->history[i].lanes_told = fewer ? s->pcie_width : 0;
}

static void find_memory(struct gpus *g, int i, const struct nvml_sample *s, int64_t now_us)
{
    struct history *h = &g->history[i];

    if (s->remap_failed && !h->remap_failed)
        find(g, i,
             (struct gpus_finding){
                 .level = XID_DRAIN, .blame = 500, .what = "a bad row of its memory cannot be replaced"});
    if (s->remap_pending && !h->remap_pending)
        find(
            g, i,
            (struct gpus_finding){.level = XID_WATCH, .what = "a bad row of its memory is replaced at its next reset"});
    h->remap_failed = s->remap_failed;
    h->remap_pending = s->remap_pending;
    if (s->ecc_corrected < 0 || (h->hour_us != 0 && now_us - h->hour_us < HOUR_US))
        return;
    h->bad_hours = h->hour_us != 0 && s->ecc_corrected - h->hour_ecc > HOUR_ECC ? h->bad_hours + 1 : 0;
    h->hour_us = now_us;
    h->hour_ecc = s->ecc_corrected;
    if (h->bad_hours >= BAD_HOURS)
        find(g, i,
             (struct gpus_finding){
                 .level = XID_WATCH, .blame = 200, .what = "more than 100 corrected ECC errors an hour, for 3 hours"});
}

void gpus_judge(struct gpus *g, int i, const struct nvml_sample *s, int64_t now_us)
{
    if (s->lost) {
        if (!g->history[i].lost)
            find(g, i, (struct gpus_finding){.level = XID_STOP, .blame = 500, .what = "the driver has lost it"});
        g->history[i].lost = true;
        return;
    }
    g->history[i].lost = false;
    find_memory(g, i, s, now_us);
    find_links(g, i, s, now_us);
    find_lanes(g, i, s);
}

static void sample_all(struct gpus *g)
{
    for (int i = 0; i < nvml_count(g->nvml); i++) {
        struct nvml_sample s;

        nvml_sample(g->nvml, i, &s);
        gpus_judge(g, i, &s, clock_mono_us());
        (void)pthread_mutex_lock(&g->lock);
        g->v[i].sample = s;
        (void)pthread_mutex_unlock(&g->lock);
    }
}

/* --- the kernel's log -------------------------------------------------------------------------------- */

void gpus_kernel_log(struct gpus *g, const char *path)
{
    (void)snprintf(g->kernel_log, sizeof(g->kernel_log), "%s", path);
}

/* From its end on: what was before this agent was told by another, or is over. */
static void open_log(struct gpus *g)
{
    if (!g->kernel_log[0])
        return;
    g->log_fd = open(g->kernel_log, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (g->log_fd < 0)
        log_info("the kernel's log '%s' cannot be read (%s): Xid errors come from the driver alone", g->kernel_log,
                 strerror(errno));
    else
        (void)lseek(g->log_fd, 0, SEEK_END);
}

static void take_line(struct gpus *g, const char *line)
{
    unsigned int code;
    char pci[32];

    if (!xid_parse(line, pci, &code))
        return;
    for (int i = 0; i < nvml_count(g->nvml); i++)
        if (xid_is_of(nvml_at(g->nvml, i)->pci, pci))
            find_xid(g, i, code);
}

/* Take the lines that are there; of one that is longer than any of the driver's the end is left out. */
static void read_log(struct gpus *g)
{
    char part[LINE_BYTES * 8]; /* a record of /dev/kmsg comes whole or not at all */

    for (int turns = 0; g->log_fd >= 0 && turns < 256; turns++) {
        ssize_t n = read(g->log_fd, part, sizeof(part));

        if (n < 0 && errno == EPIPE)
            continue; /* some were overwritten */
        if (n <= 0)
            return;
        for (ssize_t i = 0; i < n; i++) {
            if (part[i] != '\n') {
                if (g->line_len + 1 < sizeof(g->line))
                    g->line[g->line_len++] = part[i];
                continue;
            }
            g->line[g->line_len] = '\0';
            g->line_len = 0;
            take_line(g, g->line);
        }
    }
}

/* Take the errors that come in a while. */
static void wait_a_while(struct gpus *g)
{
    int hit[NVML_GPUS_MAX], n;
    unsigned int xid;

    n = nvml_wait_xid(g->nvml, END_MS, hit, NVML_GPUS_MAX, &xid);
    if (n < 0) /* the driver tells of none */
        (void)poll(&(struct pollfd){.fd = g->end_fd, .events = POLLIN}, 1, END_MS);
    for (int i = 0; i < n; i++)
        find_xid(g, hit[i], xid);
    read_log(g);
}

static void *watch(void *arg)
{
    struct gpus *g = arg;
    struct pollfd end = {.fd = g->end_fd, .events = POLLIN};
    int64_t next_us = clock_mono_us();

    while (poll(&end, 1, 0) <= 0) {
        if (atomic_exchange(&g->hurry, false) || clock_mono_us() >= next_us) {
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

    for (int i = 0; i < nvml_count(g->nvml); i++)
        g->history[i].links_told = -1;
    open_log(g);
    sample_all(g);
    r = -pthread_create(&g->thread, NULL, watch, g);
    if (r < 0)
        return merr_errno(err, r, "cannot start the thread that watches the GPUs");
    g->running = true;
    return 0;
}

bool gpus_found(struct gpus *g, int i, struct gpus_finding *ret, int64_t *ret_age_us)
{
    bool any;

    (void)pthread_mutex_lock(&g->lock);
    *ret = g->v[i].finding;
    *ret_age_us = clock_mono_us() - g->v[i].found_us;
    any = g->v[i].found_us != 0 && *ret_age_us < TOLD_US;
    (void)pthread_mutex_unlock(&g->lock);
    return any;
}

void gpus_hurry(struct gpus *g)
{
    atomic_store(&g->hurry, true);
}

void gpus_sample(struct gpus *g, int i, struct nvml_sample *ret, char why[GPUS_WHY_MAX])
{
    (void)pthread_mutex_lock(&g->lock);
    *ret = g->v[i].sample;
    (void)snprintf(why, GPUS_WHY_MAX, "%s", g->v[i].why);
    if (!*why && ret->fabric_pending) /* for a while: the fabric manager may still be at it */
        (void)snprintf(why, GPUS_WHY_MAX, "its NVSwitch fabric is not up: nvidia-fabricmanager has not completed it");
    (void)pthread_mutex_unlock(&g->lock);
}
