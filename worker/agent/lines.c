#include "worker/agent/lines.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

void lines_init(struct lines *l, uint64_t limit_bytes)
{
    l->n = 0;
    l->cr = l->progress = l->open = l->shown = false;
    l->fed_us = l->shown_us = 0;
    l->limit = l->left = limit_bytes;
    l->lost = 0;
}

static void note_lost(struct lines *l, struct buf *out)
{
    if (l->lost)
        (void)buf_printf(out, "\n[muster: %" PRIu64 " bytes are left out here: this log had no room on its node]\n",
                         l->lost);
    l->lost = 0;
}

void lines_room(struct lines *l, uint64_t used_bytes, struct buf *out)
{
    l->left = used_bytes < l->limit ? l->limit - used_bytes : 0;
    if (l->left >= l->limit / 4)
        note_lost(l, out);
}

/* Count what was appended to out since before against the limit, and cut it there. */
static void charge(struct lines *l, size_t before, struct buf *out)
{
    size_t added = out->len - before;

    if (l->lost || added > l->left) {
        size_t kept = l->lost ? 0 : utf8_cut(out->data + before, (size_t)l->left);

        out->len = before + kept;
        l->lost += added - kept;
    } else {
        l->left -= added;
    }
    if (out->data)
        out->data[out->len] = '\0';
}

/* Pass the segment on, with or without a line feed. A character that is cut off stays. */
static void emit(struct lines *l, bool newline, struct buf *out)
{
    size_t before = out->len, taken = utf8_clean(l->seg, l->n, newline, out);

    if (newline)
        (void)buf_addstr(out, "\n");
    memmove(l->seg, l->seg + taken, l->n - taken);
    l->n -= taken;
    charge(l, before, out);
}

static void line_feed(struct lines *l, struct buf *out)
{
    if (l->n || !l->shown)
        emit(l, true, out);
    l->cr = l->progress = l->open = l->shown = false;
}

/* Text comes after a carriage return: what stands is overwritten. */
static void overwrite(struct lines *l, int64_t now_us, struct buf *out)
{
    if (!l->progress)
        l->shown_us = now_us; /* a bar begins: its first line is due in two seconds */
    if (l->open || (l->n && now_us - l->shown_us >= LINES_PROGRESS_US)) {
        emit(l, true, out);
        l->shown_us = now_us;
    }
    l->n = 0;
    l->cr = l->open = l->shown = false;
    l->progress = true;
}

void lines_feed(struct lines *l, const char *text, size_t n, int64_t now_us, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            line_feed(l, out);
            continue;
        }
        if (text[i] == '\r') {
            l->cr = true;
            continue;
        }
        if (l->cr)
            overwrite(l, now_us, out);
        if (l->n == sizeof(l->seg)) {
            emit(l, false, out);
            l->open = true;
        }
        l->seg[l->n++] = text[i];
        l->shown = false;
    }
    l->fed_us = now_us;
}

int64_t lines_deadline(const struct lines *l)
{
    int64_t pause_us = l->fed_us + LINES_PAUSE_US, next_us = l->shown_us + LINES_PROGRESS_US;

    /* What a pause has left of a cut-off character waits for its rest, however long. */
    if (!l->n || (l->open && l->n < 4))
        return INT64_MAX;
    if (l->progress || l->cr)
        return pause_us > next_us ? pause_us : next_us;
    return pause_us;
}

void lines_pause(struct lines *l, int64_t now_us, struct buf *out)
{
    if (now_us < lines_deadline(l))
        return;
    if (l->progress || l->cr) {
        emit(l, true, out);
        l->shown = true;
        l->open = false;
        l->shown_us = now_us;
    } else {
        emit(l, false, out);
        l->open = true;
    }
}

void lines_end(struct lines *l, struct buf *out)
{
    if (l->n || l->open)
        emit(l, true, out);
    l->n = 0;
    note_lost(l, out);
}
