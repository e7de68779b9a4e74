/* Ports of a job's programs, reached by connections to ports of this machine. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "base/io.h"
#include "base/try.h"

#define PORTS_MAX 16
#define CONNECTIONS_MAX 16 /* at once, as many as a job may have; others wait until one ends */
#define LOOK_MS 2000

struct forward {
    struct cli *c;
    const char *job, *path; /* path: what a browser asks for, to be said; NULL: it is for no browser */
    int rank, n_ports;
    struct port {
        int local, remote, fd;
        const char *name; /* of the job's spec, in place of remote; NULL: none */
    } ports[PORTS_MAX];
    pid_t connections[CONNECTIONS_MAX];
    int n, signal_fd;
    bool look; /* at the job's state: a connection has failed, or it is long ago */
};

static bool read_number(const char *text, size_t len, long least, int *ret)
{
    char digits[8], *end;
    long n;

    if (len == 0 || len >= sizeof(digits) || strspn(text, "0123456789") < len)
        return false;
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)len, text);
    n = strtol(digits, &end, 10);
    *ret = (int)n;
    return n >= least && n <= UINT16_MAX;
}

static bool read_port(const char *text, struct port *ret)
{
    size_t n = strcspn(text, ":");

    if (text[n] == ':' && text[n + 1] >= 'a' && text[n + 1] <= 'z') {
        ret->name = text + n + 1;
        return read_number(text, n, 0, &ret->local);
    }
    if (text[n] == ':')
        return read_number(text, n, 0, &ret->local) && read_number(text + n + 1, strlen(text + n + 1), 1, &ret->remote);
    ret->local = 0;
    if (*text >= 'a' && *text <= 'z') {
        ret->name = text;
        return true;
    }
    if (!read_number(text, n, 1, &ret->remote))
        return false;
    ret->local = ret->remote;
    return true;
}

static int listen_at(struct port *p)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)p->local), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(at);
    int on = 1;

    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd < 0 || setsockopt(p->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(p->fd, (struct sockaddr *)&at, size) < 0 || listen(p->fd, SOMAXCONN) < 0 ||
        getsockname(p->fd, (struct sockaddr *)&at, &size) < 0)
        return cli_fail(CLI_FAILED, "cannot listen on port %d of 127.0.0.1: %s; choose another, as in 0:%d", p->local,
                        strerror(errno), p->remote);
    p->local = ntohs(at.sin_port);
    return 0;
}

/* In a process of its own, so that one that stands still holds up none of the others. */
static int connect_one(struct forward *f, const struct port *p, int connection)
{
    struct cli c = *f->c;
    json_auto_t *session = NULL,
                *body = json_pack("{s:o, s:i}", "port", p->name ? json_string(p->name) : json_integer(p->remote),
                                  "rank", f->rank);
    char path[256];

    c.client = NULL; /* a connection to the server of its own */
    TRY(cli_job_path(f->job, "/forward", path));
    TRY(cli_call(&c, "POST", path, body, NULL, &session));
    return exec_connect(&c, session, connection);
}

static int accept_one(struct forward *f, const struct port *p)
{
    IO_CLOSE_AUTO int fd = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC);
    pid_t pid, parent = getpid();

    if (fd < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED
                   ? 0
                   : cli_fail(CLI_FAILED, "cannot take a connection: %s", strerror(errno));
    (void)fflush(stdout);
    pid = fork();
    if (pid < 0)
        return cli_fail(CLI_FAILED, "cannot start a process: %s", strerror(errno));
    if (pid == 0) {
        for (int i = 0; i < f->n_ports; i++)
            (void)close(f->ports[i].fd);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        _exit(getppid() == parent ? connect_one(f, p, fd) : CLI_FAILED);
    }
    f->connections[f->n++] = pid;
    return 0;
}

static void reap(struct forward *f)
{
    for (int i = f->n; i-- > 0;) {
        int status;

        if (waitpid(f->connections[i], &status, WNOHANG) == f->connections[i]) {
            f->look = f->look || status != 0;
            f->connections[i] = f->connections[--f->n];
        }
    }
}

