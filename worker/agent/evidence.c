#include "worker/agent/evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/klog.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/protocol/evidence.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/utf8.h"
#include "worker/agent/machine_evidence.h"
#include "worker/agent/shim.h"
#include "worker/flight/flight_read.h"

#define STACK_BYTES 2048
#define PYTHON_BYTES (16 << 10)
#define OPS 64 /* newest operations: those of the last two steps of most runs */
#define KERNEL_READ_ALL 3

/* --- the flight page --------------------------------------------------------------------------------- */

static json_t *op_json(const struct flight_op *op, const struct flight_group *g, int n, int64_t now_us)
{
    const char *group = "";

    for (int i = 0; i < n; i++)
        if (g[i].key == op->key)
            group = g[i].name;
    return json_pack("{s:s, s:s, s:I, s:i, s:I, s:I, s:I, s:I}", "op", flight_read_op_name(op->op), "group", group,
                     "call", (json_int_t)(op->seq & INT64_MAX), "peer", (int)op->peer, "bytes",
                     (json_int_t)(op->bytes & INT64_MAX), "step", (json_int_t)op->step, "entered_us_ago",
                     (json_int_t)(now_us - op->enter_us), "took_us",
                     op->leave_us ? (json_int_t)(op->leave_us - op->enter_us) : (json_int_t)-1);
}

static json_t *flight_json(const struct evidence_of *of)
{
    struct flight_group groups[FLIGHT_GROUPS];
    struct flight_op ops[OPS];
    char path[PATH_MAX + 32];
    struct flight *f = NULL;
    json_t *list = json_array(), *doc;
    int64_t now_us = clock_mono_us(), since;
    enum flight_phase phase;
    int n, got;

    if (flight_watch(shim_path(path, sizeof(path), of->folder, of->rank, "flight"), &f, NULL) < 0) {
        json_decref(list);
        return NULL;
    }
    phase = flight_read_phase(f, &since);
    n = flight_read_groups(f, groups, FLIGHT_GROUPS);
    got = flight_read_ops(f, ops, OPS);
    for (int i = 0; i < n; i++) { /* names are bytes that the rank wrote */
        size_t len = strnlen(groups[i].name, sizeof(groups[i].name) - 1);

        groups[i].name[len] = '\0';
        utf8_patch(groups[i].name, len);
    }
    for (int i = 0; i < got; i++)
        (void)json_array_append_new(list, op_json(&ops[i], groups, n, now_us));
    doc = json_pack("{s:I, s:s, s:I, s:I, s:I, s:o}", "step", (json_int_t)(flight_read_step(f) & INT64_MAX), "phase",
                    flight_read_phase_name(phase), "phase_us", (json_int_t)(now_us - since), "sign_us",
                    (json_int_t)(now_us - flight_read_sign(f)), "gap_us", (json_int_t)flight_read_gap(f), "ops", list);
    flight_close(f);
    return doc;
}

/* --- processes --------------------------------------------------------------------------------------- */

/* A file of /proc as text, at most size - 1 bytes without its last line end; "": it cannot be read. */
static const char *read_text(pid_t pid, pid_t thread, const char *name, char *to, size_t size)
{
    IO_CLOSE_AUTO int fd = -1;
    char path[96];
    ssize_t n;

    if (thread > 0)
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)thread, name);
    else
        (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : io_read_full(fd, to, size - 1);
    n = n < 0 ? 0 : n;
    utf8_patch(to, (size_t)n);
    to[n] = '\0';
    if (n > 0 && to[n - 1] == '\n')
        to[n - 1] = '\0';
    return to;
}

/* "T (stopped)" */
static void read_state(pid_t pid, pid_t thread, char ret[32])
{
    char text[4096];
    const char *p = strstr(read_text(pid, thread, "status", text, sizeof(text)), "\nState:");

    p = p ? p + strlen("\nState:") : "";
    while (*p == ' ' || *p == '\t')
        p++;
    (void)snprintf(ret, 32, "%.*s", (int)(strcspn(p, "\n") < 31 ? strcspn(p, "\n") : 31), p);
}

