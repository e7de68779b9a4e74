#include "api/protocol/wire.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define SHOWN_MAX 48 /* bytes of a value that is at fault */
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* --- faults ------------------------------------------------------------------------------------------ */

struct reading {
    struct merr *err;
    size_t used; /* bytes of err's text */
    int faults;
    bool no_memory;
};

#define NO_ENTRY SIZE_MAX

struct place {                  /* a struct that is being read: that of a field, or an entry of it */
    const struct place *around; /* what has the field; NULL: this is the message itself */
    const char *field;
    size_t entry; /* NO_ENTRY: it is no list */
};

static void say(struct reading *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct reading *r, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (!r->err || r->used >= sizeof(r->err->text) - 1)
        return;
    va_start(ap, fmt);
    n = vsnprintf(r->err->text + r->used, sizeof(r->err->text) - r->used, fmt, ap);
    va_end(ap);
    r->used += n > 0 ? (size_t)n : 0;
}

static void say_place(struct reading *r, const struct place *p)
{
    if (p->entry != NO_ENTRY)
        say(r, "entry %zu of ", p->entry);
    say(r, "'%s'", p->field);
}

/* Begin to tell of a fault: in which field of the place; NULL: the place itself. What is wrong follows. */
static void fault_at(struct reading *r, const struct place *p, const char *field)
{
    if (r->faults++ > 0)
        say(r, "; ");
    if (field)
        say(r, "'%s'", field);
    for (; p && p->around; p = p->around) {
        if (field)
            say(r, " in ");
        say_place(r, p);
        field = p->field;
    }
}

static void fault(struct reading *r, const struct place *p, const char *field, const json_t *v, const char *wants)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    size_t n = text ? strlen(text) : 0;

    fault_at(r, p, field);
    if (!v)
        say(r, " is missing: want %s", wants);
    else if (n > SHOWN_MAX)
        say(r, " wants %s, not %.*s…", wants, (int)utf8_cut(text, SHOWN_MAX), text);
    else
        say(r, " wants %s, not %s", wants, text ? text : "what it is");
    free(text);
}

/* --- what a field may be ----------------------------------------------------------------------------- */

/* In words, for faults and for the reference. */
static const char *wants(const struct wire_field *f, char *text, size_t size)
{
    size_t n = 0;

    switch (f->kind) {
    case WIRE_INT:
    case WIRE_LONG:
        if (f->max >= INT32_MAX)
            (void)snprintf(text, size, "a number from %" PRId64, f->min);
        else
            (void)snprintf(text, size, "a number from %" PRId64 " to %" PRId64, f->min, f->max);
        break;
    case WIRE_BOOL:
        return "true or false";
    case WIRE_ENUM:
        *text = '\0';
        for (size_t i = 0; i < f->n_names && n < size; i++)
            if (f->names[i])
                n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "one of ", f->names[i]);
        break;
    case WIRE_TEXT:
        (void)snprintf(text, size, "a %s of %s%zu bytes%s", f->flags & WIRE_NAME ? "name" : "text",
                       f->min > 0 ? "1 to " : "at most ", f->size - 1,
                       f->flags & WIRE_NAME ? ": letters, digits, '.', '_', '-'" : "");
        break;
    case WIRE_STRING:
        return "a text";
    case WIRE_INTS:
        (void)snprintf(text, size, "at most %zu numbers from %" PRId64 " to %" PRId64, f->most, f->min, f->max);
        break;
    case WIRE_LIST:
        (void)snprintf(text, size, "a list of at most %zu", f->most);
        break;
    case WIRE_STRUCT:
        return "an object";
    case WIRE_JSON:
        return f->type == JSON_OBJECT ? "an object" : "a list";
    }
    return text;
}

static bool whole_in(const json_t *v, int64_t min, int64_t max)
{
    return json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max;
}

