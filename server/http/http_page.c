#include "server/http/http_page.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http_priv.h"

#define BLOCK (16 << 10) /* copied for an answer at once */

struct http_page {
    atomic_int refs;
    size_t len;
    pthread_mutex_t lock; /* guards text */
    char *text;           /* NULL: withdrawn */
};

struct http_page *http_page_new(char *text, size_t len)
{
    struct http_page *p = calloc(1, sizeof(*p));

    if (!p) {
        free(text);
        return NULL;
    }
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    p->text = text;
    p->len = len;
    return p;
}

struct http_page *http_page_ref(struct http_page *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void http_page_unref(struct http_page *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&p->lock);
    free(p->text);
    free(p);
}

size_t http_page_bytes(const struct http_page *p)
{
    return p->len;
}

bool http_page_shared(struct http_page *p)
{
    return atomic_load(&p->refs) > 1;
}

void http_page_withdraw(struct http_page *p)
{
    pthread_mutex_lock(&p->lock);
    free(p->text);
    p->text = NULL;
    pthread_mutex_unlock(&p->lock);
}

ssize_t http_page_read(struct http_page *p, uint64_t pos, char *out, size_t max)
{
    ssize_t n = -1;

    pthread_mutex_lock(&p->lock);
    if (p->text && pos < p->len) {
        n = (ssize_t)(p->len - pos < max ? p->len - pos : max);
        memcpy(out, p->text + pos, (size_t)n);
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

static ssize_t read_page(void *cls, uint64_t pos, char *out, size_t max)
{
    ssize_t n = http_page_read(cls, pos, out, max);

    return n < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : n;
}

static void drop_page(void *cls)
{
    http_page_unref(cls);
}

struct MHD_Response *http_page_response(struct http_req *r)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(r->page->len, BLOCK, read_page, r->page, drop_page);

    if (response)
        r->page = NULL;
    return response;
}
