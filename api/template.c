#include "api/template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/word.h"

#define OPEN "${{"
#define CLOSE "}}"
#define VALUE_MAX 4096

bool template_is(const char *text)
{
    return strstr(text, OPEN) != NULL;
}

bool template_print(const json_t *value, char *ret, size_t size)
{
    int n = -1;

    if (json_is_string(value))
        n = snprintf(ret, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        n = snprintf(ret, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        n = snprintf(ret, size, "%s", json_is_true(value) ? "true" : "false");
    for (int digits = 6; json_is_real(value) && digits <= 17; digits++) {
        n = snprintf(ret, size, "%.*g", digits, json_real_value(value));
        if (n < 0 || (size_t)n >= size || strtod(ret, NULL) == json_real_value(value))
            break;
    }
    return n >= 0 && (size_t)n < size;
}

/* The name of the place that begins at text, blanks around it left out, and where the place ends; NULL: it does not, or
 * the name is too long. */
static const char *place_end(const char *text, char name[TEMPLATE_NAME_MAX])
{
    const char *from = text + strlen(OPEN), *end = strstr(from, CLOSE);
    size_t n;

    if (!end)
        return NULL;
    from += strspn(from, " ");
    n = (size_t)(end - from);
    while (n > 0 && from[n - 1] == ' ')
        n--;
    if (end < from || n == 0 || n >= TEMPLATE_NAME_MAX)
        return NULL;
    memcpy(name, from, n);
    name[n] = '\0';
    return end + strlen(CLOSE);
}

static int refuse_name(const char *name, const json_t *names, struct merr *err)
{
    const char *known[128], *near, *key;
    size_t n = 0;
    json_t *value;

    json_object_foreach ((json_t *)names, key, value) {
        if (n < sizeof(known) / sizeof(known[0]))
            known[n++] = key;
    }
    near = word_nearest(name, known, n);
    return merr_set(err, -EINVAL, "there is no '%s' to be filled in%s%s%s", name, near ? "; did you mean '" : "",
                    near ? near : "", near ? "'?" : "");
}

static int fill(const char *text, const json_t *names, struct buf *out, const json_t **ret_whole, struct merr *err)
{
    const char *at = text, *open;

    for (; (open = strstr(at, OPEN)); at = open) {
        char name[TEMPLATE_NAME_MAX], value[VALUE_MAX];
        const char *end = place_end(open, name);
        const json_t *v = end ? json_object_get(names, name) : NULL;

        if (!end)
            return merr_set(err, -EINVAL, "'%.40s' is no place to be filled in: want such as ${{index}}", open);
        if (!v)
            return refuse_name(name, names, err);
        if (open == text && !*end) {
            *ret_whole = v;
            return 0;
        }
        if (!template_print(v, value, sizeof(value)))
            return merr_set(err, -EINVAL, "'%s' is no text, number or boolean of at most %d bytes", name,
                            VALUE_MAX - 1);
        (void)buf_add(out, at, (size_t)(open - at));
        (void)buf_addstr(out, value);
        open = end;
    }
    (void)buf_addstr(out, at);
    return buf_failed(out) ? merr_set(err, -E2BIG, "filled in, the text has more than %d bytes", TEMPLATE_TEXT_MAX) : 0;
}

json_t *template_fill(const char *text, const json_t *names, struct merr *err)
{
    const json_t *whole = NULL;
    json_t *filled = NULL;
    struct buf out;

    buf_init(&out, TEMPLATE_TEXT_MAX);
    if (fill(text, names, &out, &whole, err) == 0) {
        filled = whole ? json_incref((json_t *)whole) : json_stringn(out.data ? out.data : "", out.len);
        if (!filled)
            (void)merr_set(err, -EINVAL, "filled in, it is no text");
    }
    buf_clear(&out);
    return filled;
}
