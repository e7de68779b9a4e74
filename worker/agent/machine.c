#include "worker/agent/machine_evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "base/utf8.h"
#include "worker/agent/account.h"
#include "worker/agent/beats.h"
#include "worker/agent/evidence.h"
#include "worker/agent/frozen.h"
#include "worker/agent/host.h"
#include "worker/agent/images.h"
#include "worker/agent/launch.h"
#include "worker/agent/memory.h"
#include "worker/agent/order.h"
#include "worker/agent/proc.h"
#include "worker/agent/stall.h"
#include "worker/agent/starve.h"
#include "worker/agent/waste.h"
#include "worker/flight/flight_read.h"

#define TAIL_BYTES 8192
#define TAIL_LINES 20

struct machine {
    char *root, *self, *train, *cwd, *memory, *quota, *pass_env;
    char cgroup[CGROUP_LIST_MAX]; /* folders of the ranks' control groups; "": none */
    struct account account;
    struct waste *waste;               /* owned */
    const struct cgroup_limits *share; /* borrowed; NULL: no limits but the spec's */
    char boot_id[PROC_BOOT_ID_MAX];
    uint64_t memory_limit;
    int threads;
    const char *const *visible; /* borrowed */
    const double *shares;       /* borrowed; NULL: none */
    bool with_parent;
    int epoll_fd;
    struct starve_steal steal;
    struct host_seen host;
    struct images *images; /* owned */
};

struct machine_rank {
    struct machine *h;
    char folder[PATH_MAX];
    int rank, each;             /* its number; ranks that its command starts (machine_rank_share) */
    struct proc_id shim, child; /* pid 0: not known (yet) */
    int shim_fd, ready_fd;      /* pidfd of the shim; end of file: rank-NNNNN.pid is there; -1: none */
    struct flight *flight;      /* NULL: none, or its file is damaged */
    struct steps_seen steps;
    struct starve_seen starve;
    struct beats_seen beats; /* of a command that has some */
};

static char *copy(const char *text, bool *ok)
{
    char *s = text ? strdup(text) : NULL;

    *ok = *ok && (s || !text);
    return s;
}

/* Where groups for ranks can be made. */
static void find_cgroups(struct machine *h)
{
    BUF_CLEAR_AUTO struct buf self;

    buf_init(&self, 65536);
    if (io_read_file("/proc/self/cgroup", &self, NULL) == 0)
        cgroup_find("/sys/fs/cgroup", buf_text(&self), h->account.helper > 0, h->cgroup);
}

int machine_new(const struct machine_cfg *cfg, struct machine **ret, struct merr *err)
{
    struct machine *h = calloc(1, sizeof(*h));
    bool ok = true;

    if (!h)
        return merr_set(err, -ENOMEM, "no memory to look after processes");
    h->root = copy(cfg->root, &ok);
    h->self = copy(cfg->self, &ok);
    h->train = copy(cfg->train, &ok);
    h->cwd = copy(cfg->cwd, &ok);
    h->memory = copy(cfg->memory, &ok);
    h->quota = copy(cfg->shares ? cfg->quota : NULL, &ok);
    h->pass_env = copy(cfg->pass_env, &ok);
    h->memory_limit = cfg->memory_limit;
    h->threads = cfg->threads;
    h->visible = cfg->visible;
    h->shares = cfg->shares;
    h->with_parent = cfg->with_parent;
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    proc_boot_id(h->boot_id);
    h->waste = ok ? waste_new(&h->account, h->root, h->memory) : NULL;
    if (!h->waste || h->epoll_fd < 0) {
        machine_free(h);
        return merr_set(err, -ENOMEM, "no memory or descriptor to look after processes");
    }
    h->account.helper = cfg->helper;
    h->share = cfg->share;
    if (cfg->helper && cfg->memory)
        (void)snprintf(h->account.shm, sizeof(h->account.shm), "%.4000s.shm", cfg->memory);
    if (cfg->cgroups)
        find_cgroups(h);
    if (!cfg->helper && !h->quota) /* else others start its ranks, or put them where they are to be */
        h->images = images_new(
            &(struct images_cfg){h->self, h->train, h->root, h->pass_env, h->visible, .threads = h->threads});
    *ret = h;
    return 0;
}