/* A process, or a thread of it; without the addresses of a kernel's stack. */
static json_t *task_json(pid_t pid, pid_t thread, bool with_stack)
{
    char name[32], state[32], wait[64], stack[STACK_BYTES], *to = stack;

    read_state(pid, thread, state);
    if (!*state)
        return NULL;
    (void)read_text(pid, thread, "comm", name, sizeof(name));
    (void)read_text(pid, thread, "wchan", wait, sizeof(wait));
    (void)read_text(pid, thread, "stack", stack, with_stack ? sizeof(stack) : 1);
    for (const char *p = stack; *p;) { /* "[<0>] futex_wait+0x60/0x90" */
        const char *end = p + strcspn(p, "\n"), *word = memchr(p, ' ', (size_t)(end - p));

        p = word ? word + 1 : p;
        memmove(to, p, (size_t)(end - p));
        to += end - p;
        p = *end ? end + 1 : end;
        if (*p)
            *to++ = '\n';
    }
    *to = '\0';
    return json_pack("{s:i, s:s, s:s, s:s*, s:s*}", thread ? "tid" : "pid", thread ? (int)thread : (int)pid, "name",
                     name, "state", state, "wait", *wait && strcmp(wait, "0") != 0 ? wait : NULL, "stack",
                     *stack ? stack : NULL);
}

static json_t *threads_json(pid_t pid)
{
    json_t *list = json_array();
    char path[64];
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e && json_array_size(list) < EVIDENCE_THREADS;
         e = readdir(dir)) {
        pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

        if (tid > 0 && tid != pid)
            (void)json_array_append_new(list, task_json(pid, tid, false));
    }
    if (dir)
        (void)closedir(dir);
    return list;
}

