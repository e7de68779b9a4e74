#include "worker/agent/mirror.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/protocol/rendezvous.h"
#include "base/clock.h"
#include "base/io.h"
#include "worker/agent/base64.h"

#define FETCH_WAIT_S 30
#define PUT_MS 15000
#define RETRY_US 500000
#define LOOK_US 2000000 /* a look without being told, should an event be missed */

struct shared { /* one run on several nodes */
    struct mirror *mirror;
    char job[RANKS_JOB_MAX], folder[PATH_MAX];
    uint64_t generation, since;
    char **keys; /* n_keys names: fetched from the server, or put and accepted */
    size_t n_keys;
    char *putting; /* the key on its way, NULL: none */
    bool fetching, dirty, gone;
    int64_t put_us, fetch_us, look_us; /* not before */
    struct shared *next;
};

struct mirror {
    struct calls *calls;
    const struct ranks *ranks;
    char *node, *incarnation;
    int inotify_fd;
    struct shared *first;
};

int mirror_new(struct calls *h, const struct ranks *r, const char *node, const char *incarnation, struct mirror **ret,
               struct merr *err)
{
    struct mirror *m = calloc(1, sizeof(*m));

    if (!m)
        return merr_set(err, -ENOMEM, "no memory for the rendezvous");
    m->calls = h;
    m->ranks = r;
    m->node = strdup(node);
    m->incarnation = strdup(incarnation);
    m->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (!m->node || !m->incarnation || m->inotify_fd < 0) {
        int code = m->node && m->incarnation ? -errno : -ENOMEM;

        mirror_free(m);
        return merr_errno(err, code, "cannot watch rendezvous folders");
    }
    *ret = m;
    return 0;
}

static void forget_keys(struct shared *s)
{
    for (size_t i = 0; i < s->n_keys; i++)
        free(s->keys[i]);
    free(s->keys);
    s->keys = NULL;
    s->n_keys = 0;
}

static void shared_free(struct shared *s)
{
    forget_keys(s);
    free(s->putting);
    free(s);
}

void mirror_free(struct mirror *m)
{
    if (!m)
        return;
    while (m->first) {
        struct shared *s = m->first;

        m->first = s->next;
        shared_free(s);
    }
    io_close(&m->inotify_fd);
    free(m->node);
    free(m->incarnation);
    free(m);
}

int mirror_fd(const struct mirror *m)
{
    return m->inotify_fd;
}

static bool known_key(const struct shared *s, const char *key)
{
    for (size_t i = 0; i < s->n_keys; i++)
        if (strcmp(s->keys[i], key) == 0)
            return true;
    return false;
}

static void add_key(struct shared *s, const char *key)
{
    char **keys, *copy;

    if (known_key(s, key) || s->n_keys == RENDEZVOUS_KEYS_MAX)
        return;
    keys = realloc(s->keys, (s->n_keys + 1) * sizeof(*keys));
    copy = strdup(key);
    if (keys)
        s->keys = keys;
    if (!keys || !copy) {
        free(copy);
        return; /* not known: put or fetched once more, which changes nothing */
    }
    s->keys[s->n_keys++] = copy;
}

/* --- to the server ------------------------------------------------------------------------------ */

static void put_done(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct shared *s = arg;

    (void)body;
    (void)len;
    (void)why;
    if (status == 200 || status == 201 || status == 204 || status == 403 || status == 422 || status == 413)
        add_key(s, s->putting); /* a refused one is not asked again */
    else
        s->put_us = clock_mono_us() + RETRY_US;
    s->dirty = true; /* there may be more */
    free(s->putting);
    s->putting = NULL;
}

static void put_key(struct shared *s, const char *key, const char *path)
{
    struct buf bytes, text;
    char target[512];

    buf_init(&bytes, RENDEZVOUS_BYTES_MAX);
    buf_init(&text, RENDEZVOUS_BYTES_MAX * 2);
    (void)snprintf(target, sizeof(target), "/v1/agents/%s/rendezvous/%s/%" PRIu64 "/%s?incarnation=%s", s->mirror->node,
                   s->job, s->generation, key, s->mirror->incarnation);
    s->putting = strdup(key);
    if (s->putting && io_read_plain(path, &bytes, NULL) == 0 &&
        base64_encode(buf_text(&bytes), bytes.len, &text) == 0 &&
        calls_begin(s->mirror->calls,
                    &(struct call){.method = "PUT",
                                   .path = target,
                                   .type = "text/plain",
                                   .body = buf_text(&text),
                                   .len = text.len,
                                   .timeout_ms = PUT_MS,
                                   .done = put_done,
                                   .arg = s},
                    NULL) == 0)
        s->put_us = 0;
    else { /* it may have been taken away meanwhile */
        free(s->putting);
        s->putting = NULL;
        s->put_us = clock_mono_us() + RETRY_US;
    }
    buf_clear(&bytes);
    buf_clear(&text);
}

/* Put the first file that the server does not have. */
static void put_next(struct shared *s)
{
    DIR *dir = opendir(s->folder);
    struct dirent *e;

    s->dirty = false;
    while (dir && !s->putting && (e = readdir(dir))) {
        char path[PATH_MAX + 300];
        struct stat st;

        if (!rendezvous_key_ok(e->d_name) || known_key(s, e->d_name))
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", s->folder, e->d_name);
        if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > RENDEZVOUS_BYTES_MAX)
            continue;
        put_key(s, e->d_name, path);
        break;
    }
    if (dir)
        (void)closedir(dir);
}

