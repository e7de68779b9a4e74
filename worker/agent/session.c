#include "worker/agent/session.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/client/duplex.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/options.h"
#include "base/try.h"
#include "worker/agent/cgroup.h"
#include "worker/agent/guard.h"
#include "worker/agent/inside.h"
#include "worker/agent/launch.h"
#include "worker/agent/packets.h"
#include "worker/agent/proc.h"
#include "worker/agent/quota.h"

#define ENVIRONMENT_MAX (4 << 20)
#define BEGIN_US INT64_C(15000000) /* for the server to say what is asked */
#define END_US INT64_C(5000000)    /* for the program's end, once its client has gone, and for the last bytes */
#define SWEEP_MS 20
#define QUEUED_MOST (1 << 20)

struct session {
    const char *server, *token_file, *ca_file, *cert, *node, *id, *cgroup, *quota, *folder;
    struct guard_rank guard;
    int wire;            /* to the guard that is to start it; -1: it is our own child */
    int shim;            /* whose environment it gets, */
    uint64_t shim_start; /* which began then */

    struct duplex *duplex;
    struct packets packets;
    json_t *asked; /* owned: of the server */
    char *environment, **envp;
    bool image;
    pid_t child;
    int signal_fd;
    bool told_exit; /* the client knows how the program ended */
    bool away;      /* the client's end has gone */
};

/* --- what is asked ------------------------------------------------------------------------------------------------ */

static int take_begin(void *arg, enum session_message kind, char *data, size_t len)
{
    struct session *s = arg;

    if (kind != SESSION_BEGIN || s->asked)
        return -EPROTO;
    s->asked = json_loadb(data, len, 0, NULL);
    return s->asked ? 1 : -EPROTO; /* what comes after is for the program */
}

static int hear_begin(struct session *s, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + BEGIN_US;

    while (!s->asked) {
        struct pollfd p = {.fd = duplex_fd(s->duplex), .events = duplex_events(s->duplex)};
        int r = duplex_work(s->duplex, take_begin, s, err);

        if (s->asked)
            return 0;
        if (r != 0)
            return -EPIPE;
        if (clock_mono_us() > deadline_us)
            return merr_set(err, -ETIMEDOUT, "the server does not say what is asked");
        if (!duplex_more(s->duplex))
            (void)poll(&p, 1, clock_poll_ms(deadline_us));
    }
    return 0;
}

/* A list of texts as words that end with NULL; new, the texts are borrowed. */
static char **words_of(const json_t *list)
{
    size_t n = json_array_size(list), i;
    char **words = calloc(n + 1, sizeof(*words));
    const json_t *one;

    json_array_foreach (list, i, one)
        if (words)
            words[i] = (char *)json_string_value(one);
    return words;
}

static bool is_replaced(const json_t *env, const char *variable)
{
    char name[256];
    size_t n = strcspn(variable, "=");

    (void)snprintf(name, sizeof(name), "%.*s", (int)n, variable);
    return n < sizeof(name) && json_object_get(env, name);
}

