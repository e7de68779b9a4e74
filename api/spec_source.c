/* Where a command's files come from, and the processes that share a device. */
#include <stdio.h>
#include <string.h>

#include "api/bundle.h"
#include "api/git_source.h"
#include "api/spec_priv.h"
#include "api/spec_read.h"

bool spec_has_source(const json_t *command)
{
    return json_is_string(json_object_get(command, "bundle")) || json_is_object(json_object_get(command, "git"));
}

/* Whether a folder of the job's files stays among them. */
static bool is_inside(const char *path)
{
    if (*path == '/')
        return false;
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (n == 2 && path[0] == '.' && path[1] == '.')
            return false;
    }
    return true;
}

/* Nothing in it is more than a name to podman or apptainer. */
static bool is_image(const char *image)
{
    bool named = strncmp(image, "docker://", 9) == 0;
    const char *name = image + (named ? 9 : 0);

    return (named ? *name && *name != '/' && *name != '-' : *name == '/') &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-@+~:") == strlen(name) &&
           (named || !strchr(name, ':'));
}

/* Each becomes the end of a variable's name. */
static void check_ports(struct reading *r)
{
    const struct spec_names *p = &r->spec->command.ports;
    char at[32];

    if (p->n > SPEC_PORTS_MAX)
        faults_add(r->f, "/command/ports", "%zu ports are more than %d", p->n, SPEC_PORTS_MAX);
    for (size_t i = 0; i < p->n; i++) {
        const char *name = p->v[i];

        (void)snprintf(at, sizeof(at), "/command/ports/%zu", i);
        if (name[0] < 'a' || name[0] > 'z' || strlen(name) > 32 ||
            strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") < strlen(name))
            faults_add(r->f, at,
                       "'%s' is no name of a port: want a small letter, then at most 31 of those, digits and '_'",
                       name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(p->v[k], name) == 0)
                faults_add(r->f, at, "'%s' is there twice", name);
    }
}

void spec_check_source(struct reading *r)
{
    typeof(r->spec->command) *c = &r->spec->command;
    struct merr err;

    if (c->ranks > 1 && c->launcher != LAUNCH_RANKS)
        faults_add(r->f, "/command/ranks", "torchrun starts one process a device; leave launcher out, or want 1");
    if ((long)c->ranks * r->spec->devices.max > SPEC_DEVICES_MAX)
        faults_add(r->f, "/command/ranks", "%d processes on each of %d devices are more than the %d ranks of a job",
                   c->ranks, r->spec->devices.max, SPEC_DEVICES_MAX);
    check_ports(r);
    if (c->image && !is_image(c->image))
        faults_add(r->f, "/command/image", "'%s' is no image: want docker://NAME, or the absolute path of a file",
                   c->image);
    if (c->image && c->launcher != LAUNCH_RANKS)
        faults_add(r->f, "/command/image", "torchrun is of the node, not of an image; leave launcher out");
    if (c->bundle && !bundle_is_name(c->bundle))
        faults_add(r->f, "/command/bundle",
                   "want the name of an upload, 64 hex digits; `muster submit --upload DIR` "
                   "makes one");
    if (c->git.url && git_source_check_url(c->git.url, &err) < 0)
        faults_add(r->f, "/command/git/url", "%s", err.text);
    if (c->git.ref && git_source_check_ref(c->git.ref, &err) < 0)
        faults_add(r->f, "/command/git/ref", "%s", err.text);
    if (c->git.url && (!c->git.commit || !git_source_is_commit(c->git.commit)))
        faults_add(r->f, "/command/git/commit",
                   "want a commit in full, 40 hex digits, so that each run is of the same files; `muster submit` finds "
                   "that of git.ref");
    if (!c->git.url && (c->git.ref || c->git.commit))
        faults_add(r->f, "/command/git/url", "is needed");
    if (c->git.url && c->bundle)
        faults_add(r->f, "/command/git", "a job runs in an upload or in a repository, not in both; leave out bundle");
    if ((c->git.url || c->bundle) && c->workdir && !is_inside(c->workdir))
        faults_add(r->f, "/command/workdir",
                   "'%s' is not a folder of the files that the job brings along; want one, "
                   "relative and without '..'",
                   c->workdir);
}