int wire_value(const char *const *names, size_t n_names, const char *name, int fallback)
{
    for (size_t i = 0; name && i < n_names; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return (int)i;
    return fallback;
}

static bool text_ok(const struct wire_field *f, const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);

    if (!s || strlen(s) != n || n < (size_t)f->min || (n >= f->size && !(f->flags & WIRE_CUT)))
        return false;
    return !(f->flags & WIRE_NAME) || strspn(s, NAME_CHARACTERS) == n;
}

static bool ints_ok(const struct wire_field *f, const json_t *v)
{
    if (!json_is_array(v) || json_array_size(v) > f->most)
        return false;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!whole_in(json_array_get(v, i), f->min, f->max))
            return false;
    return true;
}

static bool value_ok(const struct wire_field *f, const json_t *v)
{
    switch (f->kind) {
    case WIRE_INT:
    case WIRE_LONG:
        return whole_in(v, f->min, f->max);
    case WIRE_BOOL:
        return json_is_boolean(v);
    case WIRE_ENUM:
        return wire_value(f->names, f->n_names, json_string_value(v), -1) >= 0;
    case WIRE_TEXT:
        return text_ok(f, v);
    case WIRE_STRING:
        return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
    case WIRE_INTS:
        return ints_ok(f, v);
    case WIRE_LIST:
        return json_is_array(v) && json_array_size(v) <= f->most;
    case WIRE_STRUCT:
        return true; /* read_struct() looks */
    case WIRE_JSON:
        return json_typeof(v) == f->type;
    }
    return false;
}

/* --- reading ----------------------------------------------------------------------------------------- */

static void read_struct(struct reading *r, const struct place *p, const struct wire_message *m, const json_t *doc,
                        char *to);

static void *pointer_of(const struct wire_field *f, const char *from)
{
    void *v;

    memcpy(&v, from + f->at, sizeof(v));
    return v;
}

static void set_pointer(const struct wire_field *f, char *to, const void *v)
{
    memcpy(to + f->at, &v, sizeof(v));
}

static void set_number(const struct wire_field *f, char *to, int64_t v)
{
    if (f->kind == WIRE_LONG)
        memcpy(to + f->at, &v, sizeof(v));
    else if (f->kind == WIRE_BOOL)
        *(bool *)(to + f->at) = v != 0;
    else
        *(int *)(to + f->at) = (int)v;
}

static void *new_list(struct reading *r, const struct wire_field *f, char *to, size_t n, size_t size)
{
    void *v = n > 0 ? calloc(n, size) : NULL;

    r->no_memory = r->no_memory || (n > 0 && !v);
    set_pointer(f, to, v);
    *(size_t *)(to + f->count_at) = v ? n : 0;
    return v;
}

static void read_list(struct reading *r, const struct place *p, const struct wire_field *f, const json_t *v, char *to)
{
    char *list = new_list(r, f, to, json_array_size(v), f->of->size);
    struct reading passed = {.err = NULL};
    struct place entry = {.around = p, .field = f->name};
    size_t n = 0;

    for (size_t i = 0; list && i < json_array_size(v); i++) {
        entry.entry = i;
        passed.faults = 0;
        read_struct(f->flags & WIRE_PASS ? &passed : r, &entry, f->of, json_array_get(v, i), list + n * f->of->size);
        if (passed.faults > 0)
            wire_clear(f->of, list + n * f->of->size);
        else
            n++;
    }
    r->no_memory = r->no_memory || passed.no_memory;
    if (list)
        *(size_t *)(to + f->count_at) = n;
}

