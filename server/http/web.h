/* web - the dashboard and the API's description, embedded in the server
 *
 * Three handlers for the table of routes; none needs a token, since nothing here tells of jobs. The files are
 * those of api/web/, uPlot and api/openapi.yaml, made into build/gen/web_assets.c by api/web/embed.py.
 */
#ifndef MUSTER_SERVER_WEB_H
#define MUSTER_SERVER_WEB_H

#include <stddef.h>

#include "server/http/http.h"

struct web_asset {
    const char *name, *type, *etag; /* etag with its quotes */
    const unsigned char *data;
    size_t len;
};

extern const struct web_asset web_assets[]; /* ends with a NULL name */

void web_page(void *arg, struct http_req *req);    /* GET / */
void web_file(void *arg, struct http_req *req);    /* GET /assets/{name} */
void web_openapi(void *arg, struct http_req *req); /* GET /openapi.yaml */

#endif