/* The rank's environment, as its shim was given it, with what is asked in place of what it had. */
static int make_environment(struct session *s, struct merr *err)
{
    struct proc_id shim = {.pid = s->shim, .start = s->shim_start};
    json_t *env = json_object_get(s->asked, "env"), *value;
    struct buf b;
    char path[64];
    const char *name;
    size_t n = 0, k = 0;

    buf_init(&b, ENVIRONMENT_MAX);
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", s->shim);
    if (io_read_file(path, &b, NULL) < 0 || !proc_alive(shim)) {
        buf_clear(&b);
        return merr_set(err, -ESRCH, "the rank has ended");
    }
    json_object_foreach (env, name, value) {
        (void)buf_printf(&b, "%s=%s", name, json_string_value(value));
        (void)buf_add(&b, "", 1);
    }
    for (size_t i = 0; i < b.len; i++)
        n += b.data[i] == '\0';
    s->envp = calloc(n + 1, sizeof(*s->envp));
    if (buf_failed(&b) || !s->envp) {
        buf_clear(&b);
        return merr_set(err, -ENOMEM, "no memory for the environment");
    }
    for (char *p = b.data, *end = b.data + b.len; p < end; p += strlen(p) + 1) {
        bool given = k + json_object_size(env) >= n; /* those of the request come last */

        launch_unseal_one(p);
        n -= !given && is_replaced(env, p);
        if (given || !is_replaced(env, p))
            s->envp[k++] = p;
    }
    s->environment = buf_detach(&b);
    return 0;
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static _Noreturn void child_fail(int wire, const char *words)
{
    struct packets p;

    packets_init(&p, wire);
    (void)packets_send(&p, SESSION_WORDS, words, strlen(words));
    _exit(126);
}

/* Under another account: stand for it until all of it has ended. */
static _Noreturn void stand(const struct session *s, const struct inside_ask *ask, int wire)
{
    struct guard_rank rank = s->guard;
    struct merr err = {""};
    bool by_user;
    char room[4][8];

    rank.groups = s->cgroup ? s->cgroup : "";
    rank.folder = s->folder;
    rank.argv = inside_words(ask, room);
    environ = s->envp;
    if (rank.argv && guard_run(s->wire, &rank, wire, NULL, 0, &by_user, &err) < 0)
        child_fail(wire, err.text);
    _exit(0);
}

/* SIGKILL to all that is left of it, until none is. */
static void end_all(void)
{
    int64_t deadline_us = clock_mono_us() + END_US;

    while (clock_mono_us() < deadline_us) {
        int status;

        proc_kill_children();
        while (waitpid(-1, &status, WNOHANG) > 0)
            ;
        if (waitpid(-1, &status, WNOHANG) < 0)
            break;
        (void)poll(NULL, 0, SWEEP_MS);
    }
}

static _Noreturn void enter(const struct session *s, const struct inside_ask *ask, int wire)
{
    int r;

    if (s->wire >= 0)
        stand(s, ask, wire);
    if (s->cgroup && cgroup_enter(s->cgroup, 0) < 0)
        child_fail(wire, "cannot enter the control group of the rank: it has ended");
    if (s->quota && quota_join(s->quota) < 0)
        child_fail(wire, "cannot enter the control group of the rank's share: it has ended");
    if (chdir(s->folder) < 0)
        child_fail(wire, "cannot enter the folder to work in");
    environ = s->envp;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* the session's process may be killed, which would see to it else */
    r = inside_run(wire, ask);
    end_all();
    _exit(r);
}

static int start(struct session *s, struct merr *err)
{
    const json_t *cols = json_object_get(s->asked, "cols"), *rows = json_object_get(s->asked, "rows");
    const char *folder = json_string_value(json_object_get(s->asked, "workdir"));
    bool tty = json_is_true(json_object_get(s->asked, "tty"));
    char **words = words_of(json_object_get(s->asked, "argv"));
    struct inside_ask ask = {.argv = words,
                             .cols = tty ? (cols ? (int)json_integer_value(cols) : 80) : 0,
                             .rows = tty ? (rows ? (int)json_integer_value(rows) : 24) : 0,
                             .image = s->image,
                             .port = (int)json_integer_value(json_object_get(s->asked, "port"))};
    int wires[2];

    if (folder)
        s->folder = folder;
    if (!words || (!words[0] && ask.port == 0))
        return merr_set(err, -ENOMEM, "no memory for the program's words");
    TRY(make_environment(s, err));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires) < 0)
        return merr_errno(err, -errno, "cannot make a socket");
    s->child = fork();
    if (s->child < 0)
        return merr_errno(err, -errno, "cannot start a process");
    if (s->child == 0) {
        (void)close(wires[0]);
        (void)close(duplex_fd(s->duplex)); /* the program shall not hold the connection */
        enter(s, &ask, wires[1]);
    }
    (void)close(wires[1]);
    io_close(&s->wire);
    free(words);
    packets_init(&s->packets, wires[0]);
    return 0;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static int to_program(void *arg, enum session_message kind, char *data, size_t len)
{
    struct session *s = arg;

    int r = packets_send(&s->packets, kind, data, len);

    return r == -EPIPE ? 0 : r; /* it has ended: what it has said last is still to be read */
}

