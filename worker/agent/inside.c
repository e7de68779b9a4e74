#include "worker/agent/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "worker/agent/enter.h"
#include "worker/agent/listener.h"
#include "worker/agent/packets.h"

#define LAST_MAX (2 << 20) /* more than two pipes hold */

enum { IN, OUT, ERR };

struct inside {
    struct packets wire;
    const struct inside_ask *ask;
    struct enter container; /* its pid 0: none is entered */
    pid_t child;
    int fd[3];        /* ours, of its input and outputs; the first two are one of a terminal or socket. -1: closed */
    struct buf input; /* for the program */
    uint32_t used;    /* bytes of input that it has taken and that nobody was told of */
    size_t on_way;    /* bytes of output that the client has not used up */
    bool input_ends, told_end; /* the client's input; the program knows of it, or takes none */
    bool ended, left;          /* the program; the other end of the wire */
    int status;                /* wait status, once ended */
    size_t last;               /* bytes of output that are passed on after its end */
    int64_t kill_us;           /* once it has left: when the program is killed */
};

/* --- the program -------------------------------------------------------------------------------------------------- */

/* Become the program in the container. Returns only what went wrong. */
static int become_there(const struct inside *s)
{
    char rooms[2][2][ENTER_WORD_MAX], folder[ENTER_MAX];
    char **words = getcwd(folder, sizeof(folder)) ? enter_words(&s->container, folder, s->ask->argv, rooms[0]) : NULL;
    char **env = words ? enter_environment(&s->container, environ, rooms[1]) : NULL;

    if (env)
        (void)execvpe(words[0], words, env);
    return env ? errno : ENOMEM;
}

static _Noreturn void become(const struct inside *s, int theirs[3])
{
    sigset_t none;
    int code;

    (void)setsid();
    if (s->ask->cols > 0)
        (void)ioctl(theirs[IN], TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++)
        if (dup2(theirs[i], i) < 0)
            _exit(126);
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    code = s->container.pid > 0 ? become_there(s) : (execvp(s->ask->argv[0], s->ask->argv), errno);
    dprintf(STDERR_FILENO, "muster: cannot run '%s': %s\n", s->container.pid > 0 ? "nsenter" : s->ask->argv[0],
            strerror(code));
    _exit(code == ENOENT ? 127 : 126);
}

static void set_size(const struct inside *s, unsigned cols, unsigned rows)
{
    struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};

    if (s->ask->cols > 0 && s->fd[IN] >= 0)
        (void)ioctl(s->fd[IN], TIOCSWINSZ, &size);
}

static int open_terminal(struct inside *s, int theirs[3])
{
    char name[64];

    s->fd[IN] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (s->fd[IN] < 0 || grantpt(s->fd[IN]) < 0 || unlockpt(s->fd[IN]) < 0 ||
        ptsname_r(s->fd[IN], name, sizeof(name)) != 0)
        return -errno;
    theirs[IN] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    theirs[OUT] = fcntl(theirs[IN], F_DUPFD_CLOEXEC, 3);
    theirs[ERR] = fcntl(theirs[IN], F_DUPFD_CLOEXEC, 3);
    s->fd[OUT] = fcntl(s->fd[IN], F_DUPFD_CLOEXEC, 3);
    set_size(s, (unsigned)s->ask->cols, (unsigned)s->ask->rows);
    return theirs[IN] < 0 || theirs[OUT] < 0 || theirs[ERR] < 0 || s->fd[OUT] < 0 ? -errno : 0;
}

static int open_pipes(struct inside *s, int theirs[3])
{
    int ends[2];

    for (int i = 0; i < 3; i++) {
        if (pipe2(ends, O_CLOEXEC) < 0)
            return -errno;
        (void)fcntl(ends[0], F_SETPIPE_SZ, SESSION_WINDOW); /* else the ends wait for each other more often */
        theirs[i] = ends[i == IN ? 0 : 1];
        s->fd[i] = ends[i == IN ? 1 : 0];
    }
    return 0;
}

