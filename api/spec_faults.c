/* The list of faults, and guesses at what was meant. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_priv.h"
#include "base/utf8.h"
#include "base/word.h"

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

void faults_add_unknown(struct faults *f, const char *pointer, const char *what, const char *word,
                        const char *const *known, size_t n)
{
    const char *near = word_nearest(word, known, n);

    if (near)
        faults_add(f, pointer, "unknown %s '%.64s'; did you mean '%s'?", what, word, near);
    else
        faults_add(f, pointer, "unknown %s '%.64s'", what, word);
}
