#include "worker/agent/profiles.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/profile.h"
#include "base/io.h"
#include "base/log.h"
#include "base/version.h"
#include "worker/agent/checks.h"

#define MEASURE_MS 120000
#define LOOK_US 200000
#define CLASSES 8
#define MOST 64 /* devices of a class that are measured side by side */

struct profiles {
    struct profiles_cfg cfg;
    json_t *of;       /* by class; NULL: nothing is known */
    int64_t quiet_us; /* since when nothing runs; 0: something does */
    bool settled;     /* known, or given up */
    bool running;
    pthread_t thread; /* while running */
    _Atomic bool stop, over;
    json_t *found; /* the thread's, until it is over; NULL: it failed or was stopped */
};

/* --- the file ------------------------------------------------------------------------------------------------ */

static void file_of(const struct profiles *p, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%.4000s/" PROFILES_FILE, p->cfg.state);
}

/* What profiles depend on, new. */
static json_t *subject(const struct profiles *p)
{
    json_t *classes = json_array();

    for (int i = 0; i < p->cfg.devices->n; i++) {
        const struct device *d = &p->cfg.devices->v[i];

        (void)json_array_append_new(classes, json_pack("[s, s, f]", d->class, d->kind, d->share));
    }
    return json_pack("{s:s, s:i, s:i, s:o}", "release", MUSTER_VERSION, "version", PROFILE_VERSION, "threads",
                     p->cfg.devices->threads, "devices", classes);
}

/* Whether all of them are profiles. */
static bool good(const json_t *of)
{
    struct plan_profile *p = calloc(1, sizeof(*p));
    const char *class_;
    bool all = p && json_is_object(of);
    json_t *one;

    json_object_foreach ((json_t *)of, class_, one) {
        struct merr err;

        all = all && profile_read(one, p, &err) == 0;
    }
    free(p);
    return all;
}

static void load(struct profiles *p)
{
    json_auto_t *doc = NULL, *now = subject(p);
    char path[PATH_MAX];
    struct buf text;

    file_of(p, path);
    buf_init(&text, CLASSES * PROFILE_TEXT_MAX);
    if (io_read_file(path, &text, NULL) == 0)
        doc = json_loadb(buf_text(&text), text.len, 0, NULL);
    buf_clear(&text);
    if (!doc || !json_equal(json_object_get(doc, "of"), now) || !good(json_object_get(doc, "profiles")))
        return; /* of other devices, of another release, or damaged: measured again */
    p->of = json_incref(json_object_get(doc, "profiles"));
    p->settled = true;
}

static void keep(const struct profiles *p)
{
    json_auto_t *doc = json_pack("{s:o, s:O}", "of", subject(p), "profiles", p->of);
    char path[PATH_MAX], *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    struct merr err = {"out of memory"};

    file_of(p, path);
    if (!text || io_publish_file(path, text, strlen(text), 0600, &err) < 0)
        log_warn("the profiles of this node are not kept: %s", err.text);
    free(text);
}

/* What a user of this machine plans by (muster run), where nobody has measured it before. */
static void keep_for_user(const struct profiles *p)
{
    char file[PROFILE_FILE_MAX];
    struct merr err;

    if (!profile_kept_file(file) || access(file, F_OK) == 0)
        return;
    for (int i = 0; i < p->cfg.devices->n; i++) {
        const json_t *one = json_object_get(p->of, p->cfg.devices->v[i].class);

        if (!one || strcmp(p->cfg.devices->v[i].kind, "cpu") != 0)
            continue;
        if (profile_keep(file, one, &err) < 0)
            log_warn("the profile is not kept for muster run: %s", err.text);
        return;
    }
}

/* --- measuring ----------------------------------------------------------------------------------------------- */

/* The last line is the profile; what libraries say comes before. */
static json_t *read_output(char *out)
{
    char *end = out + strlen(out), *line;
    json_t *doc;

    while (end > out && end[-1] == '\n')
        *--end = '\0';
    line = strrchr(out, '\n');
    doc = json_loads(line ? line + 1 : out, 0, NULL);
    if (json_is_object(doc))
        return doc;
    json_decref(doc);
    return NULL;
}

