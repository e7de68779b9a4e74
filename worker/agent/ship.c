#include "worker/agent/ship.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "worker/agent/screen.h"

#define PIECE_OVERHEAD 160   /* bytes of a piece as JSON beside its text */
#define LOG_STAYS (1 << 20)  /* the end of what was stored, for who looks at a log on its node */
#define LOG_DROPS (16 << 20) /* given back to the disk at a time */

struct stream {
    enum report_kind kind;
    char job[RANKS_JOB_MAX];
    uint64_t generation;
    int rank;              /* of logs */
    int max_mib;           /* of a log that is to be kept */
    char folder[PATH_MAX]; /* of the run */
    off_t acked;           /* all before is stored by the server */
    off_t dropped;         /* of a log: all before was given back to the disk */
    int barred;            /* negative errno: why nothing of it was read; 0: something was, or might be */
    bool kept;             /* ship_sync has seen its run */
    bool screened;         /* metrics of a command, which may write anything */
    struct screen screen;  /* up to acked */
    struct screen sent;    /* up to sent_to */
    off_t sent_to;
};

struct ship {
    const struct machine *machine; /* borrowed */
    struct stream **v;
    size_t n, cap;
    size_t turn; /* the stream that goes first next time */
};

struct ship *ship_new(const struct machine *h)
{
    struct ship *s = calloc(1, sizeof(*s));

    if (s)
        s->machine = h;
    return s;
}

void ship_free(struct ship *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i]);
    free(s->v);
    free(s);
}

static struct stream *find(const struct ship *s, enum report_kind kind, const char *job, uint64_t generation, int rank)
{
    for (size_t i = 0; i < s->n; i++) {
        struct stream *t = s->v[i];

        if (t->kind == kind && t->generation == generation && t->rank == rank && strcmp(t->job, job) == 0)
            return t;
    }
    return NULL;
}

/* Follow one file. Without memory it is followed later: ship_sync comes again before each report. */
static void follow(struct ship *s, enum report_kind kind, const struct run *run, int rank)
{
    struct stream *t = find(s, kind, run->job, run->generation, rank);

    if (t) {
        t->kept = true;
        return;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        struct stream **v = realloc(s->v, cap * sizeof(struct stream *));

        if (!v)
            return;
        s->v = v;
        s->cap = cap;
    }
    t = calloc(1, sizeof(*t));
    if (!t)
        return;
    *t = (struct stream){.kind = kind, .generation = run->generation, .rank = rank, .kept = true};
    t->screened = kind == REPORT_METRICS && run->spec && run->spec->kind == JOB_COMMAND;
    t->max_mib = kind == REPORT_LOGS && run->spec ? run->spec->logs.max_mib : 0;
    (void)snprintf(t->job, sizeof(t->job), "%s", run->job);
    (void)snprintf(t->folder, sizeof(t->folder), "%s", run->folder);
    s->v[s->n++] = t;
}

void ship_sync(struct ship *s, const struct ranks *r)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n; i++)
        s->v[i]->kept = false;
    for (size_t i = 0; i < ranks_count(r); i++) {
        const struct run *run = ranks_at(r, i);

        for (int j = 0; j < run->n; j++)
            follow(s, REPORT_LOGS, run, run->ranks[j].rank);
        follow(s, REPORT_METRICS, run, -1);
        follow(s, REPORT_EVENTS, run, -1);
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i]->kept)
            s->v[kept++] = s->v[i];
        else
            free(s->v[i]);
    }
    s->n = kept;
}

/* Bytes of text as a JSON string, at most. */
static size_t json_size(const char *text, size_t n)
{
    size_t size = n + 2;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f')
            size++;
        else if (c < 0x20 || c == 0x7F)
            size += 5;
    }
    return size;
}

/* How much of the n bytes at hand may go now: whole lines of metrics and events, whole characters, and no
 * more JSON than room. */
static size_t cut(enum report_kind kind, const char *text, size_t n, size_t room)
{
    while (n && json_size(text, n) > room)
        n = n > 4096 ? n - n / 4 : n - 1;
    if (kind != REPORT_LOGS && n < SHIP_PIECE_MAX) {
        const char *end = n ? memrchr(text, '\n', n) : NULL;

        n = end ? (size_t)(end - text) + 1 : 0;
    }
    return utf8_cut(text, n);
}

static const char *const names[REPORT_KINDS] = {"log", "metrics.jsonl", "events.jsonl"};

/* Bytes of a stream from an offset on; as machine_run_read. */
static ssize_t read_stream(const struct ship *s, const struct stream *t, off_t offset, char *text, size_t n,
                           off_t *ret_size)
{
    if (t->kind != REPORT_LOGS && offset >= (t->kind == REPORT_METRICS ? SHIP_METRICS_MAX : SHIP_LINES_MAX))
        return -EFBIG;
    return machine_run_read(s->machine, t->folder, names[t->kind], t->rank, offset, text, n, ret_size);
}

