/* bench swarm - thousands of agents in one process, without ranks: tests/bench/scale.py has it play a cluster's nodes
 *
 *     swarm PORT TOKEN-FILE NODES SLOTS RUN-MS KEY-BYTES
 *
 * Each agent is two connections to a musterd on the loopback: one that waits for orders, one that reports once a
 * second, and at once what has begun or ended. A rank that was ordered runs RUN-MS and ends with 0; 0: it runs until it
 * is told to end. KEY-BYTES not 0: each rank of a run of several leaves a key of that size at the rendezvous, over a
 * third connection that then waits until it has those of all ranks.
 *
 * A line of JSON for each thing that all agents have done together, with `at`, seconds of the monotonic clock: all
 * registered (again); all nodes of a run were told of it ("told"), have all of its keys ("met"). And once a second
 * "count": starts and ends of ranks, reports, and bytes that came, since the beginning. What an agent does not
 * understand ends the program with words.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

#define ANSWER_MAX ((size_t)512 << 20)
#define KEEP_BYTES (64 << 10) /* of a connection's buffer between two answers */
#define READ_BYTES 16384
#define EVERY_US 1000000
#define COME_US 200     /* from one agent that begins to the next: a kernel queues only so many connections */
#define LOOK_US 2000    /* between two looks at what is due */
#define AGAIN_US 200000 /* after a connection that failed */
#define REGISTER "POST /v1/agents/register "
#define RUNS_MAX (1 << 16) /* of several ranks, that are followed; a power of two */
#define HELD 64            /* runs of an agent at a time: those that have ended are kept until they may be forgotten */

enum line { POLL, REPORT, KEYS, LINES }; /* connections of an agent */

struct agent;

struct connection {
    struct agent *agent;
    enum line line;
    int fd;         /* -1: none */
    bool busy;      /* a request is on its way */
    int64_t due_us; /* when the next one is, unless it is busy; INT64_MAX: none */
    struct buf out, in;
    size_t sent;
};

struct part { /* of a run, on one node */
    uint64_t job;
    unsigned generation;
    int world, n_ranks;
    int rank[64], slot[64];
    char proof[96];
    int64_t ends_us; /* INT64_MAX: when it is told to */
    bool ended, stop;
    int keys_put;       /* of n_ranks */
    uint64_t keys_next; /* to ask from */
    int keys_seen;      /* of world */
};

struct agent {
    char name[16];
    bool registered, news; /* that a rank has begun is to be reported */
    unsigned long long version;
    uint64_t seq;
    struct part *part[HELD];
    struct connection line[LINES];
};

struct run { /* over all agents */
    uint64_t job;
    unsigned generation;
    int told, met; /* ranks on nodes that were told, that have all keys */
};

static struct swarm {
    int epoll, port, n, slots, run_ms;
    char token[256], incarnation[32], *key_value;
    struct agent *agents;
    struct run *runs;
    int registered;
    unsigned long long starts, ends, reports, bytes;
} s;

static void die(const char *who, const char *why) __attribute__((noreturn));
static void die(const char *who, const char *why)
{
    (void)fprintf(stderr, "swarm: %s: %.2000s\n", who, why);
    exit(1);
}

static void say(const char *what, uint64_t job, long count)
{
    (void)printf("{\"what\": \"%s\", \"at\": %.6f, \"job\": \"j%llu\", \"n\": %ld}\n", what,
                 (double)clock_mono_us() / 1e6, (unsigned long long)job, count);
    (void)fflush(stdout);
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static void hang_up(struct connection *c, int64_t due_us)
{
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
    c->busy = false;
    c->due_us = due_us;
    c->sent = 0;
    buf_clear(&c->in);
    buf_clear(&c->out);
}

static void lose(struct connection *c)
{
    hang_up(c, clock_mono_us() + AGAIN_US);
}

static int dial(struct connection *c)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)s.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("a socket", strerror(errno));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(c->fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
        return -errno;
    return epoll_ctl(s.epoll, EPOLL_CTL_ADD, c->fd, &ev) < 0 ? -errno : 0;
}

