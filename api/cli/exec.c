/* A program beside a rank: its input and output are this terminal's; or a connection to a port of it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/client/duplex.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"

#define EXEC_LOST 255   /* exit status when the session is lost before its program has ended */
#define PIPE_PIECE 4096 /* bytes that a pipe or terminal takes without waiting, once it takes any */
#define ROUND_MS 1000

struct output {
    int fd;
    bool at_once; /* writing never waits: what fits is taken, or it is a file */
    bool socket;
    int opened; /* fd, opened anew so that this is so, or -1 */
    struct buf wait;
    bool closed; /* its reader has gone */
};

struct exec {
    struct duplex *duplex;
    struct output out[2];
    int in, signal_fd;
    bool input, tty, raw;
    bool forward;  /* in and out[0] are a connection */
    bool out_ends; /* of which there is no more to come */
    struct termios was;
    size_t on_way; /* bytes of input that the program has not taken */
    uint32_t used; /* bytes of output that were written, and nobody was told of */
    int interrupts;
    bool ended;
    int status;
};

/* --- the terminal ------------------------------------------------------------------------------------------------ */

static void set_raw(struct exec *x)
{
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &x->was) < 0)
        return;
    raw = x->was;
    cfmakeraw(&raw);
    x->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void set_back(struct exec *x)
{
    if (x->raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &x->was);
    x->raw = false;
}

/* False: it has none, as one that nobody looks at. */
static bool terminal_size(struct winsize *ret)
{
    struct winsize size;

    if ((ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0) ||
        size.ws_col == 0 || size.ws_row == 0)
        return false;
    *ret = size;
    return true;
}

static int tell_size(const struct exec *x)
{
    struct winsize size;
    unsigned char bytes[4];

    if (!x->tty || !terminal_size(&size))
        return 0;
    bytes[0] = (unsigned char)(size.ws_col >> 8);
    bytes[1] = (unsigned char)size.ws_col;
    bytes[2] = (unsigned char)(size.ws_row >> 8);
    bytes[3] = (unsigned char)size.ws_row;
    return duplex_send(x->duplex, SESSION_RESIZE, bytes, sizeof(bytes));
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

/* Write what an output takes of these bytes; it takes some now, or never waits. *ret: as many are done with. */
static int write_bytes(struct exec *x, struct output *o, const char *data, size_t len, size_t *ret)
{
    ssize_t n = (ssize_t)len;

    *ret = 0;
    if (!o->closed)
        n = o->socket ? send(o->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL)
                      : write(o->fd, data, o->at_once || len < PIPE_PIECE ? len : PIPE_PIECE);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n < 0 && x->forward)
        return -ECANCELED;
    if (n < 0) { /* as with a pipe to `head`: the program goes on, and its output is thrown away */
        o->closed = true;
        n = (ssize_t)len;
    }
    x->used += (uint32_t)n;
    *ret = (size_t)n;
    return 0;
}

/* What the program has printed: what the output does not take waits. */
static int take_output(struct exec *x, struct output *o, const char *data, size_t len)
{
    size_t n = 0;

    if (o->closed || (o->at_once && o->wait.len == 0))
        TRY(write_bytes(x, o, data, len, &n));
    return n < len ? buf_add(&o->wait, data + n, len - n) : 0;
}

static int take(void *arg, enum session_message kind, char *data, size_t len)
{
    struct exec *x = arg;

    switch (kind) {
    case SESSION_OUTPUT:
    case SESSION_ERROR_OUTPUT:
        return take_output(x, &x->out[kind == SESSION_ERROR_OUTPUT], data, len);
    case SESSION_USED:
        if (len == 4)
            x->on_way -= frame_number(data) < x->on_way ? frame_number(data) : x->on_way;
        break;
    case SESSION_WORDS:
        (void)fputs("muster: ", stderr);
        cli_print_visible(stderr, data, len);
        (void)fputs(x->raw ? "\r\n" : "\n", stderr);
        break;
    case SESSION_END:
        x->out_ends = true;
        break;
    case SESSION_EXIT:
        if (len == 8) {
            x->status = (int)(frame_number(data) & 255);
            x->ended = true;
        }
        break;
    default:
        break;
    }
    return 0;
}

static int write_waiting(struct exec *x, struct output *o)
{
    size_t n;

    TRY(write_bytes(x, o, o->wait.data, o->wait.len, &n));
    buf_drop(&o->wait, n);
    return 0;
}

