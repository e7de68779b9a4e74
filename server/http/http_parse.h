/* http_parse - the pure parts of reading a request: paths, queries, tokens, names that are nearly right
 *
 * All input comes from outside and is bounded by its caller. Nothing here allocates or keeps anything.
 */
#ifndef MUSTER_SERVER_HTTP_PARSE_H
#define MUSTER_SERVER_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_SEGMENTS_MAX 12 /* of a path */
#define HTTP_QUERY_MAX 32    /* fields of a query */
#define HTTP_REQUEST_ID_MAX 64

struct http_path {
    const char *seg[HTTP_SEGMENTS_MAX]; /* decoded, into the text given */
    size_t n;
};

struct http_fields {
    struct {
        const char *name, *value; /* decoded, into the text given */
    } v[HTTP_QUERY_MAX];
    size_t n;
};

/* Decode %XX in place, and '+' as a space if plus. Returns 0, or -EINVAL for a broken escape, a NUL or another
 * control character; text is then unspecified. */
int http_decode(char *text, bool plus);

/* Split an absolute path (no query) in place and decode its segments. "/" has none; an empty segment ("//", or a
 * slash at the end) stays an empty string and matches no parameter. Returns 0, -EINVAL as http_decode or when
 * it does not begin with '/', -E2BIG with too many segments. */
int http_path_split(char *text, struct http_path *ret);

/* Split "a=1&b=2" in place and decode it; a field without '=' has an empty value. Returns 0, -EINVAL, -E2BIG. */
int http_query_split(char *text, struct http_fields *ret);

/* Whether path has the form of pattern ("/v1/jobs/{id}"); ret_params then holds up to max segments that stand
 * at a {…}. */
bool http_path_match(const char *pattern, const struct http_path *path, const char **ret_params, size_t max);

/* How far a path is from a pattern, in edits, parameters counting as right; SIZE_MAX when it is too long to say. */
size_t http_path_distance(const char *pattern, const struct http_path *path);

/* The token of "Bearer TOKEN" (the scheme in any case), NULL if value is not that. Borrowed from value. */
const char *http_bearer(const char *value);

/* Whether a client's X-Request-Id may be echoed: 1 to 64 of letters, digits and "-_.:". */
bool http_request_id_ok(const char *text);

/* Whether an Accept header names the media type itself (no wildcards: streams are asked for by name). */
bool http_accepts(const char *accept, const char *type);

/* Whether an If-None-Match header holds etag (quoted, as sent), or is "*". */
bool http_etag_match(const char *if_none_match, const char *etag);

#endif