/* Send as much as goes. */
static void push(struct connection *c)
{
    while (c->fd >= 0 && c->sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN))
            return;
        if (n < 0) {
            lose(c);
            return;
        }
        c->sent += (size_t)n;
    }
}

static void request(struct connection *c, const char *method, const char *path, const char *body)
{
    if (c->fd < 0 && dial(c) < 0) {
        lose(c);
        return;
    }
    c->busy = true;
    c->due_us = INT64_MAX;
    c->sent = 0;
    buf_reset(&c->out);
    (void)buf_printf(&c->out, "%s /v1/agents%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n", method,
                     path, s.token);
    if (body)
        (void)buf_printf(&c->out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    (void)buf_printf(&c->out, "\r\n%s", body ? body : "");
    if (buf_failed(&c->out))
        die("a request", strerror(ENOMEM));
    push(c);
}

static void register_agent(struct agent *a)
{
    BUF_CLEAR_AUTO struct buf b;
    const char *comma = "";

    buf_init(&b, 1 << 20);
    (void)buf_printf(&b,
                     "{\"node\":\"%s\",\"address\":\"127.0.0.1\",\"version\":\"0.1.0\",\"boot_id\":\"b\","
                     "\"incarnation\":\"%s\",\"slots\":[",
                     a->name, s.incarnation);
    for (int i = 0; i < s.slots; i++)
        (void)buf_printf(&b, "%s{\"slot\":%d,\"kind\":\"cpu\",\"class\":\"cpu\",\"threads\":1,\"memory_mib\":4096}",
                         i ? "," : "", i);
    (void)buf_addstr(&b, "],\"runs\":[");
    for (int i = 0; i < HELD; i++) {
        const struct part *p = a->part[i];

        if (!p || p->ended)
            continue;
        (void)buf_printf(&b, "%s{\"job\":\"j%llu\",\"generation\":%u,\"proof\":\"%s\",\"ranks\":[", comma,
                         (unsigned long long)p->job, p->generation, p->proof);
        for (int k = 0; k < p->n_ranks; k++)
            (void)buf_printf(&b, "%s{\"rank\":%d,\"slot\":%d,\"state\":\"running\",\"pid\":1}", k ? "," : "",
                             p->rank[k], p->slot[k]);
        (void)buf_addstr(&b, "]}");
        comma = ",";
    }
    (void)buf_addstr(&b, "]}");
    request(&a->line[REPORT], "POST", "/register", buf_text(&b));
}

static void ask_orders(struct agent *a)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "/%s/assignments?version=%llu&wait=30&incarnation=%s", a->name, a->version,
                   s.incarnation);
    request(&a->line[POLL], "GET", path, NULL);
}

static void send_report(struct agent *a)
{
    BUF_CLEAR_AUTO struct buf b;
    char path[64];
    const char *comma = "";
    int64_t now = clock_mono_us();

    buf_init(&b, 1 << 20);
    (void)buf_printf(&b, "{\"incarnation\":\"%s\",\"seq\":%llu,\"runs\":[", s.incarnation,
                     (unsigned long long)++a->seq);
    for (int i = 0; i < HELD; i++) {
        struct part *p = a->part[i];

        if (!p)
            continue;
        if (!p->ended && (p->stop || p->ends_us <= now)) {
            p->ended = true;
            s.ends += (unsigned long long)p->n_ranks;
        }
        (void)buf_printf(&b, "%s{\"job\":\"j%llu\",\"generation\":%u,\"proof\":\"%s\",\"ranks\":[", comma,
                         (unsigned long long)p->job, p->generation, p->proof);
        for (int k = 0; k < p->n_ranks; k++)
            (void)buf_printf(&b, "%s{\"rank\":%d,\"slot\":%d,\"state\":\"%s\",\"pid\":1,\"exit_code\":0,\"signal\":0}",
                             k ? "," : "", p->rank[k], p->slot[k], p->ended ? "exited" : "running");
        (void)buf_addstr(&b, "]}");
        comma = ",";
    }
    (void)buf_addstr(&b, "]}");
    s.reports++;
    a->news = false;
    (void)snprintf(path, sizeof(path), "/%s/report", a->name);
    request(&a->line[REPORT], "POST", path, buf_text(&b));
}