void machine_free(struct machine *h)
{
    if (!h)
        return;
    waste_free(h->waste);
    images_free(h->images);
    free(h->root);
    free(h->self);
    free(h->train);
    free(h->cwd);
    free(h->memory);
    free(h->quota);
    free(h->pass_env);
    io_close(&h->epoll_fd);
    free(h);
}

void machine_keep_images(struct machine *h, const int *slots, size_t n)
{
    images_settle(h->images, slots, n, clock_mono_us());
}

bool machine_has_image(const struct machine *h, int slot)
{
    return images_has(h->images, slot);
}

bool machine_is_shared(const struct machine *h)
{
    return !h->account.helper;
}

int64_t machine_mono_us(const struct machine *h)
{
    (void)h;
    return clock_mono_us();
}

int64_t machine_wall_us(const struct machine *h)
{
    (void)h;
    return clock_wall_us();
}

void machine_boot_id(const struct machine *h, char ret[PROC_BOOT_ID_MAX])
{
    (void)snprintf(ret, PROC_BOOT_ID_MAX, "%s", h->boot_id);
}

int machine_pressure(const struct machine *h)
{
    return h ? host_pressure("/proc") : -1;
}

void machine_host(struct machine *h, int ret[REPORT_HOST_NUMBERS])
{
    host_look(&h->host, "/proc", h->root, clock_mono_us(), ret);
}

int machine_steal(struct machine *h)
{
    return starve_steal(&h->steal, "/proc");
}

int machine_fd(const struct machine *h)
{
    return h->epoll_fd;
}

/* --- runs -------------------------------------------------------------------------------------------- */

int machine_run_folder(const struct machine *h, const char *job, uint64_t generation, char ret[PATH_MAX],
                       struct merr *err)
{
    if ((size_t)snprintf(ret, PATH_MAX, "%s/%s-g%llu", h->root, job, (unsigned long long)generation) >= PATH_MAX)
        return merr_set(err, -ENAMETOOLONG, "run %s: the path of its folder is too long", job);
    return 0;
}

int machine_run_make(struct machine *h, const char *folder, const char *dir, const char *user, struct merr *err)
{
    char path[PATH_MAX + 32];

    TRY(io_mkdirs(folder, 0700, err));
    TRY(io_mkdirs(dir, 0750, err));
    (void)snprintf(path, sizeof(path), "%s/rendezvous", folder);
    TRY(io_mkdirs(path, 0700, err));
    return account_share_run(&h->account, folder, dir, user, err);
}

/* Memory for the snapshots of this node's ranks. Without it the run does without. */
static void give_memory(const struct machine *h, struct assignment *a, const char *folder)
{
    char path[PATH_MAX];
    struct merr why;

    if (memory_open(h->waste, h->memory, a->job, a->dir, path, &why) < 0 ||
        account_share_memory(&h->account, path, folder, a->unix_user, &why) < 0) {
        utf8_copy(a->no_memory, sizeof(a->no_memory), why.text);
        return;
    }
    a->memory_limit = (int64_t)h->memory_limit;
    (void)snprintf(a->memory, sizeof(a->memory), "%s", path);
}

int machine_run_keep(struct machine *h, const char *folder, enum job_kind kind, const struct assignment *assignment,
                     struct merr *err)
{
    char path[PATH_MAX + 32], *text = NULL;
    struct assignment a = *assignment; /* what it points to stays the caller's */
    json_t *doc;
    int r;

    a.threads = h->threads;
    (void)snprintf(a.boot_id, sizeof(a.boot_id), "%s", h->boot_id);
    if (h->memory && kind == JOB_TRAIN)
        give_memory(h, &a, folder);
    if (kind == JOB_COMMAND)
        TRY(program_publish_abi(folder, err));
    doc = assignment_write(&a);
    if (doc)
        text = json_dumps(doc, JSON_INDENT(1));
    json_decref(doc);
    if (text) {
        (void)snprintf(path, sizeof(path), "%s/assignment.json", folder);
        r = io_publish_file(path, text, strlen(text), 0600, err);
        if (r == 0)
            r = account_share_file(&h->account, path, false, err);
    } else {
        r = merr_set(err, -ENOMEM, "no memory for run %s", a.job);
    }
    free(text);
    return r;
}

