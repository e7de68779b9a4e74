/* The agent's command line, and what must be there before its loop begins. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/options.h"
#include "base/private.h"
#include "base/try.h"
#include "worker/agent/agent.h"
#include "worker/agent/agent_priv.h"
#include "worker/agent/guard.h"
#include "worker/agent/join.h"
#include "worker/agent/launch.h"
#include "worker/agent/memory.h"
#include "worker/agent/quota.h"

#define PIDS_OF_NODE 65536 /* what ranks share out */
#define LOCK_WAIT_US 5000000
#define EXIT_REMOVED 3 /* to be started again by a person only: RestartPreventExitStatus of its unit */

struct settings {
    const char *server, *token_file, *join, *join_file, *ca_file, *state, *node, *devices, *address, *train, *memory,
        *nic, *rack, *pass_env;
    const char *health_check, *kernel_log;
    int threads, level, health_every, profile_idle;
    uint64_t memory_limit;
    bool train_on_gpus, stop_ranks, no_exec;
    const char *leave_at, *gpus;
    int leave_within;
};

#define AT(member) .at = OPTION_AT(struct settings, member)

static const struct option_row rows[] = {
    {"server", 0, "URL",
     "http://HOST:PORT or https://HOST:PORT; several that take over from each other with commas between", OPTION_TEXT,
     .needed = true, AT(server)},
    {"join", 0, "CODE",
     "what `muster node enroll NAME` printed: trade it, once, for a token of this node, which is kept in DIR of "
     "--state",
     OPTION_TEXT, AT(join)},
    {"join-file", 0, "FILE", "holds the code, which other users of this machine see on a command line", OPTION_TEXT,
     AT(join_file)},
    {"token-file", 0, "FILE", "holds the token that all agents share, on servers that take one (musterd --agents)",
     OPTION_TEXT, AT(token_file)},
    {"ca-file", 0, "FILE", "certificate to trust for https (default the system's)", OPTION_TEXT, AT(ca_file)},
    {"state", 0, "DIR", "folder for runs and logs; one agent at a time", OPTION_TEXT, .needed = true, AT(state)},
    {"node", 0, "NAME", "name of this node (default the host's name)", OPTION_TEXT, AT(node)},
    {"devices", 0, "LIST",
     "gpu, gpu:2, cpu:4, or with classes cpu:2=fast,cpu:2=slow@0.5, that one held to half a processor; auto: all GPUs, "
     "without any cpu:1",
     OPTION_TEXT, .def = "auto", AT(devices)},
    {"gpus", 0, "LIST",
     "of the GPUs of this machine those alone, as 0,2 or by UUID: what CUDA_VISIBLE_DEVICES says where another system "
     "shares them out",
     OPTION_TEXT, AT(gpus)},
    {"train-on-gpus", 0, NULL,
     "let training jobs have the GPUs, too, not only commands (docs/gpu.md says what has been proven on which)",
     OPTION_FLAG, AT(train_on_gpus)},
    {"address", 0, "A", "where other nodes reach this one (default as the server sees it)", OPTION_TEXT, AT(address)},
    {"nic", 0, "FAMILY[@GBIT]",
     "what links this node to others: infiniband, roce or ethernet, and Gbit/s (default of RDMA ports that are up the "
     "fastest)",
     OPTION_TEXT, AT(nic)},
    {"rack", 0, "NAME",
     "what this node shares a switch and power with: of a rack two nodes at most are taken out by themselves",
     OPTION_TEXT, .def = "", AT(rack)},
    {"threads", 0, "N", "threads a rank (default processors / slots, at least 1)", OPTION_INT, 1, 1024, AT(threads)},
    {"train", 0, "PROGRAM", "the training engine (default muster-train beside this program)", OPTION_TEXT, AT(train)},
    {"memory", 0, "DIR", "a folder in memory (tmpfs) for snapshots that outlive ranks, or none", OPTION_TEXT,
     .def = "/dev/shm", AT(memory)},
    {"memory-limit", 0, "SIZE",
     "what the snapshots of all jobs may take there, such as 500m or 8g (default half of the memory that is free as a "
     "job starts)",
     OPTION_BYTES, AT(memory_limit)},
    {"no-exec", 0, NULL, "let nobody run programs beside the ranks of this node, or reach their ports", OPTION_FLAG,
     AT(no_exec)},
    {"pass-env", 0, "NAMES",
     "variables of the agent's environment that ranks get besides " LAUNCH_ENV ", such as UCX_*,LD_LIBRARY_PATH",
     OPTION_TEXT, .def = "", AT(pass_env)},
    {"health-check", 0, "PROGRAM",
     "run it now and then: 0, the node is well; 1, it shall get no new work; 2, its jobs shall leave; what it prints "
     "is "
     "the reason",
     OPTION_TEXT, AT(health_check)},
    {"health-every", 0, "S", "seconds between two checks of the node", OPTION_INT, 1, 86400, .def = "60",
     AT(health_every)},
    {"profile-idle", 0, "S",
     "measure the devices, once and in some ten seconds, when nothing has run here for so long; 0: never", OPTION_INT,
     0, 86400, "60", AT(profile_idle)},
    {"kernel-log", 0, "FILE", "where the kernel tells of errors of GPUs", OPTION_TEXT, .def = "/dev/kmsg",
     AT(kernel_log)},
    {"stop-ranks-on-exit", 0, NULL,
     "end the ranks when the agent is told to end; else they run on and the next agent adopts them", OPTION_FLAG,
     AT(stop_ranks)},
    {"leave-at", 0, "TIME",
     "when this node goes for good, as 2026-11-21T06:00:00Z or seconds since 1970: nothing is put here that runs for "
     "longer",
     OPTION_TEXT, AT(leave_at)},
    {"leave-within", 0, "S",
     "told to end by SIGUSR1, SIGTERM or SIGINT, or so long before --leave-at, let the server move away what runs here "
     "for so many seconds, then end with what is left; a second signal ends it at once; 0: the first does",
     OPTION_SECONDS, 0, 86400, "0", AT(leave_within)},
    {"log-level", 0, "LEVEL", "debug, info, warn or error", OPTION_WORD, .words = log_level_names, .def = "info",
     AT(level)},
    {"version", 0, NULL, "say which version this is", .kind = OPTION_VERSION},
    {"help", 'h', NULL, "say this", .kind = OPTION_HELP},
    {0},
};