/* The next key of the agent's ranks, or a question for those of all. */
static void exchange_keys(struct agent *a)
{
    struct part *p = NULL;
    char path[192];

    for (int i = 0; i < HELD && !p; i++)
        if (a->part[i] && !a->part[i]->ended && a->part[i]->world > 1 && a->part[i]->keys_seen < a->part[i]->world)
            p = a->part[i];
    if (!p) {
        a->line[KEYS].due_us = INT64_MAX;
        return;
    }
    if (p->keys_put < p->n_ranks) {
        (void)snprintf(path, sizeof(path), "/%s/rendezvous/j%llu/%u/ucx-%d?incarnation=%s", a->name,
                       (unsigned long long)p->job, p->generation, p->rank[p->keys_put], s.incarnation);
        request(&a->line[KEYS], "PUT", path, s.key_value);
        return;
    }
    (void)snprintf(path, sizeof(path), "/%s/rendezvous/j%llu/%u?since=%llu&wait=30&incarnation=%s", a->name,
                   (unsigned long long)p->job, p->generation, (unsigned long long)p->keys_next, s.incarnation);
    request(&a->line[KEYS], "GET", path, NULL);
}

static void soon(struct agent *a, enum line line)
{
    if (!a->line[line].busy)
        a->line[line].due_us = 0;
}

/* --- what agents are told --------------------------------------------------------------------------------------- */

static struct run *run_of(const struct part *p)
{
    size_t at = p->job * 31 + p->generation;

    for (;; at++) {
        struct run *r = &s.runs[at & (RUNS_MAX - 1)];

        if (r->job == 0)
            *r = (struct run){.job = p->job, .generation = p->generation};
        if (r->job == p->job && r->generation == p->generation)
            return r;
    }
}

static const char *find(const char *from, const char *end, const char *what)
{
    return memmem(from, (size_t)(end - from), what, strlen(what));
}

static long long number_after(const char *from, const char *end, const char *what, long long fallback)
{
    const char *at = find(from, end, what);

    return at ? strtoll(at + strlen(what), NULL, 10) : fallback;
}

static struct part *part_of(struct agent *a, uint64_t job, unsigned generation)
{
    for (int i = 0; i < HELD; i++)
        if (a->part[i] && a->part[i]->job == job && a->part[i]->generation == generation)
            return a->part[i];
    return NULL;
}

/* The ranks of this node among those of an assignment, as text. */
static void take_ranks(const struct agent *a, struct part *p, const char *from, const char *end)
{
    char mine[32];

    (void)snprintf(mine, sizeof(mine), "\"node\":\"%s\"", a->name);
    for (const char *at = find(from, end, mine); at; at = find(at + 1, end, mine)) {
        const char *open = at, *close = memchr(at, '}', (size_t)(end - at));

        while (open > from && *open != '{')
            open--;
        if (!close || p->n_ranks == (int)(sizeof(p->rank) / sizeof(p->rank[0])))
            die(a->name, "an assignment that is not understood");
        p->rank[p->n_ranks] = (int)number_after(open, close, "\"rank\":", -1);
        p->slot[p->n_ranks++] = (int)number_after(open, close, "\"slot\":", -1);
    }
}

