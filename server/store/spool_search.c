#include "server/store/spool_search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define MOVES_MAX (32 << 20) /* of the pattern in one stretch: some 0.1 s */

struct stretch {
    const struct pattern *pattern;
    const char *bytes;
    size_t len; /* of bytes */
    char *text;
    size_t most;
    uint64_t moves;
};

/* Put a line, without its line feed, behind the text, or before one that ends where the text's room ends; cut to what
 * that ever holds. False: it does not fit beside the others. */
static bool put(struct stretch *s, size_t *used, const char *line, size_t len, bool backwards)
{
    size_t n = len < s->most ? len : utf8_cut(line, s->most - 1);
    char *to;

    if (*used + n + 1 > s->most)
        return false;
    *used += n + 1;
    to = backwards ? s->text + s->most - *used : s->text + *used - n - 1;
    memcpy(to, line, n);
    to[n] = '\n';
    return true;
}

/* Lines from the first on. Returns how many bytes were looked at. */
static size_t search_on(struct stretch *s, size_t *used)
{
    size_t at = 0;

    while (at < s->len && s->moves < MOVES_MAX) {
        const char *line = s->bytes + at, *nl = memchr(line, '\n', s->len - at);
        size_t len = nl ? (size_t)(nl - line) : s->len - at;

        if (pattern_finds(s->pattern, line, len, &s->moves) && !put(s, used, line, len, false))
            break;
        at += len + (nl != NULL);
    }
    return at;
}

/* Up to tail lines from the last on. Returns where those that were looked at begin. */
static size_t search_back(struct stretch *s, int tail, size_t *used)
{
    size_t end = s->len;

    while (end > 0 && tail > 0 && s->moves < MOVES_MAX) {
        size_t stop = end - (s->bytes[end - 1] == '\n');
        const char *nl = memrchr(s->bytes, '\n', stop), *line = nl ? nl + 1 : s->bytes;
        size_t len = stop - (size_t)(line - s->bytes);

        if (pattern_finds(s->pattern, line, len, &s->moves)) {
            if (!put(s, used, line, len, true))
                break;
            tail--;
        }
        end = (size_t)(line - s->bytes);
    }
    memmove(s->text, s->text + s->most - *used, *used);
    return end;
}

/* Read what a stretch is made of: to bytes, from *from on, n of them at most, with no part of a line at an end that is
 * not that of the log. Returns how many, or a negative errno. */
static ssize_t read_stretch(const struct spool *s, uint64_t job, const char *name, const struct spool_extent *e,
                            int64_t floor, int64_t end, bool backwards, int64_t *from, char *bytes, size_t n)
{
    int64_t wanted = *from;
    ssize_t got = spool_read(s, job, name, e, from, bytes, n);
    const char *nl;

    if (got > end - *from)
        got = end > *from ? (ssize_t)(end - *from) : 0;
    if (got <= 0)
        return got;
    if (!backwards && *from + got < end && *from + got != e->gap_from) {
        nl = memrchr(bytes, '\n', (size_t)got);
        return nl ? nl + 1 - bytes : got;
    }
    if (backwards && *from == wanted && *from > floor) {
        nl = memchr(bytes, '\n', (size_t)got);
        if (nl && nl + 1 < bytes + got) {
            *from += nl + 1 - bytes;
            got -= nl + 1 - bytes;
            memmove(bytes, nl + 1, (size_t)got);
        }
    }
    return got;
}

int spool_search_log(const struct spool *s, uint64_t job, const char *name, const struct spool_extent *e,
                     const struct spool_search *search, int64_t offset, int tail, int n, char *text, size_t most,
                     struct spool_stretch *ret)
{
    size_t room = SPOOL_SEARCH_MAX / (size_t)n, used = 0, looked;
    int64_t end = search->before > 0 && search->before < e->length ? search->before : e->length, from = offset;
    struct stretch stretch = {.pattern = search->pattern, .text = text, .most = most};
    char *bytes;
    ssize_t got;

    room = room < SPOOL_SEARCH_LEAST ? SPOOL_SEARCH_LEAST : room;
    if (tail > 0) {
        if (end == e->gap_to && e->gap_to > 0) /* nothing is kept right before it */
            end = e->gap_from;
        from = end > e->gap_to && end - (int64_t)room < e->gap_to ? e->gap_to : end - (int64_t)room;
        from = from < offset ? offset : from;
        room = end > from ? (size_t)(end - from) : 0;
    }
    *ret = (struct spool_stretch){.from = from, .to = from};
    bytes = malloc(room + 1);
    if (!bytes)
        return -ENOMEM;
    got = read_stretch(s, job, name, e, from == e->gap_to ? from : offset, end, tail > 0, &from, bytes, room);
    if (got >= 0) {
        stretch.bytes = bytes;
        stretch.len = (size_t)got;
        looked = tail > 0 ? search_back(&stretch, tail, &used) : search_on(&stretch, &used);
        *ret = (struct spool_stretch){.from = tail > 0 ? from + (int64_t)looked : from,
                                      .to = tail > 0 ? end : from + (int64_t)looked,
                                      .len = used};
    }
    free(bytes);
    return got < 0 ? (int)got : 0;
}
