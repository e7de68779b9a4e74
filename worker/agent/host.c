#include "worker/agent/host.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/buf.h"
#include "base/io.h"

#define TEXT_MAX (1 << 20)

/* A file of proc; buf_failed(ret) or an empty text where it cannot be read. */
static const char *read_text(const char *proc, const char *name, struct buf *b)
{
    char path[PATH_MAX];

    buf_init(b, TEXT_MAX);
    if (snprintf(path, sizeof(path), "%s/%s", proc, name) >= (int)sizeof(path) || io_read_file(path, b, NULL) < 0)
        buf_reset(b);
    return buf_text(b);
}

int host_pressure(const char *proc)
{
    BUF_CLEAR_AUTO struct buf b;
    double percent = -1;

    if (sscanf(read_text(proc, "pressure/cpu", &b), "some avg10=%lf", &percent) != 1)
        return -1;
    return percent >= 0 && percent <= 100 ? (int)percent : -1;
}

static int number(double v)
{
    return v < 0 ? -1 : v > INT32_MAX ? INT32_MAX : (int)v;
}

static void look_at_processors(struct host_seen *seen, const char *proc, int ret[REPORT_HOST_NUMBERS])
{
    BUF_CLEAR_AUTO struct buf b;
    uint64_t v[8] = {0}, all = 0, idle;

    if (sscanf(read_text(proc, "stat", &b),
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
               &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) != 8)
        return;
    for (int i = 0; i < 8; i++)
        all += v[i];
    idle = v[3] + v[4];
    if (seen->all > 0 && all > seen->all && idle >= seen->idle && idle - seen->idle <= all - seen->all)
        ret[REPORT_HOST_CPU] = number(100 - 100 * (double)(idle - seen->idle) / (double)(all - seen->all));
    seen->all = all;
    seen->idle = idle;
}

static void look_at_memory(const char *proc, int ret[REPORT_HOST_NUMBERS])
{
    BUF_CLEAR_AUTO struct buf b;
    const char *text = read_text(proc, "meminfo", &b), *free = strstr(text, "\nMemAvailable:");
    uint64_t all, available;

    if (sscanf(text, "MemTotal: %" SCNu64, &all) != 1 || !free ||
        sscanf(free, "\nMemAvailable: %" SCNu64, &available) != 1 || available > all)
        return;
    ret[REPORT_HOST_MEMORY] = number((double)(all - available) / 1024);
    ret[REPORT_HOST_MEMORY_ALL] = number((double)all / 1024);
}

/* KiB a second over all networks but the machine's own. */
static void look_at_networks(struct host_seen *seen, const char *proc, int64_t now_us, int ret[REPORT_HOST_NUMBERS])
{
    BUF_CLEAR_AUTO struct buf b;
    uint64_t in = 0, out = 0, some_in, some_out;
    double s = (double)(now_us - seen->at_us) / 1e6;
    bool any = false;

    for (const char *line = read_text(proc, "net/dev", &b), *end; *line; line = *end ? end + 1 : end) {
        const char *colon = strchr(line, ':');

        end = line + strcspn(line, "\n");
        if (!colon || colon > end || strncmp(line + strspn(line, " "), "lo:", 3) == 0 ||
            sscanf(colon + 1, "%" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &some_in, &some_out) != 2)
            continue;
        any = true;
        in += some_in;
        out += some_out;
    }
    if (any && seen->at_us > 0 && s > 0.001 && in >= seen->in && out >= seen->out) {
        ret[REPORT_HOST_IN] = number((double)(in - seen->in) / 1024 / s);
        ret[REPORT_HOST_OUT] = number((double)(out - seen->out) / 1024 / s);
    }
    seen->in = in;
    seen->out = out;
}

void host_look(struct host_seen *seen, const char *proc, const char *disk, int64_t now_us, int ret[REPORT_HOST_NUMBERS])
{
    BUF_CLEAR_AUTO struct buf b;
    struct statvfs v;
    double load;

    for (int i = 0; i < REPORT_HOST_NUMBERS; i++)
        ret[i] = -1;
    look_at_processors(seen, proc, ret);
    look_at_memory(proc, ret);
    look_at_networks(seen, proc, now_us, ret);
    if (sscanf(read_text(proc, "loadavg", &b), "%lf", &load) == 1)
        ret[REPORT_HOST_LOAD] = number(100 * load);
    if (statvfs(disk, &v) == 0)
        ret[REPORT_HOST_DISK] = number((double)v.f_bavail * (double)v.f_frsize / (1 << 20));
    seen->at_us = now_us;
}
