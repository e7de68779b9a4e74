#include "worker/agent/container.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 4096

struct words {
    char **v;
    size_t n;
    bool failed;
};

static void add(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct words *w, const char *fmt, ...)
{
    va_list ap;

    if (w->n >= WORDS_MAX) {
        w->failed = true;
        return;
    }
    va_start(ap, fmt);
    if (vasprintf(&w->v[w->n], fmt, ap) < 0) {
        w->v[w->n] = NULL;
        w->failed = true;
    } else {
        w->n++;
    }
    va_end(ap);
}

static bool has_program(const char *path, const char *name)
{
    char file[PATH_MAX];

    for (size_t n; *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        if (n > 0 && n < PATH_MAX - 32 && snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, name) > 0 &&
            access(file, X_OK) == 0)
            return true;
    }
    return false;
}

static bool is_sif(const char *image)
{
    size_t n = strlen(image);

    return n > 4 && strcmp(image + n - 4, ".sif") == 0;
}

int container_find(const char *path, const char *image, enum container_runtime *ret, struct merr *err)
{
    if (!is_sif(image) && has_program(path, "podman"))
        *ret = CONTAINER_PODMAN;
    else if (has_program(path, "apptainer"))
        *ret = CONTAINER_APPTAINER;
    else
        return merr_set(err, -ENOENT, "the image '%.200s' cannot be run: this node has %s in its PATH", image,
                        is_sif(image) ? "no apptainer, which runs .sif," : "neither podman nor apptainer");
    return 0;
}

/* What the image or the runtime says itself. */
static bool is_own(const char *variable)
{
    static const char *const own[] = {"PATH=", "HOME=", "PWD=", "OLDPWD=", "HOSTNAME=", "SHLVL=", "_="};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strncmp(variable, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

static void add_podman(struct words *w, const struct container *c)
{
    static const char *const fixed[] = {"podman",
                                        "run",
                                        "--rm",
                                        "--pull=missing",
                                        "--network=host",
                                        "--ipc=host",
                                        "--cgroups=disabled",
                                        "--log-driver=passthrough",
                                        "--cap-drop=all",
                                        "--security-opt=no-new-privileges",
                                        "--ulimit=host"};

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        add(w, "%s", fixed[i]);
    if (!c->root)
        add(w, "--userns=keep-id");
    for (size_t i = 0; i < CONTAINER_FOLDERS_MAX; i++)
        if (c->folders[i])
            add(w, "--volume=%s:%s", c->folders[i], c->folders[i]);
    add(w, "--workdir=%s", c->cwd);
    for (const char *g = c->gpus ? c->gpus : ""; *g; g += strcspn(g, ",") + (g[strcspn(g, ",")] == ','))
        add(w, "--device=nvidia.com/gpu=%.*s", (int)strcspn(g, ","), g);
    for (char *const *e = c->env; *e; e++)
        if (!is_own(*e))
            add(w, "--env=%.*s", (int)strcspn(*e, "="), *e);
    add(w, "--entrypoint=");
    add(w, "%s%s", c->image[0] == '/' ? "oci-archive:" : "", c->image + (c->image[0] == '/' ? 0 : strlen("docker://")));
}

static void add_apptainer(struct words *w, const struct container *c)
{
    add(w, "apptainer");
    add(w, "exec");
    add(w, "--no-privs");
    if (c->gpus && *c->gpus)
        add(w, "--nv");
    for (size_t i = 0; i < CONTAINER_FOLDERS_MAX; i++)
        if (c->folders[i]) {
            add(w, "--bind");
            add(w, "%s", c->folders[i]);
        }
    add(w, "--pwd");
    add(w, "%s", c->cwd);
    add(w, "%s", c->image);
}

char **container_words(enum container_runtime runtime, const struct container *c)
{
    struct words w = {.v = calloc(WORDS_MAX + 1, sizeof(char *))};

    if (!w.v)
        return NULL;
    if (runtime == CONTAINER_PODMAN)
        add_podman(&w, c);
    else
        add_apptainer(&w, c);
    for (char *const *a = c->argv; *a; a++)
        add(&w, "%s", *a);
    if (!w.failed)
        return w.v;
    for (size_t i = 0; i < w.n; i++)
        free(w.v[i]);
    free(w.v);
    return NULL;
}
