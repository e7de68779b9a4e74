/* musterd - the control server
 *
 * Starts, in this order: the state folder's lock, Redis, the store's lead, the working set, HTTP, server.json; waits
 * for a signal; stops them the other way round.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/version.h"
#include "server/control/routes.h"

#define PORT_DEFAULT 7717
#define UNKNOWN_AFTER_S 30
#define LOST_AFTER_S 120
#define FORGET_AFTER_S (7 * 86400)
#define KEEP_ENDED 100000
#define FILES_WANTED 65536
#define FILES_OWN 512          /* that are no connections */
#define CONNECTIONS_MOST 16384 /* of each node two or three: what waits for orders, reports, keys of a rendezvous */
#define LAS_US 14400000000     /* device time after which the policy las puts a job into its second queue */

struct options {
    const char *state, *bind, *tls_cert, *tls_key, *redis, *jobs_dir;
    int port, lease_s, unknown_after_s, lost_after_s, forget_after_s, keep_ended, round_s, hold_s, grace_s, starve_s;
    int slow_after_s, slow_retry_s;
    double slow_ratio;
    enum sched_policy policy;
    bool insecure;
    enum log_level level;
};

struct server { /* all that runs */
    char state[4096], jobs_dir[4096];
    int lock_fd;
    struct redis *redis;
    struct store *store;
    struct stats *stats;
    struct auth *auth;
    struct core *core;
    struct http *http;
    struct routes_arg arg;
};

static const char help[] =
    "usage: musterd [OPTION]...\n"
    "\n"
    "The control server of Muster: queues jobs, gives them devices, speaks REST.\n"
    "\n"
    "  --state DIR           where the server keeps everything (default: $MUSTER_STATE, else the user's state folder)\n"
    "  --jobs-dir DIR        where jobs keep their files, seen by all nodes (default: DIR of --state, /jobs)\n"
    "  --bind ADDRESS        address to listen on (default: 127.0.0.1)\n"
    "  --port N              port to listen on, 0 for any free one (default: 7717)\n"
    "  --tls-cert FILE       certificate chain as PEM, with --tls-key FILE: speak HTTPS\n"
    "  --insecure            allow another address than the loopback without TLS\n"
    "  --redis URL           use this Redis (unix:///path or redis://host:port) instead of a private one\n"
    "  --lease S             seconds after which another musterd may take over that Redis from one that is silent\n"
    "                        (default: 10)\n"
    "  --unknown-after S     seconds of silence after which a node gets no new work (default: 30)\n"
    "  --lost-after S        seconds of silence after which a node's runs start again elsewhere (default: 120)\n"
    "  --forget-after S      seconds after which a lost node leaves the list, unless it is drained; 0: never\n"
    "                        (default: 604800, a week)\n"
    "  --keep-ended N        jobs that have ended and stay known, with logs and metrics (default: 100000)\n"
    "  --policy NAME         muster, or to compare with: fifo, backfill, las, maxmin, srtf-oracle (default: muster)\n"
    "  --round S             seconds between rounds that weigh everything anew (default: 60)\n"
    "  --hold S              seconds that a job keeps its devices at least (default: 120)\n"
    "  --grace S             seconds that a job has to save its state when others get its devices (default: 120)\n"
    "  --starve-after S      seconds after which a waiting job goes before all but guarantees (default: 1800)\n"
    "  --slow-ratio R        times as long as others of its class, from which on a device is slow; 0: never\n"
    "                        (default: 1.25)\n"
    "  --slow-after S        seconds that it takes so long without a break before it is called slow (default: 30)\n"
    "  --slow-retry S        seconds after which a slow device that is idle is tried again; each time in a row twice\n"
    "                        as long (default: 3600)\n"
    "  --log-level LEVEL     debug, info, warn or error (default: info)\n"
    "  --version, --help\n"
    "\n"
    "The first start writes DIR/token (for people) and DIR/agent-token (for agents), readable by you alone.\n"
    "SIGTERM and SIGINT stop the server; jobs run on and are found again at the next start.\n";

static int read_number(const char *text, const char *option, int least, int most, int *ret)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < least || v > most) {
        fprintf(stderr, "musterd: '%s' wants a number from %d to %d, not '%s'\n", option, least, most, text);
        return -EINVAL;
    }
    *ret = (int)v;
    return 0;
}

/* 0, or a number above 1. */
static int read_ratio(const char *text, const char *option, double *ret)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !(v == 0 || (v >= 1.01 && v <= 100))) {
        fprintf(stderr, "musterd: '%s' wants 0 or a number from 1.01 to 100, not '%s'\n", option, text);
        return -EINVAL;
    }
    *ret = v;
    return 0;
}

