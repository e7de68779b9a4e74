#include "server/store/files.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/utf8.h"
#include "server/cluster/job.h"
#include "server/http/call.h"

#define QUEUE_MAX 4096
#define RANKS_SHOWN 64 /* ranks in one answer of logs */

struct files {
    char spool[4096];
    void *owner; /* of the calls that it runs; borrowed */
    struct queue queue;
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct files *f = arg;

    for (;;) {
        struct call *list = queue_take(&f->queue, 64, clock_mono_us() + 3600 * 1000000LL);

        if (!list && queue_closed(&f->queue))
            return NULL;
        while (list) {
            struct call *call = list;

            list = call->next;
            call->next = NULL;
            call->run(f->owner, call);
        }
    }
}

int files_start(const char *spool, void *owner, struct files **ret, struct merr *err)
{
    struct files *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return merr_set(err, -ENOMEM, "out of memory");
    (void)snprintf(f->spool, sizeof(f->spool), "%s", spool);
    f->owner = owner;
    r = io_mkdirs(spool, 0700, err);
    if (r < 0) {
        free(f);
        return r;
    }
    queue_init(&f->queue, QUEUE_MAX);
    r = pthread_create(&f->thread, NULL, serve, f);
    if (r != 0) {
        queue_destroy(&f->queue);
        free(f);
        return merr_errno(err, -r, "cannot start a thread");
    }
    *ret = f;
    return 0;
}

void files_stop(struct files *f)
{
    if (!f)
        return;
    queue_close(&f->queue);
    (void)pthread_join(f->thread, NULL);
}

void files_free(struct files *f)
{
    if (!f)
        return;
    queue_destroy(&f->queue);
    free(f);
}

void files_post(struct files *f, struct call *call)
{
    if (queue_put(&f->queue, call))
        return;
    call_problem(call, 503, "busy", "more than %d requests wait for files; try again in a second", QUEUE_MAX);
    call_deliver(call);
}

int files_make_job(const struct files *f, uint64_t job, struct merr *err)
{
    char path[sizeof(f->spool) + 32];

    (void)snprintf(path, sizeof(path), "%s/j%llu", f->spool, (unsigned long long)job);
    return io_mkdirs(path, 0700, err);
}

void files_drop_job(const struct files *f, uint64_t job)
{
    char path[sizeof(f->spool) + 32];

    (void)snprintf(path, sizeof(path), "%s/j%llu", f->spool, (unsigned long long)job);
    (void)io_remove_tree(path, NULL); /* what cannot be removed is found by whoever looks there */
}

/* The generation that a file of a job is of; 0: of none. */
static uint32_t generation_of(const char *name)
{
    int rank, generation = 0, end = 0;

    if (sscanf(name, "rank-%5d.g%9d.log%n", &rank, &generation, &end) != 2)
        (void)sscanf(name, "metrics.g%9d.jsonl%n", &generation, &end);
    return end > 0 && !name[end] ? (uint32_t)generation : 0;
}

void files_remove_generation(const char *spool, uint64_t job, uint32_t generation)
{
    char path[4160];
    DIR *d;

    (void)snprintf(path, sizeof(path), "%s/j%llu", spool, (unsigned long long)job);
    d = opendir(path);
    if (!d)
        return;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (generation_of(e->d_name) == generation)
            (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
}

void files_drop_generation(const struct files *f, uint64_t job, uint32_t generation)
{
    files_remove_generation(f->spool, job, generation);
}

/* --- taking pieces in -------------------------------------------------------------------------------- */

/* Append text at offset if the file is that long. Returns the offset to acknowledge, or a negative errno. */
static int64_t append(const char *path, int64_t offset, const char *text, size_t len, bool *ret_new)
{
    IO_CLOSE_AUTO int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
    struct stat st;
    int r;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size >= FILES_LOG_MAX)
        return offset + (int64_t)len; /* full: dropped, so that the agent goes on */
    if (st.st_size != offset)
        return st.st_size;
    r = io_write_all(fd, text, len);
    if (r < 0 || (fdatasync(fd) < 0 && (r = -errno))) {
        (void)ftruncate(fd, offset);
        return r;
    }
    *ret_new = true;
    return offset + (int64_t)len;
}

