#include "worker/engine/data/corpus.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/data/data.h"

/* --- where documents lie ----------------------------------------------------------------------------------- */

/* Whether line (without its newline) ends a document. */
static bool is_separator(const struct corpus_form *form, const char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (form->format == DATA_JSONL) {
        while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
            len--;
        return len == 0;
    }
    if (form->separator == SEPARATE_BLANK)
        return len == 0;
    return form->separator == SEPARATE_PERCENT && len == 1 && line[0] == '%';
}

bool corpus_find(const struct corpus_form *form, const char *data, size_t len, bool whole, struct corpus_piece *ret)
{
    struct corpus_piece p = {0};
    bool found = false;

    for (size_t at = 0; at < len;) {
        const char *newline = memchr(data + at, '\n', len - at);
        size_t line = newline ? (size_t)(newline - data) - at : len - at;
        bool separator;

        if (!newline && !whole)
            return false;
        separator = is_separator(form, data + at, line);
        if (!separator && !found) {
            p.begin = at;
            p.line = p.lines;
            found = true;
        }
        if (!separator)
            p.end = at + line + (newline && form->format == DATA_TEXT);
        at += line + (newline ? 1 : 0);
        p.lines++;
        p.next = at;
        if (found && (separator || form->format == DATA_JSONL)) {
            *ret = p;
            return true;
        }
    }
    if (!found || !whole)
        return false;
    *ret = p;
    return true;
}

/* --- what they say ----------------------------------------------------------------------------------------- */

static int no_text(const struct corpus_form *form, bool prompts, uint64_t line, struct merr *err)
{
    return merr_set(err, -EINVAL,
                    "line %llu of '%s' has no string \"text\"%s; each line must be an object such as "
                    "{\"text\": \"...\"}%s",
                    (unsigned long long)line, form->name,
                    prompts ? " and no strings \"prompt\" and \"completion\"" : "",
                    prompts ? " or {\"prompt\": \"...\", \"completion\": \"...\"}"
                            : "; \"prompt\" and \"completion\" want train.data.samples 'documents'");
}

/* The words of an object; ret has its owner already. */
static int take_words(const struct corpus_form *form, bool prompts, uint64_t line, struct corpus_text *ret,
                      struct merr *err)
{
    const json_t *text = json_object_get(ret->owner, "text"), *prompt = json_object_get(ret->owner, "prompt");
    const json_t *completion = json_object_get(ret->owner, "completion");

    if (prompts && text && completion)
        return merr_set(err, -EINVAL, "line %llu of '%s' has both \"text\" and \"completion\"; leave one out",
                        (unsigned long long)line, form->name);
    if (prompts && json_is_string(prompt) && json_is_string(completion)) {
        ret->prompt = json_string_value(prompt);
        ret->prompt_len = json_string_length(prompt);
        text = completion;
    }
    if (!json_is_string(text))
        return no_text(form, prompts, line, err);
    ret->text = json_string_value(text);
    ret->text_len = json_string_length(text);
    return 0;
}

int corpus_read(const struct corpus_form *form, bool prompts, const char *raw, size_t len, uint64_t line,
                struct corpus_text *ret, struct merr *err)
{
    struct corpus_text t = {.text = raw, .text_len = len};
    json_error_t je;
    int rc;

    if (form->format == DATA_TEXT) {
        *ret = t;
        return 0;
    }
    if (len > DATA_LINE_MAX)
        return merr_set(err, -EFBIG, "line %llu of '%s' has %zu bytes, more than %u; split the document",
                        (unsigned long long)line, form->name, len, DATA_LINE_MAX);
    t.owner = json_loadb(raw, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!t.owner)
        return merr_set(err, -EINVAL,
                        "line %llu of '%s' is not JSON: %s at column %d; each line must be an object "
                        "such as {\"text\": \"...\"}",
                        (unsigned long long)line, form->name, je.text, je.column);
    rc = take_words(form, prompts, line, &t, err);
    if (rc < 0) {
        json_decref(t.owner);
        return rc;
    }
    *ret = t;
    return 0;
}

void corpus_text_clear(struct corpus_text *t)
{
    json_decref(t->owner);
    *t = (struct corpus_text){0};
}

/* --- all of them ------------------------------------------------------------------------------------------- */

/* Add a document; nothing when it is empty. text was made as long as the whole file, and no document is longer than
 * what it was read from. */
static int add_document(struct documents *d, const char *name, const char *text, size_t len, struct merr *err)
{
    if (len == 0)
        return 0;
    if (d->n == DATA_DOCUMENTS_MAX)
        return merr_set(err, -EFBIG, "'%s' has more than %u documents; join some, or give it as format tokens", name,
                        DATA_DOCUMENTS_MAX);
    if (d->n == d->cap) {
        size_t cap = d->cap > 0 ? 2 * d->cap : 1024;
        uint64_t *end = realloc(d->end, cap * sizeof(*end));

        if (!end)
            return merr_set(err, -ENOMEM, "no memory for the %zu documents of '%s'", cap, name);
        d->end = end;
        d->cap = cap;
    }
    memcpy(d->text + d->text_len, text, len);
    d->text_len += len;
    d->end[d->n++] = d->text_len;
    return 0;
}

static int split(const struct corpus_form *form, const char *data, size_t len, struct documents *d, struct merr *err)
{
    struct corpus_piece p;
    uint64_t line = 1;

    for (size_t at = 0; corpus_find(form, data + at, len - at, true, &p); at += p.next) {
        struct corpus_text t;
        int rc = corpus_read(form, false, data + at + p.begin, p.end - p.begin, line + p.line, &t, err);

        if (rc == 0) {
            rc = add_document(d, form->name, t.text, t.text_len, err);
            corpus_text_clear(&t);
        }
        if (rc < 0)
            return rc;
        line += p.lines;
    }
    return 0;
}

int documents_split(const struct corpus_form *form, const char *data, size_t len, struct documents *ret,
                    struct merr *err)
{
    struct documents d = {0};
    int rc;

    assert(form->format == DATA_TEXT || form->format == DATA_JSONL);
    if (len > DATA_TEXT_MAX)
        return merr_set(err, -EFBIG,
                        "'%s' has %zu bytes, more than the %llu that are held in memory as documents; tokenise it "
                        "beforehand and give it as format tokens, or use train.data.samples 'documents'",
                        form->name, len, (unsigned long long)DATA_TEXT_MAX);
    d.text = malloc(len + 1);
    if (!d.text)
        return merr_set(err, -ENOMEM, "no memory for the %zu bytes of '%s'", len, form->name);
    rc = split(form, data, len, &d, err);
    if (rc < 0) {
        documents_clear(&d);
        return rc;
    }
    *ret = d;
    return 0;
}

void documents_clear(struct documents *d)
{
    int saved = errno;

    free(d->text);
    free(d->end);
    *d = (struct documents){0};
    errno = saved;
}
