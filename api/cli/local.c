/* sample: a program beside this one; up and down: a whole cluster on this machine. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "api/cli/family.h"
#include "api/spec.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"

#define UP_US 60000000   /* for the server and the agent to be ready */
#define DOWN_US 45000000 /* for each of them to end by itself */

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int local_find_checkpoint(struct cli *c, const char *job_or_dir, bool parent, char *ret, size_t size)
{
    json_t *job = NULL;
    const char *newest;
    char path[256], *slash;
    int r;

    if (is_folder(job_or_dir)) {
        (void)snprintf(ret, size, "%s/checkpoints", job_or_dir);
        if (!is_folder(ret))
            (void)snprintf(ret, size, "%s", job_or_dir);
        return 0;
    }
    if (strchr(job_or_dir, '/') || cli_job_path(job_or_dir, "", path) != 0)
        return cli_fail(CLI_NOT_FOUND, "there is no folder '%s'", job_or_dir);
    r = cli_call(c, "GET", path, NULL, NULL, &job);
    if (r)
        return r;
    newest = cli_str(json_object_get(job, "checkpoint"), "path");
    (void)snprintf(ret, size, "%s", newest);
    json_decref(job);
    if (!*ret)
        return cli_fail(CLI_NOT_FOUND, "job '%s' has no checkpoint yet", job_or_dir);
    slash = strrchr(ret, '/');
    if (parent && slash && slash > ret)
        *slash = '\0';
    if (!is_folder(ret))
        return cli_fail(CLI_NOT_FOUND, "the checkpoint '%s' of job '%s' is not on this machine", ret, job_or_dir);
    return 0;
}

