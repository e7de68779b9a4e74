/* bench api - durable submits a second and their latency, and the time from a submit to its first process
 *
 * Starts a musterd of its own in a temporary folder and speaks to it over 1, 16 and 64 kept connections, each with
 * one submit on its way at a time; beside it, a plain Redis with the same durability (appendfsync always) takes
 * SETs of as many bytes from as many connections through the same loop. What a submit costs the server and its store
 * in processor time says more than its rate where the machine has other work. Then an agent joins and single submits
 * are timed from the first byte sent to the first instruction of the job's own process, beside a plain fork and exec.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"

#define CLIENTS_MAX 64
#define SAMPLES_MAX 1000000
#define REQUEST_MAX 4096
#define REPLY_MAX 16384
#define WAIT_US 30000000LL

struct client {
    int fd;
    int64_t sent_us;
    size_t len;
    char reply[REPLY_MAX];
};

struct load {
    char request[REQUEST_MAX];
    size_t request_len;
    bool (*whole)(const char *reply, size_t len, bool *ret_good); /* whether a reply is all there */
    struct client clients[CLIENTS_MAX];
    int n_clients;
    int32_t *samples_us;
    size_t n_samples, n_bad;
    char bad[256];
};

struct bench {
    char dir[PATH_MAX], bin[PATH_MAX], self[PATH_MAX], token[256];
    int musterd_port, redis_port;
    pid_t musterd, redis, agent;
    pid_t store;     /* musterd's Redis */
    int64_t span_us; /* of one measurement */
    int starts;      /* submits to be started */
};

static struct bench bench;

static void stop_child(pid_t *pid, int sig)
{
    if (*pid > 0) {
        (void)kill(*pid, sig);
        (void)waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

static void stop_all(void)
{
    stop_child(&bench.agent, SIGTERM);
    stop_child(&bench.musterd, SIGTERM);
    stop_child(&bench.redis, SIGTERM);
    if (*bench.dir)
        (void)io_remove_tree(bench.dir, NULL);
}

static void die(const char *what, const char *why) __attribute__((noreturn));
static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench api: %s: %s\n", what, why);
    stop_all();
    exit(1);
}

static void report(const char *metric, double value, const char *unit, const char *reference, double ratio)
{
    (void)printf("{\"bench\": \"api\", \"metric\": \"%s\", \"value\": %.5g, \"unit\": \"%s\", \"reference\": \"%s\", "
                 "\"ratio\": %.4g}\n",
                 metric, value, unit, reference, ratio);
    (void)fflush(stdout);
}

/* --- processes ---------------------------------------------------------------------------------------------- */

static pid_t spawn(const char *log, char *const argv[])
{
    pid_t pid = fork();

    if (pid == 0) {
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        (void)dup2(out, 1);
        (void)dup2(out, 2);
        (void)execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0)
        die("fork", strerror(errno));
    return pid;
}

static int dial(int port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        io_close(&fd);
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    IO_CLOSE_AUTO int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) < 0 || getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        die("a free port", strerror(errno));
    return ntohs(at.sin_port);
}

static void wait_port(int port, pid_t pid, const char *name)
{
    int64_t deadline_us = clock_mono_us() + WAIT_US;

    for (int fd; (fd = dial(port)) < 0; (void)poll(NULL, 0, 10))
        if (clock_mono_us() > deadline_us || waitpid(pid, NULL, WNOHANG) == pid)
            die(name, "did not come up");
        else
            continue;
}

static void start_redis(void)
{
    char port[16], dir[PATH_MAX + 16], log[PATH_MAX + 16];
    char *argv[] = {"redis-server", "--port",        port,     "--bind", "127.0.0.1", "--dir", dir, "--appendonly",
                    "yes",          "--appendfsync", "always", "--save", "",          NULL};

    bench.redis_port = free_port();
    (void)snprintf(port, sizeof(port), "%d", bench.redis_port);
    (void)snprintf(dir, sizeof(dir), "%s/plain-redis", bench.dir);
    (void)snprintf(log, sizeof(log), "%s/plain-redis.log", bench.dir);
    if (io_mkdirs(dir, 0700, NULL) < 0)
        die(dir, "cannot be made");
    bench.redis = spawn(log, argv);
    wait_port(bench.redis_port, bench.redis, "redis-server");
}