static void read_value(struct reading *r, const struct place *p, const struct wire_field *f, json_t *v, char *to)
{
    struct place inner = {.around = p, .field = f->name, .entry = NO_ENTRY};
    int *list;

    switch (f->kind) {
    case WIRE_INT:
    case WIRE_LONG:
        set_number(f, to, json_integer_value(v));
        break;
    case WIRE_BOOL:
        set_number(f, to, json_is_true(v));
        break;
    case WIRE_ENUM:
        set_number(f, to, wire_value(f->names, f->n_names, json_string_value(v), 0));
        break;
    case WIRE_TEXT:
        utf8_copy(to + f->at, f->size, json_string_value(v));
        break;
    case WIRE_STRING:
        set_pointer(f, to, json_string_value(v));
        break;
    case WIRE_INTS:
        list = new_list(r, f, to, json_array_size(v), sizeof(*list));
        for (size_t i = 0; list && i < json_array_size(v); i++)
            list[i] = (int)json_integer_value(json_array_get(v, i));
        break;
    case WIRE_LIST:
        read_list(r, p, f, v, to);
        break;
    case WIRE_STRUCT:
        read_struct(r, &inner, f->of, v, to + f->at);
        break;
    case WIRE_JSON:
        set_pointer(f, to, json_incref(v));
        break;
    }
}

static bool is_number(const struct wire_field *f)
{
    return f->kind == WIRE_INT || f->kind == WIRE_LONG || f->kind == WIRE_BOOL || f->kind == WIRE_ENUM;
}

/* doc NULL: it was left out, so all of it is. */
static void read_struct(struct reading *r, const struct place *p, const struct wire_message *m, const json_t *doc,
                        char *to)
{
    char text[256];

    if (doc && !json_is_object(doc)) {
        fault(r, p, p->around ? NULL : m->name, doc, "an object");
        return;
    }
    for (size_t i = 0; i < m->n_fields; i++) {
        const struct wire_field *f = &m->fields[i];
        json_t *v = json_object_get(doc, f->name);

        if (!v || (json_is_null(v) && !(f->flags & WIRE_NEEDED))) {
            if (f->flags & WIRE_NEEDED)
                fault(r, p, f->name, NULL, wants(f, text, sizeof(text)));
            else if (f->kind == WIRE_STRUCT)
                read_value(r, p, f, NULL, to);
            else if (is_number(f))
                set_number(f, to, f->fallback);
        } else if (!value_ok(f, v)) {
            fault(r, p, f->name, v, wants(f, text, sizeof(text)));
        } else {
            read_value(r, p, f, v, to);
        }
    }
}

int wire_read(const struct wire_message *m, const json_t *doc, void *ret, struct merr *err)
{
    struct reading r = {.err = err};
    struct place whole = {.around = NULL, .entry = NO_ENTRY};
    char *to = calloc(1, m->size);

    if (!to)
        return merr_set(err, -ENOMEM, "no memory for a message");
    if (!doc)
        fault(&r, NULL, m->name, NULL, "an object");
    read_struct(&r, &whole, m, doc, to);
    if (r.faults == 0 && !r.no_memory) {
        memcpy(ret, to, m->size);
        free(to);
        return 0;
    }
    wire_clear(m, to);
    free(to);
    return r.no_memory ? merr_set(err, -ENOMEM, "no memory for a message") : -EINVAL;
}

/* --- writing ----------------------------------------------------------------------------------------- */

static int64_t number_of(const struct wire_field *f, const char *from)
{
    int64_t v;

    if (f->kind == WIRE_BOOL)
        return *(const bool *)(from + f->at);
    if (f->kind != WIRE_LONG)
        return *(const int *)(from + f->at);
    memcpy(&v, from + f->at, sizeof(v));
    return v;
}

/* JSON carries UTF-8 alone; a path may hold other bytes. */
static json_t *text_json(const char *text)
{
    json_t *v = json_string(text);
    char *copy = v ? NULL : strdup(text);

    if (v || !copy)
        return v;
    utf8_patch(copy, strlen(copy));
    v = json_string(copy);
    free(copy);
    return v;
}