/* *ret is new. -ENOENT when the folder holds no assignment. */
static int read_assignment(const char *folder, struct assignment *ret, struct merr *err)
{
    char path[PATH_MAX + 32];
    struct buf text;
    json_error_t je;
    int code;

    (void)snprintf(path, sizeof(path), "%s/assignment.json", folder);
    buf_init(&text, ASSIGNMENT_BYTES_MAX);
    code = io_read_plain(path, &text, err);
    if (code == 0) {
        json_auto_t *doc = json_loadb(buf_text(&text), text.len, 0, &je);

        if (!doc)
            code = merr_set(err, -EPROTO, "'%s' is damaged: line %d: %s", path, je.line, je.text);
        else if (assignment_read(doc, ret, err) < 0)
            code = merr_prefix(err, -EPROTO, "'%s'", path);
    }
    buf_clear(&text);
    return code;
}

/* Nobody knows any more what runs in this folder: it is ended, by its shims. */
static void end_unknown(const char *folder)
{
    DIR *dir = opendir(folder);
    struct shim_pids pids;
    struct dirent *e;

    while (dir && (e = readdir(dir))) {
        int rank, end = 0;

        if (sscanf(e->d_name, "rank-%5d.pid%n", &rank, &end) == 1 && end > 0 && !e->d_name[end] &&
            shim_read_pids(folder, rank, &pids, NULL) == 0)
            (void)proc_kill(pids.shim, SHIM_KILL);
    }
    if (dir)
        (void)closedir(dir);
}

static int see_run(struct machine *h, const char *folder, machine_run_fn *fn, void *arg, struct merr *err)
{
    struct assignment a;
    int r = read_assignment(folder, &a, err);

    if (r < 0)
        end_unknown(folder);
    if (r == -ENOENT)
        return waste_take(h->waste, folder, err);
    if (r < 0)
        return r;
    r = fn(arg, folder, &a, strcmp(a.boot_id, h->boot_id) == 0, err);
    assignment_clear(&a);
    return r;
}

int machine_each_run(struct machine *h, machine_run_fn *fn, void *arg, struct merr *err)
{
    DIR *dir = opendir(h->root);
    struct dirent *e;
    struct merr first = {""}, each;
    int code = 0;

    waste_begin(h->waste);
    if (!dir)
        return errno == ENOENT ? 0 : merr_errno(err, -errno, "cannot read '%s'", h->root);
    while ((e = readdir(dir))) {
        char folder[PATH_MAX];
        struct stat st;
        int one;

        if (e->d_name[0] == '.' || !strstr(e->d_name, "-g"))
            continue;
        if ((size_t)snprintf(folder, sizeof(folder), "%s/%s", h->root, e->d_name) >= sizeof(folder))
            continue;
        if (lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        one = see_run(h, folder, fn, arg, &each); /* one bad folder does not hide the others */
        if (one < 0 && code == 0) {
            code = one;
            first = each;
        }
    }
    (void)closedir(dir);
    if (code < 0)
        (void)merr_set(err, code, "%s", first.text);
    return code;
}

int machine_run_remove(struct machine *h, const char *folder, struct merr *err)
{
    return waste_take(h->waste, folder, err);
}

/* --- ranks ------------------------------------------------------------------------------------------- */

struct machine_rank *machine_rank_new(struct machine *h, const char *folder, int rank)
{
    struct machine_rank *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->h = h;
    r->rank = rank;
    r->each = 1;
    r->shim_fd = r->ready_fd = -1;
    (void)snprintf(r->folder, sizeof(r->folder), "%s", folder);
    return r;
}

void machine_rank_share(struct machine_rank *r, int n)
{
    r->each = n;
}

void machine_rank_free(struct machine_rank *r)
{
    if (!r)
        return;
    io_close(&r->shim_fd);
    io_close(&r->ready_fd);
    if (r->flight)
        flight_close(r->flight);
    free(r);
}

int machine_rank_page(struct machine_rank *r, struct merr *err)
{
    char path[PATH_MAX + 32];

    TRY(flight_create(shim_path(path, sizeof(path), r->folder, r->rank, "flight"), NULL, err));
    TRY(account_share_file(&r->h->account, path, true, err));
    return flight_watch(path, &r->flight, err);
}

/* Wait for what there is to wait for. */
static void watch(struct machine_rank *r)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (r->shim_fd >= 0)
        (void)epoll_ctl(r->h->epoll_fd, EPOLL_CTL_ADD, r->shim_fd, &event);
    if (r->ready_fd >= 0)
        (void)epoll_ctl(r->h->epoll_fd, EPOLL_CTL_ADD, r->ready_fd, &event);
}

