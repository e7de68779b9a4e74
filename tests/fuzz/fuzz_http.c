/* fuzz_http - paths, queries and small headers of requests: first byte chooses, the rest is the text */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_path(char *text)
{
    static const char *const patterns[] = {"/", "/v1/jobs", "/v1/jobs/{id}/events", "/v1/agents/{a}/x/{b}/{c}/{d}"};
    const char *params[4];
    struct http_path path;

    if (http_path_split(text, &path) < 0)
        return;
    assert(path.n <= HTTP_SEGMENTS_MAX);
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        bool match = http_path_match(patterns[i], &path, params, 4);
        size_t edits = http_path_distance(patterns[i], &path);

        assert(!match || edits == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(size + 1, 1);
    struct http_fields fields;

    if (!text)
        return 0;
    if (size > 1)
        memcpy(text, data + 1, size - 1);
    switch (size ? data[0] % 4 : 0) {
    case 0:
        fuzz_path(text);
        break;
    case 1:
        if (http_query_split(text, &fields) == 0)
            for (size_t i = 0; i < fields.n; i++)
                assert(strlen(fields.v[i].name) + strlen(fields.v[i].value) <= size);
        break;
    case 2:
        (void)http_accepts(text, "text/event-stream");
        (void)http_etag_match(text, "\"abc\"");
        (void)http_bearer(text);
        break;
    default:
        if (http_request_id_ok(text))
            assert(strlen(text) <= HTTP_REQUEST_ID_MAX);
    }
    free(text);
    return 0;
}
