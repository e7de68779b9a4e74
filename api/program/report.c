/* What a program tells: lines of metrics and events, artifacts, its end. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/program/handle.h"

#define FULL_US 60000000 /* how often a full disk is told of */
#define NAMES_MAX 512
#define NAME_BYTES 128
#define ARTIFACT_BYTES (1 << 20)
#define MESSAGE_BYTES 1024

enum { METRICS, EVENTS };

/* --- lines ------------------------------------------------------------------------------------------- */

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Append a line, which begins with a line feed that is left out unless the one before was not written whole. */
static int append(struct muster *m, int which, const char *line, size_t n)
{
    static const char *const names[] = {[METRICS] = "metrics.jsonl", [EVENTS] = "events.jsonl"};
    int64_t now_us = clock_us(CLOCK_MONOTONIC);
    char path[PATH_ROOM];
    struct stat st;
    ssize_t got = -1;
    int fd, r = 0;

    (void)snprintf(path, sizeof(path), "%s/%s", m->run, names[which]);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0640);
    if (fd < 0 || fstat(fd, &st) < 0)
        r = -errno;
    else if (!S_ISREG(st.st_mode))
        r = -EMEDIUMTYPE;
    (void)pthread_mutex_lock(&m->lock);
    if (r == 0) {
        size_t skip = m->torn[which] ? 0 : 1;

        do
            got = write(fd, line + skip, n - skip);
        while (got < 0 && errno == EINTR);
        r = got < 0 ? -errno : (size_t)got < n - skip ? -ENOSPC : 0;
        if (got > 0)
            m->torn[which] = r < 0;
    }
    if (r == -EDQUOT || r == -EFBIG)
        r = -ENOSPC;
    if (r == -ENOSPC && m->full_us != 0 && now_us < m->full_us + FULL_US)
        r = 1; /* dropped, and told before */
    else if (r == -ENOSPC)
        m->full_us = now_us;
    (void)pthread_mutex_unlock(&m->lock);
    if (fd >= 0)
        (void)close(fd);
    return r >= 0 ? 0 : handle_fail(r, "cannot write to '%s': %s", path, strerror(-r));
}

/* A number as JSON has it, whatever the locale. Returns its bytes; 0: there is no room for it. */
static size_t print_number(double value, char *to, size_t room)
{
    int n = isfinite(value) ? snprintf(to, room, "%.15g", value) : snprintf(to, room, "null");

    if (isfinite(value) && n > 0 && (size_t)n < room && strtod(to, NULL) != value)
        n = snprintf(to, room, "%.17g", value);
    if (n < 0 || (size_t)n >= room)
        return 0;
    for (int i = 0; i < n && isfinite(value); i++)
        if (!strchr("0123456789+-e", to[i]))
            to[i] = '.';
    return (size_t)n;
}

EXPORTED int muster_metrics(muster *m, int64_t step, const char *const *names, const double *values, size_t n)
{
    int64_t now_us = clock_us(CLOCK_REALTIME);
    char line[LINE_MAX_BYTES + 2];
    size_t len;

    if (!handle_live(m) || m->rank != 0)
        return 0;
    if (step < 0 || n > NAMES_MAX)
        return handle_fail(-EINVAL, "muster_metrics: want a step from 0 and at most %d names", NAMES_MAX);
    len = (size_t)snprintf(line, sizeof(line), "\n{\"v\":1,\"step\":%lld,\"t\":%lld.%06lld", (long long)step,
                           (long long)(now_us / 1000000), (long long)(now_us % 1000000));
    for (size_t i = 0; i < n; i++) {
        size_t room = LINE_MAX_BYTES - 2 - len, took;
        int name;

        if (!names[i] || !handle_name_ok(names[i], NAME_BYTES) || strcmp(names[i], "v") == 0 ||
            strcmp(names[i], "t") == 0 || strcmp(names[i], "step") == 0)
            return handle_fail(-EINVAL, "muster_metrics: '%.100s' is no name of a metric", names[i] ? names[i] : "");
        name = snprintf(line + len, room, ",\"%s\":", names[i]);
        took = (size_t)name < room ? print_number(values[i], line + len + name, room - (size_t)name) : 0;
        if (took == 0)
            return handle_fail(-EMSGSIZE, "muster_metrics: a line has at most %d bytes", LINE_MAX_BYTES);
        len += (size_t)name + took;
    }
    line[len++] = '}';
    line[len++] = '\n';
    return append(m, METRICS, line, len);
}