/* The name of a rank's control groups. */
static void name_group(const struct machine *h, const struct machine_launch *l, int rank, char ret[256])
{
    /* The root in the name keeps two agents of one machine apart. */
    (void)snprintf(ret, 256, "muster-%s-g%llu-r%d-%08x", l->job, (unsigned long long)l->generation, rank,
                   (unsigned)hash_xxh3(h->root, strlen(h->root)));
}

/* What a rank may take: its slot's share where ranks are kept apart, and what its spec says. */
static struct cgroup_limits find_limits(const struct machine *h, const struct machine_launch *l)
{
    struct cgroup_limits limits = {.memory_bytes = 0};

    if (h->share && l->slot >= 0)
        limits = h->share[l->slot];
    if (h->account.helper && h->shares && l->slot >= 0 && h->shares[l->slot] > 0)
        limits.cpus = h->shares[l->slot];
    if (l->spec->resources.memory_mib > 0)
        limits.memory_bytes = (uint64_t)l->spec->resources.memory_mib << 20;
    if (l->spec->resources.cpus > 0)
        limits.cpus = l->spec->resources.cpus;
    if (l->spec->resources.pids > 0)
        limits.pids = (uint64_t)l->spec->resources.pids;
    return limits;
}

/* Have a guard for a rank that is to be under another account. */
static int have_guard(const struct machine_rank *r, const struct machine_launch *l, struct guard_rank *ret,
                      char folders[3][PATH_MAX], int *ret_wire, struct merr *err)
{
    const struct machine *h = r->h;
    const struct account *a = &h->account;
    char *tmp = folders[0], *shm = folders[1], *memory = folders[2];

    (void)snprintf(tmp, PATH_MAX, "%.4000s/tmp", r->folder);
    if (l->spec->kind == JOB_TRAIN && *order_hidden(h->train))
        return merr_set(err, -ENOENT, "cannot run '%s'%s", h->train, order_hidden(h->train));
    *ret = (struct guard_rank){.user = l->user, .tmp = tmp};
    ret->shm = account_shm(a, r->folder, shm);
    (void)snprintf(memory, PATH_MAX, "%.3900s/%s", h->memory ? h->memory : "", l->job);
    if (strncmp(memory, "/dev/shm/", 9) == 0 && access(memory, F_OK) == 0)
        ret->keep = memory;
    if (!ret->shm)
        ret->tmp = ret->keep = NULL;
    return guard_open(a->helper, ret_wire, err);
}

static double share_of(const struct machine *h, const struct machine_launch *l)
{
    return h->shares && l->slot >= 0 ? h->shares[l->slot] * (l->launched ? l->local_world : 1) : 0;
}

int machine_rank_place(const struct machine_rank *r, const struct machine_launch *l, struct machine_place *ret,
                       struct merr *err)
{
    const struct machine *h = r->h;
    char name[256];