int files_take_piece(const char *spool, const json_t *piece, bool log, json_t *acks, json_t *fresh)
{
    const char *job = json_string_value(json_object_get(piece, "job"));
    json_t *text = json_object_get(piece, "text");
    json_int_t generation = json_integer_value(json_object_get(piece, "generation"));
    json_int_t rank = json_integer_value(json_object_get(piece, "rank"));
    int64_t offset = json_integer_value(json_object_get(piece, "offset")), at;
    char path[4200], dir[4160];
    struct stat st;
    bool is_new = false;

    if (job_id_parse(job) == 0 || !json_is_string(text) || generation < 1 || generation > INT32_MAX || rank < 0 ||
        rank >= PLAN_RANKS_MAX || offset < 0)
        return -EINVAL;
    (void)snprintf(dir, sizeof(dir), "%s/%s", spool, job);
    if (stat(dir, &st) < 0)
        at = offset + (int64_t)json_string_length(text); /* a job that is not known any more */
    else {
        if (log)
            (void)snprintf(path, sizeof(path), "%s/rank-%05d.g%d.log", dir, (int)rank, (int)generation);
        else
            (void)snprintf(path, sizeof(path), "%s/metrics.g%d.jsonl", dir, (int)generation);
        at = append(path, offset, json_string_value(text), json_string_length(text), &is_new);
    }
    if (at < 0)
        return (int)at;
    if (is_new) {
        json_t *told = json_copy((json_t *)piece);

        (void)json_object_set_new(told, "next_offset", json_integer((json_int_t)at));
        (void)json_array_append_new(fresh, told);
    }
    (void)json_array_append_new(
        acks, log ? json_pack("{s:s, s:I, s:I, s:I}", "job", job, "generation", generation, "rank", rank, "offset",
                              (json_int_t)at)
                  : json_pack("{s:s, s:I, s:I}", "job", job, "generation", generation, "offset", (json_int_t)at));
    return 0;
}

void files_take_report(struct files *f, struct call *call)
{
    static const char *const kind[] = {"logs", "metrics"};

    call->acks = json_object();
    call->fresh = json_object();
    for (int k = 0; k < 2; k++) {
        json_t *acks = json_array(), *fresh = json_array(), *piece;
        size_t i;

        json_array_foreach (json_object_get(call->body, kind[k]), i, piece) {
            int r = files_take_piece(f->spool, piece, k == 0, acks, fresh);

            if (r == -EINVAL)
                call_problem(call, 422, "report-invalid", "piece %zu of '%s' wants job, generation, offset and text", i,
                             kind[k]);
            else if (r < 0)
                call_problem(call, 503, "disk", "cannot keep %s: %s", kind[k], strerror(-r));
        }
        (void)json_object_set_new(call->acks, kind[k], acks);
        (void)json_object_set_new(call->fresh, kind[k], fresh);
    }
}

/* --- giving logs out --------------------------------------------------------------------------------- */

/* Ranks (as bits below RANKS_SHOWN) and the newest generation that have a log. rank -1: all. */
static int find_logs(const char *dir, int rank, int *generation, uint64_t *ret_ranks)
{
    DIR *d = opendir(dir);
    int newest = 0;

    if (!d)
        return -errno;
    *ret_ranks = 0;
    for (int pass = 0; pass < 2; pass++) {
        rewinddir(d);
        for (struct dirent *e = readdir(d); e; e = readdir(d)) {
            int r, g, end = 0;

            if (sscanf(e->d_name, "rank-%5d.g%9d.log%n", &r, &g, &end) != 2 || end == 0 || (rank >= 0 && r != rank))
                continue;
            if (pass == 0 && g > newest)
                newest = g;
            if (pass == 1 && g == *generation && r >= 0 && (rank >= 0 || r < RANKS_SHOWN))
                *ret_ranks |= UINT64_C(1) << (rank >= 0 ? 0 : r);
        }
        if (*generation == 0)
            *generation = newest;
    }
    (void)closedir(d);
    return 0;
}

/* Where the last n lines of the first size bytes of fd begin, looking at most so many bytes back. */
static int64_t tail_offset(int fd, int64_t size, int n, size_t most, char *scratch)
{
    int64_t from = size > (int64_t)most ? size - (int64_t)most : 0;
    ssize_t got = pread(fd, scratch, (size_t)(size - from), from);

    for (ssize_t i = got - 2; i >= 0; i--)
        if (scratch[i] == '\n' && --n == 0)
            return from + i + 1;
    for (ssize_t i = 0; from > 0 && i < 3 && i < got && ((unsigned char)scratch[i] & 0xC0) == 0x80; i++)
        from++; /* no line begins here; a character does */
    return from;
}

