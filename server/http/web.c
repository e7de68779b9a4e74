/* web - see the header */
#include "server/http/web.h"

#include <string.h>

#include "server/http/http_parse.h"

#define PAGE_POLICY                                                                                                    \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "              \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static const struct web_asset *find(const char *name)
{
    for (const struct web_asset *a = web_assets; a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

/* Browsers keep a file and ask whether it is still the one. */
static void serve(struct http_req *req, const char *name)
{
    const struct web_asset *a = find(name);

    if (!a) {
        http_problem(req, 404, "no-such-resource", "the dashboard has no file '%s'", name);
        return;
    }
    http_set_header(req, "ETag", a->etag);
    http_set_header(req, "Cache-Control", "no-cache");
    http_set_header(req, "Content-Security-Policy", PAGE_POLICY);
    if (http_etag_match(http_header(req, "If-None-Match"), a->etag))
        http_reply_new(req, 304, NULL);
    else
        http_reply_text(req, 200, a->type, (const char *)a->data, a->len);
}

void web_page(void *arg, struct http_req *req)
{
    (void)arg;
    serve(req, "index.html");
}

void web_file(void *arg, struct http_req *req)
{
    (void)arg;
    serve(req, http_param(req, 0));
}

void web_openapi(void *arg, struct http_req *req)
{
    (void)arg;
    serve(req, "openapi.yaml");
}
