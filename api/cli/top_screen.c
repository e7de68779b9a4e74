/* What moves in a cluster: printed once, or on a terminal again each second, where keys choose a job and act on it. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/cli/top.h"
#include "base/clock.h"
#include "base/try.h"

#define NODES_MOST 1000000
#define JOBS_MOST 200 /* looked at; as many as the terminal has room for are shown */
#define ENDED_MOST 100
#define TURN_MS 1000

/* One line: longer it would take two, and the jobs have one less. What does not fit is left out from the end. */
static void print_totals(const json_t *cluster, bool clear)
{
    static const char *const states[] = {"running",    "queued",    "starting", "rescaling",
                                         "recovering", "suspended", "failed",   "succeeded"};
    const json_t *slots = json_object_get(cluster, "slots"), *jobs = json_object_get(cluster, "jobs");
    int columns = cli_columns();
    char text[256];
    size_t len;

    len = (size_t)snprintf(text, sizeof(text), "%lld of %lld devices busy; jobs:", cli_int(slots, "busy"),
                           cli_int(slots, "total"));
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        long long n = cli_int(jobs, states[i]);
        char part[48];
        int more = snprintf(part, sizeof(part), "%s %lld %s", i ? "," : "", n, states[i]);

        if ((n > 0 || i < 2) && len + (size_t)more < sizeof(text) && (columns <= 0 || (int)len + more <= columns)) {
            memcpy(text + len, part, (size_t)more + 1);
            len += (size_t)more;
        }
    }
    (void)printf("%s%s\n%s\n", text, clear ? "\033[K" : "", clear ? "\033[K" : "");
}

/* At most that many nodes, those that are not ready before the others. New, or NULL without memory. */
static json_t *choose_nodes(const json_t *nodes, size_t most)
{
    json_t *chosen = json_array(), *node;
    size_t i;

    for (int ready = 0; ready < 2; ready++) {
        json_array_foreach (nodes, i, node) {
            if (chosen && json_array_size(chosen) < most && (strcmp(cli_str(node, "state"), "ready") == 0) == ready)
                (void)json_array_append(chosen, node);
        }
    }
    return chosen;
}

/* Those from first on that there is room for. */
static void print_jobs(const json_t *jobs, size_t first, size_t room, size_t chosen, bool clear)
{
    const struct cli_table table = {.head = {"JOB", "NAME", "STATE", "STEP", "LOSS", "TOKENS/S", "ETA", "WHY"},
                                    .n = 8,
                                    .right = 0x78,
                                    .state = 2,
                                    .clear = clear,
                                    .marked = chosen >= first && chosen < first + room ? chosen - first + 1 : 0,
                                    .spare = {5, 4, 6}};
    json_t *rows = json_array(), *job;
    size_t i;

    json_array_foreach (jobs, i, job) {
        const json_t *p = json_object_get(job, "progress");
        char step[48] = "-", loss[32] = "-", rate[32] = "-", eta[CLI_DURATION_MAX] = "-", name[24];

        if (i < first || i >= first + room)
            continue;
        if (json_is_object(p)) {
            (void)snprintf(step, sizeof(step), cli_int(p, "steps") > 0 ? "%lld/%lld" : "%lld", cli_int(p, "step"),
                           cli_int(p, "steps"));
            if (json_is_number(json_object_get(p, "loss")))
                (void)snprintf(loss, sizeof(loss), "%.4f", cli_real(p, "loss"));
            if (json_is_number(json_object_get(p, "tokens_per_s")))
                (void)snprintf(rate, sizeof(rate), "%.0f", cli_real(p, "tokens_per_s"));
            if (strcmp(cli_str(job, "state"), "running") == 0)
                cli_duration(cli_real(p, "eta_s"), eta);
        }
        (void)snprintf(name, sizeof(name), strlen(cli_str(job, "name")) > 20 ? "%.17s..." : "%s", cli_str(job, "name"));
        (void)cli_row(
            rows,
            (const char *[]){cli_str(job, "id"), name, cli_str(job, "state"), step, loss, rate, eta, cli_job_why(job)},
            8);
    }
    cli_print_table_new(&table, rows);
}