    *ret->cgroup = *ret->quota = '\0';
    ret->wire = -1;
    ret->shim = r->shim;
    name_group(h, l, r->rank, name);
    if (h->cgroup[0])
        (void)cgroup_list(h->cgroup, name, ret->cgroup);
    if (share_of(h, l) > 0 && !h->account.helper)
        (void)cgroup_list(h->quota, name, ret->quota);
    return h->account.helper ? have_guard(r, l, &ret->guard, ret->folders, &ret->wire, err) : 0;
}

int machine_rank_start(struct machine_rank *r, const struct machine_launch *l, struct merr *err)
{
    const struct machine *h = r->h;
    bool has_slot = l->slot >= 0;
    char visible[LAUNCH_VISIBLE_MAX];
    struct machine_place place;
    char bundle[PATH_MAX];
    struct launch all = {
        .self = h->self,
        .train = h->train,
        .cwd = h->cwd ? h->cwd : l->job_dir,
        .folder = r->folder,
        .limits = find_limits(h, l),
        .share = share_of(h, l),
        .job = l->job,
        .job_dir = l->job_dir,
        .owner = l->owner,
        .trace = l->trace,
        .node = l->node,
        .nodes = l->nodes,
        .resumes = l->resumes,
        .ends_at_us = l->ends_at_us,
        .master_addr = l->master_addr,
        .generation = l->generation,
        .rank = r->rank,
        .world = l->world,
        .local_rank = l->local_rank,
        .local_world = l->local_world,
        .node_rank = l->node_rank,
        .master_port = l->master_port,
        .threads = h->threads,
        .visible = !h->visible   ? NULL
                   : l->launched ? launch_visible(h->visible, l->launched, l->local_world, visible)
                   : has_slot    ? h->visible[l->slot]
                                 : "",
        .pass_env = h->pass_env,
        .with_parent = h->with_parent,
        .spec = l->spec,
    };
    pid_t shim_pid;
    int code;

    if (launch_bundle(l->job_dir, l->owner, l->spec, bundle) == 0)
        TRY(account_share_upload(&h->account, bundle, l->user, err));
    TRY(machine_rank_place(r, l, &place, err));
    all.cgroup = *place.cgroup ? place.cgroup : NULL;
    all.quota = *place.quota ? place.quota : NULL;
    all.guard = h->account.helper ? &place.guard : NULL;
    all.wire = place.wire;
    (void)(l->spec->kind == JOB_TRAIN && images_take(h->images, l->slot, &all.image, clock_mono_us()));
    code = launch_rank(&all, &shim_pid, &r->ready_fd, err);
    images_taken(&all.image, code == 0 ? shim_pid : 0);
    io_close(&place.wire);
    if (code < 0)
        return code;
    r->shim.pid = shim_pid;
    (void)proc_start_time(shim_pid, &r->shim.start);
    r->shim_fd = (int)syscall(SYS_pidfd_open, shim_pid, 0); /* our unreaped child: the number is its own */
    if (r->shim_fd < 0) {
        code = merr_errno(err, -errno, "cannot watch the shim of rank %d", r->rank);
        (void)kill(shim_pid, SIGKILL);
        (void)waitpid(shim_pid, NULL, 0);
        io_close(&r->ready_fd);
        return code;
    }
    watch(r);
    return 0;
}

enum machine_sight machine_rank_find(struct machine_rank *r)
{
    char path[PATH_MAX + 32];
    struct shim_pids pids;

    if (flight_watch(shim_path(path, sizeof(path), r->folder, r->rank, "flight"), &r->flight, NULL) < 0)
        r->flight = NULL;
    if (shim_read_pids(r->folder, r->rank, &pids, NULL) < 0)
        return MACHINE_STARTING;
    r->shim = pids.shim;
    r->child = pids.rank;
    r->shim_fd = proc_open(pids.shim);
    if (r->shim_fd < 0)
        r->shim_fd = -1; /* gone: machine_rank_look says so */
    watch(r);
    return MACHINE_RUNNING;
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Has the shim of a rank come, and is it gone? */
static bool shim_gone(struct machine_rank *r)
{
    struct shim_pids pids;

    if (r->shim_fd >= 0)
        return readable(r->shim_fd);
    if (shim_read_pids(r->folder, r->rank, &pids, NULL) == 0) {
        r->shim = pids.shim;
        r->child = pids.rank;
        r->shim_fd = proc_open(pids.shim);
        if (r->shim_fd < 0) {
            r->shim_fd = -1;
            return true;
        }
        watch(r);
        return false;
    }
    /* No word from a shim: gone unless one holds the log and is about to write its ids. */
    return launch_log_free(r->folder, r->rank) == 0;
}

enum machine_sight machine_rank_look(struct machine_rank *r)
{
    struct shim_pids pids;

