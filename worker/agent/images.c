#include "worker/agent/images.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/log.h"

#define LINGER_US INT64_C(10000000) /* one that is not wanted: its device may be about to have a rank */

struct image {
    struct launch_image of; /* pid 0: there is none */
    int64_t start_us;       /* none before */
    int64_t wanted_us;      /* the last time that it was */
};

struct images {
    struct images_cfg cfg;
    struct image v[IMAGES_MAX];
};

struct images *images_new(const struct images_cfg *cfg)
{
    struct images *m = calloc(1, sizeof(*m));

    if (m)
        m->cfg = *cfg;
    return m;
}

void images_taken(struct launch_image *image, pid_t shim)
{
    if (!image->pid)
        return;
    io_close(&image->fd);
    if (image->pid != shim) {
        (void)kill(image->pid, SIGKILL);
        (void)waitpid(image->pid, NULL, 0);
    }
    image->pid = 0;
}

/* The program ends with its shim. */
static void end(struct image *one)
{
    images_taken(&one->of, 0);
}

void images_free(struct images *m)
{
    for (int i = 0; m && i < IMAGES_MAX; i++)
        if (m->v[i].of.pid)
            end(&m->v[i]);
    free(m);
}

static void start(struct images *m, int slot, int64_t now_us)
{
    const struct job_spec spec = {.kind = JOB_TRAIN};
    struct launch l = {.self = m->cfg.self,
                       .train = m->cfg.train,
                       .folder = m->cfg.root,
                       .job = "",
                       .job_dir = "/",
                       .master_addr = "",
                       .threads = m->cfg.threads,
                       .visible = m->cfg.visible ? m->cfg.visible[slot] : NULL,
                       .pass_env = m->cfg.pass_env,
                       .spec = &spec};
    struct merr err;

    if (launch_image(&l, &m->v[slot].of, &err) == 0)
        return;
    log_warn("no started program waits for a rank on device %d: %s", slot, err.text);
    m->v[slot].start_us = now_us + IMAGES_AGAIN_US;
}

void images_settle(struct images *m, const int *slots, size_t n, int64_t now_us)
{
    for (size_t i = 0; m && i < n; i++)
        if (slots[i] >= 0 && slots[i] < IMAGES_MAX)
            m->v[slots[i]].wanted_us = now_us;
    for (int i = 0; m && i < IMAGES_MAX; i++) {
        struct image *one = &m->v[i];

        if (one->of.pid && waitpid(one->of.pid, NULL, WNOHANG) != 0) {
            log_warn("the started program that waits for a rank on device %d has ended", i);
            io_close(&one->of.fd);
            one->of.pid = 0;
            one->start_us = now_us + IMAGES_AGAIN_US;
        }
        if (one->of.pid && now_us - one->wanted_us >= LINGER_US)
            end(one);
        if (!one->of.pid && one->wanted_us == now_us && now_us >= one->start_us)
            start(m, i, now_us);
    }
}

bool images_has(const struct images *m, int slot)
{
    return m && slot >= 0 && slot < IMAGES_MAX && m->v[slot].of.pid;
}

bool images_take(struct images *m, int slot, struct launch_image *ret, int64_t now_us)
{
    if (m && slot >= 0 && slot < IMAGES_MAX && m->v[slot].start_us < now_us + IMAGES_AFTER_US)
        m->v[slot].start_us = now_us + IMAGES_AFTER_US;
    if (!images_has(m, slot) || waitpid(m->v[slot].of.pid, NULL, WNOHANG) != 0)
        return false;
    *ret = m->v[slot].of;
    m->v[slot].of = (struct launch_image){.fd = -1};
    return true;
}