enum {
    OPT_STATE = 256,
    OPT_BIND,
    OPT_PORT,
    OPT_CERT,
    OPT_KEY,
    OPT_INSECURE,
    OPT_REDIS,
    OPT_LEASE,
    OPT_JOBS,
    OPT_LEVEL,
    OPT_LOST,
    OPT_UNKNOWN,
    OPT_FORGET,
    OPT_KEEP,
    OPT_POLICY,
    OPT_ROUND,
    OPT_HOLD,
    OPT_GRACE,
    OPT_STARVE,
    OPT_SLOW_RATIO,
    OPT_SLOW_AFTER,
    OPT_SLOW_RETRY,
    OPT_VERSION,
    OPT_HELP
};

static const struct option long_options[] = {
    {"state", required_argument, NULL, OPT_STATE},
    {"bind", required_argument, NULL, OPT_BIND},
    {"port", required_argument, NULL, OPT_PORT},
    {"tls-cert", required_argument, NULL, OPT_CERT},
    {"tls-key", required_argument, NULL, OPT_KEY},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {"redis", required_argument, NULL, OPT_REDIS},
    {"lease", required_argument, NULL, OPT_LEASE},
    {"jobs-dir", required_argument, NULL, OPT_JOBS},
    {"log-level", required_argument, NULL, OPT_LEVEL},
    {"lost-after", required_argument, NULL, OPT_LOST},
    {"unknown-after", required_argument, NULL, OPT_UNKNOWN},
    {"forget-after", required_argument, NULL, OPT_FORGET},
    {"keep-ended", required_argument, NULL, OPT_KEEP},
    {"policy", required_argument, NULL, OPT_POLICY},
    {"round", required_argument, NULL, OPT_ROUND},
    {"hold", required_argument, NULL, OPT_HOLD},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"starve-after", required_argument, NULL, OPT_STARVE},
    {"slow-ratio", required_argument, NULL, OPT_SLOW_RATIO},
    {"slow-after", required_argument, NULL, OPT_SLOW_AFTER},
    {"slow-retry", required_argument, NULL, OPT_SLOW_RETRY},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

/* Take one option in. Returns 0 to go on, 1 when all is said, -EINVAL. */
static int take_option(struct options *o, int opt)
{
    switch (opt) {
    case OPT_STATE:
        o->state = optarg;
        return 0;
    case OPT_BIND:
        o->bind = optarg;
        return 0;
    case OPT_PORT:
        return read_number(optarg, "--port", 0, 65535, &o->port);
    case OPT_CERT:
        o->tls_cert = optarg;
        return 0;
    case OPT_KEY:
        o->tls_key = optarg;
        return 0;
    case OPT_INSECURE:
        o->insecure = true;
        return 0;
    case OPT_REDIS:
        o->redis = optarg;
        return 0;
    case OPT_LEASE:
        return read_number(optarg, "--lease", STORE_LEASE_MIN_S, STORE_LEASE_MAX_S, &o->lease_s);
    case OPT_JOBS:
        o->jobs_dir = optarg;
        return 0;
    case OPT_LOST:
        return read_number(optarg, "--lost-after", 1, 86400, &o->lost_after_s);
    case OPT_UNKNOWN:
        return read_number(optarg, "--unknown-after", 1, 86400, &o->unknown_after_s);
    case OPT_FORGET:
        return read_number(optarg, "--forget-after", 0, 315360000, &o->forget_after_s);
    case OPT_KEEP:
        return read_number(optarg, "--keep-ended", 1, 10000000, &o->keep_ended);
    case OPT_POLICY:
        if (sched_policy_parse(optarg, &o->policy) == 0)
            return 0;
        fprintf(stderr, "musterd: '--policy' wants muster, fifo, backfill, las, maxmin or srtf-oracle, not '%s'\n",
                optarg);
        return -EINVAL;
    case OPT_ROUND:
        return read_number(optarg, "--round", 1, 86400, &o->round_s);
    case OPT_HOLD:
        return read_number(optarg, "--hold", 0, 86400, &o->hold_s);
    case OPT_GRACE:
        return read_number(optarg, "--grace", 1, 86400, &o->grace_s);
    case OPT_STARVE:
        return read_number(optarg, "--starve-after", 1, 31536000, &o->starve_s);
    case OPT_SLOW_RATIO:
        return read_ratio(optarg, "--slow-ratio", &o->slow_ratio);
    case OPT_SLOW_AFTER:
        return read_number(optarg, "--slow-after", 1, 86400, &o->slow_after_s);
    case OPT_SLOW_RETRY:
        return read_number(optarg, "--slow-retry", 1, 31536000, &o->slow_retry_s);
    case OPT_LEVEL:
        if (log_level_parse(optarg, &o->level) == 0)
            return 0;
        fprintf(stderr, "musterd: '--log-level' wants debug, info, warn or error, not '%s'\n", optarg);
        return -EINVAL;
    case OPT_VERSION:
        puts("musterd " MUSTER_VERSION);
        return 1;
    case OPT_HELP:
        fputs(help, stdout);
        return 1;
    default:
        fputs("musterd: see `musterd --help`\n", stderr);
        return -EINVAL;
    }
}