static const struct options options = {
    .name = "muster-agent",
    .args = "--server URL --state DIR [--join CODE]",
    .about = "Offer this machine's devices to a Muster server and run the ranks it sends.\n"
             "`muster-agent run FILE --dir DIR` trains without a server.",
    .rows = rows,
};

static bool usable_node(const char *node)
{
    size_t n = strlen(node);

    return n > 0 && n < 64 && strspn(node, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* One agent a state folder: the lock goes with the process, however it ends. */
/* What a killed agent had begun to start holds its lock until it is the program it is to be, so there is a wait. */
static int lock_state(const char *state, int *ret_fd, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + LOCK_WAIT_US;
    char path[PATH_MAX];
    int fd;

    (void)snprintf(path, sizeof(path), "%.4000s/agent.lock", state);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (clock_mono_us() > deadline_us) {
            io_close(&fd);
            return merr_set(err, -EBUSY, "another agent works in '%s'; give each its own --state", state);
        }
        (void)poll(NULL, 0, 20);
    }
    *ret_fd = fd;
    return 0;
}

/* A new identity in the folder, which is locked: nobody acts under the one that is found there any more. */
static int take_identity(struct agent *a, const char *state, struct merr *err)
{
    unsigned char bytes[16];
    char path[PATH_MAX];
    struct buf before;

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return merr_errno(err, -errno, "cannot get random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(a->incarnation + 2 * i, 3, "%02x", bytes[i]);
    memcpy(a->poll_backoff.key, bytes, sizeof(a->poll_backoff.key));
    memcpy(a->report_backoff.key, bytes + 8, sizeof(a->report_backoff.key));
    (void)snprintf(path, sizeof(path), "%.4000s/incarnation", state);
    buf_init(&before, sizeof(a->succeeds));
    if (io_read_file(path, &before, NULL) == 0)
        (void)snprintf(a->succeeds, sizeof(a->succeeds), "%s", buf_text(&before));
    buf_clear(&before);
    return io_publish_file(path, a->incarnation, strlen(a->incarnation), 0600, err);
}

static int catch_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Let a thread look after the node. */
static int look_after(struct agent *a, const struct settings *o, const char *state, const char *self,
                      const char *memory, struct merr *err)
{
    static char device[64];
    struct checkup_cfg cfg = {.look = {.state = state,
                                       .memory = memory,
                                       .rdma = NIC_SYSFS,
                                       .net = CHECKS_NET,
                                       .device = device,
                                       .nic = a->nic,
                                       .free_least = CHECKS_FREE_LEAST},
                              .program = o->health_check,
                              .every_s = o->health_every,
                              .self = self};

    if (o->nic) /* as a person says it: no port was looked for */
        cfg.look.nic = (struct nic){.family = PLAN_NIC_UNKNOWN};
    checks_find_device(a->address, device, sizeof(device));
    if (o->health_check && access(o->health_check, X_OK) < 0)
        return merr_errno(err, -errno, "cannot run the health program '%s'", o->health_check);
    return checkup_new(&cfg, &a->checkup, err);
}

static int set_up(struct agent *a, const struct settings *o, const char *state, const char *self, struct merr *err)
{
    char runs[PATH_MAX], memory[PATH_MAX];
    struct machine_cfg cfg = {.root = runs,
                              .self = self,
                              .train = o->train,
                              .threads = a->devices.threads,
                              .pass_env = o->pass_env,
                              .visible = a->gpus ? a->visible : NULL,
                              .helper = a->helper,
                              .share = a->helper ? a->limits : NULL,
                              .cgroups =
                                  a->helper || !a->quota[0] || !quota_threaded(a->quota), /* they exclude each other */
                              .shares = a->quota[0] ? a->shares : NULL,
                              .quota = a->quota};
    struct merr why;

    (void)snprintf(runs, sizeof(runs), "%.4000s/runs", state);
    if (strcmp(o->memory, "none") != 0) {
        memory_root(o->memory, state, memory);
        cfg.memory = memory;
        cfg.memory_limit = o->memory_limit;
    }
    TRY(io_mkdirs(runs, 0700, err));
    if (a->helper && strncmp(runs, "/tmp/", 5) == 0)
        return merr_set(err, -EINVAL, "'%s' is below /tmp, of which each rank has its own: give another --state",
                        state);
    if (a->helper && (chmod(state, 0711) < 0 || chmod(runs, 0711) < 0)) /* users' ranks find their folders */
        return merr_errno(err, -errno, "cannot let ranks through '%s'", runs);
    TRY(calls_new(&(struct calls_cfg){.url = o->server, .token_file = a->token_file, .ca_file = o->ca_file}, &a->calls,
                  err));
    if (!o->token_file)
        TRY(node_cert_new(state, a->node, a->calls, &a->cert, err));
    TRY(machine_new(&cfg, &a->machine, err));
    a->witness = witness_new(a->calls, a->machine, a->node, a->incarnation);
    if (!a->witness)
        return merr_set(err, -ENOMEM, "no memory");
    TRY(ranks_new(
        &(struct ranks_cfg){
            .machine = a->machine, .node = a->node, .slots = a->devices.n, .failed = witness_failed, .arg = a->witness},
        &a->ranks, err));
    TRY(mirror_new(a->calls, a->ranks, a->node, a->incarnation, &a->mirror, err));
    TRY(look_after(a, o, state, self, cfg.memory ? o->memory : NULL, err));
    TRY(profiles_new(
        &(struct profiles_cfg){.state = o->state, .train = o->train, .devices = &a->devices, .idle_s = o->profile_idle},
        &a->profiles, err));
    a->ship = ship_new(a->machine);
    if (!o->no_exec)
        a->sessions = sessions_new(&(struct sessions_cfg){.self = self,
                                                          .server = o->server,
                                                          .token_file = a->token_file,
                                                          .ca_file = o->ca_file,
                                                          .node = a->node,
                                                          .state = o->state});
    if (!a->ship || (!o->no_exec && !a->sessions))
        return merr_set(err, -ENOMEM, "no memory");
    if (ranks_adopt(a->ranks, &why) < 0)
        log_error("a run that an earlier agent left is not adopted: %s", why.text);
    if (ranks_count(a->ranks))
        log_info("found %zu runs of an earlier agent", ranks_count(a->ranks));
    return 0;
}

static void tear_down(struct agent *a)
{
    calls_free(a->calls); /* first: its calls point into the others */
    checkup_free(a->checkup);
    profiles_free(a->profiles);
    node_cert_free(a->cert);
    mirror_free(a->mirror);
    ship_free(a->ship);
    sessions_free(a->sessions);
    ranks_free(a->ranks);
    witness_free(a->witness);
    machine_free(a->machine);
    agent_forget_wanted(a);
    free(a->forgotten);
    gpus_close(a->gpus);
    io_close(&a->signal_fd);
}

/* The slots of this node, and its GPUs looked after when some are offered. */
static int find_devices(struct agent *a, const struct settings *o, struct merr *err)
{
    struct merr no_gpus = {""};
    bool offered = false;
    int r;

    if (gpus_open(&a->gpus, &no_gpus) == -EIO)
        log_warn("no GPU is offered: %s", no_gpus.text);
    if (a->gpus && o->gpus)
        TRY(gpus_keep(a->gpus, o->gpus, err));
    r = devices_parse(o->devices, o->threads, a->gpus, no_gpus.text, &a->devices, err);
    for (int i = 0; r == 0 && i < a->devices.n; i++) {
        if (a->devices.v[i].gpu >= 0) {
            offered = true;
            a->devices.v[i].trains = o->train_on_gpus;
        }
        a->visible[i] = a->devices.v[i].visible;
        a->shares[i] = a->devices.v[i].share;
        if (a->shares[i] > 0 && !a->quota[0])
            r = quota_find(a->quota, err);
    }
    if (r == 0 && offered) {
        gpus_kernel_log(a->gpus, o->kernel_log);
        return gpus_watch(a->gpus, err);
    }
    gpus_close(a->gpus);
    a->gpus = NULL;
    return r;
}

/* Which token this agent uses, and by which name. The state folder is its own. */
static int find_token(struct agent *a, const struct settings *o, const char *state, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf text;
    struct join_cfg cfg = {
        .state = state, .server = o->server, .ca_file = o->ca_file, .code = o->join, .signal_fd = a->signal_fd};
    static char node[JOIN_NODE_MAX];
    int r;

    buf_init(&text, 4096);
    if (o->token_file) {
        if (o->join || o->join_file)
            return merr_set(err, -EINVAL, "--token-file is another's token: it does not go with --join");
        r = private_read_file(o->token_file, &text, err); /* each call reads it anew */
        if (r < 0)
            return merr_prefix(err, r, "cannot use the token of --token-file");
        (void)snprintf(a->token_file, sizeof(a->token_file), "%s", o->token_file);
        return 0;
    }
    if (o->join && o->join_file)
        return merr_set(err, -EINVAL, "give --join or --join-file, not both");
    if (o->join_file) {
        r = private_read_file(o->join_file, &text, err);
        if (r < 0 && r != -ENOENT) /* once it was traded it may be gone */
            return merr_prefix(err, r, "cannot use the code of --join-file");
        if (r == 0)
            text.data[strcspn(text.data, " \t\r\n")] = '\0';
        cfg.code = r == 0 ? text.data : NULL;
    }
    TRY(join_token(&cfg, a->token_file, node, err));
    if (o->node && strcmp(o->node, node) != 0)
        return merr_set(err, -EINVAL, "this machine's token is of node '%s': leave out --node %s, or enroll that name",
                        node, o->node);
    a->node = node;
    return 0;
}

/* What a rank on each device may take unless its spec says so: the device's share of the node. */
static void share_out(struct agent *a)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE), cpus = sysconf(_SC_NPROCESSORS_ONLN);

    for (int i = 0; i < a->devices.n; i++)
        a->limits[i] = (struct cgroup_limits){
            .memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / (uint64_t)a->devices.n : 0,
            .cpus = cpus > 0 ? (double)cpus / a->devices.n : 0,
            .pids = PIDS_OF_NODE / (uint64_t)a->devices.n};
}

