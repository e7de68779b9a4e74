/* otlp - the collector of traces, as its operator names it: an option, and variables that OpenTelemetry defines */
#ifndef MUSTER_SERVER_OTLP_H
#define MUSTER_SERVER_OTLP_H

#include "api/client/post.h"
#include "base/merr.h"

#define OTLP_HEADER_MAX 1024

struct otlp_way {                                           /* how spans leave the program */
    bool (*send)(void *self, const struct post_message *m); /* NULL: they do not */
    void *self;
    const char *url;                           /* of the collector's traces, "http://localhost:4318/v1/traces" */
    const char *headers[POST_HEADERS_MAX - 1]; /* "Name: value", or NULL */
    const char *service;                       /* resource attribute service.name */
};

struct otlp {
    char url[512], headers[POST_HEADERS_MAX - 1][OTLP_HEADER_MAX];
};

/* endpoint: "http://localhost:4318", to which /v1/traces is added. headers: "name=value,name=value", values with
 * percent escapes, or NULL; service: or NULL. ret's url, headers and service are set and point into *o and service.
 * 0; -EINVAL in words, in which no value of a header is. */
int otlp_read(const char *endpoint, const char *headers, const char *service, struct otlp *o, struct otlp_way *ret,
              struct merr *err);

#endif
