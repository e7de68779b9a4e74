#include "worker/agent/enter.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/io.h"

#define ENVIRONMENT_MAX (4 << 20)
#define WORDS 9 /* before the program's */

/* The value of a variable in an environment of /proc; NULL: it has none. */
static const char *value_of(const struct buf *b, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = b->data, *end = p + b->len; p < end; p += strlen(p) + 1)
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return p + n + 1;
    return NULL;
}

/* Whether both paths, which may lead elsewhere, are one file. */
static bool is_same(const char *proc, const char *pid, const char *what)
{
    char path[PATH_MAX], own[PATH_MAX];
    struct stat a, b;

    (void)snprintf(path, sizeof(path), "%s/%s/%s", proc, pid, what);
    (void)snprintf(own, sizeof(own), "%s/self/%s", proc, what);
    return stat(path, &a) < 0 || stat(own, &b) < 0 || (a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

/* Whether a process is of the rank, and in a container; then what a program beside it has to know. */
static bool look(const char *proc, const char *pid, const char *job, const char *rank, struct enter *ret)
{
    BUF_CLEAR_AUTO struct buf b;
    char path[PATH_MAX];
    const char *of_job, *of_rank, *value;

    buf_init(&b, ENVIRONMENT_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s/environ", proc, pid);
    if (io_read_file(path, &b, NULL) < 0)
        return false;
    of_job = value_of(&b, "MUSTER_JOB");
    of_rank = value_of(&b, "RANK");
    if (!of_job || !of_rank || strcmp(of_job, job) != 0 || strcmp(of_rank, rank) != 0 || is_same(proc, pid, "root"))
        return false;
    ret->pid = (pid_t)strtol(pid, NULL, 10);
    ret->users = !is_same(proc, pid, "ns/user");
    value = value_of(&b, "PATH");
    (void)snprintf(ret->path, sizeof(ret->path), "%s", value ? value : "");
    value = value_of(&b, "HOME");
    (void)snprintf(ret->home, sizeof(ret->home), "%s", value ? value : "");
    return true;
}

int enter_find(const char *proc, const char *job, const char *rank, struct enter *ret, struct merr *err)
{
    struct enter first = {.pid = 0}, one;
    DIR *dir = opendir(proc);

    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && look(proc, e->d_name, job, rank, &one) &&
            (first.pid == 0 || one.pid < first.pid))
            first = one;
    if (dir)
        (void)closedir(dir);
    if (first.pid == 0)
        return merr_set(err, -ESRCH, "no program of rank %s is seen in a container", rank);
    *ret = first;
    return 0;
}

char **enter_words(const struct enter *e, const char *folder, char *const *argv, char room[2][ENTER_WORD_MAX])
{
    char **words;
    size_t n = 0, k = 0;

    while (argv[n])
        n++;
    words = calloc(n + WORDS + 1, sizeof(*words));
    if (!words)
        return NULL;
    (void)snprintf(room[0], ENTER_WORD_MAX, "--target=%d", (int)e->pid);
    (void)snprintf(room[1], ENTER_WORD_MAX, "--wdns=%s", folder);
    words[k++] = (char *)"nsenter";
    words[k++] = room[0];
    if (e->users) {
        words[k++] = (char *)"--user";
        words[k++] = (char *)"--preserve-credentials";
    }
    words[k++] = (char *)"--mount";
    words[k++] = (char *)"--pid";
    words[k++] = (char *)"--root";
    words[k++] = room[1];
    words[k++] = (char *)"--";
    memcpy(words + k, argv, n * sizeof(*words));
    return words;
}

char **enter_environment(const struct enter *e, char *const *env, char room[2][ENTER_WORD_MAX])
{
    const struct {
        const char *name, *value;
    } own[] = {{"PATH=", e->path}, {"HOME=", e->home}};
    char **all;
    size_t n = 0, k = 0;

    while (env[n])
        n++;
    all = calloc(n + 3, sizeof(*all));
    for (size_t i = 0; all && i < n; i++)
        if (strncmp(env[i], own[0].name, 5) != 0 && strncmp(env[i], own[1].name, 5) != 0)
            all[k++] = env[i];
    for (size_t i = 0; all && i < 2; i++)
        if (*own[i].value) {
            (void)snprintf(room[i], ENTER_WORD_MAX, "%s%s", own[i].name, own[i].value);
            all[k++] = room[i];
        }
    return all;
}