/* The next piece of a stream. Returns the bytes of JSON it takes, 0 when there is none or no room. */
static size_t collect(const struct ship *s, struct stream *t, char *text, size_t room, json_t *list, bool *ret_more)
{
    off_t file_size;
    ssize_t got = read_stream(s, t, t->acked, text, SHIP_PIECE_MAX, &file_size);
    struct report_piece piece = {
        .generation = (int64_t)t->generation, .rank = t->rank, .offset = t->acked, .max_mib = t->max_mib};
    size_t n, size;

    t->barred = got < 0 && got != -ENOENT ? (int)got : 0;
    if (got <= 0)
        return 0;
    if (room <= PIECE_OVERHEAD) {
        *ret_more = true;
        return 0;
    }
    n = cut(t->kind, text, (size_t)got, room - PIECE_OVERHEAD);
    /* Zero either because the room is short, or because only half a line or character is there. */
    if (n < (size_t)got && (n || json_size(text, (size_t)got) > room - PIECE_OVERHEAD))
        *ret_more = true;
    if (t->acked + (off_t)n < file_size && n == SHIP_PIECE_MAX)
        *ret_more = true;
    if (!n)
        return 0;
    utf8_patch(text, n);
    if (t->screened) {
        t->sent = t->screen;
        t->sent_to = t->acked + (off_t)n;
        screen_lines(&t->sent, text, n, machine_wall_us(s->machine));
    }
    size = json_size(text, n) + PIECE_OVERHEAD;
    text[n] = '\0';
    (void)snprintf(piece.job, sizeof(piece.job), "%s", t->job);
    piece.text = text;
    return json_array_append_new(list, report_piece_write(&piece)) < 0 ? 0 : size;
}

int ship_collect(struct ship *s, size_t max, json_t *report, bool *ret_more)
{
    char *text = malloc(SHIP_PIECE_MAX + 1);
    json_t *lists[REPORT_KINDS];
    size_t left = max;

    *ret_more = false;
    if (!text)
        return -ENOMEM;
    for (int k = 0; k < REPORT_KINDS; k++) {
        lists[k] = json_array();
        if (json_object_set_new(report, report_kind_names[k], lists[k]) < 0) {
            free(text);
            return -ENOMEM;
        }
    }
    /* Start at another stream each time, so that one that writes much keeps none of the others waiting. */
    s->turn++;
    for (size_t i = 0; i < s->n; i++) {
        struct stream *t = s->v[(i + s->turn) % s->n];

        left -= collect(s, t, text, left, lists[t->kind], ret_more);
    }
    free(text);
    return 0;
}

/* What the server has of a log need not lie here, too. */
static void give_back(const struct ship *s, struct stream *t)
{
    if (t->acked - t->dropped < LOG_STAYS + LOG_DROPS)
        return;
    t->dropped = t->acked - LOG_STAYS;
    machine_log_drop(s->machine, t->folder, t->rank, t->dropped);
}

bool ship_ack(struct ship *s, const struct report_acks *acks)
{
    bool moved = false;

    for (int k = 0; k < REPORT_KINDS; k++)
        for (size_t i = 0; i < acks->of[k].n; i++) {
            const struct report_piece *ack = &acks->of[k].v[i];
            struct stream *t =
                find(s, (enum report_kind)k, ack->job, (uint64_t)ack->generation, k == REPORT_LOGS ? ack->rank : -1);

            moved = moved || (t && t->acked != ack->offset);
            if (t && t->screened && ack->offset == t->sent_to)
                t->screen = t->sent;
            if (t)
                t->acked = ack->offset;
            if (t && t->kind == REPORT_LOGS)
                give_back(s, t);
        }
    return moved;
}

bool ship_trouble(const struct ship *s, const char *job, uint64_t generation, char *ret, size_t size)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct stream *t = s->v[i];
        char name[32];

        if ((!t->barred && t->sent.damaged + t->sent.thinned == 0) || t->generation != generation ||
            strcmp(t->job, job) != 0)
            continue;
        if (t->kind == REPORT_LOGS)
            (void)snprintf(name, sizeof(name), "rank-%05d.log", t->rank);
        else
            (void)snprintf(name, sizeof(name), "%s", names[t->kind]);
        if (!t->barred && t->sent.damaged > 0)
            (void)snprintf(ret, size,
                           "%llu lines of '%s' are left out so far: they are longer than %d KiB, no JSON object, or "
                           "not as docs/programs.md has them",
                           (unsigned long long)t->sent.damaged, name, SCREEN_LINE_MAX >> 10);
        else if (!t->barred)
            (void)snprintf(ret, size, "%llu lines of '%s' are left out so far: more than %d a second were written",
                           (unsigned long long)t->sent.thinned, name, SCREEN_PER_S);
        else if (t->barred == -ELOOP || t->barred == -EMEDIUMTYPE)
            (void)snprintf(ret, size, "'%s' in the folder of the run is no plain file, so it is not read", name);
        else if (t->barred == -EFBIG)
            (void)snprintf(ret, size, "'%s' in the folder of the run is larger than %lld MiB; the rest is not read",
                           name, (t->kind == REPORT_METRICS ? SHIP_METRICS_MAX : SHIP_LINES_MAX) >> 20);
        else
            (void)snprintf(ret, size, "'%s' in the folder of the run cannot be read: %s", name, strerror(-t->barred));
        return true;
    }
    return false;
}

/* Is there something after the ack that will be sent? The beginning of a line or of a character whose rest
 * never came does not count: its writer was killed in the middle. As long as a piece it does count, and is sent. */
static bool outstanding(const struct ship *s, const struct stream *t)
{
    char text[4096];
    off_t at = t->acked, size;
    ssize_t n;

    while ((n = read_stream(s, t, at, text, sizeof(text), &size)) > 0) {
        if (t->kind == REPORT_LOGS ? utf8_cut(text, (size_t)n) > 0 : memchr(text, '\n', (size_t)n) != NULL)
            return true;
        if (t->kind == REPORT_LOGS)
            return false;
        at += n;
        if (at - t->acked >= SHIP_PIECE_MAX)
            return true;
    }
    return false;
}

bool ship_done(const struct ship *s, const char *job, uint64_t generation)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct stream *t = s->v[i];

        if (t->generation == generation && strcmp(t->job, job) == 0 && outstanding(s, t))
            return false;
    }
    return true;
}
