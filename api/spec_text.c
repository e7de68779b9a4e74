/* A spec's text: JSON as it is; YAML as its JSON-like core. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "api/spec_priv.h"

#define ANCHORS_MAX 256

struct anchor {
    char *name;
    json_t *value; /* owned */
    size_t size;   /* values in it */
};

struct reader {
    yaml_parser_t yaml;
    struct faults *f;
    struct anchor anchor[ANCHORS_MAX];
    size_t n_anchors;
    size_t values; /* made so far, each alias counted as all that it stands for */
    int depth;
};

static json_t *read_value(struct reader *r, yaml_event_t *e);

/* A fault at a place in the text. Returns NULL for the caller to return. */
static json_t *fault_at(struct reader *r, yaml_mark_t mark, const char *what)
{
    faults_add(r->f, "", "line %zu, column %zu: %s", mark.line + 1, mark.column + 1, what);
    return NULL;
}

/* The next event; false with a fault at a syntax error. */
static bool next(struct reader *r, yaml_event_t *e)
{
    char what[256];

    if (yaml_parser_parse(&r->yaml, e))
        return true;
    (void)snprintf(what, sizeof(what), "%s%s%s", r->yaml.problem ? r->yaml.problem : "not YAML",
                   r->yaml.context ? ", " : "", r->yaml.context ? r->yaml.context : "");
    (void)fault_at(r, r->yaml.problem_mark, what);
    return false;
}

static bool one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(s, *words) == 0)
            return true;
    return false;
}

/* A number in decimal notation, and nothing else. */
static bool is_decimal(const char *s, bool *ret_whole)
{
    size_t digits = 0;

    *ret_whole = true;
    s += *s == '-' || *s == '+';
    for (; isdigit((unsigned char)*s); s++)
        digits++;
    if (*s == '.') {
        *ret_whole = false;
        for (s++; isdigit((unsigned char)*s); s++)
            digits++;
    }
    if (digits && (*s == 'e' || *s == 'E')) {
        *ret_whole = false;
        s++;
        s += *s == '-' || *s == '+';
        if (!isdigit((unsigned char)*s))
            return false;
        while (isdigit((unsigned char)*s))
            s++;
    }
    return digits && !*s;
}

/* A plain scalar by YAML 1.2's core rules. */
static json_t *read_plain(struct reader *r, const yaml_event_t *e)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"true", "True", "TRUE", NULL}, *const no[] = {"false", "False", "FALSE", NULL};
    const char *s = (const char *)e->data.scalar.value;
    bool whole;

    if (one_of(s, nulls))
        return json_null();
    if (one_of(s, yes))
        return json_true();
    if (one_of(s, no))
        return json_false();
    if (is_decimal(s, &whole)) {
        long long n;
        double x;

        errno = 0;
        n = whole ? strtoll(s, NULL, 10) : 0;
        if (whole && errno == 0)
            return json_integer(n);
        x = strtod(s, NULL);
        return isfinite(x) && !whole ? json_real(x) : fault_at(r, e->start_mark, "a number out of range");
    }
    return json_stringn(s, e->data.scalar.length);
}

static json_t *read_scalar(struct reader *r, const yaml_event_t *e)
{
    json_t *v;

    if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
        return fault_at(r, e->start_mark, "a NUL character");
    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return read_plain(r, e);
    v = json_stringn((const char *)e->data.scalar.value, e->data.scalar.length);
    return v ? v : fault_at(r, e->start_mark, "text that is not UTF-8");
}

static json_t *read_sequence(struct reader *r)
{
    json_t *all = json_array();
    yaml_event_t e;

    while (all && next(r, &e)) {
        bool end = e.type == YAML_SEQUENCE_END_EVENT;
        json_t *v = end ? NULL : read_value(r, &e);

        yaml_event_delete(&e);
        if (end)
            return all;
        if (!v || json_array_append_new(all, v) < 0)
            break;
    }
    json_decref(all);
    return NULL;
}

