#include "base/zone.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/try.h"

#define FILE_MAX (256 << 10)
#define CHANGES_MAX 4096
#define TYPES_MAX 256
#define DAY_S 86400
#define OFFSET_MAX (26 * 3600)
#define HEADER 44

struct zone {
    int first_s; /* before the first change */
    size_t n;
    struct {
        int64_t at_s;
        int offset_s; /* from then on */
    } v[];
};

bool zone_name_ok(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len >= ZONE_NAME_MAX || strstr(name, "//") || name[len - 1] == '/')
        return false;
    for (const char *p = name; *p; p += strcspn(p, "/") + (p[strcspn(p, "/")] == '/'))
        if (!((*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z'))) /* no part begins with a dot */
            return false;
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_+-") == len;
}

struct counts { /* of a header, in the order of the file */
    uint32_t ut, std, leap, times, types, chars;
};

/* The header at the start of data; its block's length for times of so many bytes. False: it is none. */
static bool read_header(const uint8_t *data, size_t len, size_t time_bytes, struct counts *ret, size_t *ret_block)
{
    uint32_t v[6];

    if (len < HEADER || memcmp(data, "TZif", 4) != 0)
        return false;
    memcpy(v, data + 20, sizeof(v));
    *ret = (struct counts){be32toh(v[0]), be32toh(v[1]), be32toh(v[2]), be32toh(v[3]), be32toh(v[4]), be32toh(v[5])};
    if (ret->times > CHANGES_MAX || ret->types == 0 || ret->types > TYPES_MAX || ret->chars > 4096 ||
        ret->leap > 4096 || ret->ut > TYPES_MAX || ret->std > TYPES_MAX)
        return false;
    *ret_block =
        ret->times * (time_bytes + 1) + ret->types * 6 + ret->chars + ret->leap * (time_bytes + 4) + ret->std + ret->ut;
    return *ret_block <= len - HEADER;
}

static int offset_at(const uint8_t *types, size_t i)
{
    uint32_t v;

    memcpy(&v, types + i * 6, sizeof(v));
    return (int)(int32_t)be32toh(v);
}

int zone_parse(const void *data, size_t len, struct zone **ret)
{
    const uint8_t *at = data, *types, *index;
    struct counts c;
    struct zone *z;
    size_t block;

    if (!read_header(at, len, 4, &c, &block))
        return -EBADMSG;
    if (at[4] < '2') /* of the first version, with times of 32 bits alone: nobody makes these any more */
        return -EBADMSG;
    at += HEADER + block;
    len -= HEADER + block;
    if (!read_header(at, len, 8, &c, &block))
        return -EBADMSG;
    at += HEADER;
    index = at + c.times * sizeof(int64_t);
    types = index + c.times;
    z = calloc(1, sizeof(*z) + c.times * sizeof(z->v[0]));
    if (!z)
        return -ENOMEM;
    z->first_s = offset_at(types, 0);
    for (z->n = 0; z->n < c.times; z->n++) {
        uint64_t v;
        size_t i = z->n;

        memcpy(&v, at + i * sizeof(v), sizeof(v));
        z->v[i].at_s = (int64_t)be64toh(v);
        z->v[i].offset_s = index[i] < c.types ? offset_at(types, index[i]) : INT32_MAX;
        if (abs(z->v[i].offset_s) > OFFSET_MAX || (i > 0 && z->v[i].at_s <= z->v[i - 1].at_s))
            goto bad;
    }
    if (abs(z->first_s) > OFFSET_MAX)
        goto bad;
    *ret = z;
    return 0;
bad:
    free(z);
    return -EBADMSG;
}

int zone_open(const char *folder, const char *name, struct zone **ret, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf file;
    char path[4096];
    int r;

    buf_init(&file, FILE_MAX);
    if (!zone_name_ok(name))
        return merr_set(err, -EINVAL, "'%.63s' is no name of a time zone; want UTC or one such as Europe/Berlin", name);
    if (strcmp(name, "UTC") == 0) {
        *ret = calloc(1, sizeof(**ret));
        return *ret ? 0 : merr_set(err, -ENOMEM, "out of memory");
    }
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    r = io_read_file(path, &file, err);
    if (r == -ENOENT || r == -EISDIR)
        return merr_set(err, -ENOENT, "the server knows no time zone '%s': %s has no such file", name, folder);
    TRY(r);
    r = zone_parse(file.data, file.len, ret);
    return r == -EBADMSG ? merr_set(err, r, "the time zone '%s' cannot be read from %s", name, folder) : r;
}

void zone_free(struct zone *z)
{
    free(z);
}

/* Of the changes the first that is after a time. */
static size_t after(const struct zone *z, int64_t utc_s)
{
    size_t low = 0, high = z->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (z->v[mid].at_s <= utc_s)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int zone_offset_s(const struct zone *z, int64_t utc_s)
{
    size_t i = after(z, utc_s);

    return i > 0 ? z->v[i - 1].offset_s : z->first_s;
}

int zone_utc_s(const struct zone *z, int64_t local_s, int64_t ret[2])
{
    size_t first = after(z, local_s - 2 * DAY_S), last = after(z, local_s + 2 * DAY_S);
    int n = 0;

    for (size_t i = first; i <= last && n < 2; i++) { /* with the offset before each change nearby, and the last one */
        int64_t utc_s = local_s - (i > 0 ? z->v[i - 1].offset_s : z->first_s);

        if (after(z, utc_s) == i)
            ret[n++] = utc_s;
    }
    for (size_t i = first; n == 0 && i < last; i++)
        if (local_s >= z->v[i].at_s + (i > 0 ? z->v[i - 1].offset_s : z->first_s) &&
            local_s < z->v[i].at_s + z->v[i].offset_s) {
            ret[0] = z->v[i].at_s;
            return 0;
        }
    return n;
}