/* Packets of the program's process. What it prints before it is that is for the person. */
static int from_program(struct session *s)
{
    static const char own[] = {SESSION_OUTPUT, SESSION_ERROR_OUTPUT, SESSION_EXIT,
                               SESSION_END,    SESSION_USED,         SESSION_WORDS};
    char text[1 + FRAME_MAX];
    ssize_t n = 1;
    int r = 0;

    while (r == 0 && duplex_queued(s->duplex) < QUEUED_MOST && (n = packets_receive(&s->packets, text)) > 0) {
        if (!memchr(own, text[0], sizeof(own))) {
            r = duplex_send(s->duplex, SESSION_WORDS, text, n < SESSION_PIECE ? (size_t)n : SESSION_PIECE);
            continue;
        }
        s->told_exit = s->told_exit || text[0] == SESSION_EXIT;
        r = duplex_send(s->duplex, (enum session_message)text[0], text + 1, (size_t)n - 1);
    }
    return r < 0 ? r : n < 0 ? (int)n : 0;
}

/* Its end without a word: it was killed, most likely with its rank. */
static void tell_end(struct session *s)
{
    static const char words[] = "the program was killed; its rank may have ended";
    unsigned char numbers[8];

    if (s->told_exit)
        return;
    frame_put_number(numbers, 128 + SIGKILL);
    frame_put_number(numbers + 4, SIGKILL);
    (void)duplex_send(s->duplex, SESSION_WORDS, words, sizeof(words) - 1);
    (void)duplex_send(s->duplex, SESSION_EXIT, numbers, sizeof(numbers));
}

/* Until the program has ended or the client's end has gone. */
static void pass_on(struct session *s)
{
    struct signalfd_siginfo info;
    int r = 0;

    while (r == 0) {
        struct pollfd p[3] = {{.fd = duplex_fd(s->duplex), .events = duplex_events(s->duplex)},
                              {.fd = s->packets.fd, .events = packets_events(&s->packets)},
                              {.fd = s->signal_fd, .events = POLLIN}};

        if (duplex_queued(s->duplex) >= QUEUED_MOST)
            p[1].events &= (short)~POLLIN;
        (void)poll(p, 3, duplex_more(s->duplex) ? 0 : 1000);
        if (p[2].revents && read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
            break; /* the agent or the rank has ended */
        r = packets_flush(&s->packets);
        r = r == 0 || r == -EPIPE ? from_program(s) : r;
        if (r == 0) {
            r = duplex_work(s->duplex, to_program, s, NULL);
            s->away = r != 0;
        }
    }
}

/* The client's end has gone: the program is told, and has a moment. */
static void await_end(struct session *s)
{
    int64_t deadline_us = clock_mono_us() + END_US;
    IO_CLOSE_AUTO int end = (int)syscall(SYS_pidfd_open, s->child, 0);
    struct pollfd p = {.fd = end, .events = POLLIN};

    (void)shutdown(s->packets.fd, SHUT_RDWR);
    (void)poll(&p, 1, clock_poll_ms(deadline_us));
}

static int drop(void *arg, enum session_message kind, char *data, size_t len)
{
    (void)arg;
    (void)kind;
    (void)data;
    (void)len;
    return 0;
}

/* All that waits for the server, and the close, until that has closed, too: bytes of it that were not read would take
 * back what it has not read yet. */
static void say_goodbye(const struct session *s)
{
    int64_t deadline_us = clock_mono_us() + END_US;

    duplex_close(s->duplex, FRAME_CLOSE_DONE, "");
    while (duplex_work(s->duplex, drop, NULL, NULL) == 0 && clock_mono_us() < deadline_us) {
        struct pollfd p = {.fd = duplex_fd(s->duplex), .events = duplex_events(s->duplex)};

        if (!duplex_more(s->duplex))
            (void)poll(&p, 1, clock_poll_ms(deadline_us));
    }
}

/* --- the process -------------------------------------------------------------------------------------------------- */

#define AT(member) .at = OPTION_AT(struct session, member)

static const struct option_row rows[] = {
    {"server", 0, "URL", "of the server", OPTION_TEXT, .needed = true, AT(server)},
    {"token-file", 0, "FILE", "the agent's", OPTION_TEXT, .needed = true, AT(token_file)},
    {"ca-file", 0, "FILE", "certificate to trust", OPTION_TEXT, AT(ca_file)},
    {"cert", 0, "FILE", "certificate to show", OPTION_TEXT, AT(cert)},
    {"node", 0, "NAME", "this node", OPTION_TEXT, .needed = true, AT(node)},
    {"session", 0, "ID", "to join", OPTION_TEXT, .needed = true, AT(id)},
    {"shim", 0, "PID", "of the rank", OPTION_INT, 1, INT_MAX, .needed = true, AT(shim)},
    {"shim-start", 0, "TICKS", "when that process began", OPTION_WHOLE, .needed = true, AT(shim_start)},
    {"chdir", 0, "DIR", "where the rank works", OPTION_TEXT, .needed = true, AT(folder)},
    {"cgroup", 0, "LIST", "control groups of the rank, parted by ':'", OPTION_TEXT, AT(cgroup)},
    {"quota", 0, "DIR", "the rank's share of a processor", OPTION_TEXT, AT(quota)},
    {"wire", 0, "FD", "socket to a guard that starts it under another account", OPTION_INT, 0, INT_MAX, AT(wire)},
    {"image", 0, NULL, "the rank's program runs in a container", OPTION_FLAG, AT(image)},
    {"user", 0, "NAME", "of that account (default the jobs')", OPTION_TEXT, .def = "", AT(guard.user)},
    {"tmp", 0, "DIR", "folder for its /tmp", OPTION_TEXT, AT(guard.tmp)},
    {"shm", 0, "DIR", "folder for its /dev/shm", OPTION_TEXT, AT(guard.shm)},
    {"keep", 0, "DIR", "folder below /dev/shm that it sees all the same", OPTION_TEXT, AT(guard.keep)},
    {"help", 'h', NULL, "say this", .kind = OPTION_HELP},
    {0},
};

static const struct options options = {
    .name = "muster-agent session",
    .args = "",
    .about = "Join a session beside a rank. Called by the agent.",
    .rows = rows,
};

static int catch_signals(struct session *s)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signal_fd < 0 ? -errno : 0;
}