static json_t *read_mapping(struct reader *r)
{
    json_t *all = json_object();
    yaml_event_t key, e;

    while (all && next(r, &key)) {
        const char *name = (const char *)key.data.scalar.value;
        bool end = key.type == YAML_MAPPING_END_EVENT;
        json_t *v = NULL;

        if (end) {
            yaml_event_delete(&key);
            return all;
        }
        if (key.type != YAML_SCALAR_EVENT || strlen(name) != key.data.scalar.length)
            (void)fault_at(r, key.start_mark, "a key must be plain text");
        else if (strcmp(name, "<<") == 0 && key.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
            (void)fault_at(r, key.start_mark, "merge keys ('<<') are not read; write the fields out");
        else if (json_object_get(all, name))
            (void)fault_at(r, key.start_mark, "a key that is there twice");
        else if (next(r, &e)) {
            v = read_value(r, &e);
            yaml_event_delete(&e);
        }
        if (!v || json_object_set_new(all, name, v) < 0) {
            yaml_event_delete(&key);
            break;
        }
        yaml_event_delete(&key);
    }
    json_decref(all);
    return NULL;
}

static json_t *read_alias(struct reader *r, const yaml_event_t *e)
{
    for (size_t i = r->n_anchors; i-- > 0;)
        if (strcmp(r->anchor[i].name, (const char *)e->data.alias.anchor) == 0) {
            r->values += r->anchor[i].size;
            if (r->values > SPEC_VALUES_MAX)
                return fault_at(r, e->start_mark, "the aliases make too many values");
            return json_incref(r->anchor[i].value);
        }
    return fault_at(r, e->start_mark, "an alias without its anchor before it");
}

/* Keep v under the event's anchor. Returns v, or NULL with v dropped. */
static json_t *keep_anchor(struct reader *r, const yaml_event_t *e, const yaml_char_t *name, json_t *v, size_t size)
{
    char *copy;

    if (!v || !name)
        return v;
    copy = r->n_anchors < ANCHORS_MAX ? strdup((const char *)name) : NULL;
    if (!copy) {
        json_decref(v);
        return fault_at(r, e->start_mark, "too many anchors");
    }
    r->anchor[r->n_anchors++] = (struct anchor){.name = copy, .value = json_incref(v), .size = size};
    return v;
}

/* The value that begins with e: new, or NULL with a fault (or without memory). */
static json_t *read_value(struct reader *r, yaml_event_t *e)
{
    size_t before = r->values++;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    json_t *v = NULL;

    if (r->values > SPEC_VALUES_MAX || r->depth >= SPEC_DEPTH_MAX)
        return fault_at(r, e->start_mark, r->depth >= SPEC_DEPTH_MAX ? "nested too deeply" : "too many values");
    if (e->type == YAML_SCALAR_EVENT)
        anchor = e->data.scalar.anchor, tag = e->data.scalar.tag;
    else if (e->type == YAML_SEQUENCE_START_EVENT)
        anchor = e->data.sequence_start.anchor, tag = e->data.sequence_start.tag;
    else if (e->type == YAML_MAPPING_START_EVENT)
        anchor = e->data.mapping_start.anchor, tag = e->data.mapping_start.tag;
    if (tag)
        return fault_at(r, e->start_mark, "tags ('!...') are not read; write the value plainly");
    r->depth++;
    if (e->type == YAML_SCALAR_EVENT)
        v = read_scalar(r, e);
    else if (e->type == YAML_SEQUENCE_START_EVENT)
        v = read_sequence(r);
    else if (e->type == YAML_MAPPING_START_EVENT)
        v = read_mapping(r);
    else if (e->type == YAML_ALIAS_EVENT)
        v = read_alias(r, e);
    r->depth--;
    return keep_anchor(r, e, anchor, v, r->values - before);
}

/* Step over events of one type; the first other one is *e. */
static bool skip(struct reader *r, yaml_event_type_t type, yaml_event_t *e)
{
    while (next(r, e)) {
        if (e->type != type)
            return true;
        yaml_event_delete(e);
    }
    return false;
}

static json_t *read_stream(struct reader *r)
{
    yaml_event_t e;
    json_t *v = NULL;

    if (!skip(r, YAML_STREAM_START_EVENT, &e))
        return NULL;
    if (e.type != YAML_DOCUMENT_START_EVENT) {
        yaml_event_delete(&e);
        faults_add(r->f, "", "the text is empty; want a job");
        return NULL;
    }
    yaml_event_delete(&e);
    if (!next(r, &e))
        return NULL;
    v = read_value(r, &e);
    yaml_event_delete(&e);
    if (!v)
        return NULL;
    if (skip(r, YAML_DOCUMENT_END_EVENT, &e)) {
        bool end = e.type == YAML_STREAM_END_EVENT;

        if (!end)
            (void)fault_at(r, e.start_mark, "a second document; want one job a file");
        yaml_event_delete(&e);
        if (end)
            return v;
    }
    json_decref(v);
    return NULL;
}

static int document_yaml(const char *text, size_t len, json_t **ret_doc, struct faults *f)
{
    struct reader *r = calloc(1, sizeof(*r));
    size_t before = f->n + f->more;
    json_t *doc;

    if (!r)
        return -ENOMEM;
    r->f = f;
    if (!yaml_parser_initialize(&r->yaml)) {
        free(r);
        return -ENOMEM;
    }
    yaml_parser_set_encoding(&r->yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->yaml, (const unsigned char *)text, len);
    doc = read_stream(r);
    yaml_parser_delete(&r->yaml);
    for (size_t i = 0; i < r->n_anchors; i++) {
        free(r->anchor[i].name);
        json_decref(r->anchor[i].value);
    }
    free(r);
    if (!doc)
        return f->n + f->more > before ? -EINVAL : -ENOMEM;
    *ret_doc = doc;
    return 0;
}

int spec_document(const char *text, size_t len, json_t **ret_doc, struct faults *f)
{
    size_t start = 0;
    json_error_t je;
    json_t *doc;

    if (len > SPEC_TEXT_MAX) {
        faults_add(f, "", "%zu bytes are more than a spec may have, which is %d", len, SPEC_TEXT_MAX);
        return -EINVAL;
    }
    while (start < len && strchr(" \t\r\n", text[start]) && text[start])
        start++;
    if (start == len || text[start] != '{')
        return document_yaml(text, len, ret_doc, f);
    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!doc) {
        faults_add(f, "", "line %d, column %d: %s", je.line, je.column, je.text);
        return -EINVAL;
    }
    *ret_doc = doc;
    return 0;
}

int spec_from_text(const char *text, size_t len, struct job_spec **ret_spec, struct faults *f)
{
    json_t *doc;
    int r = spec_document(text, len, &doc, f);

    if (r < 0)
        return r;
    r = spec_from_json(doc, ret_spec, f);
    json_decref(doc);
    return r;
}