static int read_options(int argc, char **argv, struct options *o)
{
    int opt, r;

    *o = (struct options){.bind = "127.0.0.1",
                          .port = PORT_DEFAULT,
                          .lease_s = STORE_LEASE_S,
                          .unknown_after_s = UNKNOWN_AFTER_S,
                          .lost_after_s = LOST_AFTER_S,
                          .forget_after_s = FORGET_AFTER_S,
                          .keep_ended = KEEP_ENDED,
                          .policy = SCHED_POLICY_MUSTER,
                          .round_s = 60,
                          .hold_s = 120,
                          .grace_s = 120,
                          .starve_s = 1800,
                          .slow_ratio = 1.25,
                          .slow_after_s = 30,
                          .slow_retry_s = 3600,
                          .level = LOG_LEVEL_INFO};
    while ((opt = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        if ((r = take_option(o, opt)) != 0)
            return r;
    if (optind < argc) {
        fprintf(stderr, "musterd: '%s' is not an option; see `musterd --help`\n", argv[optind]);
        return -EINVAL;
    }
    if (o->lost_after_s < o->unknown_after_s)
        o->unknown_after_s = o->lost_after_s;
    return 0;
}

static void fatal(void *arg, const char *why)
{
    (void)arg;
    log_error("%s; ending, since what is in memory may not be what is kept: start again", why);
    _exit(1);
}

static int choose_folders(const struct options *o, struct server *s, struct merr *err)
{
    const char *state = o->state ? o->state : getenv("MUSTER_STATE"), *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char path[4096];
    int r;

    if (state && *state)
        (void)snprintf(path, sizeof(path), "%s", state);
    else if (xdg && *xdg)
        (void)snprintf(path, sizeof(path), "%s/muster", xdg);
    else if (geteuid() == 0)
        (void)snprintf(path, sizeof(path), "/var/lib/muster");
    else if (home && *home)
        (void)snprintf(path, sizeof(path), "%s/.local/state/muster", home);
    else
        return merr_set(err, -EINVAL, "no folder for the state is known; give --state DIR");
    r = io_mkdirs(path, 0700, err);
    if (r == 0 && !realpath(path, s->state))
        r = merr_errno(err, -errno, "cannot find '%s'", path);
    if (r < 0)
        return r;
    if (strlen(s->state) > sizeof(s->state) - 64)
        return merr_set(err, -ENAMETOOLONG, "'%s' is too long a path", s->state);
    (void)snprintf(path, sizeof(path), "%s%s", o->jobs_dir ? o->jobs_dir : s->state, o->jobs_dir ? "" : "/jobs");
    r = io_mkdirs(path, 0755, err);
    if (r == 0 && !realpath(path, s->jobs_dir))
        r = merr_errno(err, -errno, "cannot find '%s'", path);
    if (r == 0 && access(s->jobs_dir, W_OK | X_OK) < 0)
        r = merr_errno(err, -errno,
                       "cannot make folders of jobs in '%s' (under systemd, look at ProtectSystem and "
                       "ProtectHome of the unit)",
                       s->jobs_dir);
    return r;
}

static int lock_state(struct server *s, struct merr *err)
{
    char path[4200];

    (void)snprintf(path, sizeof(path), "%s/lock", s->state);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return merr_set(err, -EBUSY, "another musterd uses '%s'; stop it, or give this one its own --state", s->state);
    return 0;
}

static int write_server_json(const struct options *o, const struct server *s, struct merr *err)
{
    const char *host = strcmp(o->bind, "0.0.0.0") == 0 || strcmp(o->bind, "::") == 0 ? "127.0.0.1" : o->bind;
    char path[4200], text[512];
    int n;

    (void)snprintf(path, sizeof(path), "%s/server.json", s->state);
    n = snprintf(text, sizeof(text), "{\"url\": \"%s://%s%s%s:%d\", \"pid\": %d}\n", o->tls_cert ? "https" : "http",
                 strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "", http_port(s->http), (int)getpid());
    return io_write_file(path, text, (size_t)n, 0644, err);
}

static int start_core(const struct options *o, struct server *s, struct merr *err)
{
    char redis_dir[4200];
    int r;
    struct core_cfg cfg = {.state_dir = s->state,
                           .jobs_dir = s->jobs_dir,
                           .unknown_after_s = o->unknown_after_s,
                           .lost_after_s = o->lost_after_s,
                           .forget_after_s = o->forget_after_s,
                           .keep_ended = o->keep_ended,
                           .sched = {.policy = o->policy,
                                     .round_us = (int64_t)o->round_s * 1000000,
                                     .hold_us = (int64_t)o->hold_s * 1000000,
                                     .grace_us = (int64_t)o->grace_s * 1000000,
                                     .starve_us = (int64_t)o->starve_s * 1000000,
                                     .las_us = LAS_US},
                           .slow = {.ratio = o->slow_ratio,
                                    .after_us = (int64_t)o->slow_after_s * 1000000,
                                    .retry_us = (int64_t)o->slow_retry_s * 1000000},
                           .fatal = fatal};

    (void)snprintf(redis_dir, sizeof(redis_dir), "%s/redis", s->state);
    r = redis_start(redis_dir, o->redis, &s->redis, err);
    if (r == 0)
        r = store_open(s->redis, !o->redis, o->lease_s, &s->store, err);
    if (r == 0)
        r = auth_start(s->state, s->store, &s->auth, err);
    cfg.auth = s->auth;
    s->stats = stats_new();
    if (r == 0 && !s->stats)
        r = merr_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = core_start(&cfg, s->store, s->stats, &s->core, err);
    return r;
}

/* As many descriptors as we may have: each connection takes one. Returns how many connections there may be. */
static int raise_limits(void)
{
    struct rlimit lim;
    rlim_t least = 2 * FILES_OWN;

    if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
        return FILES_OWN;
    if (lim.rlim_cur < FILES_WANTED) {
        lim.rlim_cur = lim.rlim_max < FILES_WANTED ? lim.rlim_max : FILES_WANTED;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
    }
    if (lim.rlim_cur < least)
        return FILES_OWN;
    return lim.rlim_cur - FILES_OWN < CONNECTIONS_MOST ? (int)lim.rlim_cur - FILES_OWN : CONNECTIONS_MOST;
}

static int start(const struct options *o, struct server *s, struct merr *err)
{
    struct http_cfg http = {.bind = o->bind,
                            .port = o->port,
                            .tls_cert = o->tls_cert,
                            .tls_key = o->tls_key,
                            .insecure = o->insecure,
                            .routes = routes,
                            .n_routes = n_routes,
                            .arg = &s->arg,
                            .auth = routes_auth,
                            .max_connections = raise_limits()};
    int r = choose_folders(o, s, err);

    if (r == 0)
        r = lock_state(s, err);
    if (r == 0)
        r = start_core(o, s, err);
    if (r < 0)
        return r;
    s->arg = (struct routes_arg){.core = s->core, .auth = s->auth, .store = s->store, .stats = s->stats};
    r = http_start(&http, &s->http, err);
    return r < 0 ? r : write_server_json(o, s, err);
}

static void stop(struct server *s)
{
    char path[4200];

    if (s->http) {
        (void)snprintf(path, sizeof(path), "%s/server.json", s->state);
        (void)unlink(path);
    }
    core_stop(s->core);
    if (s->http)
        http_stop(s->http);
    core_free(s->core);
    store_close(s->store);
    redis_stop(s->redis);
    auth_free(s->auth);
    stats_free(s->stats);
    io_close(&s->lock_fd);
}

static void wait_for_signal(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        continue;
}

int main(int argc, char **argv)
{
    struct options o;
    struct server s = {.lock_fd = -1};
    struct merr err = {""};
    sigset_t wanted;
    int r = read_options(argc, argv, &o), fd;

    if (r != 0)
        return r > 0 ? 0 : 2;
    log_init("musterd", o.level);
    (void)sigemptyset(&wanted);
    (void)sigaddset(&wanted, SIGTERM);
    (void)sigaddset(&wanted, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)pthread_sigmask(SIG_BLOCK, &wanted, NULL); /* before any thread, so that all have it */
    fd = signalfd(-1, &wanted, SFD_CLOEXEC);
    r = fd < 0 ? merr_errno(&err, -errno, "cannot take signals") : start(&o, &s, &err);
    if (r == 0) {
        log_info("listening on %s port %d, state in '%s'", o.bind, http_port(s.http), s.state);
        wait_for_signal(fd);
        log_info("stopping");
    } else {
        log_error("%s", err.text);
    }
    stop(&s);
    io_close(&fd);
    return r == 0 ? 0 : 1;
}