static json_t *read_log(const char *path, int rank, int generation, int64_t offset, int tail, size_t most,
                        char *scratch)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t got = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    if (tail > 0)
        offset = tail_offset(fd, st.st_size, tail, most, scratch);
    if (offset < st.st_size)
        got = pread(fd, scratch, most, offset);
    if (got < 0)
        return NULL;
    if (got > 0 && offset + got < st.st_size) { /* where the answer is cut, end with a whole line, or character */
        const char *nl = memrchr(scratch, '\n', (size_t)got);

        got = nl ? nl - scratch + 1 : (ssize_t)utf8_cut(scratch, (size_t)got);
    }
    utf8_patch(scratch, (size_t)got);
    return json_pack("{s:i, s:i, s:I, s:s%, s:I, s:I}", "rank", rank, "generation", generation, "offset",
                     (json_int_t)offset, "text", scratch, (size_t)got, "next_offset", (json_int_t)(offset + got),
                     "size", (json_int_t)st.st_size);
}

static void add_lines(json_t *lines, const char *text, size_t len)
{
    while (len > 0) {
        const char *nl = memchr(text, '\n', len);
        size_t n = nl ? (size_t)(nl - text) : len;

        (void)json_array_append_new(lines, json_stringn(text, n));
        text += n + (nl != NULL);
        len -= n + (nl != NULL);
    }
}

json_t *files_read_logs(const char *spool, uint64_t job, int rank, int generation, int64_t offset, int tail)
{
    char dir[4160], path[4200], *scratch = malloc(FILES_ANSWER_MAX);
    json_t *logs = json_array(), *lines = json_array();
    uint64_t ranks = 0;
    int n;

    (void)snprintf(dir, sizeof(dir), "%s/j%llu", spool, (unsigned long long)job);
    if (scratch && find_logs(dir, rank, &generation, &ranks) < 0)
        ranks = 0;
    n = __builtin_popcountll(ranks);
    for (int i = 0; scratch && i < RANKS_SHOWN; i++) {
        int at = rank >= 0 ? rank : i;
        json_t *log = NULL;

        if (!(ranks >> i & 1))
            continue;
        (void)snprintf(path, sizeof(path), "%s/rank-%05d.g%d.log", dir, at, generation);
        log = read_log(path, at, generation, offset, tail, (size_t)(FILES_ANSWER_MAX / n), scratch);
        if (!log)
            continue;
        add_lines(lines, json_string_value(json_object_get(log, "text")),
                  json_string_length(json_object_get(log, "text")));
        (void)json_array_append_new(logs, log);
    }
    free(scratch);
    return json_pack("{s:o, s:o}", "lines", lines, "logs", logs);
}

static int query_int(const struct call *call, const char *name, int none)
{
    const char *text = http_query(call->req, name);
    char *end;
    long v;

    if (!text || !*text)
        return none;
    v = strtol(text, &end, 10);
    return *end || v < 0 || v > INT32_MAX ? none : (int)v;
}

void files_answer_logs(struct files *f, struct call *call)
{
    const char *offset = http_query(call->req, "offset");
    int64_t from = offset ? strtoll(offset, NULL, 10) : 0;
    int tail = query_int(call, "tail", 0);

    call_answer_new(call, 200,
                    files_read_logs(f->spool, call->job, query_int(call, "rank", -1), query_int(call, "generation", 0),
                                    from < 0 ? 0 : from, tail));
    call_deliver(call);
}

/* --- giving metrics out ------------------------------------------------------------------------------ */

/* The newest generations that have metrics, oldest first. */
static size_t find_metrics(const char *dir, int *gens, size_t most)
{
    DIR *d = opendir(dir);
    size_t n = 0;

    if (!d)
        return 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        int g, end = 0;
        size_t at;

        if (sscanf(e->d_name, "metrics.g%9d.jsonl%n", &g, &end) != 1 || end == 0)
            continue;
        if (n == most && g < gens[0])
            continue;
        if (n == most) /* the oldest makes room */
            memmove(gens, gens + 1, --n * sizeof(*gens));
        at = n;
        for (; at > 0 && gens[at - 1] > g; at--)
            gens[at] = gens[at - 1];
        gens[at] = g;
        n++;
    }
    (void)closedir(d);
    return n;
}

