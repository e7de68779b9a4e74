#include "worker/agent/checkup.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/agent/trial.h"

#define PROGRAM_MS 30000
#define TEST_MS 150000
#define RESULT_BYTES 4096
#define END_S 2

struct checkup {
    struct checkup_cfg cfg;
    pthread_t thread;
    _Atomic bool end;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    bool looked;
    struct checks_found found;
    int64_t skew_us, test, tested;
    json_t *result;
};

static const char *const level_names[CHECKS_LEVELS] = {"well", "no-work", "drain"};

/* What the program said last stands while it says nothing. */
static void look(struct checkup *c, struct checks_found *of_program)
{
    struct checks_found program = {.level = CHECKS_WELL}, all = {.level = CHECKS_WELL};
    struct checks_wait wait = {.timeout_ms = PROGRAM_MS, .stop = &c->end};
    int64_t skew_us;
    int r = c->cfg.program ? checks_run_program(c->cfg.program, &wait, &program) : 0;

    if (r == 0)
        *of_program = program;
    else
        log_warn("the health program '%s' says nothing (%s): the node stays as it was", c->cfg.program, strerror(-r));
    (void)pthread_mutex_lock(&c->lock);
    skew_us = c->skew_us;
    (void)pthread_mutex_unlock(&c->lock);
    checks_look(&c->cfg.look, skew_us, &all);
    if (*of_program->reason)
        checks_add(&all, of_program->level, of_program->reason);
    (void)pthread_mutex_lock(&c->lock);
    if (c->looked ? strcmp(c->found.reason, all.reason) != 0 : *all.reason != '\0')
        log_warn("checks: %s%s%s", level_names[all.level], *all.reason ? ": " : "", all.reason);
    c->found = all;
    c->looked = true;
    (void)pthread_mutex_unlock(&c->lock);
}

static void test(struct checkup *c, int64_t id)
{
    const char *const argv[] = {c->cfg.self, "trial", c->cfg.look.state, NULL};
    char out[RESULT_BYTES], why[160];
    int status = checks_spawn(argv, &(struct checks_wait){.timeout_ms = TEST_MS, .stop = &c->end}, out, sizeof(out));
    json_t *result = status == 0 ? json_loads(out, 0, NULL) : NULL;

    if (!json_is_object(result)) {
        (void)snprintf(why, sizeof(why), "the test itself failed: %s",
                       status < 0 ? strerror(-status) : "it ended without a result");
        json_decref(result);
        result = json_pack("{s:b, s:s}", "passed", 0, "why", why);
    }
    (void)json_object_set_new(result, "id", json_integer(id));
    (void)pthread_mutex_lock(&c->lock);
    json_decref(c->result);
    c->result = result;
    c->tested = id;
    (void)pthread_mutex_unlock(&c->lock);
}

static void *look_after(void *arg)
{
    struct checkup *c = arg;
    struct checks_found of_program = {.level = CHECKS_WELL};
    int64_t next_us = clock_mono_us();

    (void)pthread_mutex_lock(&c->lock);
    while (!atomic_load(&c->end)) {
        int64_t now_us = clock_mono_us(), id = c->test != c->tested ? c->test : 0;
        struct timespec until = {.tv_sec = next_us / 1000000, .tv_nsec = next_us % 1000000 * 1000};

        if (id == 0 && now_us < next_us) {
            (void)pthread_cond_timedwait(&c->wake, &c->lock, &until);
            continue;
        }
        (void)pthread_mutex_unlock(&c->lock);
        if (id != 0)
            test(c, id);
        else
            look(c, &of_program);
        next_us = id != 0 ? next_us : clock_mono_us() + c->cfg.every_s * INT64_C(1000000);
        (void)pthread_mutex_lock(&c->lock);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

int checkup_new(const struct checkup_cfg *cfg, struct checkup **ret, struct merr *err)
{
    struct checkup *c = calloc(1, sizeof(*c));
    pthread_condattr_t attr;
    int r;

    if (!c)
        return merr_set(err, -ENOMEM, "no memory to look after the node");
    c->cfg = *cfg;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    r = -pthread_create(&c->thread, NULL, look_after, c);
    if (r < 0) {
        (void)pthread_cond_destroy(&c->wake);
        (void)pthread_mutex_destroy(&c->lock);
        free(c);
        return merr_errno(err, r, "cannot start the thread that looks after the node");
    }
    *ret = c;
    return 0;
}

void checkup_free(struct checkup *c)
{
    struct timespec until;

    if (!c)
        return;
    atomic_store(&c->end, true);
    (void)pthread_mutex_lock(&c->lock);
    (void)pthread_cond_signal(&c->wake);
    (void)pthread_mutex_unlock(&c->lock);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    if (pthread_timedjoin_np(c->thread, NULL, &until) != 0)
        return; /* a disk does not answer: the process ends without it */
    (void)pthread_cond_destroy(&c->wake);
    (void)pthread_mutex_destroy(&c->lock);
    json_decref(c->result);
    free(c);
}

json_t *checkup_health(struct checkup *c)
{
    json_t *o = NULL;

    (void)pthread_mutex_lock(&c->lock);
    if (c->looked)
        o = json_pack("{s:s, s:s}", "level", level_names[c->found.level], "reason", c->found.reason);
    (void)pthread_mutex_unlock(&c->lock);
    return o;
}

void checkup_test(struct checkup *c, int64_t id)
{
    (void)pthread_mutex_lock(&c->lock);
    c->test = id;
    (void)pthread_cond_signal(&c->wake);
    (void)pthread_mutex_unlock(&c->lock);
}

json_t *checkup_result(struct checkup *c)
{
    json_t *o;

    (void)pthread_mutex_lock(&c->lock);
    o = c->result ? json_deep_copy(c->result) : NULL;
    (void)pthread_mutex_unlock(&c->lock);
    return o;
}

void checkup_skew(struct checkup *c, int64_t us)
{
    (void)pthread_mutex_lock(&c->lock);
    c->skew_us = us;
    (void)pthread_mutex_unlock(&c->lock);
}
