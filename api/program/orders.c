/* The library's thread: looks for orders ten times a second, shows a sign of life each second. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/program/handle.h"

#define LOOK_MS 100
#define LOOKS_A_BEAT 10
#define BEAT_BYTES 256
#define ORDER_BYTES 4096

/* --- orders ------------------------------------------------------------------------------------------ */

static uint32_t order_named(const char *text)
{
    static const char *const names[] = {"none", "save", "stop", "scale", "abort"};

    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i]);

        if (*text == '"' && strncmp(text + 1, names[i], n) == 0 && text[n + 1] == '"')
            return i;
    }
    return MUSTER_NONE;
}

/* "2026-01-31T12:00:00.000Z"; 0: there is none. */
static int64_t time_named(const char *text)
{
    struct tm tm = {.tm_isdst = 0};
    int ms = 0;

    if (sscanf(text, "\"%4d-%2d-%2dT%2d:%2d:%2d.%3dZ\"", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
               &tm.tm_sec, &ms) < 6)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (int64_t)timegm(&tm) * 1000000 + (int64_t)ms * 1000;
}

static bool read_order(const struct muster *m, struct muster_order *ret)
{
    char path[PATH_ROOM], text[ORDER_BYTES + 1];
    const char *seq, *order, *deadline, *devices, *next;
    long n;

    (void)snprintf(path, sizeof(path), "%s/order.json", m->run);
    n = files_read(path, text, ORDER_BYTES);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (!text_is_object(text, (size_t)n))
        return false;
    seq = text_member(text, "seq");
    order = text_member(text, "order");
    deadline = text_member(text, "deadline");
    devices = text_member(text, "devices");
    next = devices && *devices == '{' ? text_member(devices, "next") : NULL;
    if (!seq || !order)
        return false;
    *ret = (struct muster_order){.size = sizeof(*ret),
                                 .order = order_named(order),
                                 .seq = strtoull(seq, NULL, 10),
                                 .deadline_us = deadline ? time_named(deadline) : 0,
                                 .devices_next = next ? (int32_t)strtol(next, NULL, 10) : 0};
    return ret->seq > 0;
}

static void look(struct muster *m)
{
    void (*fn)(void *arg, const struct muster_order *order);
    struct muster_order found, news;
    bool is_new;
    void *arg;

    is_new = read_order(m, &found);
    (void)pthread_mutex_lock(&m->lock);
    if (is_new && found.seq != m->order.seq)
        m->order = found;
    news = m->order;
    fn = m->on_order;
    arg = m->on_order_arg;
    is_new = fn && news.seq != m->told_seq;
    if (is_new)
        m->told_seq = news.seq;
    (void)pthread_mutex_unlock(&m->lock);
    if (is_new)
        fn(arg, &news);
}

EXPORTED int muster_order_get(muster *m, struct muster_order *ret)
{
    struct muster_order o = {.order = MUSTER_NONE};
    uint32_t size = ret->size;

    if (size < 2 * sizeof(uint32_t))
        return handle_fail(-EINVAL, "muster_order_get: the struct does not tell its size");
    if (handle_live(m)) {
        (void)pthread_mutex_lock(&m->lock);
        o = m->order;
        (void)pthread_mutex_unlock(&m->lock);
    }
    memcpy(ret, &o, size < sizeof(o) ? size : sizeof(o));
    ret->size = size;
    return 0;
}

EXPORTED int muster_on_order(muster *m, void (*fn)(void *arg, const struct muster_order *order), void *arg)
{
    if (!handle_live(m))
        return 0;
    (void)pthread_mutex_lock(&m->lock);
    m->on_order = fn;
    m->on_order_arg = arg;
    m->told_seq = 0;
    (void)pthread_mutex_unlock(&m->lock);
    return 0;
}

EXPORTED int muster_ack(muster *m, uint64_t seq, int64_t step, const char *did)
{
    char path[PATH_ROOM], text[128];
    int r;

    if (!handle_live(m))
        return 0;
    if (!did || seq == 0 || (strcmp(did, "saved") != 0 && strcmp(did, "stopping") != 0 && strcmp(did, "refused") != 0))
        return handle_fail(-EINVAL, "muster_ack: want the number of an order, and saved, stopping or refused");
    (void)snprintf(text, sizeof(text), "{\"seq\":%llu,\"step\":%lld,\"did\":\"%s\"}\n", (unsigned long long)seq,
                   (long long)step, did);
    r = files_publish(files_rank_path(m, "ack", path), text, strlen(text), false);
    return r == 0 ? 0 : handle_fail(r, "cannot write '%s': %s", path, strerror(-r));
}