/* Measure the class of device first, with all of its devices at once. New; NULL: it cannot be, or was stopped. */
static json_t *measure(struct profiles *p, const struct device *first)
{
    char meeting[PATH_MAX];
    char devices[16], threads[16], visible[4096] = "CUDA_VISIBLE_DEVICES=";
    const char *const argv[] = {"/usr/bin/env", visible, "MUSTER_KERNELS=auto", p->cfg.train, "--profile",
                                "--run",        meeting, "--devices",           devices,      "--threads",
                                threads,        NULL};
    const char *gpu[sizeof(argv) / sizeof(argv[0])];
    bool is_gpu = strcmp(first->kind, "gpu") == 0;
    char *out = malloc(PROFILE_TEXT_MAX);
    json_t *doc = NULL;
    int n = 0, status;

    for (int i = 0; i < p->cfg.devices->n && n < MOST; i++) {
        const struct device *d = &p->cfg.devices->v[i];
        size_t at = strlen(visible);

        if (strcmp(d->class, first->class) != 0)
            continue;
        if (is_gpu)
            (void)snprintf(visible + at, sizeof(visible) - at, "%s%s", n ? "," : "", d->visible);
        n++;
    }
    (void)snprintf(meeting, sizeof(meeting), "%.4000s/measuring", p->cfg.state);
    (void)snprintf(devices, sizeof(devices), "%d", n);
    (void)snprintf(threads, sizeof(threads), "%d", p->cfg.devices->threads);
    memcpy(gpu, argv, sizeof(argv));
    if (is_gpu)
        gpu[2] = "MUSTER_KERNELS=cuda";
    status = out ? checks_spawn(gpu, &(struct checks_wait){.timeout_ms = MEASURE_MS, .stop = &p->stop}, out,
                                PROFILE_TEXT_MAX)
                 : -ENOMEM;
    if (status == 0)
        doc = read_output(out);
    if (!doc && !atomic_load(&p->stop))
        log_warn("class '%s' has no profile: the measurement %s", first->class,
                 status < 0 ? strerror(-status) : "failed");
    free(out);
    (void)io_remove_tree(meeting, NULL); /* of one that was killed, too */
    return doc;
}

/* Whether a device is the first of a class that can be measured: one that jobs have all of. */
static bool begins_class(const struct devices *all, int i)
{
    if (all->v[i].share > 0 || !all->v[i].trains)
        return false;
    for (int k = 0; k < i; k++)
        if (strcmp(all->v[k].class, all->v[i].class) == 0)
            return false;
    return true;
}

static void *measure_all(void *arg)
{
    struct profiles *p = arg;
    json_t *of = json_object();

    for (int i = 0; i < p->cfg.devices->n && json_object_size(of) < CLASSES && !atomic_load(&p->stop); i++) {
        json_t *one = begins_class(p->cfg.devices, i) ? measure(p, &p->cfg.devices->v[i]) : NULL;

        if (one)
            (void)json_object_set_new(of, p->cfg.devices->v[i].class, one);
    }
    p->found = of;
    atomic_store(&p->over, true);
    return NULL;
}

static void begin(struct profiles *p)
{
    atomic_store(&p->stop, false);
    atomic_store(&p->over, false);
    p->found = NULL;
    p->running = pthread_create(&p->thread, NULL, measure_all, p) == 0;
    if (!p->running)
        p->settled = true;
    else
        log_info("measuring the devices, as nothing runs here");
}

/* The thread is over: whether there is more to tell. */
static bool end(struct profiles *p)
{
    bool more;

    (void)pthread_join(p->thread, NULL);
    p->running = false;
    if (atomic_load(&p->stop)) { /* what it has is of a node at work */
        json_decref(p->found);
        p->found = NULL;
        return false;
    }
    p->settled = true;
    more = json_object_size(p->found) > 0 && good(p->found);
    if (more) {
        p->of = p->found;
        keep(p);
        keep_for_user(p);
        log_info("the devices were measured");
    } else {
        json_decref(p->found);
    }
    p->found = NULL;
    return more;
}

bool profiles_tick(struct profiles *p, bool busy, int64_t now_us, int64_t *ret_next_us)
{
    int64_t due_us;

    *ret_next_us = INT64_MAX;
    if (!p)
        return false;
    p->quiet_us = busy ? 0 : p->quiet_us > 0 ? p->quiet_us : now_us;
    if (p->running) {
        if (busy)
            atomic_store(&p->stop, true);
        if (atomic_load(&p->over))
            return end(p);
        *ret_next_us = now_us + LOOK_US;
        return false;
    }
    if (p->settled || busy || p->cfg.idle_s <= 0)
        return false;
    due_us = p->quiet_us + p->cfg.idle_s * INT64_C(1000000);
    if (now_us < due_us) {
        *ret_next_us = due_us;
        return false;
    }
    begin(p);
    *ret_next_us = now_us + LOOK_US;
    return false;
}

/* ------------------------------------------------------------------------------------------------------------- */

int profiles_new(const struct profiles_cfg *cfg, struct profiles **ret, struct merr *err)
{
    struct profiles *p = calloc(1, sizeof(*p));

    if (!p)
        return merr_set(err, -ENOMEM, "no memory for profiles");
    p->cfg = *cfg;
    load(p);
    *ret = p;
    return 0;
}

void profiles_free(struct profiles *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    if (p->running)
        (void)end(p);
    json_decref(p->of);
    free(p);
}

json_t *profiles_json(const struct profiles *p)
{
    return p && p->of ? json_deep_copy(p->of) : NULL;
}
