/* site - see the header */
#include "server/http/site.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/io.h"
#include "server/http/http_page.h"
#include "server/http/http_parse.h"

#define NAME_MAX_ 160
#define PATH_MAX_ 4200
/* mkdocs aligns columns by attributes and searches in a worker. */
#define SITE_POLICY                                                                                                    \
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; "                     \
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static const char *const types[][2] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".json", "application/json"},
    {".svg", "image/svg+xml"},
    {".png", "image/png"},
    {".yaml", "application/yaml"},
};

struct site_file {
    char name[NAME_MAX_], etag[24];
    const char *type;
    struct http_page *page;
};

struct site {
    struct site_file *files; /* by name */
    size_t n, bytes;
};

static const char *type_of(const char *name)
{
    const char *end = strrchr(name, '.');

    for (size_t i = 0; end && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(end, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

/* A file of a form that browsers are told of; any other is left out. */
static int add(struct site *s, const char *path, const char *name, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf text;
    struct site_file *f = &s->files[s->n];
    const char *type = type_of(name);
    int r;

    buf_init(&text, SITE_BYTES_MAX - s->bytes);
    if (!type || strlen(name) >= sizeof(f->name))
        return 0;
    if (s->n == SITE_FILES_MAX)
        return merr_set(err, -E2BIG, "more than %d files in a folder of pages, with '%s'", SITE_FILES_MAX, path);
    r = io_read_plain(path, &text, err);
    if (r == -EMSGSIZE)
        return merr_set(err, -E2BIG, "more than %u MiB in a folder of pages, with '%s'", SITE_BYTES_MAX >> 20, path);
    if (r < 0)
        return r;
    (void)snprintf(f->name, sizeof(f->name), "%s", name);
    (void)snprintf(f->etag, sizeof(f->etag), "\"%016llx\"", (unsigned long long)hash_xxh3(buf_text(&text), text.len));
    f->type = type;
    s->bytes += text.len;
    f->page = http_page_new(text.len ? text.data : NULL, text.len);
    text.data = NULL;
    buf_clear(&text);
    if (!f->page)
        return merr_set(err, -ENOMEM, "out of memory");
    s->n++;
    return 0;
}

/* under: the folder's name and '/' in addresses; "" for the first. */
static int read_folder(struct site *s, const char *path, const char *under, struct merr *err)
{
    char file[PATH_MAX_], name[NAME_MAX_ + NAME_MAX_];
    DIR *d = opendir(path);
    int r = 0;

    if (!d)
        return merr_errno(err, -errno, "cannot read the pages in '%s'", path);
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        struct stat st;

        if (*e->d_name == '.' || snprintf(file, sizeof(file), "%s/%s", path, e->d_name) >= (int)sizeof(file) ||
            snprintf(name, sizeof(name), "%s%s", under, e->d_name) >= (int)sizeof(name) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISREG(st.st_mode)) {
            r = add(s, file, name, err);
        } else if (S_ISDIR(st.st_mode) && !*under) {
            (void)snprintf(name, sizeof(name), "%s/", e->d_name);
            r = read_folder(s, file, name, err);
        }
    }
    (void)closedir(d);
    return r;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct site_file *)a)->name, ((const struct site_file *)b)->name);
}

int site_load(const char *path, struct site **ret, struct merr *err)
{
    struct site *s = calloc(1, sizeof(*s));
    int r = -ENOMEM;

    if (s)
        s->files = calloc(SITE_FILES_MAX + 1, sizeof(*s->files));
    if (s && s->files)
        r = read_folder(s, path, "", err);
    else
        (void)merr_set(err, -ENOMEM, "out of memory");
    if (r < 0) {
        site_free(s);
        return r;
    }
    qsort(s->files, s->n, sizeof(*s->files), by_name);
    *ret = s;
    return 0;
}

void site_free(struct site *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->files && i < s->n; i++)
        http_page_unref(s->files[i].page);
    free(s->files);
    free(s);
}

size_t site_files(const struct site *s)
{
    return s->n;
}

void site_serve(const struct site *s, struct http_req *req)
{
    const char *first = http_param(req, 0), *second = http_param(req, 1);
    struct site_file key = {0};
    const struct site_file *f = NULL;

    if (!s || s->n == 0) {
        http_problem(
            req, 404, "no-documentation",
            "this server has no documentation to show: `make docs` makes it, musterd --docs DIR says where it is");
        return;
    }
    if (snprintf(key.name, sizeof(key.name), "%s%s%s", first, second ? "/" : "", second ? second : "") <
        (int)sizeof(key.name))
        f = bsearch(&key, s->files, s->n, sizeof(*s->files), by_name);
    if (!f) {
        http_problem(req, 404, "no-such-resource", "the documentation has no page '%.64s'; /docs leads to all of them",
                     key.name);
        return;
    }
    http_set_header(req, "ETag", f->etag);
    http_set_header(req, "Cache-Control", "max-age=60");
    http_set_header(req, "Content-Security-Policy", SITE_POLICY);
    if (http_etag_match(http_header(req, "If-None-Match"), f->etag))
        http_reply_new(req, 304, NULL);
    else
        http_page_reply(req, 200, f->type, http_page_ref(f->page));
}