/* What a program says until it ends or the deadline comes, in which case it is killed. NULL: it does not start. */
static char *run_for(const char *const *argv, size_t most, int64_t deadline_us)
{
    posix_spawn_file_actions_t actions;
    char *text = malloc(most + 1);
    int out[2] = {-1, -1}, r;
    size_t len = 0;
    pid_t pid;

    if (!text || pipe2(out, O_CLOEXEC) < 0) {
        free(text);
        return NULL;
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], STDERR_FILENO);
    r = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    io_close(&out[1]);
    while (r == 0 && len < most) {
        int64_t left_us = deadline_us - clock_mono_us();
        struct pollfd p = {.fd = out[0], .events = POLLIN};
        ssize_t n;

        if (left_us <= 0 || poll(&p, 1, (int)(left_us / 1000) + 1) <= 0)
            break;
        n = read(out[0], text + len, most - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    io_close(&out[0]);
    if (r == 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    if (r != 0) {
        free(text);
        return NULL;
    }
    utf8_patch(text, len);
    text[len] = '\0';
    return text;
}

/* What py-spy says of a Python program, which goes on meanwhile. */
static void add_python(pid_t pid, json_t *process, int64_t deadline_us)
{
    const char *name = json_string_value(json_object_get(process, "name"));
    char number[16], *text;

    if (!name || strncmp(name, "python", 6) != 0)
        return;
    (void)snprintf(number, sizeof(number), "%d", (int)pid);
    text = run_for((const char *const[]){"py-spy", "dump", "--nonblocking", "--pid", number, NULL}, PYTHON_BYTES,
                   deadline_us);
    if (text)
        (void)json_object_set_new(process, "python", json_string(text));
    free(text);
}

/* The children of a process go behind it in the list. */
static size_t add_children(pid_t pid, pid_t *list, size_t n)
{
    char path[64];
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char text[512], *p = text, *end;
        pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

        if (tid <= 0)
            continue;
        (void)read_text(pid, tid, "children", text, sizeof(text));
        for (; n < EVIDENCE_PROCESSES; p = end) {
            long child = strtol(p, &end, 10);

            if (end == p || child <= 0)
                break;
            list[n++] = (pid_t)child;
        }
    }
    if (dir)
        (void)closedir(dir);
    return n;
}

static json_t *processes_json(const struct evidence_of *of, int64_t deadline_us)
{
    pid_t pids[EVIDENCE_PROCESSES] = {of->child.pid};
    json_t *list = json_array();
    size_t n = 1;

    if (!proc_alive(of->child)) {
        json_decref(list);
        return NULL;
    }
    for (size_t i = 0; i < n && clock_mono_us() < deadline_us; i++) {
        json_t *one = task_json(pids[i], 0, true);

        if (!one)
            continue;
        (void)json_object_set_new(one, "threads", threads_json(pids[i]));
        if (of->python)
            add_python(pids[i], one, deadline_us);
        (void)json_array_append_new(list, one);
        n = add_children(pids[i], pids, n);
    }
    return list;
}

/* --- all of a rank ----------------------------------------------------------------------------------- */

static json_t *log_json(const struct evidence_of *of)
{
    char path[PATH_MAX + 32], text[EVIDENCE_LOG_BYTES];
    IO_CLOSE_AUTO int fd = io_open_plain(shim_path(path, sizeof(path), of->folder, of->rank, "log"), O_RDONLY);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n =
        fd < 0 ? -1 : pread(fd, text, sizeof(text), size > (off_t)sizeof(text) ? size - (off_t)sizeof(text) : 0);

    if (n <= 0)
        return NULL;
    utf8_patch(text, (size_t)n);
    return json_stringn(text, (size_t)n);
}

json_t *evidence_gather(const struct evidence_of *of, int64_t deadline_us)
{
    return json_pack("{s:o*, s:o*, s:o*}", "flight", flight_json(of), "log", log_json(of), "processes",
                     processes_json(of, deadline_us));
}

char *evidence_kernel(void)
{
    char may[8] = "", *text;
    IO_CLOSE_AUTO int fd = open("/proc/sys/kernel/dmesg_restrict", O_RDONLY | O_CLOEXEC);
    int n;

    /* An agent may be root: what its kernel keeps from users is kept from those of jobs, too. */
    if (fd < 0 || io_read_full(fd, may, sizeof(may) - 1) <= 0 || may[0] != '0')
        return NULL;
    text = malloc(EVIDENCE_KERNEL_BYTES + 1);
    n = text ? klogctl(KERNEL_READ_ALL, text, EVIDENCE_KERNEL_BYTES) : -1;
    if (n < 0) {
        free(text);
        return NULL;
    }
    utf8_patch(text, (size_t)n);
    text[n] = '\0';
    return text;
}

/* --- on a thread of its own -------------------------------------------------------------------------- */

struct machine_evidence {
    struct evidence_of *of; /* n of them, owned */
    size_t n;
    int64_t deadline_us;
    int event_fd; /* readable once it is over */
    pthread_t thread;
    _Atomic bool over;
    json_t *seen; /* these are the thread's until it is over */
    char *kernel;
};

static void *gather(void *arg)
{
    struct machine_evidence *e = arg;
    uint64_t one = 1;

    for (size_t i = 0; i < e->n && (i == 0 || clock_mono_us() < e->deadline_us); i++)
        (void)json_array_append_new(e->seen, evidence_gather(&e->of[i], e->deadline_us));
    e->kernel = evidence_kernel();
    atomic_store(&e->over, true);
    (void)io_write_all(e->event_fd, &one, sizeof(one));
    return NULL;
}

struct machine_evidence *evidence_begin_take(struct evidence_of *of, size_t n, int64_t budget_us, int epoll_fd)
{
    struct machine_evidence *e = calloc(1, sizeof(*e));
    struct epoll_event event = {.events = EPOLLIN};

    if (e && of)
        *e = (struct machine_evidence){.of = of,
                                       .n = n,
                                       .deadline_us = clock_mono_us() + budget_us,
                                       .event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                       .seen = json_array()};
    if (!e || !of || !e->seen || e->event_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, e->event_fd, &event) < 0 ||
        pthread_create(&e->thread, NULL, gather, e) != 0) {
        if (e && of) {
            io_close(&e->event_fd);
            json_decref(e->seen);
        }
        free(e);
        free(of);
        return NULL;
    }
    return e;
}

bool machine_evidence_ready(const struct machine_evidence *e)
{
    return !e || atomic_load(&e->over);
}

json_t *machine_evidence_end(struct machine_evidence *e, char **ret_kernel)
{
    json_t *seen;

    if (!e)
        return NULL;
    (void)pthread_join(e->thread, NULL);
    io_close(&e->event_fd);
    seen = e->seen;
    if (ret_kernel)
        *ret_kernel = e->kernel;
    else
        free(e->kernel);
    free(e->of);
    free(e);
    return seen;
}