static void begin(struct agent *a, struct part *p)
{
    int at = 0;
    struct run *r;

    while (at < HELD && a->part[at])
        at++;
    if (at == HELD)
        die(a->name, "more runs than it has room for");
    a->part[at] = p;
    p->ends_us = s.run_ms ? clock_mono_us() + s.run_ms * INT64_C(1000) : INT64_MAX;
    s.starts += (unsigned long long)p->n_ranks;
    a->news = true;
    soon(a, REPORT);
    if (p->world == 1)
        return;
    r = run_of(p);
    r->told += p->n_ranks;
    if (r->told == p->world)
        say("told", p->job, r->told);
    if (s.key_value)
        soon(a, KEYS);
}

/* One assignment, from its brace to the one that closes it. */
static void take_assignment(struct agent *a, const char *from, const char *end)
{
    const char *job = find(from, end, "\"job\":\"j"), *proof = find(from, end, "\"proof\":\"");
    uint64_t id = job ? strtoull(job + 8, NULL, 10) : 0;
    unsigned generation = (unsigned)number_after(from, end, "\"generation\":", 0);
    bool runs = find(from, end, "\"order\":\"run\"") || find(from, end, "\"order\":\"save\"");
    struct part *p = part_of(a, id, generation);

    if (id == 0 || !proof)
        die(a->name, "an assignment without a job or a proof");
    if (!p && runs) {
        p = calloc(1, sizeof(*p));
        if (!p)
            die(a->name, strerror(ENOMEM));
        p->job = id;
        p->generation = generation;
        p->world = (int)number_after(from, end, "\"world\":", 0);
        (void)snprintf(p->proof, sizeof(p->proof), "%.*s", (int)strcspn(proof + 9, "\""), proof + 9);
        take_ranks(a, p, from, end);
        begin(a, p);
    } else if (p && !runs && !p->stop) {
        p->stop = true;
        soon(a, REPORT);
    }
}

static void take_orders(struct agent *a, const char *text, size_t len)
{
    const char *end = text + len, *at = find(text, end, "\"assignments\":["), *open = NULL;
    int depth = 0;
    bool quoted = false;

    a->version = (unsigned long long)number_after(text, end, "\"version\":", 0);
    for (at = at ? at + 15 : end; at < end && (depth > 0 || *at != ']'); at++) {
        if (*at == '"')
            quoted = !quoted;
        else if (quoted && *at == '\\')
            at++;
        else if (!quoted && *at == '{' && depth++ == 0)
            open = at;
        else if (!quoted && *at == '}' && --depth == 0)
            take_assignment(a, open, at + 1);
    }
}

/* Runs that are stale or to be forgotten are done with. */
static void take_report(struct agent *a, const char *text, size_t len)
{
    const char *end = text + len, *stale = find(text, end, "\"stale\":["), *forget = find(text, end, "\"forget\":[");

    for (int i = 0; i < HELD; i++) {
        struct part *p = a->part[i];
        char job[40];

        if (!p)
            continue;
        (void)snprintf(job, sizeof(job), "\"job\":\"j%llu\"", (unsigned long long)p->job);
        if ((forget && find(forget, end, job)) || (stale && find(stale, end, job) && !p->ended)) {
            free(p);
            a->part[i] = NULL;
        }
    }
}

