/* random_message - any message with values drawn by its table, and two of them compared
 *
 * Neither goes by the code that reads and writes messages. What is drawn lies in memory that wire_clear() frees, but
 * for texts of WIRE_STRING, which are constants.
 */
#ifndef MUSTER_TESTS_UNIT_API_PROTOCOL_RANDOM_MESSAGE_H
#define MUSTER_TESTS_UNIT_API_PROTOCOL_RANDOM_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/protocol/wire.h"
#include "base/philox.h"

struct draws {
    uint32_t key[2], at;
};

/* A seed of its own for each run, or that of MUSTER_SEED. */
static inline struct draws draws_begin(void)
{
    const char *seed = getenv("MUSTER_SEED");
    struct draws d = {.key = {seed ? (uint32_t)strtoul(seed, NULL, 10) : (uint32_t)time(NULL)}};

    print_message("MUSTER_SEED=%u\n", d.key[0]);
    return d;
}

static inline uint64_t draw(struct draws *d, uint64_t below)
{
    uint32_t w[4];

    philox4x32((uint32_t[4]){d->at++}, d->key, w);
    return ((uint64_t)w[0] << 32 | w[1]) % below;
}

/* Often an edge. */
static inline int64_t draw_number(struct draws *d, int64_t min, int64_t max)
{
    uint64_t which = draw(d, 4), span = (uint64_t)max - (uint64_t)min;

    if (which == 0)
        return min;
    if (which == 1)
        return max;
    return (int64_t)((uint64_t)min + draw(d, span < UINT64_MAX ? span + 1 : span));
}

static inline void draw_text(struct draws *d, const struct wire_field *f, char *to)
{
    static const char *const parts[] = {"a", "B7", "-", "\"", "\\", "é", "\n", "…", "/", "\x01"};
    size_t most = draw(d, 3) == 0 ? f->size - 1 : draw(d, 3) == 0 ? (size_t)f->min : draw(d, 20);
    size_t n = 0;

    most = most < f->size - 1 ? most : f->size - 1;
    while (n < most || n < (size_t)f->min) {
        const char *part = parts[draw(d, f->flags & WIRE_NAME ? 3 : 10)];

        if (n + strlen(part) > most)
            part = "x";
        memcpy(to + n, part, strlen(part));
        n += strlen(part);
    }
    to[n] = '\0';
}

static inline void draw_message(struct draws *d, const struct wire_message *m, char *to);

static inline void draw_field(struct draws *d, const struct wire_field *f, char *to)
{
    static const char *const texts[] = {"", "a line\n", "{\"step\": 1}\n{}\n", "ünï\t\"\\"};
    bool bare = !(f->flags & WIRE_NEEDED) && draw(d, 3) == 0;
    size_t n = bare ? 0 : draw(d, f->most < 5 ? f->most + 1 : 5);
    bool number = f->kind == WIRE_INT || f->kind == WIRE_LONG;
    int64_t v = bare || !number ? f->fallback : draw_number(d, f->min, f->max);
    const char *text = texts[draw(d, 4)];
    void *list = NULL;
    json_t *json;

    switch (f->kind) {
    case WIRE_INT:
        *(int *)(to + f->at) = (int)v;
        break;
    case WIRE_LONG:
        memcpy(to + f->at, &v, sizeof(v));
        break;
    case WIRE_BOOL:
        *(bool *)(to + f->at) = draw(d, 2);
        break;
    case WIRE_ENUM:
        do
            v = bare ? f->fallback : (int64_t)draw(d, f->n_names);
        while (!bare && !f->names[v]);
        *(int *)(to + f->at) = (int)v;
        break;
    case WIRE_TEXT:
        if (!bare)
            draw_text(d, f, to + f->at);
        break;
    case WIRE_STRING:
        memcpy(to + f->at, &text, sizeof(text));
        break;
    case WIRE_STRUCT:
        draw_message(d, f->of, to + f->at);
        break;
    case WIRE_INTS:
    case WIRE_LIST:
        if (n > 0)
            list = calloc(n, f->kind == WIRE_INTS ? sizeof(int) : f->of->size);
        memcpy(to + f->at, &list, sizeof(list));
        memcpy(to + f->count_at, &n, sizeof(n));
        for (size_t i = 0; i < n; i++)
            if (f->kind == WIRE_INTS)
                ((int *)list)[i] = (int)draw_number(d, f->min, f->max);
            else
                draw_message(d, f->of, (char *)list + i * f->of->size);
        break;
    case WIRE_JSON:
        json = bare                     ? NULL
               : f->type == JSON_OBJECT ? json_pack("{s:i, s:n}", "a", (int)draw(d, 9), "b")
                                        : json_pack("[s, {s:f}]", "c", "d", .5);
        memcpy(to + f->at, &json, sizeof(json));
        break;
    }
}

static inline void draw_message(struct draws *d, const struct wire_message *m, char *to)
{
    for (size_t i = 0; i < m->n_fields; i++)
        draw_field(d, &m->fields[i], to);
}

static inline void assert_same_message(const struct wire_message *m, const char *a, const char *b)
{
    for (size_t i = 0; i < m->n_fields; i++) {
        const struct wire_field *f = &m->fields[i];
        size_t n = 0;
        void *x, *y;

        switch (f->kind) {
        case WIRE_INT:
        case WIRE_ENUM:
        case WIRE_BOOL:
        case WIRE_LONG:
            assert_memory_equal(a + f->at, b + f->at, f->size);
            continue;
        case WIRE_TEXT:
            assert_string_equal(a + f->at, b + f->at);
            continue;
        case WIRE_STRUCT:
            assert_same_message(f->of, a + f->at, b + f->at);
            continue;
        default:
            break;
        }
        memcpy(&x, a + f->at, sizeof(x));
        memcpy(&y, b + f->at, sizeof(y));
        if (f->kind == WIRE_STRING) {
            assert_string_equal(x, y);
        } else if (f->kind == WIRE_JSON) {
            assert_true((!x && !y) || json_equal(x, y));
        } else {
            memcpy(&n, a + f->count_at, sizeof(n));
            assert_memory_equal(&n, b + f->count_at, sizeof(n));
            if (f->kind == WIRE_INTS && n > 0)
                assert_memory_equal(x, y, n * sizeof(int));
            for (size_t k = 0; f->kind == WIRE_LIST && k < n; k++)
                assert_same_message(f->of, (char *)x + k * f->of->size, (char *)y + k * f->of->size);
        }
    }
}

#endif