/* {"cluster", "nodes", "jobs"}: those that have not ended, then the newest that have. */
static int read_all(struct cli *c, enum top_order order, json_t **ret)
{
    json_auto_t *cluster = NULL, *nodes = NULL, *active = NULL, *ended = NULL;

    TRY(cli_call(c, "GET", "/v1/cluster", NULL, NULL, &cluster));
    TRY(cli_pages(c, "/v1/nodes", "", "nodes", NODES_MOST, &nodes));
    TRY(cli_pages(c, "/v1/jobs", "&state=active", "jobs", JOBS_MOST, &active));
    TRY(cli_pages(c, "/v1/jobs", "&state=succeeded,failed,cancelled", "jobs", ENDED_MOST, &ended));
    (void)json_array_extend(json_object_get(active, "jobs"), json_object_get(ended, "jobs"));
    *ret = json_pack("{s:O, s:O, s:o}", "cluster", cluster, "nodes", json_object_get(nodes, "nodes"), "jobs",
                     top_sort_new(json_object_get(active, "jobs"), order, clock_wall_us()));
    return *ret ? 0 : cli_fail(CLI_FAILED, "no memory");
}

/* --- on a terminal ------------------------------------------------------------------------------------- */

struct screen {
    struct cli *c;
    struct termios before;
    struct top_choice choice;
    json_t *all;
    char said[200]; /* of the last action */
};

static volatile sig_atomic_t ended_by;

static void on_signal(int sig)
{
    ended_by = sig;
}

static void read_keys(const struct screen *s)
{
    struct termios raw = s->before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

static void enter(const struct screen *s)
{
    read_keys(s);
    (void)fputs("\033[?1049h\033[?25l\033[2J", stdout);
}

static void leave(const struct screen *s)
{
    (void)fputs("\033[?25h\033[?1049l", stdout);
    (void)fflush(stdout);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
}

/* Nodes and jobs, and where keys are read the line of keys, in as many lines as the terminal has. */
static void draw(const json_t *all, const struct top_choice *choice, const char *said, bool moving)
{
    json_t *jobs = json_object_get(all, "jobs"), *all_nodes = json_object_get(all, "nodes"), *nodes;
    size_t room, used, left_out = 0, n = json_array_size(jobs), chosen = SIZE_MAX, first = 0;

    if (moving && json_array_size(all_nodes) > (size_t)cli_lines() / 3) { /* the rest is the jobs' */
        nodes = choose_nodes(all_nodes, (size_t)cli_lines() / 3);
        left_out = json_array_size(all_nodes) - json_array_size(nodes);
    } else {
        nodes = json_incref(all_nodes);
    }
    used =
        json_array_size(nodes) + 6 + (left_out > 0) + (choice ? 2 : 0); /* totals, heads, blank lines, the cursor's */
    room = !moving ? n : (size_t)cli_lines() > used ? (size_t)cli_lines() - used : 1;
    if (choice) {
        chosen = top_find(jobs, choice->id);
        first = chosen != SIZE_MAX && chosen >= room ? chosen - room + 1 : 0;
    }
    if (moving)
        (void)printf("\033[H");
    print_totals(json_object_get(all, "cluster"), moving);
    nodes_print(nodes, moving);
    if (left_out)
        (void)printf("and %zu more: `muster nodes`\033[K\n", left_out);
    (void)printf("%s\n", moving ? "\033[K" : "");
    if (n > 0)
        print_jobs(jobs, first, room, chosen, moving);
    if (moving)
        (void)printf("\033[J");
    if (choice) {
        char keys[160];

        (void)snprintf(keys, sizeof(keys),
                       "q quit  up/down choose  Enter show  l logs  e explain  c cancel  s sort: %s",
                       top_order_name(choice->order));
        (void)printf("\033[K\n%.*s\033[K", cli_columns() - 1, choice->asks ? choice->question : *said ? said : keys);
    }
    (void)fflush(stdout);
    json_decref(nodes);
}

/* Another command of this program with the screen to itself, then a key. */
static void run_command(struct screen *s, const char *command, const char *id)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    const char *argv[] = {"muster", command, id, NULL, NULL, NULL};
    int status = 0;
    pid_t pid;

    if (strcmp(command, "logs") == 0) {
        argv[3] = "--follow";
        argv[4] = "--tail=200";
    }
    leave(s);
    (void)printf("\033[2J\033[H");
    (void)fflush(stdout);
    (void)sigaction(SIGINT, &ignore, &before); /* it is the command's */
    pid = fork();
    if (pid == 0) {
        (void)sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        if ((s->c->server && setenv("MUSTER_SERVER", s->c->server, 1) < 0) ||
            (s->c->token && setenv("MUSTER_TOKEN", s->c->token, 1) < 0) ||
            (s->c->state && setenv("MUSTER_STATE", s->c->state, 1) < 0))
            _exit(CLI_FAILED);
        (void)execv("/proc/self/exe", (char *const *)argv);
        _exit(CLI_FAILED);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && ended_by == 0)
        ;
    (void)sigaction(SIGINT, &before, NULL);
    read_keys(s);
    (void)fputs("\n(any key: back)", stdout);
    (void)fflush(stdout);
    (void)poll(&(struct pollfd){.fd = STDIN_FILENO, .events = POLLIN}, 1, -1);
    (void)tcflush(STDIN_FILENO, TCIFLUSH);
    enter(s);
}