    if (r->ready_fd >= 0 && readable(r->ready_fd))
        io_close(&r->ready_fd);
    if (shim_gone(r)) {
        if (r->shim.pid > 0)
            (void)waitpid(r->shim.pid, NULL, WNOHANG); /* ECHILD for an adopted one */
        return MACHINE_GONE;
    }
    if (r->child.pid) /* what became of the file since then says nothing */
        return MACHINE_RUNNING;
    if (r->ready_fd >= 0 || shim_read_pids(r->folder, r->rank, &pids, NULL) < 0)
        return MACHINE_STARTING;
    r->child = pids.rank;
    return MACHINE_RUNNING;
}

bool machine_rank_watched(const struct machine_rank *r)
{
    return r->shim_fd >= 0;
}

int machine_rank_exit(const struct machine_rank *r, struct rank_exit *ret)
{
    return shim_read_exit(r->folder, r->rank, ret, NULL);
}

void machine_rank_done(struct machine_rank *r)
{
    io_close(&r->shim_fd);
    io_close(&r->ready_fd);
}

void machine_rank_keep_exit(const struct machine_rank *r, const struct rank_exit *e)
{
    (void)shim_write_exit(r->folder, r->rank, e, NULL);
}

/* Kill whatever still carries the mark of this rank in its environment: what a lost shim left behind. Returns
 * how many were alive. */
static int kill_marked(const struct machine_rank *r)
{
    DIR *dir = opendir("/proc");
    char mark[PATH_MAX + 32], number[32];
    struct dirent *e;
    struct buf env;
    int alive = 0;

    if (!dir)
        return 0;
    (void)snprintf(mark, sizeof(mark), "MUSTER_RUN_DIR=%s", r->folder);
    (void)snprintf(number, sizeof(number), "RANK=%d", r->rank);
    buf_init(&env, 8 << 20);
    while ((e = readdir(dir))) {
        struct proc_id id = {.pid = (pid_t)strtol(e->d_name, NULL, 10)};
        bool marked = false, numbered = false;
        char path[300];

        if (id.pid <= 0 || id.pid == getpid() || proc_start_time(id.pid, &id.start) < 0)
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%s/environ", e->d_name);
        buf_reset(&env);
        if (io_read_file(path, &env, NULL) < 0 || !env.len)
            continue;
        for (const char *p = env.data; p < env.data + env.len; p += strlen(p) + 1) {
            marked |= strcmp(p, mark) == 0;
            numbered |= strcmp(p, number) == 0;
        }
        if (marked && numbered && proc_alive(id)) {
            (void)proc_kill(id, SIGKILL);
            alive++;
        }
    }
    buf_clear(&env);
    (void)closedir(dir);
    return alive;
}

bool machine_rank_clear(struct machine_rank *r)
{
    char name[256], groups[CGROUP_LIST_MAX];
    struct shim_pids pids;

    if (!r->child.pid && shim_read_pids(r->folder, r->rank, &pids, NULL) == 0)
        r->child = pids.rank;
    (void)proc_kill(r->child, SIGKILL);
    /* The name as in name_group: its folder's is that of its job and generation. */
    (void)snprintf(name, sizeof(name), "muster-%.200s-r%d-%08x", strrchr(r->folder, '/') + 1, r->rank,
                   (unsigned)hash_xxh3(r->h->root, strlen(r->h->root)));
    if (!proc_alive(r->child) && kill_marked(r) == 0 && cgroup_end(cgroup_list(r->h->cgroup, name, groups)) == 0)
        return true;
    io_close(&r->shim_fd); /* it would be readable for ever */
    return false;
}

static void signal_shim(const struct machine_rank *r, int signal)
{
    if (r->shim_fd >= 0)
        (void)proc_kill_fd(r->shim_fd, signal);
}

void machine_rank_signal(const struct machine_rank *r, int signal)
{
    signal_shim(r, signal);
}

void machine_rank_kill(const struct machine_rank *r, int try)
{
    signal_shim(r, SHIM_KILL);
    if (try > 1) {
        signal_shim(r, SIGCONT); /* somebody may have stopped the shim */
        (void)proc_kill(r->child, SIGKILL);
    }
    if (try > 2)
        signal_shim(r, SIGKILL); /* takes the rank along; we then look after the rest */
}

void machine_rank_order(const struct machine_rank *r, enum flight_order order)
{
    if (r->flight)
        flight_order_set(r->flight, order);
}

void machine_rank_try(const struct machine_rank *r, uint32_t number)
{
    if (r->flight)
        flight_trial_set(r->flight, number);
}

/* Look at the heartbeat of a command. False: there is none. */
static bool look_beat(struct machine_rank *r)
{
    struct program_beat b, last;
    bool any = false;

    for (int i = 0; i < r->each; i++) { /* of those that share a device the last counts */
        if (program_read_beat(r->folder, r->rank * r->each + i, &b) < 0)
            continue;
        if (!any || b.step < last.step || (b.step == last.step && b.at_us < last.at_us))
            last = b;
        any = true;
    }
    if (any)
        beats_take(&r->beats, &last);
    return any;
}

bool machine_rank_progress(struct machine_rank *r, uint64_t *ret_step, enum flight_phase *ret_phase)
{
    if (!r->flight)
        return false;
    *ret_step = flight_read_step(r->flight);
    *ret_phase = flight_read_phase(r->flight, NULL);
    if (look_beat(r) && r->beats.last.step >= 0)
        *ret_step = (uint64_t)r->beats.last.step;
    return true;
}

struct report_ack machine_rank_ack(const struct machine_rank *r)
{
    struct report_ack ack = {.seq = 0}, one;

