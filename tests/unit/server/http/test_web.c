/* The dashboard's files: each with its type and tag, and not sent again to who has it. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "server/http/http_priv.h"
#include "server/http/web.h"

/* A request for a file of this name from somebody who has one of this tag (NULL: none); to be freed by its reference.
 */
static struct http_req *asks_for(const char *name, const char *etag)
{
    struct http_req *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    assert_int_equal(pthread_mutex_init(&r->lock, NULL), 0);
    atomic_store(&r->refs, 2);
    r->state = HTTP_HELD;
    r->params[0] = name;
    buf_init(&r->header_text, 1024);
    if (etag) {
        (void)buf_add(&r->header_text, "If-None-Match", 14);
        (void)buf_add(&r->header_text, etag, strlen(etag) + 1);
        r->n_headers = 1;
    }
    return r;
}

static bool has_header(const struct http_req *r, const char *name, const char *part)
{
    for (size_t i = 0; i < r->n_out_headers; i++)
        if (strcmp(r->out_headers[i].name, name) == 0 && strstr(r->out_headers[i].value, part))
            return true;
    return false;
}

static void each_file_is_sent_with_its_tag_and_only_once_to_each(void **state)
{
    size_t n = 0;

    (void)state;
    for (const struct web_asset *a = web_assets; a->name; a++, n++) {
        struct http_req *r = asks_for(a->name, NULL);

        web_file(NULL, r);
        if (r->status != 200 || r->out_len != a->len || memcmp(r->out, a->data, a->len) != 0 ||
            !has_header(r, "ETag", a->etag) || !has_header(r, "Content-Security-Policy", "default-src 'none'"))
            fail_msg("%s: %d", a->name, r->status);
        http_req_unref(r);
        r = asks_for(a->name, a->etag);
        web_file(NULL, r);
        if (r->status != 304 || r->out_len != 0)
            fail_msg("%s again: %d", a->name, r->status);
        http_req_unref(r);
    }
    assert_true(n > 3);
}

static void the_page_and_the_description_have_names_of_their_own(void **state)
{
    struct http_req *r = asks_for(NULL, "\"another\"");

    (void)state;
    web_page(NULL, r);
    assert_int_equal(r->status, 200);
    assert_non_null(strstr(r->content_type, "text/html"));
    http_req_unref(r);
    r = asks_for(NULL, NULL);
    web_openapi(NULL, r);
    assert_int_equal(r->status, 200);
    assert_memory_equal(r->out, "openapi:", 8);
    http_req_unref(r);
}

static void what_is_no_file_of_it_is_not_there(void **state)
{
    static const char *const names[] = {"", "nothing.js", "../openapi.yaml", "index.html/", "INDEX.HTML"};

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct http_req *r = asks_for(names[i], NULL);

        web_file(NULL, r);
        if (r->status != 404)
            fail_msg("'%s': %d", names[i], r->status);
        http_req_unref(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_is_sent_with_its_tag_and_only_once_to_each),
        cmocka_unit_test(the_page_and_the_description_have_names_of_their_own),
        cmocka_unit_test(what_is_no_file_of_it_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