/* The only child of musterd. */
static pid_t find_store(void)
{
    DIR *all = opendir("/proc");
    pid_t found = 0;
    struct buf b;

    buf_init(&b, 4096);
    for (struct dirent *e; all && found == 0 && (e = readdir(all));) {
        char path[300], *name_end;
        int parent = 0;

        (void)snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
        if (strtol(e->d_name, NULL, 10) <= 0 || io_read_file(path, &b, NULL) < 0)
            continue;
        name_end = strrchr(buf_text(&b), ')');
        if (name_end && sscanf(name_end, ") %*c %d", &parent) == 1 && parent == bench.musterd)
            found = (pid_t)strtol(e->d_name, NULL, 10);
        buf_reset(&b);
    }
    if (all)
        (void)closedir(all);
    buf_clear(&b);
    return found;
}

/* Processor time that a process has had. */
static double cpu_us(pid_t pid)
{
    struct timespec t = {0};
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
        die("the processor time of a process", "cannot be read");
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void read_token(void)
{
    char path[PATH_MAX + 32];
    struct buf b;
    struct merr err;

    (void)snprintf(path, sizeof(path), "%s/state/token", bench.dir);
    buf_init(&b, sizeof(bench.token) - 1);
    if (io_read_file(path, &b, &err) < 0)
        die("the token", err.text);
    (void)snprintf(bench.token, sizeof(bench.token), "%.*s", (int)strcspn(buf_text(&b), "\n"), buf_text(&b));
    buf_clear(&b);
}

static void start_musterd(void)
{
    char program[PATH_MAX + 16], port[16], state[PATH_MAX + 16], log[PATH_MAX + 16];
    char *argv[] = {program, "--state",      state,     "--port",        port,      "--log-level",
                    "warn",  "--token-rate", "1000000", "--token-burst", "1000000", NULL};

    bench.musterd_port = free_port();
    (void)snprintf(program, sizeof(program), "%s/musterd", bench.bin);
    (void)snprintf(port, sizeof(port), "%d", bench.musterd_port);
    (void)snprintf(state, sizeof(state), "%s/state", bench.dir);
    (void)snprintf(log, sizeof(log), "%s/musterd.log", bench.dir);
    bench.musterd = spawn(log, argv);
    wait_port(bench.musterd_port, bench.musterd, "musterd");
    bench.store = find_store();
    read_token();
}

static void start_agent(void)
{
    char program[PATH_MAX + 16], url[64], token[PATH_MAX + 32], state[PATH_MAX + 16], log[PATH_MAX + 16];
    char *argv[] = {program, "--server",  url,     "--token-file",         token, "--state", state, "--node",
                    "bench", "--devices", "cpu:1", "--stop-ranks-on-exit", NULL};

    (void)snprintf(program, sizeof(program), "%s/muster-agent", bench.bin);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", bench.musterd_port);
    (void)snprintf(token, sizeof(token), "%s/state/agent-token", bench.dir);
    (void)snprintf(state, sizeof(state), "%s/agent", bench.dir);
    (void)snprintf(log, sizeof(log), "%s/agent.log", bench.dir);
    bench.agent = spawn(log, argv);
}

/* --- the load ----------------------------------------------------------------------------------------------- */

static bool http_whole(const char *reply, size_t len, bool *ret_good)
{
    const char *end = strstr(reply, "\r\n\r\n"), *length = strcasestr(reply, "content-length:");

    if (!end || !length || length > end)
        return false;
    *ret_good = strncmp(reply, "HTTP/1.1 201", 12) == 0;
    return len >= (size_t)(end + 4 - reply) + strtoul(length + 15, NULL, 10);
}

static bool redis_whole(const char *reply, size_t len, bool *ret_good)
{
    *ret_good = strcmp(reply, "+OK\r\n") == 0;
    return len >= 2 && reply[len - 1] == '\n';
}

static void send_next(struct load *l, struct client *c)
{
    c->len = 0;
    c->sent_us = clock_mono_us();
    if (io_write_all(c->fd, l->request, l->request_len) < 0)
        die("a client", "the server closed the connection");
}

/* Take what came. Returns whether the client's request is answered. */
static bool receive(struct load *l, struct client *c)
{
    ssize_t n = recv(c->fd, c->reply + c->len, REPLY_MAX - 1 - c->len, 0);
    bool good = false;

    if (n <= 0)
        die("a client", "the server closed the connection");
    c->len += (size_t)n;
    c->reply[c->len] = '\0';
    if (!l->whole(c->reply, c->len, &good))
        return false;
    if (!good && l->n_bad++ == 0)
        (void)snprintf(l->bad, sizeof(l->bad), "%.200s", c->reply);
    if (l->n_samples < SAMPLES_MAX)
        l->samples_us[l->n_samples++] = (int32_t)(clock_mono_us() - c->sent_us);
    return true;
}

static int by_size(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static double percentile_ms(const struct load *l, double p)
{
    size_t at = (size_t)(p * (double)(l->n_samples - 1));

    return l->samples_us[at] / 1000.0;
}

/* Keep every client busy for the span. Returns requests a second; samples are sorted. */
static double run_load(struct load *l, int port, int n_clients)
{
    struct epoll_event events[CLIENTS_MAX];
    int64_t begin_us, end_us;
    int busy = n_clients;
    IO_CLOSE_AUTO int ep = epoll_create1(EPOLL_CLOEXEC);

    l->n_samples = l->n_bad = 0;
    for (int i = 0; i < n_clients; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &l->clients[i]};

        l->clients[i].fd = dial(port);
        if (l->clients[i].fd < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, l->clients[i].fd, &e) < 0)
            die("a client", "cannot connect");
    }
    begin_us = clock_mono_us();
    for (int i = 0; i < n_clients; i++)
        send_next(l, &l->clients[i]);
    while (busy) {
        int n = epoll_wait(ep, events, CLIENTS_MAX, 30000);

        if (n <= 0)
            die("the server", "no answer within 30 s");
        for (int i = 0; i < n; i++) {
            struct client *c = events[i].data.ptr;

            if (!receive(l, c))
                continue;
            if (clock_mono_us() - begin_us < bench.span_us)
                send_next(l, c);
            else
                busy--;
        }
    }
    end_us = clock_mono_us();
    for (int i = 0; i < n_clients; i++)
        io_close(&l->clients[i].fd);
    if (l->n_bad)
        die("not every request was taken", l->bad);
    qsort(l->samples_us, l->n_samples, sizeof(*l->samples_us), by_size);
    return (double)l->n_samples * 1e6 / (double)(end_us - begin_us);
}

