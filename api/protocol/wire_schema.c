#include <ctype.h>
#include <stdio.h>

#include "api/protocol/wire.h"

/* "Agent" and the message's name in capitals: "report-rank" is AgentReportRank. */
static const char *schema_name(const struct wire_message *m, char *buf, size_t size)
{
    size_t n = (size_t)snprintf(buf, size, "Agent");

    for (const char *at = m->name; *at && n + 1 < size; at++)
        if (*at != '-')
            buf[n++] = (char)(at == m->name || at[-1] == '-' ? toupper((unsigned char)*at) : *at);
    buf[n] = '\0';
    return buf;
}

static json_t *reference(const struct wire_message *m)
{
    char name[64];

    return json_pack("{s:s+}", "$ref", "#/components/schemas/", schema_name(m, name, sizeof(name)));
}

static json_t *number_schema(const struct wire_field *f)
{
    return json_pack("{s:s,s:I,s:I}", "type", "integer", "minimum", (json_int_t)f->min, "maximum", (json_int_t)f->max);
}

static json_t *list_schema(const struct wire_field *f, json_t *of_new)
{
    json_t *list = json_pack("{s:s,s:o}", "type", "array", "items", of_new);

    if (f->most <= INT32_MAX) /* more is no limit of its own */
        (void)json_object_set_new(list, "maxItems", json_integer((json_int_t)f->most));
    return list;
}

static json_t *value_schema(const struct wire_field *f)
{
    json_t *names;

    switch (f->kind) {
    case WIRE_INT:
    case WIRE_LONG:
        return number_schema(f);
    case WIRE_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case WIRE_ENUM:
        names = json_array();
        for (size_t i = 0; i < f->n_names; i++)
            if (f->names[i])
                (void)json_array_append_new(names, json_string(f->names[i]));
        return json_pack("{s:o}", "enum", names);
    case WIRE_TEXT:
        return json_pack("{s:s,s:I,s:I}", "type", "string", "minLength", (json_int_t)f->min, "maxLength",
                         (json_int_t)f->size - 1);
    case WIRE_STRING:
        return json_pack("{s:s}", "type", "string");
    case WIRE_INTS:
        return list_schema(f, number_schema(f));
    case WIRE_LIST:
        return list_schema(f, reference(f->of));
    case WIRE_STRUCT:
        return reference(f->of);
    case WIRE_JSON:
        return f->type == JSON_OBJECT
                   ? json_pack("{s:s,s:b}", "type", "object", "additionalProperties", 1)
                   : json_pack("{s:s,s:o}", "type", "array", "items", f->of ? reference(f->of) : json_object());
    }
    return NULL;
}

int wire_schema(const struct wire_message *m, json_t *into)
{
    json_t *all = json_object(), *needed = json_array();
    char name[64];

    for (size_t i = 0; i < m->n_fields; i++) {
        const struct wire_field *f = &m->fields[i];
        json_t *one = value_schema(f);

        if (f->flags & WIRE_NEEDED)
            (void)json_array_append_new(needed, json_string(f->name));
        else /* null is a field that is left out */
            one = json_pack("{s:[o,{s:s}]}", "anyOf", one, "type", "null");
        (void)json_object_set_new(one, "description", json_string(f->what));
        if (json_object_set_new(all, f->name, one) < 0) {
            json_decref(all);
            json_decref(needed);
            return -1;
        }
    }
    return json_object_set_new(into, schema_name(m, name, sizeof(name)),
                               json_pack("{s:s,s:s,s:o,s:o}", "type", "object", "description", m->what ? m->what : "",
                                         "required", needed, "properties", all));
}
