#include "server/store/spool_times.h"

#include <inttypes.h>
#include <stdio.h>

#define NOTE 32 /* bytes: offset and second */

struct note {
    int64_t offset, at_s;
};

static void name_of(const char *log, char ret[SPOOL_NAME_MAX])
{
    (void)snprintf(ret, SPOOL_NAME_MAX, "%s" SPOOL_TIMES_END, log);
}

/* How many there are. */
static int64_t count(const struct spool *s, uint64_t job, const char *name)
{
    int64_t length = 0;

    return s->ops->read(s->self, job, name, 0, NULL, 0, &length) < 0 ? 0 : length / NOTE;
}

static bool read_note(const struct spool *s, uint64_t job, const char *name, int64_t i, struct note *ret)
{
    char text[NOTE + 1] = "";
    int64_t length;

    return s->ops->read(s->self, job, name, i * NOTE, text, NOTE, &length) == NOTE &&
           sscanf(text, "%" SCNd64 " %" SCNd64, &ret->offset, &ret->at_s) == 2;
}

void spool_times_note(const struct spool *s, uint64_t job, const char *log, int64_t offset, int64_t now_s)
{
    char name[SPOOL_NAME_MAX], text[NOTE + 1];
    struct note last;
    bool is_new;
    int64_t n;

    name_of(log, name);
    n = count(s, job, name);
    if (n > 0 && read_note(s, job, name, n - 1, &last) && now_s < last.at_s + SPOOL_TIMES_S)
        return; /* also where the clock was set back: then these bytes count as those before */
    if (snprintf(text, sizeof(text), "%019" PRId64 " %011" PRId64 "\n", offset, now_s) == NOTE)
        (void)s->ops->append(s->self, job, name, n * NOTE, text, NOTE, &is_new);
}

int64_t spool_times_find(const struct spool *s, uint64_t job, const char *log, int64_t since_s, int64_t length)
{
    char name[SPOOL_NAME_MAX];
    int64_t low = 0, n, high;

    name_of(log, name);
    n = high = count(s, job, name);
    while (low < high) { /* the first whose bytes may have come since */
        int64_t middle = low + (high - low) / 2;
        struct note one;

        if (!read_note(s, job, name, middle, &one))
            return 0;
        if (one.at_s + SPOOL_TIMES_S > since_s)
            high = middle;
        else
            low = middle + 1;
    }
    if (n == 0)
        return 0;
    if (low < n) {
        struct note one;

        return read_note(s, job, name, low, &one) ? one.offset : 0;
    }
    return length;
}
