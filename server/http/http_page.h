/* http_page - a text that many answers share: one copy of it, however many read it and however slowly
 *
 * Counted references; safe from any thread.
 */
#ifndef MUSTER_SERVER_HTTP_PAGE_H
#define MUSTER_SERVER_HTTP_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/http/http_req.h"

struct http_page;

/* Of text from malloc(), which is taken over. New; NULL: no memory. */
struct http_page *http_page_new(char *text, size_t len);
struct http_page *http_page_ref(struct http_page *p); /* returns p */
void http_page_unref(struct http_page *p);            /* NULL is fine */

size_t http_page_bytes(const struct http_page *p);
bool http_page_shared(struct http_page *p); /* somebody holds it beside the caller */

/* Free its text, whoever reads it: answers that are on their way are cut off. */
void http_page_withdraw(struct http_page *p);

/* Copy up to max bytes from an offset below its length. Returns how many; -1: it was withdrawn. */
ssize_t http_page_read(struct http_page *p, uint64_t pos, char *out, size_t max);

/* Answer with it; the caller's reference is taken over. */
void http_page_reply(struct http_req *r, int status, const char *content_type, struct http_page *p);

#endif