/* What the agent has in its folder, and all that works there. */
static int take_state(struct agent *a, const struct settings *o, const char *self, int *ret_lock, struct merr *err)
{
    char state[PATH_MAX];

    TRY(io_mkdirs(o->state, 0700, err));
    if (!realpath(o->state, state))
        return merr_errno(err, -errno, "cannot use folder '%s'", o->state);
    TRY(private_check_folder(state, err));
    TRY(lock_state(state, ret_lock, err));
    TRY(find_token(a, o, state, err));
    TRY(take_identity(a, state, err));
    if (o->address)
        (void)snprintf(a->address, sizeof(a->address), "%s", o->address);
    else
        TRY(calls_local_address(o->server, a->address, sizeof(a->address), err));
    return set_up(a, o, state, self, err);
}

static int read_leave(struct agent *a, const struct settings *o, struct merr *err)
{
    char *end;
    int64_t s;

    a->leave_within_us = o->leave_within * INT64_C(1000000);
    if (!o->leave_at || clock_read_rfc3339(o->leave_at, &a->leave_at_us) == 0)
        return 0;
    errno = 0;
    s = strtoll(o->leave_at, &end, 10);
    if (errno || *end || s <= 0 || s > INT32_MAX * INT64_C(100))
        return merr_set(err, -EINVAL,
                        "--leave-at '%.64s': want a time such as 2026-11-21T06:00:00Z or seconds since 1970",
                        o->leave_at);
    a->leave_at_us = s * 1000000;
    return 0;
}

