/* http_parse - see the header */
#include "server/http/http_parse.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define DISTANCE_MAX 160 /* characters compared */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int http_decode(char *text, bool plus)
{
    char *out = text;

    for (const char *in = text; *in; in++) {
        unsigned char c = (unsigned char)*in;

        if (c == '%') {
            int hi = hex(in[1]), lo = hi < 0 ? -1 : hex(in[2]);

            if (lo < 0)
                return -EINVAL;
            c = (unsigned char)(hi << 4 | lo);
            in += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c < 0x20 || c == 0x7f)
            return -EINVAL;
        *out++ = (char)c;
    }
    *out = '\0';
    return 0;
}

int http_path_split(char *text, struct http_path *ret)
{
    struct http_path path = {.n = 0};
    char *at = text;

    if (*at != '/')
        return -EINVAL;
    at++;
    while (*at || path.n) {
        char *slash = strchr(at, '/');

        if (path.n == HTTP_SEGMENTS_MAX)
            return -E2BIG;
        if (slash)
            *slash = '\0';
        if (http_decode(at, false) < 0)
            return -EINVAL;
        path.seg[path.n++] = at;
        if (!slash)
            break;
        at = slash + 1;
    }
    *ret = path;
    return 0;
}

int http_query_split(char *text, struct http_fields *ret)
{
    struct http_fields fields = {.n = 0};

    for (char *next, *at = text; at; at = next) {
        char *equals;

        next = strchr(at, '&');
        if (next)
            *next++ = '\0';
        if (!*at)
            continue;
        if (fields.n == HTTP_QUERY_MAX)
            return -E2BIG;
        equals = strchr(at, '=');
        if (equals)
            *equals++ = '\0';
        if (http_decode(at, true) < 0 || (equals && http_decode(equals, true) < 0))
            return -EINVAL;
        fields.v[fields.n].name = at;
        fields.v[fields.n++].value = equals ? equals : "";
    }
    *ret = fields;
    return 0;
}

bool http_path_match(const char *pattern, const struct http_path *path, const char **ret_params, size_t max)
{
    const char *at = pattern + 1;
    size_t i = 0, found = 0;

    while (*at) {
        size_t len = strcspn(at, "/");

        if (i == path->n)
            return false;
        if (*at == '{') {
            if (!*path->seg[i])
                return false;
            if (found < max)
                ret_params[found++] = path->seg[i];
        } else if (strlen(path->seg[i]) != len || memcmp(path->seg[i], at, len) != 0) {
            return false;
        }
        i++;
        at += len;
        if (*at == '/')
            at++;
    }
    return i == path->n;
}

/* Levenshtein's distance of two short texts, one row at a time. */
static size_t edits(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[DISTANCE_MAX + 1];

    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);

            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[m];
}

size_t http_path_distance(const char *pattern, const struct http_path *path)
{
    const char *at = pattern + 1;
    size_t total = 0, i = 0;

    while (*at || i < path->n) {
        size_t len = strcspn(at, "/"), have = i < path->n ? strlen(path->seg[i]) : 0;

        if (*at != '{' && (len > DISTANCE_MAX || have > DISTANCE_MAX))
            return SIZE_MAX;
        if (*at != '{')
            total += edits(i < path->n ? path->seg[i] : "", have, at, len);
        else if (!have)
            total += 2; /* a missing name is a bigger slip than a letter */
        i += i < path->n;
        at += len;
        if (*at == '/')
            at++;
    }
    return total;
}

const char *http_bearer(const char *value)
{
    if (!value || strncasecmp(value, "Bearer ", 7) != 0)
        return NULL;
    value += 7 + strspn(value + 7, " ");
    return *value ? value : NULL;
}

bool http_request_id_ok(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:");

    return len > 0 && len <= HTTP_REQUEST_ID_MAX && !text[len];
}

bool http_accepts(const char *accept, const char *type)
{
    size_t want = strlen(type);

    while (accept && *accept) {
        accept += strspn(accept, ", \t");
        if (strncasecmp(accept, type, want) == 0 && strchr(",; \t", accept[want])) /* also the NUL */
            return true;
        accept += strcspn(accept, ",");
    }
    return false;
}

bool http_etag_match(const char *if_none_match, const char *etag)
{
    size_t len = strlen(etag);

    if (!if_none_match)
        return false;
    while (*if_none_match) {
        if_none_match += strspn(if_none_match, ", \t");
        if (*if_none_match == '*')
            return true;
        if (strncmp(if_none_match, "W/", 2) == 0)
            if_none_match += 2;
        if (strncmp(if_none_match, etag, len) == 0 && strchr(", \t", if_none_match[len]))
            return true;
        if_none_match += strcspn(if_none_match, ",");
    }
    return false;
}