/* A descriptor above those that the program gets. */
static void raise_fds(int fds[3])
{
    for (int i = 0; i < 3; i++) {
        int high = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, 10);

        io_close(&fds[i]);
        fds[i] = high;
    }
}

/* No program, but a connection to one that is there. */
static int start_connection(struct inside *s, struct merr *err)
{
    const char *job = getenv("MUSTER_JOB");

    TRY(listener_connect(s->ask->port, job ? job : "", &s->fd[IN], err));
    s->fd[OUT] = fcntl(s->fd[IN], F_DUPFD_CLOEXEC, 3);
    s->ended = true;
    return s->fd[OUT] < 0 ? merr_errno(err, -errno, "cannot connect") : 0;
}

/* Find the container of the rank; where there is none to be entered, say so. */
static int find_container(struct inside *s)
{
    const char *job = getenv("MUSTER_JOB"), *rank = getenv("RANK");
    char words[512];
    struct merr err;

    if (!s->ask->image || enter_find("/proc", job ? job : "", rank ? rank : "", &s->container, &err) == 0)
        return 0;
    (void)snprintf(words, sizeof(words), "this runs on the node, beside the job's container: %s", err.text);
    return packets_send(&s->wire, SESSION_WORDS, words, strlen(words));
}

static int start_program(struct inside *s)
{
    int theirs[3] = {-1, -1, -1};
    int r = s->ask->cols > 0 ? open_terminal(s, theirs) : open_pipes(s, theirs);

    if (r == 0)
        r = find_container(s);
    if (r == 0) {
        raise_fds(theirs);
        s->child = fork();
        if (s->child == 0)
            become(s, theirs);
        r = s->child < 0 ? -errno : 0;
    }
    for (int i = 0; i < 3; i++) {
        io_close(&theirs[i]);
        if (s->fd[i] >= 0)
            (void)fcntl(s->fd[i], F_SETFL, fcntl(s->fd[i], F_GETFL) | O_NONBLOCK);
    }
    return r;
}

/* To what is in the foreground of its terminal, or to all of it. */
static void send_signal(const struct inside *s, int number)
{
    pid_t group = s->ask->cols > 0 && s->fd[IN] >= 0 ? tcgetpgrp(s->fd[IN]) : 0;

    if (s->child > 0 && !s->ended)
        (void)kill(group > 0 ? -group : -s->child, number);
}

/* --- its input and output ----------------------------------------------------------------------------------------- */

static int tell_used(struct inside *s, bool all)
{
    unsigned char number[4];
    uint32_t n = s->used;

    if (n == 0 || (!all && n < SESSION_WINDOW / 4))
        return 0;
    s->used = 0;
    frame_put_number(number, n);
    return packets_send(&s->wire, SESSION_USED, number, sizeof(number));
}

/* Give the program what it takes. */
static int feed(struct inside *s)
{
    static const char end_of_file = 4; /* Ctrl-D, to a terminal that nobody has set otherwise */

    while (s->input.len > 0) {
        ssize_t n = s->fd[IN] >= 0 ? write(s->fd[IN], s->input.data, s->input.len) : -1;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && s->fd[IN] >= 0 && errno == EAGAIN)
            break;
        if (n <= 0) { /* it takes no more: what comes is thrown away */
            if (s->ask->cols == 0)
                io_close(&s->fd[IN]);
            s->told_end = s->told_end || s->ask->port > 0;
            n = (ssize_t)s->input.len;
        }
        buf_drop(&s->input, (size_t)n);
        s->used += (uint32_t)n;
    }
    if (s->input.len == 0 && s->input_ends && s->ask->port > 0 && s->fd[IN] >= 0)
        (void)shutdown(s->fd[IN], SHUT_WR); /* the other direction goes on */
    if (s->input.len == 0 && s->input_ends && s->ask->cols == 0)
        io_close(&s->fd[IN]);
    else if (s->input.len == 0 && s->input_ends && !s->told_end)
        (void)!write(s->fd[IN], &end_of_file, 1);
    s->told_end = s->told_end || (s->input.len == 0 && s->input_ends);
    return tell_used(s, s->input.len == 0);
}