    for (int i = 0; i < r->each; i++)
        if (program_read_ack(r->folder, r->rank * r->each + i, &one) == 0 && one.seq > ack.seq)
            ack = one;
    return ack;
}

/* What a command says of itself: a heartbeat, and where a library of it writes the page, that too. Its last sign of
 * life; 0: it says nothing, so nothing can be missed. */
static int64_t sign_of_command(struct machine_rank *r, struct report_stall *s)
{
    struct flight_group group;
    bool has_page = flight_read_groups(r->flight, &group, 1) > 0, has_beat = look_beat(r);
    int64_t sign_us = has_page ? flight_read_sign(r->flight) : 0;

    s->gap_us = has_page ? flight_read_gap(r->flight) : 0;
    if (!has_beat)
        return sign_us;
    s->beats = !has_page;
    s->allowed_us = r->beats.last.for_us;
    (void)snprintf(s->section, sizeof(s->section), "%s", r->beats.last.section);
    if (beats_gap_us(&r->beats) > s->gap_us)
        s->gap_us = beats_gap_us(&r->beats);
    return r->beats.last.at_us > sign_us ? r->beats.last.at_us : sign_us;
}

/* A rank may write whatever it likes into its page: nothing of it is believed beyond its range. */
struct report_stall machine_rank_stall(struct machine_rank *r, enum job_kind kind, int64_t least_us)
{
    struct report_stall s = {.peer = -1};
    struct flight_op op;
    int64_t sign_us;

