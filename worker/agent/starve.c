#include "worker/agent/starve.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"

#define TEXT_MAX 65536

/* The time at its limit of one group, by its folder. */
static int64_t throttled_of(const char *folder)
{
    static const struct {
        const char *name;
        int64_t per_us;
    } of[] = {{"\nthrottled_usec ", 1}, {"\nthrottled_time ", 1000}};
    BUF_CLEAR_AUTO struct buf text;
    char path[PATH_MAX];
    int64_t us = 0;

    buf_init(&text, TEXT_MAX);
    if (snprintf(path, sizeof(path), "%s/cpu.stat", folder) >= (int)sizeof(path) || io_read_file(path, &text, NULL) < 0)
        return 0;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        const char *at = strstr(buf_text(&text), of[i].name);

        if (at)
            us = strtoll(at + strlen(of[i].name), NULL, 10) / of[i].per_us;
    }
    return us > 0 ? us : 0;
}

/* Of a group and those above it, below where its hierarchy is mounted. */
static int64_t throttled_up(const char *root, const char *group)
{
    char folder[PATH_MAX], *cut;
    int64_t most = 0;

    if (snprintf(folder, sizeof(folder), "%s%s", root, group) >= (int)sizeof(folder))
        return 0;
    while (strlen(folder) >= strlen(root) && (cut = strrchr(folder, '/'))) {
        int64_t us = throttled_of(folder);

        most = us > most ? us : most;
        *cut = '\0';
    }
    return most;
}

int64_t starve_throttled_us(const char *cgroup, const char *groups)
{
    int64_t most = 0;

    for (const char *line = groups, *end; *line; line = *end ? end + 1 : end) { /* "4:cpu,cpuacct:/a/b", "0::/a/b" */
        const char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        char root[PATH_MAX], path[PATH_MAX];
        int64_t us;

        end = line + strcspn(line, "\n");
        if (!group || group > end || end - group > PATH_MAX ||
            snprintf(root, sizeof(root), "%s/%.*s", cgroup, (int)(group - names - 1), names + 1) >= (int)sizeof(root))
            continue;
        (void)snprintf(path, sizeof(path), "%.*s", (int)(end - group - 1), group + 1);
        us = throttled_up(root, path);
        most = us > most ? us : most;
    }
    return most;
}

/* Of its main thread, in all time. */
static int64_t waited_us(const char *proc, pid_t pid)
{
    BUF_CLEAR_AUTO struct buf text;
    char path[PATH_MAX];
    int64_t ran, waited;

    buf_init(&text, TEXT_MAX);
    return snprintf(path, sizeof(path), "%s/%d/schedstat", proc, (int)pid) < (int)sizeof(path) &&
                   io_read_file(path, &text, NULL) == 0 &&
                   sscanf(buf_text(&text), "%" SCNd64 " %" SCNd64, &ran, &waited) == 2 && waited > 0
               ? waited / 1000
               : 0;
}

static double share(int64_t part, int64_t of)
{
    return part <= 0 || of <= 0 ? 0 : part >= of ? 1 : (double)part / (double)of;
}

struct steps_lack starve_look(struct starve_seen *seen, const char *proc, const char *cgroup, pid_t pid,
                              int64_t stopped_us, int64_t now_us)
{
    struct starve_seen was = *seen;
    BUF_CLEAR_AUTO struct buf groups;
    char path[PATH_MAX];

    buf_init(&groups, TEXT_MAX);
    if (pid <= 0)
        return (struct steps_lack){0};
    *seen =
        (struct starve_seen){.pid = pid, .at_us = now_us, .waited_us = waited_us(proc, pid), .stopped_us = stopped_us};
    if (snprintf(path, sizeof(path), "%s/%d/cgroup", proc, (int)pid) < (int)sizeof(path) &&
        io_read_file(path, &groups, NULL) == 0)
        seen->throttled_us = starve_throttled_us(cgroup, buf_text(&groups));
    if (was.pid != pid)
        return (struct steps_lack){0};
    return (struct steps_lack){
        .starved = share(seen->waited_us - was.waited_us + seen->stopped_us - was.stopped_us, now_us - was.at_us),
        .throttled = share(seen->throttled_us - was.throttled_us, now_us - was.at_us)};
}

int starve_steal(struct starve_steal *seen, const char *proc)
{
    BUF_CLEAR_AUTO struct buf text;
    struct starve_steal was = *seen, now = {0};
    uint64_t v[8] = {0};
    char path[PATH_MAX];

    buf_init(&text, 1 << 20);
    if (snprintf(path, sizeof(path), "%s/stat", proc) >= (int)sizeof(path) || io_read_file(path, &text, NULL) < 0 ||
        sscanf(buf_text(&text),
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
               &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) != 8)
        return -1;
    for (int i = 0; i < 8; i++)
        now.all += v[i];
    now.stolen = v[7];
    *seen = now;
    return was.all == 0 || now.all <= was.all
               ? -1
               : (int)(100 * share((int64_t)(now.stolen - was.stolen), (int64_t)(now.all - was.all)));
}