static int run_agent(struct agent *a, const struct settings *o, const char *self, struct merr *err)
{
    IO_CLOSE_AUTO int lock_fd = -1;
    bool stop_ranks;
    int r;

    a->helper = guard_helper();
    a->signal_fd = catch_signals(); /* first: from here on an end is an orderly one */
    if (a->signal_fd < 0)
        return merr_errno(err, -errno, "cannot wait for signals");
    if (!usable_node(a->node))
        return merr_set(err, -EINVAL, "'%s' is no node's name: want 1 to 63 of letters, digits, '.', '_', '-'",
                        a->node);
    TRY(read_leave(a, o, err));
    r = find_devices(a, o, err);
    share_out(a);
    if (r == 0 && o->nic)
        r = nic_parse(o->nic, &a->nic, err);
    else if (r == 0)
        a->nic = nic_find(NIC_SYSFS);
    if (r < 0)
        return r;
    r = take_state(a, o, self, &lock_fd, err);
    if (r == 0) {
        if (calls_in_clear(o->server))
            log_warn("the token, specs and logs go to '%s' in the clear, for all on the way to read; use https",
                     o->server);
        log_info("node %s offers %d slots at %s to %s", a->node, a->devices.n, a->address, o->server);
        if (!a->helper)
            log_warn("shared account: ranks run as this user (%u) and can do all that it can; muster-helper gives them "
                     "accounts of their own (docs/operations.md)",
                     (unsigned)geteuid());
        agent_loop(a);
        stop_ranks = ((o->stop_ranks || a->leaving_us > 0) && !a->helper_lost) || a->removed;
        log_info("ending%s", stop_ranks ? " with all ranks" : "; ranks run on");
        if (stop_ranks) {
            agent_stop_ranks(a);
            machine_memory_drop(a->machine);
        }
        if (a->removed && a->leaving_us > 0)
            log_info("this node has left");
        else if (a->removed)
            r = merr_set(err, -ESHUTDOWN,
                         "node '%s' was removed from the cluster, or is another agent's now; start "
                         "its agent again to bring it back",
                         a->node);
        else if (a->helper_lost)
            r = merr_set(err, -EIO, "the helper that starts ranks is gone");
    }
    tear_down(a);
    return r;
}

int agent_main(int argc, char **argv, const char *self, const char *train)
{
    static struct agent a = {.signal_fd = -1, .heartbeat_us = 1000000, .report_bytes = SHIP_REPORT_MAX};
    struct settings o = {.train = train};
    struct options_given given;
    char host[65] = "";
    struct merr err;
    int r;

    if (options_main(&options, argc, argv, &o, &given, &r))
        return r;
    log_init("muster-agent", (enum log_level)o.level);
    (void)gethostname(host, sizeof(host) - 1);
    a.node = o.node ? o.node : host;
    a.rack = o.rack;
    r = run_agent(&a, &o, self, &err);
    if (r < 0)
        log_error("%s", err.text);
    return r == -ESHUTDOWN || r == -EPERM ? EXIT_REMOVED : r == -EINVAL ? 2 : r < 0;
}