    if (!r->flight)
        return s;
    s.gap_us = kind == JOB_COMMAND ? 0 : flight_read_gap(r->flight);
    sign_us = kind == JOB_COMMAND ? sign_of_command(r, &s) : flight_read_sign(r->flight);
    s.idle_us = clock_mono_us() - sign_us;
    s.idle_us = s.idle_us < 1 ? 1 : s.idle_us;
    if (s.idle_us < least_us || sign_us == 0)
        return (struct report_stall){.peer = -1};
    s.gap_us = s.gap_us < 0 ? 0 : s.gap_us;
    if (!s.section[0])
        s.usual_us = flight_read_usual(r->flight, &s.allowed_us);
    s.frozen = frozen_is("/proc", "/sys/fs/cgroup", r->child.pid);
    s.stopped = s.frozen || proc_stopped(r->child);
    if (flight_read_ops(r->flight, &op, 1) == 1 && op.leave_us == 0) {
        (void)snprintf(s.op, sizeof(s.op), "%s", flight_read_op_name(op.op));
        s.key = (int64_t)(op.key & INT64_MAX);
        s.call = (int64_t)(op.seq & INT64_MAX);
        s.peer = op.peer >= 0 && op.peer < PLAN_RANKS_MAX ? op.peer : -1;
    }
    stall_tell(r->flight, &s);
    return s;
}

int *machine_rank_steps(struct machine_rank *r, size_t *ret_n)
{
    int64_t now_us = clock_mono_us();
    struct steps_lack lack;

    *ret_n = 0;
    if (!r->flight || !steps_due(&r->steps, now_us))
        return NULL;
    lack = starve_look(&r->starve, "/proc", "/sys/fs/cgroup", r->child.pid, flight_read_stopped(r->flight), now_us);
    return steps_tell(r->flight, &r->steps, now_us, &lack, ret_n);
}

struct machine_evidence *machine_evidence_begin(struct machine *h, struct machine_rank *const *ranks, size_t n,
                                                bool python, int64_t budget_us)
{
    struct evidence_of *of = calloc(n + 1, sizeof(*of));

    for (size_t i = 0; of && i < n; i++) {
        of[i] = (struct evidence_of){.rank = ranks[i]->rank, .child = ranks[i]->child, .python = python};
        memcpy(of[i].folder, ranks[i]->folder, sizeof(of[i].folder));
    }
    return evidence_begin_take(of, n, budget_us, h->epoll_fd);
}

pid_t machine_rank_pid(const struct machine_rank *r)
{
    return r->child.pid;
}

pid_t machine_rank_shim(const struct machine_rank *r)
{
    return r->shim.pid;
}

json_t *machine_rank_tail(const struct machine_rank *r)
{
    char path[PATH_MAX + 32], text[TAIL_BYTES], *p = text, *end;
    IO_CLOSE_AUTO int fd = io_open_plain(shim_path(path, sizeof(path), r->folder, r->rank, "log"), O_RDONLY);
    json_t *list = json_array();
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    size_t skip = size > TAIL_BYTES ? (size_t)size - TAIL_BYTES : 0, lines = 0;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text), (off_t)skip);

    if (n <= 0 || !list)
        return list;
    utf8_patch(text, (size_t)n);
    end = text + n;
    if (end[-1] == '\n')
        end--;
    for (p = end; p > text && (p[-1] != '\n' || ++lines < TAIL_LINES); p--)
        ;
    while (p < end) {
        size_t len = (size_t)(end - p);
        char *stop = memchr(p, '\n', len);

        if (stop)
            len = (size_t)(stop - p);
        (void)json_array_append_new(list, json_stringn(p, len));
        p += len + 1;
    }
    return list;
}

/* --- memory of jobs ---------------------------------------------------------------------------------- */

void machine_memory_close(struct machine *h, const char *job, bool done)
{
    if (h->memory)
        memory_close(h->waste, h->memory, job, done);
}

void machine_memory_sweep(struct machine *h, bool (*used)(const void *arg, const char *job), const void *arg)
{
    if (h->memory)
        memory_sweep(h->waste, h->memory, used, arg, clock_wall_us());
    if (h->account.shm[0])
        (void)rmdir(h->account.shm); /* unless a run has some */
}

void machine_memory_drop(struct machine *h)
{
    if (!h->memory)
        return;
    waste_free(h->waste);
    h->waste = NULL;
    account_drop(&h->account, h->memory);
}