static void take_keys(struct agent *a, const char *path, const char *text, size_t len)
{
    const char *end = text + len, *in = strstr(path, "/rendezvous/j");
    const char *generation = in ? strchr(in + 13, '/') : NULL;
    struct part *p =
        generation ? part_of(a, strtoull(in + 13, NULL, 10), (unsigned)strtoul(generation + 1, NULL, 10)) : NULL;
    struct run *r;

    if (!p)
        return;
    if (strncmp(path, "PUT", 3) == 0) {
        p->keys_put++;
        return;
    }
    p->keys_next = (uint64_t)number_after(text, end, "\"next\":", 0);
    for (const char *at = find(text, end, "\"key\":"); at; at = find(at + 1, end, "\"key\":"))
        p->keys_seen++;
    if (p->keys_seen < p->world)
        return;
    r = run_of(p);
    r->met += p->n_ranks;
    if (r->met == p->world)
        say("met", p->job, r->met);
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

static void forget_all(struct agent *a)
{
    if (a->registered)
        s.registered--;
    a->registered = false;
    a->line[POLL].due_us = a->line[KEYS].due_us = INT64_MAX;
    soon(a, REPORT);
}

static void take_registration(struct agent *a, int status, const char *body)
{
    if (status == 503 || status == 504) { /* the server has not read its store, or has too much to do */
        a->line[REPORT].due_us = clock_mono_us() + AGAIN_US;
        return;
    }
    if (status != 200)
        die(a->name, body);
    a->registered = true;
    a->version = 0;
    a->line[REPORT].due_us = clock_mono_us() + rand() % EVERY_US;
    soon(a, POLL);
    if (++s.registered == s.n)
        say("registered", 0, s.n);
}

static void take_answer(struct connection *c, int status, const char *body, size_t len)
{
    struct agent *a = c->agent;
    int64_t now = clock_mono_us();
    char path[128];

    s.bytes += len;
    (void)snprintf(path, sizeof(path), "%.*s", (int)(sizeof(path) - 1), buf_text(&c->out));
    c->busy = false;
    if (strncmp(path, REGISTER, strlen(REGISTER)) == 0) {
        take_registration(a, status, body);
    } else if (!a->registered || (status == 404 && c->line != KEYS)) {
        c->due_us = INT64_MAX;
        forget_all(a);
    } else if (c->line == POLL) {
        if (status == 200)
            take_orders(a, body, len);
        c->due_us = status == 200 ? 0 : now + AGAIN_US;
    } else if (c->line == REPORT) {
        c->due_us = a->news ? 0 : now + EVERY_US;
        if (status == 200)
            take_report(a, body, len);
        for (int i = 0; i < HELD; i++) /* the next that ends, or that was ordered to since */
            if (a->part[i] && !a->part[i]->ended && (a->part[i]->stop || a->part[i]->ends_us < c->due_us))
                c->due_us = a->part[i]->stop ? 0 : a->part[i]->ends_us;
    } else {
        if (status == 200)
            take_keys(a, path, body, len);
        c->due_us = status == 200 ? 0 : status == 409 || status == 404 ? INT64_MAX : now + AGAIN_US;
    }
}

/* Take what lies whole in the buffer. */
static void read_answer(struct connection *c)
{
    char *end = c->in.len > 3 ? memmem(c->in.data, c->in.len, "\r\n\r\n", 4) : NULL, *length;
    size_t head = end ? (size_t)(end - c->in.data) + 4 : 0, body;
    int status;
    bool closes;
    struct buf in;

    if (!end)
        return;
    *end = '\0';
    length = strcasestr(c->in.data, "content-length:");
    body = length ? strtoull(length + 15, NULL, 10) : 0;
    closes = strcasestr(c->in.data, "connection: close");
    *end = '\r';
    if (c->in.len < head + body)
        return;
    if (buf_add(&c->in, "", 1) < 0)
        die(c->agent->name, strerror(ENOMEM));
    status = (int)strtol(c->in.data + 9, NULL, 10);
    in = c->in;
    buf_init(&c->in, ANSWER_MAX);
    take_answer(c, status, in.data + head, body);
    if (in.cap <= KEEP_BYTES && !c->in.data) {
        buf_reset(&in);
        c->in = in;
    } else {
        buf_clear(&in);
    }
    if (closes)
        hang_up(c, c->due_us);
}

static void pull(struct connection *c)
{
    for (;;) {
        char *room = buf_reserve(&c->in, READ_BYTES);
        ssize_t n = room ? recv(c->fd, room, READ_BYTES, 0) : -1;

        if (!room)
            die(c->agent->name, "an answer that is too large");
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            if (c->busy)
                lose(c);
            else
                hang_up(c, c->due_us);
            return;
        }
        buf_commit(&c->in, (size_t)n);
    }
    if (c->busy && c->in.len > 0)
        read_answer(c);
}

/* --- all of them ------------------------------------------------------------------------------------------------- */

