#include "worker/engine/train/owner.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/try.h"

#define RECORD_MAX 1024

/* The user of a record. -ENOENT: there is none. */
static int read_user(const char *path, char *ret, size_t size, struct merr *err)
{
    json_auto_t *doc = NULL;
    const char *user;
    struct buf b;
    int r;

    buf_init(&b, RECORD_MAX);
    r = io_read_file(path, &b, err);
    if (r == 0)
        doc = json_loadb(b.data, b.len, 0, NULL);
    buf_clear(&b);
    if (r < 0)
        return r;
    user = json_string_value(json_object_get(doc, "user"));
    if (!user || strlen(user) >= size)
        return merr_set(err, -EPERM, "'%s' does not say whose the folder is; give checkpoint.dir a new one", path);
    (void)snprintf(ret, size, "%s", user);
    return 0;
}

/* Whether a folder lies in the folder of another job, beside this one's. */
static bool is_in_another_job(const char *folder, const struct owner *o)
{
    char real[PATH_MAX], own[PATH_MAX], *slash;
    size_t above, whole;

    if (!realpath(folder, real) || !realpath(o->dir, own) || !(slash = strrchr(own, '/')))
        return false;
    whole = strlen(own);
    above = (size_t)(slash - own) + 1;
    if (strncmp(real, own, above) != 0 || real[above] != 'j')
        return false;
    return strncmp(real, own, whole) != 0 || (real[whole] != '/' && real[whole] != '\0');
}

/* Whether a folder that says nothing may become the user's. */
static int check_free(const char *folder, const struct owner *o, struct merr *err)
{
    struct stat s;

    if (stat(folder, &s) != 0)
        return merr_errno(err, -errno, "'%s'", folder);
    if (is_in_another_job(folder, o) || s.st_uid != geteuid())
        return merr_set(err, -EPERM,
                        "'%s' was made by somebody else, and does not say that it is of '%s'; give checkpoint.dir a "
                        "folder of your own, and name this one in train.init.from to begin from it",
                        folder, o->user);
    return 0;
}

/* Leave the record, unless another rank or job has been faster. */
static int record(const char *folder, const char *path, const struct owner *o, struct merr *err)
{
    char fresh[PATH_MAX + 64], text[RECORD_MAX];
    json_auto_t *doc = json_pack("{s:s, s:s}", "user", o->user, "job", o->job);
    size_t n = doc ? json_dumpb(doc, text, sizeof(text), JSON_COMPACT) : 0;
    int r;

    if (n == 0 || n > sizeof(text))
        return merr_set(err, -ENOMEM, "no memory for the record of '%s'", folder);
    (void)snprintf(fresh, sizeof(fresh), "%s/.owner-%s-%ld", folder, o->job, (long)getpid());
    TRY(io_write_file(fresh, text, n, 0644, err));
    r = link(fresh, path) == 0 || errno == EEXIST ? 0 : merr_errno(err, -errno, "cannot write '%s'", path);
    (void)unlink(fresh);
    return r;
}

int owner_claim(const char *folder, const struct owner *o, struct merr *err)
{
    char path[PATH_MAX + 16], user[256];
    struct merr why;
    int r;

    if (!o->user[0])
        return 0;
    (void)snprintf(path, sizeof(path), "%s/.owner", folder);
    TRY(io_mkdirs(folder, 0755, err));
    r = read_user(path, user, sizeof(user), &why);
    if (r == -ENOENT) {
        TRY(check_free(folder, o, err));
        TRY(record(folder, path, o, err));
        r = read_user(path, user, sizeof(user), &why);
    }
    if (r < 0)
        return merr_set(err, r, "%s", why.text);
    if (strcmp(user, o->user) == 0)
        return 0;
    return merr_set(err, -EPERM,
                    "the checkpoints in '%s' are those of '%s', not of '%s'; give checkpoint.dir a folder of your "
                    "own, and name this one in train.init.from to begin from it",
                    folder, user, o->user);
}