static void make_submit(struct load *l, const char *argv0, const char *argument)
{
    char body[1024];
    int len = snprintf(body, sizeof(body),
                       "{\"name\":\"bench\",\"devices\":{\"min\":1,\"max\":1},"
                       "\"command\":{\"argv\":[\"%s\",\"--stamp\",\"%s\"]}}",
                       argv0, argument);

    l->request_len = (size_t)snprintf(l->request, sizeof(l->request),
                                      "POST /v1/jobs HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"
                                      "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                                      bench.token, len, body);
    l->whole = http_whole;
}

static void make_set(struct load *l)
{
    char value[513];

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    l->request_len = (size_t)snprintf(l->request, sizeof(l->request),
                                      "*3\r\n$3\r\nSET\r\n$5\r\nbench\r\n$%zu\r\n%s\r\n", sizeof(value) - 1, value);
    l->whole = redis_whole;
}

static void bench_submits(struct load *l)
{
    static const int clients[] = {1, 16, 64};

    for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
        char metric[64];
        double rate, p99, redis_rate, redis_p99, server_us, store_us;

        make_set(l);
        redis_rate = run_load(l, bench.redis_port, clients[i]);
        redis_p99 = percentile_ms(l, 0.99);
        make_submit(l, bench.self, "/dev/null");
        server_us = cpu_us(bench.musterd);
        store_us = cpu_us(bench.store);
        rate = run_load(l, bench.musterd_port, clients[i]);
        server_us = (cpu_us(bench.musterd) - server_us) / (double)l->n_samples;
        store_us = (cpu_us(bench.store) - store_us) / (double)l->n_samples;
        p99 = percentile_ms(l, 0.99);
        (void)snprintf(metric, sizeof(metric), "submits_per_s_%d", clients[i]);
        report(metric, rate, "1/s", "Redis SET of 512 bytes, appendfsync always", rate / redis_rate);
        (void)snprintf(metric, sizeof(metric), "submit_p99_ms_%d", clients[i]);
        report(metric, p99, "ms", "Redis SET of 512 bytes, appendfsync always", p99 / redis_p99);
        (void)snprintf(metric, sizeof(metric), "submit_cpu_us_%d", clients[i]);
        report(metric, server_us + store_us, "us", "musterd's share of it, the rest is its Redis'",
               server_us / (server_us + store_us));
    }
}

/* --- from a submit to its process ----------------------------------------------------------------------------- */

/* The job: say when it began. Whole or not there, so the reader needs no second look. */
static int stamp(const char *path)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%lld", (long long)clock_mono_us());

    if (strcmp(path, "/dev/null") == 0)
        return 0;
    return io_publish_file(path, text, (size_t)n, 0600, NULL) < 0;
}