static int tell_used(struct exec *x)
{
    unsigned char number[4];

    if (x->used == 0 || (x->used < SESSION_WINDOW / 4 && x->out[0].wait.len + x->out[1].wait.len > 0))
        return 0;
    frame_put_number(number, x->used);
    x->used = 0;
    return duplex_send(x->duplex, SESSION_USED, number, sizeof(number));
}

static int read_some(struct exec *x)
{
    char text[SESSION_PIECE];
    size_t room = SESSION_WINDOW - x->on_way;
    ssize_t n = read(x->in, text, room < sizeof(text) ? room : sizeof(text));

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n < 0 && x->forward) /* it was reset */
        return -ECANCELED;
    if (n > 0) {
        x->on_way += (size_t)n;
        return duplex_send(x->duplex, SESSION_INPUT, text, (size_t)n);
    }
    x->input = false;
    return duplex_send(x->duplex, SESSION_END, NULL, 0);
}

/* Signals go to the program; whoever asks a second time to end is obeyed here. */
static int take_signal(struct exec *x, int number)
{
    unsigned char byte = (unsigned char)number;

    if (number == SIGWINCH)
        return tell_size(x);
    if (x->forward || number == SIGHUP || ++x->interrupts > 1)
        return -ECANCELED;
    return duplex_send(x->duplex, SESSION_SIGNAL, &byte, 1);
}

/* --- the loop ---------------------------------------------------------------------------------------------------- */

static int turn(struct exec *x, struct merr *err)
{
    struct pollfd p[5] = {{.fd = x->ended ? -1 : duplex_fd(x->duplex), .events = duplex_events(x->duplex)},
                          {.fd = x->signal_fd, .events = POLLIN},
                          {.fd = x->out[0].wait.len > 0 ? x->out[0].fd : -1, .events = POLLOUT},
                          {.fd = x->out[1].wait.len > 0 ? x->out[1].fd : -1, .events = POLLOUT},
                          {.fd = x->input && !x->ended && x->on_way < SESSION_WINDOW ? x->in : -1, .events = POLLIN}};
    struct signalfd_siginfo info;
    int r;

    if (poll(p, 5, !x->ended && duplex_more(x->duplex) ? 0 : ROUND_MS) < 0 && errno != EINTR)
        return merr_errno(err, -errno, "cannot wait");
    if (p[1].revents && read(x->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        TRY(take_signal(x, (int)info.ssi_signo));
    for (int i = 0; i < 2; i++)
        if (p[2 + i].revents)
            TRY(write_waiting(x, &x->out[i]));
    if (p[4].revents)
        TRY(read_some(x));
    if (x->forward && x->out_ends && x->out[0].wait.len == 0) {
        (void)shutdown(x->out[0].fd, SHUT_WR);
        x->out_ends = false;
    }
    if (x->ended) /* and the session with it: what is left is to be written */
        return 0;
    r = duplex_work(x->duplex, take, x, err);
    if (x->ended || r != 0)
        return x->ended ? 0 : r;
    TRY(tell_used(x));
    return duplex_flush(x->duplex, err);
}

static int go_on(struct exec *x)
{
    struct merr err = {""};
    int r = tell_size(x);

    while (r == 0 && !(x->ended && x->out[0].wait.len + x->out[1].wait.len == 0))
        r = turn(x, &err);
    set_back(x);
    if (x->ended)
        return x->status;
    if (r == -ECANCELED)
        return CLI_INTERRUPTED;
    return cli_fail((enum cli_exit)EXEC_LOST, "the session ended: %s",
                    *err.text ? err.text
                    : r < 0   ? strerror(-r)
                              : "the other end closed it");
}

/* A pipe is opened anew, so that writes to it do not wait, and others who have it open do not get to know. */
static void prepare(struct output *o)
{
    char path[32];
    struct stat st;

    buf_init(&o->wait, 2 * SESSION_WINDOW);
    o->opened = -1;
    if (fstat(o->fd, &st) < 0)
        return;
    o->socket = S_ISSOCK(st.st_mode);
    o->at_once = o->socket || S_ISREG(st.st_mode);
    if (!S_ISFIFO(st.st_mode))
        return;
    (void)fcntl(o->fd, F_SETPIPE_SZ, SESSION_WINDOW);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", o->fd);
    o->opened = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    o->at_once = o->opened >= 0;
    if (o->at_once)
        o->fd = o->opened;
}

static int catch_signals(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGWINCH};
    sigset_t set;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
        (void)sigaddset(&set, caught[i]);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Join a session that was opened, with these ends. */
static int join(const struct cli *c, const json_t *session, struct exec ends)
{
    const char *trusted = getenv("MUSTER_CACERT");
    struct exec x = ends;
    struct merr err = {""};
    int r = duplex_open(&(struct duplex_cfg){.url = client_url(c->client),
                                             .path = cli_str(session, "url"),
                                             .ca_file = trusted && *trusted ? trusted : NULL,
                                             .proxies = true},
                        &x.duplex, &err);

    if (r < 0)
        return cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text);
    x.signal_fd = catch_signals();
    for (int i = 0; i < 2; i++)
        prepare(&x.out[i]);
    if (x.input)
        (void)fcntl(x.in, F_SETPIPE_SZ, SESSION_WINDOW); /* where it is a pipe */
    if (x.tty && isatty(STDIN_FILENO))
        set_raw(&x);
    r = !x.input ? duplex_send(x.duplex, SESSION_END, NULL, 0) : 0;
    r = r == 0 ? go_on(&x) : cli_fail(CLI_FAILED, "no memory");
    duplex_close(x.duplex, FRAME_CLOSE_DONE, "");
    duplex_free(x.duplex);
    io_close(&x.signal_fd);
    for (int i = 0; i < 2; i++) {
        buf_clear(&x.out[i].wait);
        io_close(&x.out[i].opened);
    }
    return r;
}

int exec_connect(const struct cli *c, const json_t *session, int connection)
{
    (void)fcntl(connection, F_SETFL, O_NONBLOCK);
    return join(
        c, session,
        (struct exec){
            .in = connection, .input = true, .forward = true, .out = {{.fd = connection}, {.fd = STDERR_FILENO}}});
}

int exec_read(struct cli *c, const char *job, const char *const *argv, struct buf *ret)
{
    IO_CLOSE_AUTO int fd = memfd_create("muster-exec", MFD_CLOEXEC);
    json_auto_t *session = NULL, *body = json_pack("{s:[]}", "argv");
    char path[256];

    for (; *argv; argv++)
        (void)json_array_append_new(json_object_get(body, "argv"), json_string(*argv));
    if (fd < 0)
        return cli_fail(CLI_FAILED, "no memory");
    TRY(cli_job_path(job, "/exec", path));
    TRY(cli_call(c, "POST", path, body, NULL, &session));
    TRY(join(c, session, (struct exec){.in = -1, .out = {{.fd = fd}, {.fd = STDERR_FILENO}}}));
    return lseek(fd, 0, SEEK_SET) == 0 && io_read_open(fd, "what it printed", ret, NULL) == 0
               ? 0
               : cli_fail(CLI_FAILED, "no memory");
}

/* --- the command ------------------------------------------------------------------------------------------------- */

/* Those variables of ours, and of a terminal its kind. New. */
static json_t *variables(const char *names, bool tty)
{
    json_t *env = json_object();
    const char *term = getenv("TERM");
    char name[256];

    if (tty)
        (void)json_object_set_new(env, "TERM", json_string(term && *term ? term : "dumb"));
    for (const char *p = names ? names : ""; *p; p += strcspn(p, ","), p += *p == ',') {
        const char *value;

        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(p, ","), p);
        value = getenv(name);
        if (value)
            (void)json_object_set_new(env, name, json_string(value));
    }
    return env;
}

