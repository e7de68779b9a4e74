/* musterd - the control server
 *
 * Starts, in this order: the state folder's lock, Redis, the store's lead, the working set, HTTP, server.json; waits
 * for a signal; stops them the other way round.
 */
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "api/client/tool.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/options.h"
#include "base/private.h"
#include "base/try.h"
#include "server/control/audit_file.h"
#include "server/control/auth_load.h"
#include "server/control/events.h"
#include "server/control/node_ca.h"
#include "server/control/routes.h"
#include "server/control/storing.h"
#include "server/control/sealing.h"
#include "server/control/sessions.h"
#include "server/control/standby.h"
#include "server/control/turn.h"
#include "server/control/otlp.h"
#include "server/control/trace.h"
#include "server/control/webhook_send.h"
#include "server/control/webhook_text.h"
#include "server/http/relay.h"
#include "server/http/site.h"
#include "server/store/bundle_store.h"
#include "server/store/node_series.h"
#include "server/store/redis.h"
#include "server/store/spool_disk.h"
#include "server/store/watermark.h"

#define FILES_WANTED 65536
#define STANDBY_MS 100         /* between two looks at who leads */
#define FILES_OWN 512          /* that are no connections */
#define CONNECTIONS_MOST 49152 /* of each node two or three: what waits for orders, reports, keys of a rendezvous */
#define LAS_US 14400000000     /* device time after which the policy las puts a job into its second queue */

struct settings {
    const char *state, *bind, *tls_cert, *tls_key, *redis, *jobs_dir;
    int port, replicas, lease_s, unknown_after_s, lost_after_s, forget_after_s, keep_ended, max_array, round_s, hold_s,
        grace_s, starve_s, share_half_s;
    int slow_after_s, slow_retry_s, policy, objective, power_cap, level;
    double slow_ratio, token_rate, address_rate;
    int token_burst, address_burst;
    int user_jobs, user_streams, agents;
    const char *audit_file;
    int audit_keep_s;
    uint64_t keep_ended_bytes, user_bytes, audit_bytes, min_free, job_logs, all_logs, max_upload, user_uploads;
    int keep_uploads_s;
    const char *advertise, *node_ca, *spare, *docs, *class_power;
    int node_certificate_s;
    int exec_idle_s;
    const char *provider, *provider_queues, *provider_ca;
    const char *webhook_allow, *mail_relay, *mail_from, *mail_domains, *otlp;
    bool insecure, accept_loss, standby, no_exec, webhook_http;
};

struct server { /* all that runs */
    char state[4096], jobs_dir[4096];
    int lock_fd;
    struct redis *redis;
    struct spool_disk *spool;
    struct audit_file *audit_file;
    struct bundle_store *bundles;
    struct node_series *series;
    struct store *store;
    struct watermark *watermark;
    struct standby *standby;
    char url[STORE_ADVERTISE_MAX]; /* where others reach this server */
    bool marked;                   /* there was one */
    struct stats *stats;
    struct site *docs;
    struct auth *auth;
    struct sealing_key secret_key;
    struct node_ca *node_ca;
    struct relay *relay;
    struct post *post, *spans;
    struct otlp otlp;
    struct core *core;
    struct http *http;
    struct routes_arg arg;
    struct provider_program provider;
    char provider_path[4200];
    struct buf provider_ca;
};

#define AT(member) .at = OPTION_AT(struct settings, member)
#define SECONDS(least, most, default) OPTION_SECONDS, least, most, default
#define DAY 86400
#define YEAR (365 * DAY)

enum agents_how { AGENTS_AUTO, AGENTS_SHARED, AGENTS_ENROLLED };
static const char *const agents_words[] = {"auto", "shared", "enrolled", NULL};

