#include "worker/train/corpus.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "worker/train/data.h"

/* Close the document that begins where the last one ended; nothing when it would be empty. */
static int end_document(struct documents *d, const char *name, struct merr *err)
{
    uint64_t begin = d->n > 0 ? d->end[d->n - 1] : 0;

    if (d->text_len == begin)
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
    d->end[d->n++] = d->text_len;
    return 0;
}

/* text was made as long as the whole file, and no document is longer than what it was read from. */
static void append(struct documents *d, const char *data, size_t len)
{
    memcpy(d->text + d->text_len, data, len);
    d->text_len += len;
}

/* Whether line (without its newline) ends a document. */
static bool is_separator(enum data_separator separator, const char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (separator == SEPARATE_BLANK)
        return len == 0;
    return separator == SEPARATE_PERCENT && len == 1 && line[0] == '%';
}

static int split_text(struct documents *d, const char *name, enum data_separator separator, const char *data,
                      size_t len, struct merr *err)
{
    int rc;

    for (size_t at = 0; at < len;) {
        const char *newline = memchr(data + at, '\n', len - at);
        size_t line = newline ? (size_t)(newline - data) - at : len - at;
        size_t whole = line + (newline ? 1 : 0);

        if (is_separator(separator, data + at, line)) {
            rc = end_document(d, name, err);
            if (rc < 0)
                return rc;
        } else {
            append(d, data + at, whole);
        }
        at += whole;
    }
    return end_document(d, name, err);
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static int add_json_line(struct documents *d, const char *name, size_t number, const char *line, size_t len,
                         struct merr *err)
{
    json_auto_t *doc = NULL;
    const json_t *text; /* borrowed from doc */
    json_error_t je;

    if (len > DATA_LINE_MAX)
        return merr_set(err, -EFBIG, "line %zu of '%s' has %zu bytes, more than %u; split the document", number, name,
                        len, DATA_LINE_MAX);
    doc = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!doc)
        return merr_set(err, -EINVAL, "line %zu of '%s' is not JSON: %s at column %d; each line must be an object "
                        "such as {\"text\": \"...\"}", number, name, je.text, je.column);
    text = json_object_get(doc, "text");
    if (!json_is_string(text))
        return merr_set(err, -EINVAL, "line %zu of '%s' has no string \"text\"; each line must be an object such as "
                        "{\"text\": \"...\"}", number, name);
    append(d, json_string_value(text), json_string_length(text));
    return end_document(d, name, err);
}

static int split_jsonl(struct documents *d, const char *name, const char *data, size_t len, struct merr *err)
{
    size_t number = 0;

    for (size_t at = 0; at < len;) {
        const char *newline = memchr(data + at, '\n', len - at);
        size_t line = newline ? (size_t)(newline - data) - at : len - at;
        int rc;

        number++;
        if (!is_blank(data + at, line)) {
            rc = add_json_line(d, name, number, data + at, line, err);
            if (rc < 0)
                return rc;
        }
        at += line + 1;
    }
    return 0;
}

int documents_split(const char *name, enum data_format format, enum data_separator separator, const char *data,
                    size_t len, struct documents *ret, struct merr *err)
{
    struct documents d = { 0 };
    int rc;

    assert(format == DATA_TEXT || format == DATA_JSONL);
    if (len > DATA_TEXT_MAX)
        return merr_set(err, -EFBIG,
                        "'%s' has %zu bytes, more than the %llu that are held in memory as documents; tokenise it "
                        "beforehand and give it as format tokens",
                        name, len, (unsigned long long)DATA_TEXT_MAX);
    d.text = malloc(len + 1);
    if (!d.text)
        return merr_set(err, -ENOMEM, "no memory for the %zu bytes of '%s'", len, name);
    rc = format == DATA_JSONL ? split_jsonl(&d, name, data, len, err) : split_text(&d, name, separator, data, len, err);
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
    *d = (struct documents){ 0 };
    errno = saved;
}
