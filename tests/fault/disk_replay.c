/* disk_replay - one of the states that a power loss may leave, from the log */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "tests/fault/disk_log.h"
#include "tests/fault/disk_log_priv.h"

#define SECTOR 512u
#define NAMES_MAX 1024

struct named {
    int folder, object;
    const char *name;
};

struct replay {
    uint64_t chance;
    bool in_order; /* names change up to an instant; or any of those that may */
    size_t instant;
    size_t synced[LOG_OBJECTS_MAX]; /* what was done to it before this change stays */
    struct named name[NAMES_MAX];
    size_t names;
    struct bytes {
        char *data;
        size_t len;
    } file[LOG_OBJECTS_MAX];
};

static uint64_t draw(struct replay *r, uint64_t below)
{
    r->chance ^= r->chance << 13;
    r->chance ^= r->chance >> 7;
    r->chance ^= r->chance << 17;
    return (r->chance >> 11) % below;
}

/* --- bytes ------------------------------------------------------------------------------------- */

static void reach(struct bytes *b, size_t len)
{
    if (len <= b->len)
        return;
    b->data = realloc(b->data, len);
    assert(b->data);
    memset(b->data + b->len, 0, len - b->len);
    b->len = len;
}

/* All of it, nothing, or some of its sectors. */
static void write_bytes(struct replay *r, const struct change *c, bool stays)
{
    struct bytes *b = &r->file[c->object];
    uint64_t how = stays ? 0 : draw(r, 3);

    if (how == 1)
        return;
    if (how == 0 || !c->data) {
        reach(b, c->at + c->len);
        if (c->data)
            memcpy(b->data + c->at, c->data, c->len);
        return;
    }
    for (size_t at = 0; at < c->len; at += SECTOR)
        if (draw(r, 2)) {
            size_t n = c->len - at < SECTOR ? c->len - at : SECTOR;

            reach(b, c->at + at + n);
            memcpy(b->data + c->at + at, (const char *)c->data + at, n);
        }
}

/* --- names ------------------------------------------------------------------------------------- */

static void set_name(struct replay *r, int folder, const char *name, int object)
{
    for (size_t i = 0; i < r->names; i++)
        if (r->name[i].folder == folder && strcmp(r->name[i].name, name) == 0) {
            r->name[i].object = object;
            return;
        }
    assert(r->names < NAMES_MAX);
    r->name[r->names++] = (struct named){.folder = folder, .object = object, .name = name};
}

/* If it still names the object. */
static void drop_name(struct replay *r, int folder, const char *name, int object)
{
    for (size_t i = 0; i < r->names; i++)
        if (r->name[i].folder == folder && r->name[i].object == object && strcmp(r->name[i].name, name) == 0) {
            r->name[i] = r->name[--r->names];
            return;
        }
}

static void change_names(struct replay *r, const struct change *c)
{
    if (c->kind == CHANGE_LINK) {
        set_name(r, c->folder, c->name, c->object);
    } else if (c->kind == CHANGE_UNLINK) {
        drop_name(r, c->folder, c->name, c->object);
    } else if (c->kind == CHANGE_RENAME) {
        drop_name(r, c->folder, c->name, c->object);
        set_name(r, c->folder, c->name_to, c->object);
    } else {
        set_name(r, c->folder, c->name, c->other);
        set_name(r, c->folder, c->name_to, c->object);
    }
}

/* --- all --------------------------------------------------------------------------------------- */

static void apply(struct replay *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct change *c = &disk_log.v[i];

        if (c->kind == CHANGE_BYTES)
            write_bytes(r, c, i < r->synced[c->object]);
        else if (c->kind != CHANGE_SYNC && c->kind != CHANGE_MARK &&
                 (i < r->synced[c->folder] || (r->in_order ? i < r->instant : draw(r, 2) == 0)))
            change_names(r, c);
    }
}

static int make(const struct replay *r, int folder, const char *path, struct merr *err)
{
    for (size_t i = 0; i < r->names; i++) {
        const struct named *n = &r->name[i];
        const struct bytes *b = &r->file[n->object];
        char at[PATH_MAX];
        int code;

        if (n->folder != folder)
            continue;
        if (snprintf(at, sizeof(at), "%s/%s", path, n->name) >= (int)sizeof(at))
            return merr_set(err, -ENAMETOOLONG, "'%s' is too long", path);
        if (disk_log.is_folder[n->object])
            code = mkdir(at, 0755) ? merr_errno(err, -errno, "cannot make '%s'", at) : make(r, n->object, at, err);
        else
            code = io_publish_file(at, b->data ? b->data : "", b->len, 0644, err);
        if (code)
            return code;
    }
    return 0;
}

int disk_log_replay(size_t at, uint64_t seed, const char *to, struct merr *err)
{
    struct replay *r = calloc(1, sizeof(*r));
    int code;

    assert(r && at <= disk_log.n);
    r->chance = seed * 0x9E3779B97F4A7C15u + 1;
    r->in_order = draw(r, 2);
    r->instant = draw(r, at + 1);
    for (size_t i = 0; i < at; i++)
        if (disk_log.v[i].kind == CHANGE_SYNC)
            r->synced[disk_log.v[i].object] = i;
    apply(r, at);
    code = make(r, 0, to, err);
    for (int i = 0; i < LOG_OBJECTS_MAX; i++)
        free(r->file[i].data);
    free(r);
    return code;
}