static const struct option_row rows[] = {
    {"state", 0, "DIR", "where the server keeps everything (else MUSTER_STATE, else the user's state folder)",
     OPTION_TEXT, .env = "MUSTER_STATE", AT(state)},
    {"jobs-dir", 0, "DIR", "where jobs keep their files, seen by all nodes (default DIR of --state, /jobs)",
     OPTION_TEXT, AT(jobs_dir)},
    {"bind", 0, "ADDRESS", "address to listen on", OPTION_TEXT, .def = "127.0.0.1", AT(bind)},
    {"port", 0, "N", "port to listen on, 0 for any free one", OPTION_INT, 0, 65535, "7717", AT(port)},
    {"tls-cert", 0, "FILE", "certificate chain as PEM, with --tls-key FILE: speak HTTPS; read anew on SIGHUP",
     OPTION_TEXT, AT(tls_cert)},
    {"tls-key", 0, "FILE", "its key", OPTION_TEXT, AT(tls_key)},
    {"insecure", 0, NULL, "allow another address than the loopback without TLS", OPTION_FLAG, AT(insecure)},
    {"agents", 0, "HOW",
     "enrolled: only agents with a token of their node (`muster node enroll`); shared: one token in DIR/agent-token is "
     "good for all nodes, for clusters of one person; auto: shared on the loopback address, else enrolled",
     OPTION_WORD, .words = agents_words, .def = "auto", AT(agents)},
    {"node-ca", 0, "DIR",
     "with --tls-cert: agents show a certificate of their node besides its token, signed by the authority in this "
     "folder, which is made when it is not there",
     OPTION_TEXT, AT(node_ca)},
    {"node-certificate-life", 0, "S", "seconds that such a certificate is good; agents renew it at two thirds",
     SECONDS(3, YEAR, "2592000"), AT(node_certificate_s)},
    {"redis", 0, "URL",
     "use this Redis instead of a private one: unix:///path, redis://host:port, or the master that Sentinels name, "
     "sentinel://host:port,host:port/name",
     OPTION_TEXT, AT(redis)},
    {"replicas", 0, "N",
     "nothing is acknowledged before that many replicas of the Redis have it; -1: one with sentinel://, else none",
     OPTION_INT, -1, 16, "-1", AT(replicas)},
    {"accept-loss", 0, NULL, "start although the store lacks what was acknowledged; the log names what is lost",
     OPTION_FLAG, AT(accept_loss)},
    {"standby", 0, NULL,
     "with --redis: while another musterd leads, wait and send its callers there, and take over when it falls silent",
     OPTION_FLAG, AT(standby)},
    {"advertise", 0, "URL", "where others reach this server, told by those that stand by (default what it listens on)",
     OPTION_TEXT, AT(advertise)},
    {"lease", 0, "S", "seconds after which another musterd may take over that Redis from one that is silent",
     SECONDS(STORE_LEASE_MIN_S, STORE_LEASE_MAX_S, OPTION_DEFAULT(STORE_LEASE_S)), AT(lease_s)},
    {"unknown-after", 0, "S", "seconds of silence after which a node gets no new work", SECONDS(1, DAY, "30"),
     AT(unknown_after_s)},
    {"lost-after", 0, "S", "seconds of silence after which a node's runs start again elsewhere", SECONDS(1, DAY, "120"),
     AT(lost_after_s)},
    {"forget-after", 0, "S", "seconds after which a lost node leaves the list, unless it is drained; 0: never",
     SECONDS(0, 10 * YEAR, "7d"), AT(forget_after_s)},
    {"min-free", 0, "BYTES", "of the disk of --jobs-dir that logs and metrics leave free: they wait at the agents then",
     OPTION_BYTES, .def = "512m", AT(min_free)},
    {"job-logs", 0, "BYTES", "of logs and metrics of one job that are kept, about", OPTION_BYTES, .def = "4g",
     AT(job_logs)},
    {"all-logs", 0, "BYTES", "of logs of all jobs that are kept, about; default: half of the disk of --jobs-dir",
     OPTION_BYTES, AT(all_logs)},
    {"max-array", 0, "N", "most tasks of an array", OPTION_INT, 1, SPEC_TASKS_MAX, "100000", AT(max_array)},
    {"keep-ended", 0, "N", "jobs that have ended and stay known, with logs and metrics", OPTION_INT, 1, 10000000,
     "100000", AT(keep_ended)},
    {"keep-ended-bytes", 0, "BYTES", "of specs, records and events of such jobs, in the store; of who has most first",
     OPTION_BYTES, .def = "1g", AT(keep_ended_bytes)},
    {"token-rate", 0, "N", "requests a second with one token, those of agents not counted; 0: any number", OPTION_REAL,
     0.01, 1000000, "50", .zero = true, AT(token_rate)},
    {"token-burst", 0, "N", "of them at once", OPTION_INT, 1, 1000000, "200", AT(token_burst)},
    {"address-rate", 0, "N", "requests a second without a token of one address; 0: any number", OPTION_REAL, 0.01,
     1000000, "5", .zero = true, AT(address_rate)},
    {"address-burst", 0, "N", "of them at once", OPTION_INT, 1, 1000000, "50", AT(address_burst)},
    {"audit-keep", 0, "S", "seconds that entries of the audit log stay in the store", SECONDS(DAY, 10 * YEAR, "90d"),
     AT(audit_keep_s)},
    {"audit-bytes", 0, "BYTES", "of the audit log in the store; the oldest entries go first", OPTION_BYTES,
     .def = "64m", AT(audit_bytes)},
    {"audit-file", 0, "FILE", "append the audit log to it, a JSON object a line; opened anew on SIGHUP", OPTION_TEXT,
     AT(audit_file)},
    {"no-exec", 0, NULL, "let nobody run programs beside the ranks of a job, or reach its ports", OPTION_FLAG,
     AT(no_exec)},
    {"exec-idle", 0, "S", "seconds after which such a session ends when nothing passes", SECONDS(1, YEAR, "3600"),
     AT(exec_idle_s)},
    {"webhook-allow", 0, "NETWORKS",
     "networks such as 10.1.0.0/16,fd00::/8 that webhooks may call besides the public Internet", OPTION_TEXT,
     AT(webhook_allow)},
    {"webhook-http", 0, NULL, "let webhooks be http://, too, which anybody on the way reads", OPTION_FLAG,
     AT(webhook_http)},
    {"mail-relay", 0, "URL", "take webhooks that send mail, through this relay on this host: smtp://localhost:25",
     OPTION_TEXT, AT(mail_relay)},
    {"mail-from", 0, "ADDRESS", "sender of such mail", OPTION_TEXT, .def = "muster@localhost.localdomain",
     AT(mail_from)},
    {"mail-domains", 0, "DOMAIN,…", "to which it may go (default: any)", OPTION_TEXT, AT(mail_domains)},
    {"otlp", 0, "URL",
     "send traces of OpenTelemetry to this collector, http://localhost:4318, with the headers of "
     "OTEL_EXPORTER_OTLP_HEADERS",
     OPTION_TEXT, .env = "OTEL_EXPORTER_OTLP_ENDPOINT", AT(otlp)},
    {"user-jobs", 0, "N", "jobs that one user may have in the queue or running; admins: any number", OPTION_INT, 1,
     TABLE_JOBS_MAX, "10000", AT(user_jobs)},
    {"user-bytes", 0, "BYTES", "of the specs of those", OPTION_BYTES, .def = "64m", AT(user_bytes)},
    {"user-streams", 0, "N", "streams that one user may follow at a time; admins: any number", OPTION_INT, 1,
     EVENTS_FOLLOWERS_MAX, "64", AT(user_streams)},
    {"max-upload", 0, "BYTES", "of one upload (`muster submit --upload`)", OPTION_BYTES, .def = "64m", AT(max_upload)},
    {"user-uploads", 0, "BYTES", "of all that one user has uploaded and that is kept", OPTION_BYTES, .def = "1g",
     AT(user_uploads)},
    {"keep-uploads", 0, "S", "seconds that an upload stays which no job needs", SECONDS(60, YEAR, "7d"),
     AT(keep_uploads_s)},
    {"policy", 0, "NAME", "muster, or to compare with: fifo, backfill, las, maxmin, srtf-oracle, pollux, sia",
     OPTION_WORD, .words = sched_policy_names, .def = "muster", AT(policy)},
    {"objective", 0, "NAME", "what the policy muster aims at: fair, jct, makespan or throughput", OPTION_WORD,
     .words = sched_objective_names, .def = "fair", AT(objective)},
    {"round", 0, "S", "seconds between rounds that weigh everything anew", SECONDS(1, DAY, "60"), AT(round_s)},
    {"hold", 0, "S", "seconds that a job keeps its devices at least", SECONDS(0, DAY, "120"), AT(hold_s)},
    {"grace", 0, "S", "seconds that a job has to save its state when others get its devices", SECONDS(1, DAY, "120"),
     AT(grace_s)},
    {"starve-after", 0, "S", "seconds after which a waiting job goes before all but guarantees",
     SECONDS(1, YEAR, "1800"), AT(starve_s)},
    {"share-half-life", 0, "S",
     "seconds after which half of the device time that users had is forgotten, when shares are weighed; 0: no shares",
     SECONDS(0, YEAR, "7d"), AT(share_half_s)},
    {"slow-ratio", 0, "R", "times as long as others of its class, from which on a device is slow; 0: never",
     OPTION_REAL, 1.01, 100, "1.25", .zero = true, AT(slow_ratio)},
    {"slow-after", 0, "S", "seconds that it takes so long without a break before it is called slow",
     SECONDS(1, DAY, "30"), AT(slow_after_s)},
    {"slow-retry", 0, "S",
     "seconds after which a slow device that is idle is tried again; each time in a row twice as long",
     SECONDS(1, YEAR, "3600"), AT(slow_retry_s)},
    {"spare", 0, "CLASS=N,…",
     "devices of a class that are kept free for runs that a failure of a node or device has hurt; N:warm: and on them "
     "and on those of training runs a started muster-train waits for the next attempt",
     OPTION_TEXT, AT(spare)},
    {"provider", 0, "NAME",
     "have nodes lent while jobs wait for devices, by slurm or by the program of this path (docs/slurm.md)",
     OPTION_TEXT, AT(provider)},
    {"provider-queues", 0, "QUEUE:KEY=VALUE,…;…",
     "what it lends, such as p:devices=8,class=h100,most=16,fixed=0,time=8h,idle=5m,grace=1m,account=ml", OPTION_TEXT,
     AT(provider_queues)},
    {"provider-ca", 0, "FILE", "certificate that the agents of such nodes trust for https, instead of the system's",
     OPTION_TEXT, AT(provider_ca)},
    {"class-power", 0, "CLASS=W,…", "watts that a device of each class draws while it works", OPTION_TEXT,
     AT(class_power)},
    {"power-cap", 0, "W", "watts that the devices of all jobs may draw together, by --class-power; 0: any", OPTION_INT,
     0, INT_MAX, "0", AT(power_cap)},
    {"docs", 0, "DIR",
     "the documentation as `make docs` makes it, served at /docs (default: where it lies beside musterd)", OPTION_TEXT,
     AT(docs)},
    {"log-level", 0, "LEVEL", "debug, info, warn or error", OPTION_WORD, .words = log_level_names, .def = "info",
     AT(level)},
    {"version", 0, NULL, "say which version this is", OPTION_VERSION, .at = 0},
    {"help", 'h', NULL, "say this", OPTION_HELP, .at = 0},
    {0},
};