EXPORTED int muster_event(muster *m, const char *json, size_t len)
{
    char line[LINE_MAX_BYTES + 64], text[LINE_MAX_BYTES + 1], *open;
    const char *type;
    int n = 0;

    if (!handle_live(m))
        return 0;
    if (len > LINE_MAX_BYTES - 32)
        return handle_fail(-EMSGSIZE, "muster_event: an event has at most %d bytes", LINE_MAX_BYTES - 32);
    if (!json || !text_is_object(json, len))
        return handle_fail(-EINVAL, "muster_event: want one JSON object");
    memcpy(text, json, len);
    text[len] = '\0';
    for (char *p = text; *p; p++) /* outside of strings, where alone they may stand */
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    type = text_member(text, "type");
    if (!type || *type != '"')
        return handle_fail(-EINVAL, "muster_event: an event has a \"type\"");
    open = strchr(text, '{') + 1;
    if (!text_member(text, "rank"))
        n = snprintf(line, sizeof(line), "\n{\"rank\":%d,%s\n", m->rank, open);
    else
        n = snprintf(line, sizeof(line), "\n%s\n", text);
    return append(m, EVENTS, line, (size_t)n);
}

/* --- artifacts --------------------------------------------------------------------------------------- */

static const char *extension(const char *type, const unsigned char *p, size_t n)
{
    if (strcmp(type, "text") == 0)
        return "txt";
    if (strcmp(type, "json") == 0)
        return "json";
    if (strcmp(type, "image") != 0)
        return NULL;
    if (n >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0)
        return "png";
    return n >= 3 && memcmp(p, "\xff\xd8\xff", 3) == 0 ? "jpeg" : NULL;
}

/* Parts that climb or hide are no names. */
static bool key_ok(const char *key)
{
    for (const char *p = key; handle_name_ok(key, NAME_BYTES); p++) {
        if (*p == '\0' || *p == '/' || *p == '.')
            return false;
        p = strchr(p, '/');
        if (!p)
            return true;
    }
    return false;
}

static int make_folders(char *path, size_t from)
{
    for (char *p = path + from; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, 0750) < 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return 0;
}

EXPORTED int muster_artifact(muster *m, const char *type, const char *key, int64_t step, const void *data, size_t len)
{
    char path[PATH_ROOM + 256], event[512];
    const char *ext;
    int r;

    if (!handle_live(m) || !m->job[0])
        return 0;
    ext = type && data ? extension(type, data, len) : NULL;
    if (!ext || !key || !key_ok(key) || step < 0)
        return handle_fail(-EINVAL,
                           "muster_artifact: want image (PNG or JPEG), text or json, a name and a step from 0");
    if (len > ARTIFACT_BYTES)
        return handle_fail(-EMSGSIZE, "muster_artifact: an artifact has at most %d bytes", ARTIFACT_BYTES);
    (void)snprintf(path, sizeof(path), "%s/artifacts/%s/%s/%lld-r%d.%s", m->job, type, key, (long long)step, m->rank,
                   ext);
    r = make_folders(path, strlen(m->job) + 1);
    r = r == 0 ? files_publish(path, data, len, false) : r;
    if (r < 0)
        return handle_fail(r, "cannot write '%.150s': %s", path, strerror(-r));
    (void)snprintf(event, sizeof(event), "{\"type\":\"artifact\",\"step\":%lld,\"path\":\"%s\"}", (long long)step,
                   path + strlen(m->job) + 1);
    return muster_event(m, event, strlen(event));
}

/* --- the end ----------------------------------------------------------------------------------------- */

EXPORTED int muster_finish(muster *m, const char *outcome, int64_t step, const char *message)
{
    static const struct {
        const char *name, *outcome, *class_;
    } known[] = {{"done", "done", NULL},
                 {"stopped", "stopped", NULL},
                 {"failed", "failed", "user"},
                 {"failed/user", "failed", "user"},
                 {"failed/system", "failed", "system"},
                 {"failed/node", "failed", "node"}};
    char path[PATH_ROOM], words[2 * MESSAGE_BYTES + 1], text[2 * MESSAGE_BYTES + 256];
    size_t i = 0, n;
    int r;

    if (!handle_live(m))
        return 0;
    while (outcome && i < sizeof(known) / sizeof(known[0]) && strcmp(outcome, known[i].name) != 0)
        i++;
    if (!outcome || i == sizeof(known) / sizeof(known[0]))
        return handle_fail(-EINVAL, "muster_finish: want done, stopped or failed, failed/user, failed/system, "
                                    "failed/node");
    n = text_quote(message ? message : "", MESSAGE_BYTES, words);
    words[n] = '\0';
    n = (size_t)snprintf(text, sizeof(text), "{\"outcome\":\"%s\",\"step\":%lld%s%s%s,\"message\":\"%s\"}\n",
                         known[i].outcome, (long long)step, known[i].class_ ? ",\"class\":\"" : "",
                         known[i].class_ ? known[i].class_ : "", known[i].class_ ? "\"" : "", words);
    atomic_store(&m->quiet, true);
    (void)unlink(files_rank_path(m, "beat", path));
    r = files_publish(files_rank_path(m, "result", path), text, n, true);
    return r == 0 ? 0 : handle_fail(r, "cannot write '%s': %s", path, strerror(-r));
}
