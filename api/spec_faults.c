/* The list of faults, and guesses at what was meant. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_int.h"
#include "base/utf8.h"

#define WORD_MAX 40 /* longer words are not guessed at */

void faults_add(struct faults *f, const char *pointer, const char *fmt, ...)
{
    char *where, *words = NULL;
    va_list ap;
    int n;

    if (f->n == SPEC_FAULTS_MAX) {
        f->more++;
        return;
    }
    va_start(ap, fmt);
    n = vasprintf(&words, fmt, ap);
    va_end(ap);
    where = strdup(pointer);
    if (n < 0 || !where) {
        if (n >= 0)
            free(words);
        free(where);
        f->more++; /* counted, at least */
        return;
    }
    utf8_patch(where, strlen(where)); /* excerpts are cut at a number of bytes */
    utf8_patch(words, strlen(words));
    f->v[f->n].pointer = where;
    f->v[f->n].message = words;
    f->n++;
}

void faults_clear(struct faults *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->v[i].pointer);
        free(f->v[i].message);
    }
    f->n = f->more = 0;
}

json_t *faults_json(const struct faults *f)
{
    json_t *all = json_array();

    for (size_t i = 0; all && i < f->n; i++) {
        if (json_array_append_new(all, json_pack("{s:s,s:s}", "pointer", f->v[i].pointer, "message", f->v[i].message)) <
            0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* Insertions, deletions, replacements and swaps of neighbours that make b of a. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[3][WORD_MAX + 1], *before = row[0], *last = row[1], *now = row[2];

    for (size_t j = 0; j <= m; j++)
        before[j] = 0, last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *spare = before;

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        before = last;
        last = now;
        now = spare;
    }
    return last[m];
}

const char *spec_nearest(const char *word, const char *const *known, size_t n)
{
    size_t len = strlen(word), best = len < 4 ? 2 : len < 8 ? 3 : 4; /* fewer changes than this */
    const char *found = NULL;

    if (len > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = strlen(known[i]) > WORD_MAX ? best : distance(word, len, known[i], strlen(known[i]));

        if (d < best && d < strlen(known[i])) {
            best = d;
            found = known[i];
        }
    }
    return found;
}

void faults_add_unknown(struct faults *f, const char *pointer, const char *what, const char *word,
                        const char *const *known, size_t n)
{
    const char *near = spec_nearest(word, known, n);

    if (near)
        faults_add(f, pointer, "unknown %s '%.64s'; did you mean '%s'?", what, word, near);
    else
        faults_add(f, pointer, "unknown %s '%.64s'", what, word);
}