static int join(struct session *s, struct merr *err)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "/v1/agents/%s/exec/%s", s->node, s->id);
    TRY(duplex_open(
        &(struct duplex_cfg){
            .url = s->server, .path = path, .token_file = s->token_file, .ca_file = s->ca_file, .cert_file = s->cert},
        &s->duplex, err));
    return hear_begin(s, err);
}

int session_main(int argc, char **argv)
{
    struct session s = {.wire = -1, .signal_fd = -1, .packets = {.fd = -1}};
    struct options_given given;
    struct merr err = {""};
    int r;

    if (options_main(&options, argc, argv, &s, &given, &r))
        return r;
    (void)syscall(SYS_close_range, (unsigned)(s.wire >= 0 ? SESSION_WIRE_FD : STDERR_FILENO) + 1, ~0u, 0);
    if (s.wire >= 0)
        (void)fcntl(s.wire, F_SETFD, FD_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || catch_signals(&s) < 0)
        return 1;
    r = join(&s, &err);
    if (r == 0 && (r = start(&s, &err)) == 0) {
        pass_on(&s);
        if (s.away)
            await_end(&s);
        else
            tell_end(&s);
    } else if (s.duplex) {
        (void)duplex_send(s.duplex, SESSION_WORDS, err.text, strlen(err.text));
        s.told_exit = false;
        tell_end(&s);
    }
    end_all();
    if (s.duplex && !s.away)
        say_goodbye(&s);
    duplex_free(s.duplex);
    io_close(&s.packets.fd);
    packets_clear(&s.packets);
    json_decref(s.asked);
    free(s.envp);
    free(s.environment);
    if (r < 0)
        dprintf(STDERR_FILENO, "muster-agent: session %.8s: %s\n", s.id, err.text);
    return r < 0;
}