static void cancel(struct screen *s, const char *id)
{
    json_auto_t *job = NULL;
    struct merr err = {""};
    char path[256];

    (void)snprintf(path, sizeof(path), "/v1/jobs/%.64s/cancel", id);
    if (client_call(s->c->client, "POST", path, NULL, NULL, &job, &err) < 0)
        (void)snprintf(s->said, sizeof(s->said), "%s was not cancelled: %.150s", id, err.text);
    else
        (void)snprintf(s->said, sizeof(s->said), "%s is being cancelled", id);
}

/* All keys that wait. Returns 1 to end. */
static int take_keys(struct screen *s)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

    for (ssize_t at = 0; at < n;) {
        size_t used;
        enum top_key key = top_key(keys + at, (size_t)(n - at), &used);

        at += (ssize_t)used;
        s->said[0] = '\0';
        switch (top_press(&s->choice, json_object_get(s->all, "jobs"), key)) {
        case TOP_QUIT:
            return 1;
        case TOP_SHOW:
            run_command(s, "show", s->choice.id);
            return 0;
        case TOP_LOGS:
            run_command(s, "logs", s->choice.id);
            return 0;
        case TOP_EXPLAIN:
            run_command(s, "explain", s->choice.id);
            return 0;
        case TOP_CANCEL:
            cancel(s, s->choice.id);
            return 0;
        case TOP_STAY:
            break;
        }
    }
    return n < 0 || (n == 0 && ended_by != 0);
}

/* One turn: read, draw, wait for a key. Returns 1 to end, or an exit status. */
static int turn(struct screen *s, int *ret_status)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    int64_t next_us = clock_mono_us() + TURN_MS * INT64_C(1000), left_us;

    json_decref(s->all);
    s->all = NULL;
    *ret_status = read_all(s->c, s->choice.order, &s->all);
    if (*ret_status != 0) { /* once more, where what went wrong stays to be read */
        leave(s);
        *ret_status = read_all(s->c, s->choice.order, &s->all);
        if (*ret_status != 0)
            return 1;
        enter(s);
    }
    do {
        top_keep(&s->choice, json_object_get(s->all, "jobs"));
        draw(s->all, &s->choice, s->said, true);
        left_us = next_us - clock_mono_us();
        if (poll(&keys, 1, left_us > 0 ? (int)(left_us / 1000) : 0) > 0 && take_keys(s))
            return 1;
    } while (ended_by == 0 && clock_mono_us() < next_us);
    return ended_by != 0;
}

static int run_screen(struct cli *c)
{
    struct sigaction act = {.sa_handler = on_signal};
    struct screen s = {.c = c};
    int status = 0;

    if (tcgetattr(STDIN_FILENO, &s.before) < 0)
        return cli_fail(CLI_FAILED, "cannot read keys from this terminal; see `muster top --once`");
    TRY(cli_connect(c));
    (void)sigaction(SIGTERM, &act, NULL);
    (void)sigaction(SIGHUP, &act, NULL);
    (void)sigaction(SIGINT, &act, NULL);
    enter(&s);
    while (turn(&s, &status) == 0)
        ;
    if (status == 0)
        leave(&s);
    json_decref(s.all);
    return status;
}

int top_run(struct cli *c)
{
    json_auto_t *all = NULL;

    if (!c->json && !cli_option(c, "once") && cli_is_terminal() && isatty(STDIN_FILENO))
        return run_screen(c);
    TRY(read_all(c, TOP_BY_STATE, &all));
    if (c->json)
        return cli_print_json(all);
    draw(all, NULL, "", false);
    return 0;
}