/* --- signs of life ----------------------------------------------------------------------------------- */

static void sign(struct muster *m, int64_t step)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (step >= 0)
        atomic_store_explicit(&m->step, step, memory_order_relaxed);
    atomic_store_explicit(&m->at_us, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000, memory_order_release);
}

EXPORTED int muster_step(muster *m, int64_t step)
{
    if (handle_live(m))
        sign(m, step < 0 ? 0 : step);
    return 0;
}

EXPORTED int muster_section_begin(muster *m, const char *name, double timeout_s)
{
    int r = 0;

    if (!handle_live(m))
        return 0;
    if (!name || !handle_name_ok(name, SECTION_NAME_MAX - 1) || !(timeout_s > 0))
        return handle_fail(-EINVAL,
                           "muster_section_begin: want a name of 1 to %d of A-Z a-z 0-9 _ . / : - and a time "
                           "above 0",
                           SECTION_NAME_MAX - 1);
    (void)pthread_mutex_lock(&m->lock);
    if (m->sections < SECTIONS_MAX) {
        (void)snprintf(m->section[m->sections].name, SECTION_NAME_MAX, "%s", name);
        m->section[m->sections++].timeout_s = timeout_s;
        sign(m, -1);
    } else {
        r = -EOVERFLOW;
    }
    (void)pthread_mutex_unlock(&m->lock);
    return r == 0 ? 0 : handle_fail(r, "muster_section_begin: %d sections are open", SECTIONS_MAX);
}

EXPORTED int muster_section_end(muster *m)
{
    bool open;

    if (!handle_live(m))
        return 0;
    (void)pthread_mutex_lock(&m->lock);
    open = m->sections > 0;
    m->sections -= open;
    sign(m, -1);
    (void)pthread_mutex_unlock(&m->lock);
    return open ? 0 : handle_fail(-ENOENT, "muster_section_end: no section is open");
}

/* One call of the system writes all of it, so no reader sees half. */
static void beat(struct muster *m)
{
    int64_t at_us = atomic_load_explicit(&m->at_us, memory_order_acquire);
    char path[PATH_ROOM], text[BEAT_BYTES + 1], section[128] = "";
    int fd, n;

    if (at_us == 0 || atomic_load(&m->quiet))
        return;
    (void)pthread_mutex_lock(&m->lock);
    if (m->sections > 0) /* whole milliseconds: no locale writes them otherwise */
        (void)snprintf(section, sizeof(section), ",\"section\":\"%s\",\"for_s\":%lld", m->section[m->sections - 1].name,
                       m->section[m->sections - 1].timeout_s < 1e9
                           ? (long long)(m->section[m->sections - 1].timeout_s + 0.999)
                           : 1000000000LL);
    (void)pthread_mutex_unlock(&m->lock);
    n = snprintf(text, sizeof(text), "{\"step\":%lld,\"at\":%lld.%06lld%s}",
                 (long long)atomic_load_explicit(&m->step, memory_order_relaxed), (long long)(at_us / 1000000),
                 (long long)(at_us % 1000000), section);
    memset(text + n, ' ', sizeof(text) - (size_t)n);
    text[BEAT_BYTES - 1] = '\n';
    fd = open(files_rank_path(m, "beat", path), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640);
    if (fd < 0)
        return;
    (void)fchmod(fd, 0640);
    (void)!pwrite(fd, text, BEAT_BYTES, 0);
    (void)close(fd);
    if (atomic_load(&m->quiet)) /* it ended while this was written */
        (void)unlink(path);
}

void *orders_watch(void *handle)
{
    struct muster *m = handle;
    bool orphan;

    for (int round = 0;; round++) {
        struct timespec until;
        bool ending;

        look(m);
        if (round % LOOKS_A_BEAT == 0)
            beat(m);
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_mutex_lock(&m->lock);
        while (!m->ending && pthread_cond_timedwait(&m->wake, &m->lock, &until) == 0)
            ;
        ending = m->ending;
        (void)pthread_mutex_unlock(&m->lock);
        if (ending)
            break;
    }
    (void)pthread_mutex_lock(&m->lock);
    orphan = m->orphan;
    (void)pthread_mutex_unlock(&m->lock);
    if (orphan)
        free(m);
    return NULL;
}
