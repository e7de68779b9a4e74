#include "worker/agent/strangers.h"

#include <stdio.h>
#include <string.h>

#define SERVER "nvidia-cuda-mps" /* as the kernel shortens nvidia-cuda-mps-server and -control */

/* What lets several processes share a GPU is nobody's program. */
static bool is_mps(pid_t pid)
{
    char path[64], name[32] = "";
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    f = fopen(path, "re");
    if (f) {
        (void)fgets(name, sizeof(name), f);
        (void)fclose(f);
    }
    return strncmp(name, SERVER, strlen(SERVER)) == 0;
}

static bool is_ours(const struct strangers *v, pid_t pid, int64_t now_us)
{
    for (int i = 0; i < v->n_ours && now_us - v->used_us < STRANGERS_CHILD_US; i++)
        if (v->ours[i] == pid)
            return true;
    return false;
}

static void take_ours(struct strangers *v, const struct nvml_sample *s)
{
    v->in_use = true;
    v->seen_us = 0;
    v->n_ours = s->n_processes;
    (void)memcpy(v->ours, s->process, (size_t)s->n_processes * sizeof(*v->ours));
}

pid_t strangers_find(struct strangers *v, const struct nvml_sample *s, bool in_use, int allowed, int64_t now_us)
{
    pid_t first = 0;
    int n = 0;

    if (in_use) {
        take_ours(v, s);
        return 0;
    }
    if (v->in_use)
        v->used_us = now_us;
    v->in_use = false;
    if (s->taken_us <= v->used_us)
        return 0;
    for (int i = 0; i < s->n_processes; i++) {
        if (is_ours(v, s->process[i], now_us) || is_mps(s->process[i]))
            continue;
        first = n++ == 0 ? s->process[i] : first;
    }
    if (n <= allowed)
        v->seen_us = 0;
    else if (v->seen_us == 0)
        v->seen_us = s->taken_us;
    return n > allowed && s->taken_us > v->seen_us ? first : 0;
}