/* Returns 0 while the job may still run. */
static int look(const struct forward *f)
{
    json_auto_t *job = NULL;
    char path[256];

    TRY(cli_job_path(f->job, "", path));
    TRY(cli_call(f->c, "GET", path, NULL, NULL, &job));
    return cli_job_ended(job) ? cli_fail(CLI_FAILED, "job '%s' has ended: %s", f->job, cli_str(job, "state")) : 0;
}

static int turn(struct forward *f)
{
    struct pollfd p[PORTS_MAX + 1] = {{.fd = f->signal_fd, .events = POLLIN}};
    struct signalfd_siginfo info;

    for (int i = 0; i < f->n_ports; i++)
        p[1 + i] = (struct pollfd){.fd = f->n < CONNECTIONS_MAX ? f->ports[i].fd : -1, .events = POLLIN};
    if (poll(p, (nfds_t)f->n_ports + 1, LOOK_MS) == 0)
        f->look = true;
    while (read(f->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            return CLI_INTERRUPTED;
    reap(f);
    for (int i = 0; i < f->n_ports && f->n < CONNECTIONS_MAX; i++)
        if (p[1 + i].revents)
            TRY(accept_one(f, &f->ports[i]));
    if (f->look)
        TRY(look(f));
    f->look = false;
    return 0;
}

static int catch_signals(struct forward *f)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGCHLD};
    sigset_t set;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
        (void)sigaddset(&set, caught[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    f->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return f->signal_fd < 0 ? cli_fail(CLI_FAILED, "cannot wait for signals: %s", strerror(errno)) : 0;
}

static int serve(struct forward *f)
{
    int r = 0;

    for (int i = 0; i < f->n_ports; i++)
        TRY(listen_at(&f->ports[i]));
    TRY(look(f));
    TRY(catch_signals(f));
    for (int i = 0; i < f->n_ports && !f->path; i++)
        if (f->ports[i].name)
            (void)printf("127.0.0.1:%d is port '%s' of job '%s'\n", f->ports[i].local, f->ports[i].name, f->job);
        else
            (void)printf("127.0.0.1:%d is port %d of job '%s'\n", f->ports[i].local, f->ports[i].remote, f->job);
    if (f->path)
        (void)printf("http://127.0.0.1:%d%s\n", f->ports[0].local, f->path);
    (void)fflush(stdout);
    while (r == 0)
        r = turn(f);
    for (int i = 0; i < f->n; i++)
        (void)kill(f->connections[i], SIGTERM); /* unreaped: the number is its own */
    return r;
}

static int run(struct forward *f)
{
    int r = serve(f);

    for (int i = 0; i < f->n_ports; i++)
        io_close(&f->ports[i].fd);
    io_close(&f->signal_fd);
    return r;
}

int forward_page(struct cli *c, const char *job, int local, int remote, const char *path)
{
    struct forward f = {.c = c,
                        .job = job,
                        .path = path,
                        .n_ports = 1,
                        .ports = {{.local = local, .remote = remote, .fd = -1}},
                        .signal_fd = -1};

    return run(&f);
}

int forward_run(struct cli *c)
{
    struct forward f = {
        .c = c, .job = c->arg[0], .rank = (int)cli_number(c, "rank", 0), .n_ports = c->n - 1, .signal_fd = -1};

    if (f.n_ports > PORTS_MAX)
        return cli_fail(CLI_USAGE, "at most %d ports at once", PORTS_MAX);
    for (int i = 0; i < f.n_ports; i++) {
        f.ports[i].fd = -1;
        if (!read_port(c->arg[1 + i], &f.ports[i]))
            return cli_fail(CLI_USAGE,
                            "'%s' is no port: want PORT, or LOCAL:PORT, each up to 65535, or a name of command.ports "
                            "in place of PORT",
                            c->arg[1 + i]);
    }
    return run(&f);
}