/* --- from the server ---------------------------------------------------------------------------- */

static void publish_key(struct shared *s, const char *key, const char *value)
{
    char path[PATH_MAX + 300];
    struct buf bytes;

    if (!rendezvous_key_ok(key) || known_key(s, key))
        return;
    buf_init(&bytes, RENDEZVOUS_BYTES_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s", s->folder, key);
    /* A file that is there is our own rank's, or was fetched before the agent came back. */
    if (access(path, F_OK) == 0 || (base64_decode(value, strlen(value), &bytes) == 0 &&
                                    io_publish_file(path, buf_text(&bytes), bytes.len, 0640, NULL) == 0))
        add_key(s, key);
    buf_clear(&bytes);
}

static void fetch_done(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct shared *s = arg;
    json_auto_t *doc = status == 200 ? json_loadb(body, len, 0, NULL) : NULL;
    struct rendezvous all;

    (void)why;
    s->fetching = false;
    if (rendezvous_read(doc, &all, NULL) < 0) {
        s->fetch_us = clock_mono_us() + RETRY_US;
        return;
    }
    for (size_t i = 0; i < all.n_keys && !s->gone; i++)
        publish_key(s, all.keys[i].key, all.keys[i].value);
    /* Numbers that do not follow: the server was started anew and has lost what we put. */
    if (s->since && (uint64_t)all.next != s->since + all.n_keys) {
        forget_keys(s);
        s->dirty = true;
    }
    s->since = (uint64_t)all.next;
    rendezvous_clear(&all);
}

static void fetch(struct shared *s, int64_t now_us)
{
    char path[512];

    (void)snprintf(path, sizeof(path),
                   "/v1/agents/%s/rendezvous/%s/%" PRIu64 "?since=%" PRIu64 "&wait=%d&incarnation=%s", s->mirror->node,
                   s->job, s->generation, s->since, FETCH_WAIT_S, s->mirror->incarnation);
    s->fetching =
        calls_begin(
            s->mirror->calls,
            &(struct call){
                .method = "GET", .path = path, .timeout_ms = (FETCH_WAIT_S + 10) * 1000, .done = fetch_done, .arg = s},
            NULL) == 0;
    if (!s->fetching)
        s->fetch_us = now_us + RETRY_US;
}

/* --- which runs --------------------------------------------------------------------------------- */

static bool wanted(const struct mirror *m, const char *job, uint64_t generation)
{
    const struct run *run = ranks_find(m->ranks, job, generation);

    return run && run->nodes > 1 && !ranks_run_ended(run);
}

static void begin(struct mirror *m, const struct run *run)
{
    struct shared *s;

    for (s = m->first; s; s = s->next)
        if (!s->gone && s->generation == run->generation && strcmp(s->job, run->job) == 0)
            return;
    s = calloc(1, sizeof(*s));
    if (!s)
        return; /* the next tick tries again */
    s->mirror = m;
    s->generation = run->generation;
    (void)snprintf(s->job, sizeof(s->job), "%s", run->job);
    (void)snprintf(s->folder, sizeof(s->folder), "%.4000s/rendezvous", run->folder);
    (void)inotify_add_watch(m->inotify_fd, s->folder, IN_MOVED_TO | IN_CREATE | IN_ONLYDIR); /* else: LOOK_US */
    s->dirty = true;
    s->next = m->first;
    m->first = s;
}

/* Read away what inotify says; which folder it was does not matter. */
static bool events(struct mirror *m)
{
    char text[4096] __attribute__((aligned(8)));
    bool any = false;

    while (read(m->inotify_fd, text, sizeof(text)) > 0)
        any = true;
    return any;
}

int64_t mirror_tick(struct mirror *m, int64_t now_us)
{
    int64_t next_us = INT64_MAX;
    bool told = events(m);

    for (size_t i = 0; i < ranks_count(m->ranks); i++)
        if (wanted(m, ranks_at(m->ranks, i)->job, ranks_at(m->ranks, i)->generation))
            begin(m, ranks_at(m->ranks, i));
    for (struct shared **at = &m->first; *at;) {
        struct shared *s = *at;

        s->gone = s->gone || !wanted(m, s->job, s->generation);
        if (s->gone && !s->putting && !s->fetching) {
            *at = s->next;
            shared_free(s);
            continue;
        }
        at = &s->next;
        if (s->gone)
            continue;
        s->dirty |= told || now_us >= s->look_us;
        if (s->dirty && !s->putting && now_us >= s->put_us) {
            put_next(s);
            s->look_us = now_us + LOOK_US;
        }
        if (!s->fetching && now_us >= s->fetch_us)
            fetch(s, now_us);
        if (!s->putting && (s->dirty ? s->put_us : s->look_us) < next_us) /* its end is told by the call */
            next_us = s->dirty ? s->put_us : s->look_us;
        if (!s->fetching && s->fetch_us < next_us)
            next_us = s->fetch_us;
    }
    return next_us;
}
