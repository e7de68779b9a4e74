#include "compress/cuda/wait.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "compress/cuda/backend_parts.h"

#define NAP_US 50
#define STREAM_EAGER_US 50000 /* before naps between looks: a step's longest kernels */
#define EVENT_EAGER_US 50

static _Atomic bool lost;

/* The first of exit()'s handlers to run, for it was registered last. */
static void end_at_once(int status, void *arg)
{
    (void)arg;
    (void)fflush(NULL);
    _exit(status);
}

void wait_lose(void)
{
    if (!atomic_exchange(&lost, true))
        (void)on_exit(end_at_once, NULL);
}

bool wait_lost(void)
{
    return atomic_load(&lost);
}

struct waiting {
    cudaError_t (*query)(void *what);
    void *what;
    int ordinal;
    int64_t eager_us, within_us;
};

static int wait_for(const struct waiting *w, struct merr *err)
{
    int64_t began = clock_mono_us(), now = began;
    const struct timespec nap = {.tv_nsec = NAP_US * 1000};
    cudaError_t e;

    while ((e = w->query(w->what)) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* it is no error, but kept as one */
        if (now - began >= w->within_us)
            return merr_set(err, -ETIMEDOUT, "GPU %d did not end what was queued within %lld ms: is it hung?",
                            w->ordinal, (long long)(w->within_us / 1000));
        if (now - began < w->eager_us)
            (void)sched_yield();
        else
            (void)ppoll(NULL, 0, &nap, NULL);
        now = clock_mono_us();
    }
    return e == cudaSuccess ? 0 : cuda_failed(err, (int)e, "GPU %d failed", w->ordinal);
}

static cudaError_t query_stream(void *stream)
{
    return cudaStreamQuery(stream);
}

int wait_stream(void *stream, int ordinal, int64_t within_us, struct merr *err)
{
    const struct waiting w = {query_stream, stream, ordinal, STREAM_EAGER_US, within_us};

    return wait_for(&w, err);
}

static cudaError_t query_event(void *event)
{
    return cudaEventQuery(event);
}

int wait_event(void *event, int ordinal, int64_t within_us, struct merr *err)
{
    const struct waiting w = {query_event, event, ordinal, EVENT_EAGER_US, within_us};

    return wait_for(&w, err);
}