static int64_t await_stamp(const char *path)
{
    int64_t deadline_us = clock_mono_us() + WAIT_US, at;
    struct buf b;

    buf_init(&b, 64);
    while (io_read_file(path, &b, NULL) < 0) {
        if (clock_mono_us() > deadline_us)
            die("a job", "did not start within 30 s");
        (void)poll(NULL, 0, 1);
    }
    at = strtoll(buf_text(&b), NULL, 10);
    buf_clear(&b);
    return at;
}

static double exec_ms(const char *path)
{
    char *argv[] = {bench.self, "--stamp", (char *)(uintptr_t)path, NULL};
    int64_t begin_us = clock_mono_us();
    pid_t pid = spawn("/dev/null", argv);

    (void)waitpid(pid, NULL, 0);
    return (double)(await_stamp(path) - begin_us) / 1000.0;
}

static double submit_ms(struct load *l, const char *path)
{
    struct client *c = &l->clients[0];
    double ms;

    make_submit(l, bench.self, path);
    c->fd = dial(bench.musterd_port);
    send_next(l, c);
    while (!receive(l, c))
        continue;
    if (l->n_bad)
        die("a submit was refused", l->bad);
    ms = (double)(await_stamp(path) - c->sent_us) / 1000.0;
    io_close(&c->fd);
    return ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Submits to an idle cluster, one at a time, each after the one before has ended and been cleared away. */
static void bench_start(struct load *l)
{
    double *ours = calloc((size_t)bench.starts, sizeof(double)), *plain = calloc((size_t)bench.starts, sizeof(double));
    char path[PATH_MAX + 32];
    int half = bench.starts / 2;

    if (!ours || !plain)
        die("memory", strerror(ENOMEM));
    l->n_samples = l->n_bad = 0;
    for (int i = -1; i < bench.starts; i++) { /* the first one waits for the agent to join: not counted */
        double ms;

        (void)snprintf(path, sizeof(path), "%s/stamp-%d", bench.dir, i);
        ms = submit_ms(l, path);
        (void)poll(NULL, 0, 150);
        if (i < 0)
            continue;
        ours[i] = ms;
        (void)snprintf(path, sizeof(path), "%s/plain-%d", bench.dir, i);
        plain[i] = exec_ms(path);
    }
    qsort(ours, (size_t)bench.starts, sizeof(double), by_value);
    qsort(plain, (size_t)bench.starts, sizeof(double), by_value);
    report("submit_to_start_p50_ms", ours[half], "ms", "fork and exec of the same program", ours[half] / plain[half]);
    free(ours);
    free(plain);
}

/* --- */

static void find_programs(void)
{
    ssize_t n = readlink("/proc/self/exe", bench.self, sizeof(bench.self) - 1);
    char *slash;

    if (n < 0)
        die("/proc/self/exe", strerror(errno));
    bench.self[n] = '\0';
    (void)snprintf(bench.bin, sizeof(bench.bin), "%s", bench.self);
    for (int up = 0; up < 2; up++) {
        slash = strrchr(bench.bin, '/');
        if (slash)
            *slash = '\0';
    }
    (void)snprintf(bench.bin + strlen(bench.bin), sizeof(bench.bin) - strlen(bench.bin), "/bin");
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    struct load *l;
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;

    if (argc == 3 && strcmp(argv[1], "--stamp") == 0)
        return stamp(argv[2]);
    if (argc > 1 && !quick) {
        (void)fprintf(stderr, "usage: api [--quick]\n");
        return 2;
    }
    bench.span_us = quick ? 300000 : 3000000;
    bench.starts = quick ? 5 : 41;
    (void)signal(SIGPIPE, SIG_IGN);
    l = calloc(1, sizeof(*l));
    if (l)
        l->samples_us = calloc(SAMPLES_MAX, sizeof(*l->samples_us));
    if (!l || !l->samples_us)
        die("memory", strerror(ENOMEM));
    (void)snprintf(bench.dir, sizeof(bench.dir), "%s/muster-bench-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(bench.dir))
        die(bench.dir, strerror(errno));
    find_programs();
    start_redis();
    start_musterd();
    bench_submits(l);
    stop_child(&bench.musterd, SIGTERM); /* its queue is full of jobs: start afresh */
    (void)snprintf(bench.dir + strlen(bench.dir), 8, "/idle");
    if (io_mkdirs(bench.dir, 0700, NULL) < 0)
        die(bench.dir, "cannot be made");
    start_musterd();
    start_agent();
    bench_start(l);
    bench.dir[strlen(bench.dir) - strlen("/idle")] = '\0';
    stop_all();
    free(l->samples_us);
    free(l);
    return 0;
}
