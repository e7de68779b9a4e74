/* Control groups for the agent. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/helper/helper.h"

#define ROOT_MAX 1024

/* Version 2: let the groups below have these controllers. Each may be missing. */
static void hand_down(const char *root)
{
    char path[ROOT_MAX + 64];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/cgroup.subtree_control", root);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    (void)!(write(fd, "+memory", 7) | write(fd, "+pids", 5) | write(fd, "+cpu", 4));
    (void)close(fd);
}

/* A group in root for the agent, who may make more in it and move processes between them. */
static void make_group(const struct helper_user *agent, const char *root)
{
    static const char *const files[] = {"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"};
    char path[ROOT_MAX + 64];

    hand_down(root);
    (void)snprintf(path, sizeof(path), "%s/" HELPER_GROUPS, root);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return;
    hand_down(path);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/" HELPER_GROUPS "/%s", root, files[i]);
        (void)!lchown(path, agent->uid, agent->gid);
    }
}

void delegate_groups(const struct helper_user *agent, const char *at, const char *self)
{
    char controllers[256], path[512], root[ROOT_MAX];

    for (const char *p = self; p && *p; p = strchr(p, '\n'), p += p != NULL) {
        char *kind;

        *controllers = '\0'; /* "0::/path" of version 2, "4:memory:/path" of version 1 */
        if (sscanf(p, "%*[0-9]::%511[^\n]", path) != 1 &&
            sscanf(p, "%*[0-9]:%255[^:\n]:%511[^\n]", controllers, path) != 2)
            continue;
        if (*controllers && !strstr("memory pids freezer cpu,cpuacct", controllers))
            continue;
        kind = strrchr(path, '.'); /* a unit's own group goes when the unit is started anew: use the one around it */
        if (kind && (strcmp(kind, ".service") == 0 || strcmp(kind, ".scope") == 0))
            *strrchr(path, '/') = '\0';
        for (int i = 0; i < 2; i++) {
            (void)snprintf(root, sizeof(root), "%s/%s%s/cgroup.procs", at, i ? "unified" : controllers, path);
            if (access(root, F_OK) == 0) {
                *strrchr(root, '/') = '\0';
                make_group(agent, root);
                break;
            }
        }
    }
}