static const struct options options = {
    .name = "musterd",
    .args = "",
    .about = "The control server of Muster: queues jobs, gives them devices, speaks REST.",
    .rows = rows,
    .after = "The first start writes DIR/token (for people) and DIR/agent-token (for agents),\n"
             "readable by you alone. SIGTERM and SIGINT stop the server; jobs run on and are\n"
             "found again at the next start.",
};

static void fatal(void *arg, const char *why)
{
    (void)arg;
    log_error("%s; ending, since what is in memory may not be what is kept: start again", why);
    _exit(1);
}

static int choose_folders(const struct settings *o, struct server *s, struct merr *err)
{
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[4096];
    int r;

    if (o->state && *o->state)
        (void)snprintf(path, sizeof(path), "%s", o->state);
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
    if (r == 0)
        r = private_check_folder(s->state, err);
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

static int write_server_json(const struct settings *o, const struct server *s, int port, struct merr *err)
{
    const char *host = strcmp(o->bind, "0.0.0.0") == 0 || strcmp(o->bind, "::") == 0 ? "127.0.0.1" : o->bind;
    char path[4200], text[512];
    int n;

    (void)snprintf(path, sizeof(path), "%s/server.json", s->state);
    n = snprintf(text, sizeof(text), "{\"url\": \"%s://%s%s%s:%d\", \"pid\": %d}\n", o->tls_cert ? "https" : "http",
                 strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "", port, (int)getpid());
    return io_write_file(path, text, (size_t)n, 0644, err);
}

static bool agents_share(const struct settings *o)
{
    return o->agents == AGENTS_SHARED || (o->agents == AGENTS_AUTO && !o->node_ca && http_is_loopback(o->bind));
}

/* The store, unless it lacks what its watermark says. */
static int open_store(const struct settings *o, struct server *s, struct merr *err)
{
    struct store_cfg cfg = {.force = !o->redis,
                            .lease_s = o->lease_s,
                            .accept_loss = o->accept_loss,
                            .at_once = o->standby,
                            .advertise = s->url};
    struct store_backend backend = redis_backend(s->redis);
    char path[4200];
    int r;

    (void)snprintf(path, sizeof(path), "%s/.watermark", s->jobs_dir);
    r = watermark_open(path, &s->watermark, &cfg.mark, err);
    s->marked = cfg.mark.epoch > 0;
    return r < 0 ? r : store_open(&backend, &cfg, &s->store, err);
}

/* Where this server is reached: as it was told, else where it listens, on a port that is known. */
static int set_url(const struct settings *o, struct server *s, int port, struct merr *err)
{
    bool any = strcmp(o->bind, "0.0.0.0") == 0 || strcmp(o->bind, "::") == 0, v6 = strchr(o->bind, ':') != NULL;
    int n = 0;

    if (o->advertise)
        n = snprintf(s->url, sizeof(s->url), "%.*s", (int)strcspn(o->advertise, " \t\r\n"), o->advertise);
    else if (!any && port > 0)
        n = snprintf(s->url, sizeof(s->url), "http%s://%s%s%s:%d", o->tls_cert ? "s" : "", v6 ? "[" : "", o->bind,
                     v6 ? "]" : "", port);
    if (n >= (int)sizeof(s->url) || (o->advertise && (o->advertise[n] || strncmp(s->url, "http", 4) != 0)))
        return merr_set(err, -EINVAL, "--advertise '%.64s' is no address; want http://HOST:PORT or https://HOST:PORT",
                        o->advertise ? o->advertise : "");
    while (n > 0 && s->url[n - 1] == '/')
        s->url[--n] = '\0';
    return 0;
}

/* Lead as soon as nobody else does. 0; -EAGAIN: somebody does. */
static int try_to_lead(const struct settings *o, struct server *s, struct merr *err)
{
    struct store_backend backend = redis_backend(s->redis);
    char leader[STORE_ADVERTISE_MAX] = "";
    bool leads = true;
    int r;

    if (store_leader(&backend, &leads, leader) == 0)
        standby_set_leader(s->standby, leader);
    if (leads)
        return -EAGAIN;
    r = open_store(o, s, err);
    if (r != -EBUSY)
        return r;
    watermark_close(s->watermark); /* another one was faster */
    s->watermark = NULL;
    return -EAGAIN;
}

/* Wait for the lead, and answer meanwhile. *ret_port: where. -ECANCELED: a signal came first. */
static int stand_by(const struct settings *o, struct server *s, const struct http_cfg *http, int signals, int *ret_port,
                    struct merr *err)
{
    struct pollfd p = {.fd = signals, .events = POLLIN};
    struct signalfd_siginfo info;
    int r = standby_start(http, &s->standby, err);

    if (r < 0)
        return r;
    *ret_port = standby_port(s->standby);
    r = set_url(o, s, *ret_port, err);
    if (r == 0)
        r = write_server_json(o, s, *ret_port, err);
    if (r < 0)
        return r;
    log_info("standing by on %s port %d", o->bind, *ret_port);
    for (r = -EAGAIN; r == -EAGAIN;) {
        r = try_to_lead(o, s, err);
        if (r == -EAGAIN && poll(&p, 1, STANDBY_MS) > 0 && read(signals, &info, sizeof(info)) == sizeof(info) &&
            info.ssi_signo != SIGHUP)
            r = -ECANCELED;
    }
    standby_stop(s->standby);
    s->standby = NULL;
    return r;
}

static int64_t half_of_disk(const char *folder)
{
    struct statvfs v;

    return statvfs(folder, &v) < 0 ? 0 : (int64_t)(v.f_blocks / 2 * v.f_frsize);
}

/* A session has ended: there were none before there was a core. */
static void session_over(void *arg, const struct relay_session *session)
{
    sessions_ended(((struct server *)arg)->core, session);
}

/* A message was sent, or not. */
static void message_over(void *arg, uint64_t id, int status, int ms, const char *why)
{
    webhook_send_done(((struct server *)arg)->core, id, status, ms, why);
}

static bool send_message(void *self, const struct post_message *m)
{
    return post_send(self, m);
}

static int start_post(const struct settings *o, struct server *s, struct post_way *ret, struct merr *err)
{
    struct post_cfg cfg = {.done = message_over, .arg = s};

    if (o->mail_relay && strncmp(o->mail_relay, "smtp://", 7) != 0)
        return merr_set(err, -EINVAL, "--mail-relay '%.64s' is no relay; want smtp://localhost:25", o->mail_relay);
    if (!webhook_address_ok(o->mail_from, NULL))
        return merr_set(err, -EINVAL, "--mail-from '%.64s' is no address; want NAME@DOMAIN", o->mail_from);
    TRY(reach_read(o->webhook_allow, &cfg.reach, err));
    TRY(post_start(&cfg, &s->post, err));
    *ret = (struct post_way){.send = send_message,
                             .self = s->post,
                             .plain = o->webhook_http,
                             .relay = o->mail_relay,
                             .from = o->mail_from,
                             .domains = o->mail_domains};
    return 0;
}

/* Spans were sent, or not. */
static void spans_over(void *arg, uint64_t id, int status, int ms, const char *why)
{
    trace_done(((struct server *)arg)->core, id, status, ms, why);
}

static int start_traces(const struct settings *o, struct server *s, struct otlp_way *ret, struct merr *err)
{
    struct post_cfg cfg = {.done = spans_over, .arg = s};

    if (!o->otlp || !*o->otlp)
        return 0;
    TRY(otlp_read(o->otlp, getenv("OTEL_EXPORTER_OTLP_HEADERS"), getenv("OTEL_SERVICE_NAME"), &s->otlp, ret, err));
    TRY(post_start(&cfg, &s->spans, err));
    ret->send = send_message;
    ret->self = s->spans;
    return 0;
}

/* Who lends nodes, if anybody does. */
static int find_provider(const struct settings *o, struct server *s, struct core_cfg *cfg, struct merr *err)
{
    bool slurm = o->provider && strcmp(o->provider, "slurm") == 0;
    ssize_t n = readlink("/proc/self/exe", s->provider_path, 4096);

    if (!o->provider)
        return o->provider_queues || o->provider_ca
                   ? merr_set(err, -EINVAL, "--provider-queues and --provider-ca are for a --provider")
                   : 0;
    if (!o->provider_queues)
        return merr_set(err, -EINVAL, "--provider wants --provider-queues, such as p:devices=8,most=4,time=8h");
    if (!*s->url)
        return merr_set(err, -EINVAL, "nodes that are lent must know where this server is: give --advertise URL");
    while (n > 0 && s->provider_path[n - 1] != '/')
        n--;
    if (slurm && n > 0)
        (void)snprintf(s->provider_path + n, sizeof(s->provider_path) - (size_t)n, "muster");
    else
        (void)snprintf(s->provider_path, sizeof(s->provider_path), "%s", o->provider);
    if (!slurm) /* what lies beside this program is as good as it */
        TRY(tool_check(s->provider_path, err));
    s->provider = (struct provider_program){.argv = {s->provider_path, slurm ? "slurm" : NULL, "provider"}};
    buf_init(&s->provider_ca, 1 << 20);
    if (o->provider_ca)
        TRY(io_read_file(o->provider_ca, &s->provider_ca, err));
    cfg->supply.way = (struct provider_way){.call = provider_command, .self = &s->provider};
    cfg->supply.queues = o->provider_queues;
    cfg->supply.url = s->url;
    cfg->supply.ca = o->provider_ca ? buf_text(&s->provider_ca) : NULL;
    return 0;
}

/* What is said of classes of devices. */
static int read_classes(const struct settings *o, struct core_cfg *cfg, struct merr *err)
{
    TRY(spares_read(o->spare, &cfg->spares, err));
    return powers_read(o->class_power, &cfg->powers, err);
}

static int start_core(const struct settings *o, struct server *s, struct merr *err)
{
    char folder[4200];
    int r;
    struct core_cfg cfg = {.jobs_dir = s->jobs_dir,
                           .unknown_after_s = o->unknown_after_s,
                           .lost_after_s = o->lost_after_s,
                           .forget_after_s = o->forget_after_s,
                           .keep_ended = o->keep_ended,
                           .max_array = (size_t)o->max_array,
                           .keep_ended_bytes = o->keep_ended_bytes,
                           .audit_bytes = o->audit_bytes,
                           .audit_keep_s = o->audit_keep_s,
                           .user = {.jobs = o->user_jobs, .spec_bytes = o->user_bytes, .streams = o->user_streams},
                           .sched = {.policy = (enum sched_policy)o->policy,
                                     .objective = (enum sched_objective)o->objective,
                                     .round_us = (int64_t)o->round_s * 1000000,
                                     .hold_us = (int64_t)o->hold_s * 1000000,
                                     .grace_us = (int64_t)o->grace_s * 1000000,
                                     .starve_us = (int64_t)o->starve_s * 1000000,
                                     .power_w = o->power_cap,
                                     .las_us = LAS_US},
                           .share_half_us = (int64_t)o->share_half_s * 1000000,
                           .slow = {.ratio = o->slow_ratio,
                                    .after_us = (int64_t)o->slow_after_s * 1000000,
                                    .retry_us = (int64_t)o->slow_retry_s * 1000000},
                           .accept_loss = o->accept_loss,
                           .clock = clock_real(),
                           .chance = chance_real(),
                           .ports_from = (uint32_t)getpid(),
                           .fatal = fatal};

    r = watermark_start(s->watermark, err);
    (void)snprintf(folder, sizeof(folder), "%s/spool", s->state);
    if (r == 0)
        r = read_classes(o, &cfg, err);
    if (r == 0)
        r = spool_disk_open(
            &(struct spool_disk_cfg){.jobs = s->jobs_dir, .before = folder, .min_free = (int64_t)o->min_free},
            &s->spool, &cfg.spool, err);
    cfg.spool.clock = cfg.clock;
    cfg.spool.job_bytes = (int64_t)o->job_logs;
    cfg.spool.all_bytes = o->all_logs ? (int64_t)o->all_logs : half_of_disk(s->jobs_dir);
    if (r == 0)
        r = bundle_store_open(&(struct bundle_store_cfg){.jobs = s->jobs_dir,
                                                         .bytes_max = o->max_upload,
                                                         .user_bytes = o->user_uploads,
                                                         .keep_us = (int64_t)o->keep_uploads_s * 1000000},
                              &s->bundles, err);
    cfg.bundles = s->bundles;
    (void)snprintf(folder, sizeof(folder), "%s/.series", s->jobs_dir);
    if (r == 0)
        r = node_series_open(folder, NODE_SERIES_BYTES, &s->series, err);
    cfg.series = s->series;
    if (r == 0)
        r = auth_start(s->state, agents_share(o), s->store, &s->auth, err);
    if (r == 0 && o->audit_file)
        r = audit_file_open(o->audit_file, &s->audit_file, err);
    (void)snprintf(folder, sizeof(folder), "%s/secret-key", s->state);
    if (r == 0)
        r = sealing_read_key(folder, &s->secret_key, err);
    cfg.auth = s->auth;
    cfg.node_ca = s->node_ca;
    cfg.audit_file = s->audit_file;
    cfg.watermark = s->watermark;
    cfg.marked = s->marked;
    cfg.secret_key = &s->secret_key;
    cfg.run_key = s->auth ? auth_run_key(s->auth) : NULL;
    if (r == 0 && !o->no_exec)
        r = relay_start(
            &(struct relay_cfg){.idle_us = (int64_t)o->exec_idle_s * 1000000, .ended = session_over, .arg = s},
            &s->relay, err);
    cfg.relay = s->relay;
    if (r == 0)
        r = start_post(o, s, &cfg.way, err);
    if (r == 0)
        r = start_traces(o, s, &cfg.traces, err);
    r = r == 0 ? find_provider(o, s, &cfg, err) : r;
    s->stats = stats_new();
    if (r == 0 && !s->stats)
        r = merr_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = turn_start(&cfg, s->store, s->stats, &s->core, err);
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

static int start_store(const struct settings *o, struct server *s, struct http_cfg *http, int signals, struct merr *err)
{
    char folder[4200];
    int r;

    (void)snprintf(folder, sizeof(folder), "%s/redis", s->state);
    r = set_url(o, s, o->port, err);
    if (r == 0 && o->standby && !o->redis)
        r = merr_set(err, -EINVAL, "--standby takes over a Redis from another musterd: name it with --redis URL");
    if (r == 0)
        r = redis_start(folder, o->redis, o->replicas, &s->redis, err);
    if (r < 0)
        return r;
    return o->standby ? stand_by(o, s, http, signals, &http->port, err) : open_store(o, s, err);
}

static int open_node_ca(const struct settings *o, struct server *s, struct http_cfg *http, struct merr *err)
{
    if (!o->node_ca)
        return 0;
    if (!o->tls_cert || o->agents == AGENTS_SHARED)
        return merr_set(err, -EINVAL,
                        "--node-ca is for agents with tokens of their own over TLS: give --tls-cert, "
                        "and not --agents shared");
    TRY(node_ca_open(o->node_ca, o->node_certificate_s, clock_wall_us(), &s->node_ca, err));
    http->node_ca = node_ca_certificate(s->node_ca);
    return 0;
}

/* The documentation that was named, else the one that lies where it was built or installed, if any. */
static int load_docs(const struct settings *o, struct server *s, struct merr *err)
{
    static const char *const beside[] = {"../docs", "../share/doc/muster/html"};
    char self[4096], path[4200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct merr none;

    if (o->docs)
        return site_load(o->docs, &s->docs, err);
    while (n > 0 && self[n - 1] != '/')
        n--;
    for (size_t i = 0; n > 0 && i < sizeof(beside) / sizeof(beside[0]) && !s->docs; i++) {
        (void)snprintf(path, sizeof(path), "%.*s%s", (int)n, self, beside[i]);
        if (access(path, R_OK | X_OK) == 0 && site_load(path, &s->docs, &none) < 0)
            log_warn("there is no documentation at /docs: %s", none.text);
    }
    return 0;
}

static int start(const struct settings *o, struct server *s, int signals, struct merr *err)
{
    struct http_cfg http = {.bind = o->bind,
                            .port = o->port,
                            .tls_cert = o->tls_cert,
                            .tls_key = o->tls_key,
                            .insecure = o->insecure,
                            .routes = routes_table,
                            .n_routes = routes_count,
                            .arg = &s->arg,
                            .auth = routes_auth,
                            .refused = routes_refused,
                            .limited = routes_limited,
                            .per_token = {.per_s = o->token_rate, .burst = o->token_burst},
                            .per_address = {.per_s = o->address_rate, .burst = o->address_burst},
                            .of_large = {.per_s = STORING_BYTES_S, .burst = STORING_BYTES_BURST},
                            .max_connections = raise_limits()};

    TRY(choose_folders(o, s, err));
    TRY(lock_state(s, err));
    TRY(load_docs(o, s, err));
    TRY(open_node_ca(o, s, &http, err));
    TRY(start_store(o, s, &http, signals, err));
    TRY(start_core(o, s, err));
    s->arg =
        (struct routes_arg){.core = s->core, .auth = s->auth, .store = s->store, .stats = s->stats, .docs = s->docs};
    TRY(http_start(&http, &s->http, err));
    return write_server_json(o, s, http_port(s->http), err);
}

static void stop(struct server *s)
{
    char path[4200];

    if (s->http || s->standby) {
        (void)snprintf(path, sizeof(path), "%s/server.json", s->state);
        (void)unlink(path);
    }
    standby_stop(s->standby);
    relay_stop(s->relay);
    turn_stop(s->core);
    post_stop(s->post);
    post_stop(s->spans);
    if (s->http)
        http_stop(s->http);
    relay_free(s->relay);
    turn_free(s->core);
    buf_clear(&s->provider_ca);
    audit_file_close(s->audit_file);
    store_close(s->store);
    watermark_close(s->watermark);
    redis_stop(s->redis);
    spool_disk_close(s->spool);
    bundle_store_close(s->bundles);
    node_series_close(s->series);
    auth_free(s->auth);
    node_ca_close(s->node_ca);
    stats_free(s->stats);
    site_free(s->docs);
    io_close(&s->lock_fd);
}

/* Until one comes that ends the server. SIGHUP: files are others now. */
static void wait_for_signal(int fd, struct server *s)
{
    struct signalfd_siginfo info = {.ssi_signo = SIGHUP};
    struct merr err;

    while (info.ssi_signo == SIGHUP) {
        ssize_t n = read(fd, &info, sizeof(info));

        if (n < 0 && errno != EINTR)
            return;
        if (n != (ssize_t)sizeof(info) || info.ssi_signo != SIGHUP)
            continue;
        audit_file_reopen(s->audit_file);
        if (http_reload(s->http, &err) < 0)
            log_error("the certificate stays as it was: %s", err.text);
        else
            log_info("certificate and audit file are read anew");
    }
}

int main(int argc, char **argv)
{
    struct settings o = {0};
    struct options_given given;
    struct server s = {.lock_fd = -1};
    struct merr err = {""};
    sigset_t wanted;
    int r, fd, status;

    if (options_main(&options, argc, argv, &o, &given, &status))
        return status;
    if (o.lost_after_s < o.unknown_after_s)
        o.unknown_after_s = o.lost_after_s;
    log_init("musterd", (enum log_level)o.level);
    (void)sigemptyset(&wanted);
    (void)sigaddset(&wanted, SIGTERM);
    (void)sigaddset(&wanted, SIGINT);
    (void)sigaddset(&wanted, SIGHUP);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)pthread_sigmask(SIG_BLOCK, &wanted, NULL); /* before any thread, so that all have it */
    fd = signalfd(-1, &wanted, SFD_CLOEXEC);
    r = fd < 0 ? merr_errno(&err, -errno, "cannot take signals") : start(&o, &s, fd, &err);
    if (r == 0) {
        log_info("listening on %s port %d, state in '%s'", o.bind, http_port(s.http), s.state);
        wait_for_signal(fd, &s);
        log_info("stopping");
    } else if (r != -ECANCELED) {
        log_error("%s", err.text);
    }
    stop(&s);
    io_close(&fd);
    return r == 0 || r == -ECANCELED ? 0 : 1;
}
