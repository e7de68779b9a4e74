#include "worker/agent/solo_plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/profile.h"
#include "api/protocol/assignment.h"
#include "api/spec_plan.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/plan/site.h"
#include "worker/snapshot/capacity.h"

#define BACKOFF_US INT64_C(1000000) /* before the first retry; doubled each time */
#define BACKOFF_US_MAX INT64_C(30000000)

int solo_plan_read(const char *file, struct job_spec **ret, struct faults *f, struct merr *err)
{
    struct buf text;
    int r;

    buf_init(&text, SPEC_TEXT_MAX);
    r = io_read_file(file, &text, err);
    if (r == 0) {
        r = spec_from_text(buf_text(&text), text.len, ret, f);
        if (r < 0)
            merr_set(err, r, "'%s' is no usable spec", file);
    }
    buf_clear(&text);
    return r;
}

/* The devices of this machine. */
static struct plan_site site_here(const struct job_spec *spec, int devices, int threads,
                                  const struct plan_profile *profile)
{
    bool bf16 = spec->train.precision == PRECISION_BF16;
    struct plan_site site = {.groups = 1, .node_devices = devices};
    struct capacity here;

    capacity_here(&here);
    site.group[0] = (struct plan_group){
        .device = plan_device_assumed("cpu", threads, bf16, here.total / (uint64_t)devices), .n = devices};
    plan_links_assumed("cpu", &site);
    if (profile) {
        site.group[0].device = plan_device_measured(site.group[0].device, profile, bf16);
        plan_links_measured(&site, profile);
    }
    return site;
}

int solo_plan_profile(const char *file, int threads, struct plan_profile *ret, struct merr *err)
{
    json_auto_t *doc = NULL;
    struct buf text;
    int r;

    buf_init(&text, PROFILE_TEXT_MAX);
    r = io_read_file(file, &text, err);
    if (r == 0 && !(doc = json_loadb(buf_text(&text), text.len, 0, NULL)))
        r = merr_set(err, -EINVAL, "'%s' is no profile: want what muster profile run prints", file);
    buf_clear(&text);
    if (r < 0)
        return r;
    TRY(profile_read(doc, ret, err));
    if (ret->threads > 0 && ret->threads != threads)
        return merr_set(err, -ERANGE,
                        "'%s' is of ranks of %d threads, and these have %d: measure it again by muster profile run "
                        "--threads %d",
                        file, ret->threads, threads, threads);
    return 0;
}

/* What the spec leaves to the planner is settled in doc. */
static int settle(const struct job_spec *spec, int devices, int threads, const struct plan_profile *profile,
                  struct layout *ret, json_t *doc, struct merr *err)
{
    struct plan_site site = site_here(spec, devices, threads, profile);
    struct plan_job job = spec_plan_job(spec);
    struct plan_wish wish = spec_plan_wish(spec);
    struct plan_result plan;
    json_t *text;
    int r;

    job.program_bytes = plan_site_program(&site);
    r = plan_search(&job, &wish, &site, &plan, err);
    if (r < 0)
        return r;
    text = spec_plan_json(&plan);
    r = text ? spec_settle(doc, text) : -ENOMEM;
    json_decref(text);
    if (r < 0)
        return merr_set(err, r, "no memory for a plan");
    *ret = plan_shape_layout(&plan.best.shape);
    return 0;
}

static int choose_layout(const struct job_spec *spec, int devices, int threads, const struct plan_profile *profile,
                         struct layout *ret, json_t *doc, struct merr *err)
{
    struct plan_facts facts = spec_plan_facts(spec);
    struct plan_wish wish;

    if (spec->kind == JOB_COMMAND) {
        *ret = (struct layout){.tp = 1, .pp = 1, .cp = 1, .dp = devices, .world = devices};
        return 0;
    }
    wish = spec_plan_wish(spec);
    return plan_wish_open(&wish) ? settle(spec, devices, threads, profile, ret, doc, err)
                                 : plan_layout(&facts, devices, ret, NULL, err);
}

/* A port that is free now. The rank that takes it fails if another is faster: then the next attempt gets
 * another one. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    IO_CLOSE_AUTO int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(a);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        return 29500;
    return ntohs(a.sin_port);
}

int solo_plan_assign(const struct job_spec *spec, int devices, int threads, const struct plan_profile *profile,
                     uint64_t generation, const char *dir, json_t **ret, int *ret_world, struct merr *err)
{
    struct assignment a = {.generation = (int64_t)generation, .master_port = free_port(), .spec = spec_to_json(spec)};
    json_t *doc = NULL;
    int r = a.spec ? choose_layout(spec, devices, threads, profile, &a.layout, a.spec, err)
                   : merr_set(err, -ENOMEM, "no memory for a spec");

    if (r < 0) {
        assignment_clear(&a);
        return r;
    }
    a.world = a.layout.world;
    a.grace_s = spec->kind == JOB_COMMAND ? spec->command.grace_s : ASSIGNMENT_GRACE_S;
    (void)snprintf(a.job, sizeof(a.job), "%s", RUN_JOB);
    (void)snprintf(a.dir, sizeof(a.dir), "%s", dir);
    a.ranks = calloc((size_t)a.world, sizeof(*a.ranks));
    for (; a.ranks && a.n_ranks < (size_t)a.world; a.n_ranks++)
        a.ranks[a.n_ranks] = (struct assignment_rank){
            .rank = (int)a.n_ranks, .slot = (int)a.n_ranks, .node = RUN_NODE, .class_ = "cpu", .address = "127.0.0.1"};
    if (a.ranks)
        doc = assignment_write(&a);
    r = a.world;
    assignment_clear(&a);
    if (!doc)
        return merr_set(err, -ENOMEM, "no memory for an assignment of %d ranks", r);
    *ret = doc;
    *ret_world = r;
    return 0;
}

bool solo_plan_retry(struct solo_retries *r, const struct job_spec *spec, enum exit_cause fault, int64_t *ret_wait_us)
{
    int *n = fault == EXIT_CAUSE_USER ? &r->user : &r->other;
    int before = r->user + r->other;
    int64_t wait_us = BACKOFF_US << (before > 5 ? 5 : before);

    if (*n >= (fault == EXIT_CAUSE_USER ? spec->retry.user : spec->retry.max))
        return false;
    ++*n;
    *ret_wait_us = wait_us > BACKOFF_US_MAX ? BACKOFF_US_MAX : wait_us;
    return true;
}