int exec_run(struct cli *c)
{
    bool ends = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO), both = ends && !cli_option(c, "no-tty");
    bool tty = cli_option(c, "tty") || both, input = cli_option(c, "interactive") || tty || ends;
    const char *workdir = cli_option(c, "workdir");
    struct winsize size = {.ws_col = 80, .ws_row = 24};
    json_auto_t *session = NULL, *body = NULL;
    json_t *argv = json_array();
    char path[256];

    for (char *const *p = c->given.rest; p && *p; p++)
        (void)json_array_append_new(argv, json_string(*p));
    if (json_array_size(argv) == 0) {
        json_decref(argv);
        return cli_fail(CLI_USAGE, "want a program after '--', as in: muster exec %s -- bash", c->arg[0]);
    }
    if (tty)
        (void)terminal_size(&size);
    body = json_pack("{s:o, s:b, s:i, s:o, s:i, s:i, s:s*}", "argv", argv, "tty", tty, "rank",
                     (int)cli_number(c, "rank", 0), "env", variables(cli_option(c, "env"), tty), "cols",
                     (int)size.ws_col, "rows", (int)size.ws_row, "workdir", workdir);
    if (!body)
        return cli_fail(CLI_FAILED, "the program's words, or the variables, are no UTF-8");
    TRY(cli_job_path(c->arg[0], "/exec", path));
    TRY(cli_call(c, "POST", path, body, NULL, &session));
    return join(
        c, session,
        (struct exec){
            .in = STDIN_FILENO, .input = input, .tty = tty, .out = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}}});
}