/* Append the lines of one file; a step that comes again replaces what followed it. */
static void load_metrics(const char *path, json_t *rows)
{
    struct buf b;
    bool first = true;

    buf_init(&b, FILES_LOG_MAX + (1 << 20));
    if (io_read_file(path, &b, NULL) == 0) {
        const char *p = buf_text(&b), *nl;

        for (; (nl = strchr(p, '\n')) && json_array_size(rows) < FILES_POINTS_MAX; p = nl + 1) {
            json_t *row = json_loadb(p, (size_t)(nl - p), 0, NULL);
            json_int_t step = json_integer_value(json_object_get(row, "step"));

            if (!json_is_object(row)) {
                json_decref(row);
                continue;
            }
            while (first && json_array_size(rows) > 0 &&
                   json_integer_value(json_object_get(json_array_get(rows, json_array_size(rows) - 1), "step")) >= step)
                (void)json_array_remove(rows, json_array_size(rows) - 1);
            first = false;
            (void)json_array_append_new(rows, row);
        }
    }
    buf_clear(&b);
}

static bool named(const char *names, const char *key)
{
    size_t n = strlen(key);

    if (!names || !*names || strcmp(key, "step") == 0)
        return true;
    for (const char *p = names; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, key, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

json_t *files_read_metrics(const char *spool, uint64_t job, const char *names, int points)
{
    char dir[4160], path[4200];
    int gens[FILES_GENERATIONS];
    json_t *rows = json_array(), *columns = json_object();
    size_t n_gens, n, every, kept = 0;
    const char *key;
    json_t *value;

    (void)snprintf(dir, sizeof(dir), "%s/j%llu", spool, (unsigned long long)job);
    n_gens = find_metrics(dir, gens, sizeof(gens) / sizeof(gens[0]));
    for (size_t i = 0; i < n_gens; i++) {
        (void)snprintf(path, sizeof(path), "%s/metrics.g%d.jsonl", dir, gens[i]);
        load_metrics(path, rows);
    }
    n = json_array_size(rows);
    every = points > 0 && n > (size_t)points ? (n + (size_t)points - 1) / (size_t)points : 1;
    json_object_foreach (json_array_get(rows, n ? n - 1 : 0), key, value) {
        if (named(names, key))
            (void)json_object_set_new(columns, key, json_array());
    }
    for (size_t i = 0; i < n; i++) {
        if ((n - 1 - i) % every != 0)
            continue;
        kept++;
        json_object_foreach (columns, key, value) {
            json_t *v = json_object_get(json_array_get(rows, i), key);

            (void)json_array_append_new(value, v ? json_incref(v) : json_null());
        }
    }
    json_decref(rows);
    return json_pack("{s:o, s:I}", "metrics", columns, "points", (json_int_t)kept);
}

void files_answer_metrics(struct files *f, struct call *call)
{
    call_answer_new(
        call, 200,
        files_read_metrics(f->spool, call->job, http_query(call->req, "names"), query_int(call, "points", 1000)));
    call_deliver(call);
}

json_t *files_last_metrics(const struct files *f, uint64_t job)
{
    char dir[4160], path[4200], text[16384];
    int gens[FILES_GENERATIONS];
    size_t n, from;
    struct stat st;
    ssize_t got;

    (void)snprintf(dir, sizeof(dir), "%s/j%llu", f->spool, (unsigned long long)job);
    n = find_metrics(dir, gens, sizeof(gens) / sizeof(gens[0]));
    if (n == 0)
        return NULL;
    (void)snprintf(path, sizeof(path), "%s/metrics.g%d.jsonl", dir, gens[n - 1]);
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    from = st.st_size > (off_t)sizeof(text) ? (size_t)st.st_size - sizeof(text) : 0;
    got = pread(fd, text, sizeof(text), (off_t)from);
    while (got > 0 && text[got - 1] != '\n')
        got--;
    for (ssize_t begin = got - 1; begin > 0; begin--)
        if (text[begin - 1] == '\n')
            return json_loadb(text + begin, (size_t)(got - begin), 0, NULL);
    return got > 0 && from == 0 ? json_loadb(text, (size_t)got, 0, NULL) : NULL;
}