static bool wants_output(const struct inside *s, int which)
{
    return s->fd[which] >= 0 && s->on_way < SESSION_WINDOW && s->wire.wait.len < SESSION_WINDOW;
}

/* Carry what it has written: a piece. Returns as packets_send; *ret_more: there may be more. */
static int carry(struct inside *s, int which, bool *ret_more)
{
    char text[SESSION_PIECE];
    size_t room = SESSION_WINDOW - s->on_way;
    ssize_t n;

    if (!wants_output(s, which))
        return 0;
    n = read(s->fd[which], text, room < sizeof(text) ? room : sizeof(text));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) { /* of a terminal, EIO: nobody has it open any more */
        io_close(&s->fd[which]);
        if (n < 0 && s->ask->port > 0) { /* it was reset: neither direction goes on */
            io_close(&s->fd[IN]);
            s->told_end = true;
        }
        return s->ask->port > 0 ? packets_send(&s->wire, SESSION_END, NULL, 0) : 0;
    }
    *ret_more = true;
    s->on_way += (size_t)n;
    s->last += s->ended ? (size_t)n : 0;
    return packets_send(&s->wire, which == OUT ? SESSION_OUTPUT : SESSION_ERROR_OUTPUT, text, (size_t)n);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static int take(struct inside *s, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;

    switch (p[0]) {
    case SESSION_INPUT:
        if (s->input_ends || s->input.len + len > SESSION_WINDOW + SESSION_PIECE)
            return -EPROTO;
        return buf_add(&s->input, text + 1, len - 1);
    case SESSION_END:
        s->input_ends = true;
        break;
    case SESSION_RESIZE:
        if (len == 5)
            set_size(s, (unsigned)p[1] << 8 | p[2], (unsigned)p[3] << 8 | p[4]);
        break;
    case SESSION_SIGNAL:
        if (len == 2 && p[1] > 0 && p[1] < 32)
            send_signal(s, p[1]);
        break;
    case SESSION_USED:
        if (len == 5)
            s->on_way -= frame_number(text + 1) < s->on_way ? frame_number(text + 1) : s->on_way;
        break;
    default:
        return -EPROTO;
    }
    return 0;
}

static void leave(struct inside *s)
{
    if (s->left)
        return;
    s->left = true;
    s->kill_us = clock_mono_us() + INSIDE_GRACE_US;
    s->input_ends = true;
    buf_reset(&s->input);
    for (int i = 0; i < 3; i++) /* which a terminal's foreground hears of by SIGHUP, too */
        io_close(&s->fd[i]);
    if (s->child > 0 && !s->ended)
        (void)kill(-s->child, SIGHUP);
}

static void hear(struct inside *s)
{
    char text[1 + FRAME_MAX];
    ssize_t n = 0;
    int r = 0;

    while (!s->left && r == 0 && (n = packets_receive(&s->wire, text)) > 0)
        r = take(s, text, (size_t)n);
    if (n < 0 || r < 0)
        leave(s);
}

static int tell_exit(struct inside *s)
{
    unsigned char numbers[8];

    frame_put_number(numbers,
                     WIFSIGNALED(s->status) ? 128 + (uint32_t)WTERMSIG(s->status) : (uint32_t)WEXITSTATUS(s->status));
    frame_put_number(numbers + 4, WIFSIGNALED(s->status) ? (uint32_t)WTERMSIG(s->status) : 0);
    return packets_send(&s->wire, SESSION_EXIT, numbers, sizeof(numbers));
}

/* Whether all is done that the client waits for. more: there may be more output. */
static bool is_over(const struct inside *s, bool more)
{
    if (s->ask->port > 0)
        return s->fd[OUT] < 0 && s->told_end;
    /* What it wrote before its end is in the pipes by now; others that write there are not waited for. */
    return s->ended && (!more || s->last > LAST_MAX) && (wants_output(s, OUT) || s->fd[OUT] < 0) &&
           (wants_output(s, ERR) || s->fd[ERR] < 0);
}

