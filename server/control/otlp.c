#include "server/control/otlp.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One "name=value" as "name: value". False: it is none. */
static bool read_header(const char *text, size_t n, char ret[OTLP_HEADER_MAX])
{
    const char *eq = memchr(text, '=', n);
    size_t len = eq ? (size_t)(eq - text) : 0;

    if (len == 0 || n + 2 >= OTLP_HEADER_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i]))
            return false;
    len = (size_t)snprintf(ret, OTLP_HEADER_MAX, "%.*s: ", (int)len, text);
    for (const char *at = eq + 1; at < text + n; at++) {
        char hex[3] = "";
        int c = (unsigned char)*at;

        if (c == '%') {
            if (text + n - at < 3 || !isxdigit((unsigned char)at[1]) || !isxdigit((unsigned char)at[2]))
                return false;
            memcpy(hex, at + 1, 2);
            c = (int)strtol(hex, NULL, 16);
            at += 2;
        }
        if (c < ' ' || c > '~')
            return false;
        ret[len++] = (char)c;
    }
    ret[len] = '\0';
    return true;
}

static int read_headers(const char *text, struct otlp *o, struct otlp_way *ret, struct merr *err)
{
    size_t n = 0;

    for (const char *p = text ? text : ""; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
        size_t len;

        p += strspn(p, " ");
        len = strcspn(p, ",");
        while (len > 0 && p[len - 1] == ' ')
            len--;
        if (len == 0)
            continue;
        if (n == POST_HEADERS_MAX - 1)
            return merr_set(err, -EINVAL, "OTEL_EXPORTER_OTLP_HEADERS has more than %d headers", POST_HEADERS_MAX - 1);
        if (!read_header(p, len, o->headers[n]))
            return merr_set(err, -EINVAL,
                            "header %zu of OTEL_EXPORTER_OTLP_HEADERS is no NAME=VALUE of letters, digits, '-', '_' "
                            "and '.', or is longer than %d bytes",
                            n + 1, OTLP_HEADER_MAX - 3);
        ret->headers[n] = o->headers[n];
        n++;
    }
    return 0;
}

int otlp_read(const char *endpoint, const char *headers, const char *service, struct otlp *o, struct otlp_way *ret,
              struct merr *err)
{
    const char *fault = post_check_url(endpoint, true);
    size_t len = strlen(endpoint);

    if (fault)
        return merr_set(err, -EINVAL, "--otlp '%.200s' %s; want http://localhost:4318", endpoint, fault);
    while (len > 0 && endpoint[len - 1] == '/')
        len--;
    if (len + sizeof("/v1/traces") > sizeof(o->url))
        return merr_set(err, -EINVAL, "--otlp is longer than %zu bytes", sizeof(o->url) - sizeof("/v1/traces"));
    (void)snprintf(o->url, sizeof(o->url), "%.*s/v1/traces", (int)len, endpoint);
    ret->url = o->url;
    ret->service = service;
    return read_headers(headers, o, ret, err);
}
