#include "api/bundle.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/try.h"

#define MAGIC "MUSTERB1"
#define HEAD 11 /* bytes of a record before its path */

int bundle_begin(struct buf *b)
{
    return buf_addstr(b, MAGIC);
}

/* '/' comes before all else: so what is below a path comes right behind it. */
static int rank_of(char c)
{
    return c == '/' ? 1 : c ? 1 + (unsigned char)c : 0;
}

int bundle_compare(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return rank_of(*a) - rank_of(*b);
}

/* Whether it names something below a folder, whatever is there. */
static bool is_plain(const char *path)
{
    if (!*path)
        return false;
    for (size_t n;; path += n + 1) {
        n = strcspn(path, "/");
        if (n == 0 || n > NAME_MAX || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        if (!path[n])
            return true;
    }
}

/* Whether a link at path leads to a place in the folder. */
static bool stays_inside(const char *path, const char *target)
{
    size_t above = 0;
    bool down = false;

    for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/'))
        above++;
    if (*target == '/' || !*target)
        return false;
    for (size_t n; *target; target += n + (target[n] == '/')) {
        n = strcspn(target, "/");
        if (n == 2 && target[0] == '.' && target[1] == '.') {
            if (down || above-- == 0)
                return false;
        } else if (n > 0 && !(n == 1 && target[0] == '.')) {
            down = true;
        }
    }
    return true;
}

static int check_entry(const struct bundle_entry *e, const char *last, struct merr *err)
{
    size_t n = strlen(last);
    char target[BUNDLE_PATH_BYTES];

    if (e->kind != BUNDLE_FILE && e->kind != BUNDLE_PROGRAM && e->kind != BUNDLE_LINK)
        return merr_set(err, -EBADMSG, "'%.200s' is neither a file nor a link", e->path);
    if (!is_plain(e->path))
        return merr_set(err, -EBADMSG, "the path '%.200s' does not stay in its folder", e->path);
    if (n > 0 && bundle_compare(last, e->path) >= 0)
        return merr_set(err, -EBADMSG, "'%.200s' is there twice, or not in order", e->path);
    if (n > 0 && strncmp(last, e->path, n) == 0 && e->path[n] == '/')
        return merr_set(err, -EBADMSG, "'%.200s' is below '%.200s', which is no folder", e->path, last);
    if (e->kind != BUNDLE_LINK)
        return 0;
    if (e->size >= sizeof(target) || memchr(e->data, 0, e->size))
        return merr_set(err, -EBADMSG, "the link '%.200s' has no usable target", e->path);
    (void)snprintf(target, sizeof(target), "%.*s", (int)e->size, e->data);
    return stays_inside(e->path, target)
               ? 0
               : merr_set(err, -EBADMSG, "the link '%.200s' leads to '%.200s', out of its folder", e->path, target);
}

int bundle_add(struct buf *b, const struct bundle_entry *e, struct merr *err)
{
    size_t n = strlen(e->path);
    unsigned char head[HEAD] = {(unsigned char)e->kind, (unsigned char)n, (unsigned char)(n >> 8)};

    for (int i = 0; i < 8; i++)
        head[3 + i] = (unsigned char)(e->size >> 8 * i);
    TRY(check_entry(e, "", err));
    if (buf_add(b, head, HEAD) < 0 || buf_add(b, e->path, n) < 0 || buf_add(b, e->data, e->size) < 0)
        return merr_set(err, -EMSGSIZE, "the files have more than %zu MiB", b->limit >> 20);
    return 0;
}

int bundle_open(struct bundle_reader *r, const void *data, size_t len, struct merr *err)
{
    size_t n = strlen(MAGIC);

    if (len < n || memcmp(data, MAGIC, n) != 0)
        return merr_set(err, -EBADMSG, "it does not begin as a bundle does");
    *r = (struct bundle_reader){.at = (const char *)data + n, .left = len - n};
    return 0;
}

int bundle_next(struct bundle_reader *r, struct bundle_entry *ret, struct merr *err)
{
    const unsigned char *head = (const unsigned char *)r->at;
    size_t n;

    if (r->left == 0)
        return 0;
    if (r->left < HEAD)
        return merr_set(err, -EBADMSG, "it ends in the middle of a record");
    if (r->n == BUNDLE_FILES_MAX)
        return merr_set(err, -EBADMSG, "it has more than %d files", BUNDLE_FILES_MAX);
    ret->kind = (enum bundle_kind)head[0];
    n = head[1] | (size_t)head[2] << 8;
    ret->size = 0;
    for (int i = 0; i < 8; i++)
        ret->size |= (uint64_t)head[3 + i] << 8 * i;
    r->at += HEAD;
    r->left -= HEAD;
    if (n == 0 || n >= sizeof(ret->path) || n > r->left || memchr(r->at, 0, n))
        return merr_set(err, -EBADMSG, "a path has no usable length");
    memcpy(ret->path, r->at, n);
    ret->path[n] = '\0';
    ret->data = r->at + n;
    if (ret->size > r->left - n)
        return merr_set(err, -EBADMSG, "'%.200s' is longer than what is left", ret->path);
    TRY(check_entry(ret, r->last, err));
    r->at += n + ret->size;
    r->left -= n + (size_t)ret->size;
    memcpy(r->last, ret->path, n + 1);
    r->n++;
    return 1;
}

int bundle_check(const void *data, size_t len, struct merr *err)
{
    struct bundle_reader r;
    struct bundle_entry e;
    int more;

    TRY(bundle_open(&r, data, len, err));
    while ((more = bundle_next(&r, &e, err)) > 0)
        ;
    return more;
}

const char *bundle_name(const void *data, size_t len, char ret[BUNDLE_NAME_BYTES])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    (void)SHA256(data, len, digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", digest[i]);
    return ret;
}

bool bundle_is_name(const char *name)
{
    return strlen(name) == BUNDLE_NAME_BYTES - 1 && strspn(name, "0123456789abcdef") == BUNDLE_NAME_BYTES - 1;
}

int bundle_path(const char *jobs, const char *user, const char *name, char ret[PATH_MAX])
{
    char folder[3 * 64 + 2] = "u"; /* a user's name may have any letter: one that is not plain stands as its number */
    size_t n = 1;

    for (; *user && n < sizeof(folder) - 4; user++) {
        bool plain = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *user);

        n += (size_t)snprintf(folder + n, sizeof(folder) - n, plain ? "%c" : "%%%02x", (unsigned char)*user);
    }
    if (*user ||
        snprintf(ret, PATH_MAX, "%s/" BUNDLE_FOLDER "/%s%s%s", jobs, folder, *name ? "/" : "", name) >= PATH_MAX)
        return -ENAMETOOLONG;
    return 0;
}