/* One round. False: all is done. */
static bool work(struct inside *s, int signal_fd)
{
    struct signalfd_siginfo info;
    bool more = false;
    int r = packets_flush(&s->wire);

    if (read(signal_fd, &info, sizeof(info)) > 0 && !s->ended)
        s->ended = waitpid(s->child, &s->status, WNOHANG) == s->child;
    hear(s);
    if (!s->left && r == 0)
        r = feed(s);
    for (int i = OUT; i <= ERR && r == 0 && !s->left; i++)
        r = carry(s, i, &more);
    if (r < 0)
        leave(s);
    if (s->left) {
        if (!s->ended && clock_mono_us() >= s->kill_us)
            (void)kill(-s->child, SIGKILL);
        return !s->ended;
    }
    if (!is_over(s, more))
        return true;
    (void)tell_exit(s);
    return false;
}

static void wait_for_something(const struct inside *s, int signal_fd)
{
    struct pollfd p[5] = {{.fd = s->left ? -1 : s->wire.fd, .events = packets_events(&s->wire)},
                          {.fd = signal_fd, .events = POLLIN},
                          {.fd = s->input.len > 0 ? s->fd[IN] : -1, .events = POLLOUT},
                          {.fd = wants_output(s, OUT) ? s->fd[OUT] : -1, .events = POLLIN},
                          {.fd = wants_output(s, ERR) ? s->fd[ERR] : -1, .events = POLLIN}};

    (void)poll(p, 5, s->left ? clock_poll_ms(s->kill_us) : -1);
}

/* Before the other end can be told nothing more: all that waits. */
static void finish(struct inside *s)
{
    int64_t deadline_us = clock_mono_us() + INSIDE_GRACE_US;
    struct pollfd p = {.fd = s->wire.fd, .events = POLLOUT};

    while (!s->left && s->wire.wait.len > 0 && packets_flush(&s->wire) == 0 && clock_mono_us() < deadline_us)
        (void)poll(&p, 1, clock_poll_ms(deadline_us));
}

int inside_run(int wire, const struct inside_ask *ask)
{
    struct inside s = {.ask = ask, .fd = {-1, -1, -1}};
    struct merr err = {""};
    sigset_t set;
    int signal_fd, r;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    packets_init(&s.wire, wire);
    buf_init(&s.input, 2 * SESSION_WINDOW);
    r = signal_fd < 0 ? -errno : ask->port > 0 ? start_connection(&s, &err) : start_program(&s);
    if (r < 0) {
        const char *words = *err.text ? err.text : strerror(-r);

        (void)packets_send(&s.wire, SESSION_WORDS, words, strlen(words));
        s.status = 126 << 8;
        (void)tell_exit(&s);
    }
    while (r == 0 && work(&s, signal_fd))
        wait_for_something(&s, signal_fd);
    finish(&s);
    for (int i = 0; i < 3; i++)
        io_close(&s.fd[i]);
    packets_clear(&s.wire);
    buf_clear(&s.input);
    return r < 0;
}

int inside_main(int argc, char **argv)
{
    int wire = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 20), null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (argc < 5 || wire < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
        return 126;
    return inside_run(wire, &(struct inside_ask){.cols = (int)strtol(argv[1], NULL, 10),
                                                 .rows = (int)strtol(argv[2], NULL, 10),
                                                 .port = (int)strtol(argv[3], NULL, 10),
                                                 .image = *argv[4] == '1',
                                                 .argv = argv + 5});
}

char **inside_words(const struct inside_ask *ask, char room[4][8])
{
    char **words;
    size_t n = 0;

    while (ask->argv[n])
        n++;
    words = calloc(n + 6, sizeof(*words));
    if (!words)
        return NULL;
    (void)snprintf(room[0], 8, "%d", ask->cols);
    (void)snprintf(room[1], 8, "%d", ask->rows);
    (void)snprintf(room[2], 8, "%d", ask->port);
    (void)snprintf(room[3], 8, "%d", ask->image);
    words[0] = (char *)INSIDE_NAME;
    for (int i = 0; i < 4; i++)
        words[1 + i] = room[i];
    memcpy(words + 5, ask->argv, n * sizeof(*words));
    return words;
}