static void act(struct connection *c)
{
    struct agent *a = c->agent;

    if (c->line == REPORT && !a->registered)
        register_agent(a);
    else if (c->line == REPORT)
        send_report(a);
    else if (c->line == POLL)
        ask_orders(a);
    else
        exchange_keys(a);
}

static void loop(void)
{
    struct epoll_event events[512];
    int64_t counted = 0, looked = 0;

    for (;;) {
        int n = epoll_wait(s.epoll, events, 512, LOOK_US / 1000);
        int64_t now;

        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;

            if (c->fd >= 0 && events[i].events & (EPOLLERR | EPOLLHUP) && c->in.len == 0 &&
                !(events[i].events & EPOLLIN)) {
                lose(c);
                continue;
            }
            if (events[i].events & EPOLLOUT)
                push(c);
            if (c->fd >= 0 && events[i].events & EPOLLIN)
                pull(c);
            if (!c->busy && c->due_us == 0)
                act(c);
        }
        now = clock_mono_us();
        if (now - looked < LOOK_US)
            continue;
        looked = now;
        for (int i = 0; i < s.n; i++)
            for (int k = 0; k < LINES; k++)
                if (!s.agents[i].line[k].busy && s.agents[i].line[k].due_us <= now)
                    act(&s.agents[i].line[k]);
        if (now - counted < EVERY_US)
            continue;
        counted = now;
        (void)printf("{\"what\": \"count\", \"at\": %.6f, \"registered\": %d, \"starts\": %llu, \"ends\": %llu, "
                     "\"reports\": %llu, \"bytes\": %llu}\n",
                     (double)now / 1e6, s.registered, s.starts, s.ends, s.reports, s.bytes);
        (void)fflush(stdout);
    }
}

static void make_agents(void)
{
    int64_t now = clock_mono_us();

    s.agents = calloc((size_t)s.n, sizeof(*s.agents));
    s.runs = calloc(RUNS_MAX, sizeof(*s.runs));
    if (!s.agents || !s.runs)
        die("memory", strerror(ENOMEM));
    for (int i = 0; i < s.n; i++) {
        struct agent *a = &s.agents[i];

        (void)snprintf(a->name, sizeof(a->name), "n%05d", i);
        for (int k = 0; k < LINES; k++) {
            struct connection *c = &a->line[k];

            *c = (struct connection){.agent = a, .line = (enum line)k, .fd = -1, .due_us = INT64_MAX};
            buf_init(&c->in, ANSWER_MAX);
            buf_init(&c->out, 1 << 20);
        }
        a->line[REPORT].due_us = now + i * COME_US;
    }
}

static void read_token(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, s.token, sizeof(s.token) - 1);

    if (n <= 0)
        die(path, strerror(errno));
    (void)close(fd);
    s.token[strcspn(s.token, "\n")] = '\0';
}

static int number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*end || end == text || n < 0 || n > 1000000)
        die(text, "a number from 0 to a million is wanted");
    return (int)n;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    int key_bytes = argc == 7 ? number(argv[6]) : 0;

    if (argc != 7)
        die("usage", "swarm PORT TOKEN-FILE NODES SLOTS RUN-MS KEY-BYTES");
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    s.port = number(argv[1]);
    read_token(argv[2]);
    s.n = number(argv[3]);
    s.slots = number(argv[4]);
    s.run_ms = number(argv[5]);
    s.epoll = epoll_create1(EPOLL_CLOEXEC);
    s.key_value = key_bytes > 0 ? calloc((size_t)key_bytes + 1, 1) : NULL;
    if (s.key_value)
        memset(s.key_value, 'A', (size_t)key_bytes);
    (void)snprintf(s.incarnation, sizeof(s.incarnation), "i%d", (int)getpid());
    if (s.n < 1 || s.slots < 1 || s.slots > 64 || s.epoll < 0)
        die("usage", "at least a node, and 1 to 64 slots");
    make_agents();
    loop();
}