/* Run a program of ours and take all it prints. Returns its exit status, or -1 with the reason said. */
static int capture(const char *program, const char *const *argv, struct buf *out)
{
    char path[PATH_MAX], part[4096];
    int fd[2], status = 0;
    ssize_t n;
    pid_t pid;

    if (cli_program(program, path, sizeof(path)))
        return -1;
    if (pipe2(fd, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        (void)cli_fail(CLI_FAILED, "cannot start '%s': %s", path, strerror(errno));
        return -1;
    }
    if (pid == 0) {
        if (dup2(fd[1], STDOUT_FILENO) < 0)
            _exit(126);
        (void)execv(path, (char *const *)argv);
        _exit(127);
    }
    (void)close(fd[1]);
    while ((n = io_read_full(fd[0], part, sizeof(part))) > 0)
        (void)buf_add(out, part, (size_t)n);
    (void)close(fd[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Text of a model that writes bytes: what is no UTF-8 becomes U+FFFD. New. */
static json_t *text_of(const struct buf *b)
{
    json_t *all;
    struct buf good;

    buf_init(&good, 3 * b->len + 1);
    for (size_t i = 0; i < b->len;) {
        size_t len = 1;
        json_t *one = NULL;

        for (; len <= 4 && i + len <= b->len && !one; len++)
            one = json_stringn(b->data + i, len);
        if (one)
            (void)buf_add(&good, b->data + i, --len);
        else
            (void)buf_addstr(&good, "\xef\xbf\xbd");
        i += one ? len : 1;
        json_decref(one);
    }
    all = json_stringn(buf_text(&good), good.len);
    buf_clear(&good);
    return all;
}

static int sample_json(const char *const *argv, const char *dir, const char *prompt)
{
    BUF_CLEAR_AUTO struct buf out;

    buf_init(&out, 64 << 20);
    if (capture("muster-train", argv, &out) != 0)
        return CLI_FAILED;
    return cli_print_json_new(json_pack("{s:s, s:s, s:o}", "checkpoint", dir, "prompt", prompt, "text", text_of(&out)));
}

int local_sample(struct cli *c)
{
    static const char *const passed[] = {"prompt-tokens", "tokens", "temperature", "top-k", "top-p", "seed"};
    const char *prompt = cli_option(c, "prompt") ? cli_option(c, "prompt") : "";
    char dir[PATH_MAX], flags[sizeof(passed) / sizeof(passed[0])][32];
    const char *argv[24] = {"muster-train", "--sample", "--checkpoint", dir, "--prompt", prompt};
    size_t k = 6;
    int r = local_find_checkpoint(c, c->arg[0], false, dir, sizeof(dir));

    if (r)
        return r;
    for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
        if (cli_option(c, passed[i])) {
            (void)snprintf(flags[i], sizeof(flags[i]), "--%s", passed[i]);
            argv[k++] = flags[i];
            argv[k++] = cli_option(c, passed[i]);
        }
    return c->json ? sample_json(argv, dir, prompt) : cli_exec("muster-train", argv);
}

/* --- processes ----------------------------------------------------------------------------------------- */

/* Wait until it is gone; false at the deadline. */
static bool wait_gone(const struct process *p, int64_t deadline_us)
{
    IO_CLOSE_AUTO int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);

    while (family_alive(p)) {
        struct pollfd f = {.fd = fd, .events = POLLIN};

        if (clock_mono_us() >= deadline_us)
            return false;
        (void)poll(&f, 1, fd >= 0 && clock_poll_ms(deadline_us) < 1000 ? clock_poll_ms(deadline_us) : 1000);
    }
    return true;
}

static pid_t start(const char *program, const char *log, const char *const *argv)
{
    char path[PATH_MAX];
    pid_t pid;

    if (cli_program(program, path, sizeof(path)))
        return -1;
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        if (setsid() < 0 || null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ||
            chdir("/") < 0)
            _exit(126);
        (void)execv(path, (char *const *)argv);
        _exit(127);
    }
    if (pid < 0)
        (void)cli_fail(CLI_FAILED, "cannot start '%s': %s", program, strerror(errno));
    return pid;
}

/* --- up and down --------------------------------------------------------------------------------------- */

struct cluster {
    char state[PATH_MAX - 64];
    struct process server, agent; /* pid 0: none */
};

static int find_state(struct cli *c, struct cluster *u, bool make)
{
    const char *dir = cli_option(c, "dir") ? cli_option(c, "dir") : c->state;
    char given[PATH_MAX], full[PATH_MAX];
    struct merr err;

    if (client_state_dir(dir, given, sizeof(given), &err) < 0 || (make && io_mkdirs(given, 0700, &err) < 0))
        return cli_fail(CLI_FAILED, "%s", err.text);
    if (!realpath(given, full))
        return cli_fail(CLI_NOT_FOUND, "no cluster in '%s': %s", given, strerror(errno));
    if (strlen(full) >= sizeof(u->state))
        return cli_fail(CLI_FAILED, "the path '%s' is too long", full);
    (void)snprintf(u->state, sizeof(u->state), "%s", full);
    return 0;
}

static void read_process(const json_t *o, struct process *p)
{
    struct process was = {.pid = (pid_t)json_integer_value(json_object_get(o, "pid")),
                          .start = (unsigned long long)json_integer_value(json_object_get(o, "start"))};

    p->pid = 0;
    if (was.pid > 1 && family_alive(&was))
        *p = was;
}

/* What up.json says is running and really is. */
static void read_up(struct cluster *u)
{
    char path[PATH_MAX];
    json_t *doc;

    (void)snprintf(path, sizeof(path), "%s/up.json", u->state);
    doc = json_load_file(path, 0, NULL);
    read_process(json_object_get(doc, "server"), &u->server);
    read_process(json_object_get(doc, "agent"), &u->agent);
    json_decref(doc);
}

static int write_up(const struct cluster *u)
{
    char path[PATH_MAX], *text;
    struct merr err = {""};
    json_t *doc =
        json_pack("{s:{s:i,s:I},s:{s:i,s:I}}", "server", "pid", (int)u->server.pid, "start",
                  (json_int_t)u->server.start, "agent", "pid", (int)u->agent.pid, "start", (json_int_t)u->agent.start);
    int r = -ENOMEM;

    (void)snprintf(path, sizeof(path), "%s/up.json", u->state);
    text = doc ? json_dumps(doc, 0) : NULL;
    if (text)
        r = io_write_file(path, text, strlen(text), 0600, &err);
    free(text);
    json_decref(doc);
    return r < 0 ? cli_fail(CLI_FAILED, "cannot note what was started: %s", err.text) : 0;
}

/* End p (SIGTERM, at the deadline SIGKILL with its family). */
static void end(const struct process *p)
{
    if (p->pid && family_alive(p) && kill(p->pid, SIGTERM) == 0 && !wait_gone(p, clock_mono_us() + DOWN_US))
        (void)kill(p->pid, SIGKILL);
}

/* What they started should have ended with them. Returns how many would not end. */
static size_t end_family(const struct family *f)
{
    int64_t deadline_us = clock_mono_us() + 2000000;
    size_t left = 0;

    for (size_t i = 0; i < f->n; i++)
        if (!wait_gone(&f->v[i], deadline_us))
            (void)kill(f->v[i].pid, SIGKILL);
    deadline_us = clock_mono_us() + 5000000;
    for (size_t i = 0; i < f->n; i++)
        left += !wait_gone(&f->v[i], deadline_us);
    return left;
}

static int take_down(struct cluster *u)
{
    struct process first[2];
    struct family family;
    struct merr err;
    size_t n = 0, left;
    char path[PATH_MAX];

    if (u->agent.pid)
        first[n++] = u->agent;
    if (u->server.pid)
        first[n++] = u->server;
    if (family_gather("/proc", first, n, &family, &err) < 0)
        return cli_fail(CLI_FAILED, "%s; nothing was ended", err.text);
    end(&u->agent);
    end(&u->server);
    left = end_family(&family);
    family_clear(&family);
    if (left)
        return cli_fail(CLI_FAILED, "%zu processes would not end; see `ps`", left);
    (void)snprintf(path, sizeof(path), "%s/up.json", u->state);
    (void)unlink(path);
    return 0;
}

/* The last lines of a log, to stderr. */
static void show_log(const struct cluster *u, const char *name)
{
    char path[PATH_MAX];
    struct buf b;
    const char *at;

    (void)snprintf(path, sizeof(path), "%s/%s", u->state, name);
    buf_init(&b, 16 << 20);
    (void)io_read_file(path, &b, NULL);
    at = buf_text(&b) + (b.len > 1500 ? b.len - 1500 : 0);
    (void)fprintf(stderr, "--- the end of %s ---\n%s", path, at);
    buf_clear(&b);
}

/* Is a node of this cluster ready? */
static bool node_is_ready(struct client *k)
{
    json_t *doc = NULL, *node;
    bool ready = false;
    size_t i;

    if (client_call(k, "GET", "/v1/nodes", NULL, NULL, &doc, NULL) == 0)
        json_array_foreach (json_object_get(doc, "nodes"), i, node) {
            const char *state = json_string_value(json_object_get(node, "state"));

            ready = ready || (state && strcmp(state, "ready") == 0);
        }
    json_decref(doc);
    return ready;
}

/* Wait until check is true while p lives. */
static int wait_for(struct cluster *u, struct process *p, const char *log,
                    bool (*check)(struct cluster *, struct client **), struct client **k)
{
    int64_t deadline = clock_mono_us() + UP_US;

    while (!check(u, k)) {
        int status;

        if (waitpid(p->pid, &status, WNOHANG) == p->pid || !family_alive(p) || clock_mono_us() > deadline) {
            show_log(u, log);
            return cli_fail(CLI_FAILED, "the cluster did not come up; '%s/%s' says why", u->state, log);
        }
        (void)poll(NULL, 0, 50);
    }
    return 0;
}

static bool server_is_ready(struct cluster *u, struct client **k)
{
    char path[PATH_MAX];
    struct buf out;
    json_t *doc;
    bool ready = false;

    (void)snprintf(path, sizeof(path), "%s/server.json", u->state);
    doc = json_load_file(path, 0, NULL);
    if (json_integer_value(json_object_get(doc, "pid")) == u->server.pid) {
        client_free(*k);
        *k = NULL;
        buf_init(&out, 65536);
        ready = client_new(json_string_value(json_object_get(doc, "url")), NULL, u->state, k, NULL) == 0 &&
                client_text(*k, "/readyz", &out, NULL) == 0;
        buf_clear(&out);
    }
    json_decref(doc);
    return ready;
}

static bool agent_is_ready(struct cluster *u, struct client **k)
{
    (void)u;
    return node_is_ready(*k);
}

/* The port of the server that ran here last, so that what people kept of its address stays good. */
static const char *last_port(const struct cluster *u, char ret[8])
{
    char path[PATH_MAX];
    const char *url, *colon;
    json_t *doc;

    (void)snprintf(path, sizeof(path), "%s/server.json", u->state);
    doc = json_load_file(path, 0, NULL);
    url = json_string_value(json_object_get(doc, "url"));
    colon = url ? strrchr(url, ':') : NULL;
    (void)snprintf(ret, 8, "%.5s", colon && colon[1 + strspn(colon + 1, "0123456789")] == '\0' ? colon + 1 : "");
    json_decref(doc);
    return *ret ? ret : "7717";
}

static int bring_up(struct cli *c, struct cluster *u, struct client **k)
{
    char log[PATH_MAX], token[PATH_MAX], agent_state[PATH_MAX], host[65] = "local", last[8];
    const char *port = cli_option(c, "port");
    const char *server_argv[] = {"musterd", "--state", u->state, "--port", port ? port : last_port(u, last), NULL};
    int r;

    (void)snprintf(log, sizeof(log), "%s/musterd.log", u->state);
    u->server.pid = start("musterd", log, server_argv);
    if (u->server.pid < 0 || !family_look_up(u->server.pid, &u->server))
        return CLI_FAILED;
    TRY(write_up(u));
    TRY(wait_for(u, &u->server, "musterd.log", server_is_ready, k));
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(token, sizeof(token), "%s/agent-token", u->state);
    (void)snprintf(agent_state, sizeof(agent_state), "%s/agent", u->state);
    (void)snprintf(log, sizeof(log), "%s/agent.log", u->state);
    const char *agent_argv[] = {"muster-agent",
                                "--server",
                                client_url(*k),
                                "--token-file",
                                token,
                                "--state",
                                agent_state,
                                "--node",
                                host,
                                "--devices",
                                cli_option(c, "devices"),
                                "--stop-ranks-on-exit",
                                "--pass-env", /* agent and jobs are one person's */
                                "*",
                                NULL};
    u->agent.pid = start("muster-agent", log, agent_argv);
    if (u->agent.pid < 0 || !family_look_up(u->agent.pid, &u->agent))
        return CLI_FAILED;
    r = write_up(u);
    return r ? r : wait_for(u, &u->agent, "agent.log", agent_is_ready, k);
}

/* On a terminal, which one person sees: an address that signs in. */
static void print_sign_in(const struct cluster *u, struct client *k)
{
    char path[PATH_MAX];
    struct buf token;

    (void)snprintf(path, sizeof(path), "%s/token", u->state);
    buf_init(&token, 4096);
    if (cli_read_file(path, &token, NULL) == 0)
        (void)printf("open %s/#token=%.*s\n", client_url(k), (int)strcspn(buf_text(&token), "\r\n"), buf_text(&token));
    buf_clear(&token);
}

static int say_up(struct cli *c, const struct cluster *u, struct client *k, const char *what)
{
    json_t *doc;
    int r;

    if (!c->json) {
        (void)printf("the cluster is %s: %s\nthe dashboard asks for a token, which is in %s/token\n", what,
                     client_url(k), u->state);
        if (cli_is_terminal())
            print_sign_in(u, k);
        return CLI_DONE;
    }
    doc = json_pack("{s:s,s:s,s:i,s:i}", "url", client_url(k), "state", u->state, "server_pid", (int)u->server.pid,
                    "agent_pid", (int)u->agent.pid);
    r = cli_print_json(doc);
    json_decref(doc);
    return r;
}

int local_up(struct cli *c)
{
    struct cluster u = {.server.pid = 0};
    struct client *k = NULL;
    int r;

    TRY(find_state(c, &u, true));
    read_up(&u);
    if (u.server.pid && u.agent.pid && server_is_ready(&u, &k)) {
        r = say_up(c, &u, k, "up already");
        client_free(k);
        return r;
    }
    client_free(k);
    k = NULL;
    TRY(take_down(&u)); /* what is left of one that is half gone */
    u.server.pid = u.agent.pid = 0;
    r = bring_up(c, &u, &k);
    if (r != 0)
        (void)take_down(&u);
    else
        r = say_up(c, &u, k, "up");
    client_free(k);
    return r;
}

int local_down(struct cli *c)
{
    struct cluster u = {.server.pid = 0};
    bool was_up;
    int r = find_state(c, &u, false);

    if (r)
        return r;
    read_up(&u);
    was_up = u.server.pid || u.agent.pid;
    r = take_down(&u);
    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(json_pack("{s:s, s:b}", "state", u.state, "was_up", was_up));
    (void)printf(was_up ? "the cluster of %s is down\n" : "no cluster is up in %s\n", u.state);
    return CLI_DONE;
}
