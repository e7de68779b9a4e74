/* images - started programs that wait for a rank on this node's devices
 *
 * The server tells with each report which devices are to have one (spares.h of the server). It is `muster-train` with
 * its libraries loaded, its context on the GPU made and its kernels called once, below a shim (shim_wait.h). A rank of
 * a training job on that device goes on in it. All of them end with the agent. Plain data of the agent's thread.
 */
#ifndef MUSTER_WORKER_AGENT_IMAGES_H
#define MUSTER_WORKER_AGENT_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker/agent/launch.h"

#define IMAGES_MAX 64                     /* of devices 0 to IMAGES_MAX - 1 */
#define IMAGES_AFTER_US INT64_C(10000000) /* after a rank has begun on the device: it has the processor to itself */
#define IMAGES_AGAIN_US INT64_C(60000000) /* after one that has ended by itself */

struct images;

struct images_cfg { /* all of it borrowed, but for the struct itself */
    const char *self, *train, *root, *pass_env;
    const char *const *visible; /* as struct machine_cfg's */
    int threads;
};

struct images *images_new(const struct images_cfg *cfg); /* NULL: no memory */
void images_free(struct images *m);                      /* ends them. NULL is fine */

/* These devices are to have one now; it starts those that are missing, and ends the others. NULL is fine. */
void images_settle(struct images *m, const int *slots, size_t n, int64_t now_us);

/* Whether the device has one. NULL is fine. */
bool images_has(const struct images *m, int slot);

/* Take the one of a device, to be handed on. False: there is none. */
bool images_take(struct images *m, int slot, struct launch_image *ret, int64_t now_us);

/* It was, and its shim is that of the rank; another shim (0: none): it was not, and is ended. */
void images_taken(struct launch_image *image, pid_t shim);

#endif