static json_t *list_json(const struct wire_field *f, const char *from)
{
    const char *list = pointer_of(f, from);
    size_t n = *(const size_t *)(from + f->count_at);
    json_t *all = json_array();

    for (size_t i = 0; all && i < n; i++)
        if (json_array_append_new(all, f->kind == WIRE_INTS ? json_integer(((const int *)(const void *)list)[i])
                                                            : wire_write(f->of, list + i * f->of->size)) < 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static bool is_empty(const struct wire_field *f, const char *from)
{
    if (is_number(f))
        return number_of(f, from) == f->fallback;
    if (f->kind == WIRE_TEXT)
        return !from[f->at];
    if (f->kind == WIRE_STRUCT)
        return false;
    if (f->kind == WIRE_STRING || f->kind == WIRE_JSON)
        return !pointer_of(f, from);
    return *(const size_t *)(from + f->count_at) == 0;
}

static json_t *value_json(const struct wire_field *f, const char *from)
{
    const char *text;
    json_t *v;

    switch (f->kind) {
    case WIRE_INT:
    case WIRE_LONG:
        return json_integer(number_of(f, from));
    case WIRE_BOOL:
        return json_boolean(number_of(f, from));
    case WIRE_ENUM:
        assert((size_t)number_of(f, from) < f->n_names && f->names[number_of(f, from)]);
        return json_string(f->names[number_of(f, from)]);
    case WIRE_TEXT:
        return text_json(from + f->at);
    case WIRE_STRING:
        text = pointer_of(f, from);
        return text ? text_json(text) : json_null();
    case WIRE_INTS:
    case WIRE_LIST:
        return list_json(f, from);
    case WIRE_STRUCT:
        return wire_write(f->of, from + f->at);
    case WIRE_JSON:
        v = pointer_of(f, from);
        return v ? json_incref(v) : json_null();
    }
    return NULL;
}

json_t *wire_write(const struct wire_message *m, const void *from)
{
    json_t *o = json_object();

    for (size_t i = 0; o && i < m->n_fields; i++) {
        const struct wire_field *f = &m->fields[i];

        if ((f->flags & WIRE_OMIT) && is_empty(f, from))
            continue;
        if (json_object_set_new(o, f->name, value_json(f, from)) < 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static void clear_fields(const struct wire_message *m, char *s)
{
    for (size_t i = 0; i < m->n_fields; i++) {
        const struct wire_field *f = &m->fields[i];
        size_t n = f->kind == WIRE_LIST ? *(size_t *)(s + f->count_at) : 0;

        if (f->kind == WIRE_JSON)
            json_decref(pointer_of(f, s));
        if (f->kind == WIRE_STRUCT)
            clear_fields(f->of, s + f->at);
        for (size_t k = 0; k < n; k++)
            clear_fields(f->of, (char *)pointer_of(f, s) + k * f->of->size);
        if (f->kind == WIRE_LIST || f->kind == WIRE_INTS)
            free(pointer_of(f, s));
    }
}

void wire_clear(const struct wire_message *m, void *s)
{
    clear_fields(m, s);
    memset(s, 0, m->size);
}

/* --- the reference ----------------------------------------------------------------------------------- */

static void print_fallback(const struct wire_field *f, struct buf *out)
{
    if (f->flags & WIRE_NEEDED)
        (void)buf_addstr(out, "needed");
    else if (f->kind == WIRE_BOOL)
        (void)buf_addstr(out, f->fallback ? "true" : "false");
    else if (f->kind == WIRE_ENUM && (size_t)f->fallback < f->n_names && f->names[f->fallback])
        (void)buf_addstr(out, f->names[f->fallback]);
    else if ((f->kind == WIRE_INT || f->kind == WIRE_LONG) && f->fallback >= f->min)
        (void)buf_printf(out, "%" PRId64, f->fallback);
    else
        (void)buf_addstr(out, "none");
}

void wire_print(const struct wire_message *m, struct buf *out)
{
    char text[256];

    (void)buf_addstr(out, "| field | value | left out | what |\n|---|---|---|---|\n");
    for (size_t i = 0; i < m->n_fields; i++) {
        const struct wire_field *f = &m->fields[i];

        (void)buf_printf(out, "| `%s` | %s", f->name, wants(f, text, sizeof(text)));
        if (f->of)
            (void)buf_printf(out, " of [%s](#%s)", f->of->name, f->of->name);
        (void)buf_addstr(out, " | ");
        print_fallback(f, out);
        (void)buf_printf(out, " | %s |\n", f->what);
    }
}
