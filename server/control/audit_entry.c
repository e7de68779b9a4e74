#include "server/control/audit_entry.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "server/http/http_req.h"

/* A character beyond ASCII, len bytes of it, or one that must not stand in a text as it is. */
static void add_escaped(struct buf *b, const unsigned char *p, int len)
{
    uint32_t c = len == 4 ? p[0] & 7u : len == 3 ? p[0] & 15u : len == 2 ? p[0] & 31u : len == 1 ? p[0] : 0xFFFD;

    for (int i = 1; i < len; i++)
        c = c << 6 | (p[i] & 63u);
    if (c > 0xFFFF)
        (void)buf_printf(b, "\\u%04X\\u%04X", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                         (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
    else
        (void)buf_printf(b, "\\u%04X", (unsigned)c);
}

/* ,"name":"text"; what is no UTF-8 in it becomes U+FFFD. Names are ours and need no care. */
static void add_text(struct buf *b, const char *name, const char *text)
{
    const char *good = text, *p = text; /* good to p goes as it is */

    (void)buf_addstr(b, ",\"");
    (void)buf_addstr(b, name);
    (void)buf_addstr(b, text ? "\":\"" : "\":null");
    if (!text)
        return;
    while (*p) {
        unsigned char c = (unsigned char)*p;
        int len = c < 0x80 ? 1 : utf8_length(p, strlen(p));

        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            p++;
            continue;
        }
        (void)buf_add(b, good, (size_t)(p - good));
        add_escaped(b, (const unsigned char *)p, len);
        p += len > 0 ? len : 1;
        good = p;
    }
    (void)buf_add(b, good, (size_t)(p - good));
    (void)buf_addstr(b, "\"");
}

void audit_entry_begin(struct buf *b, const struct http_req *r, int status, const char *code)
{
    const struct http_identity *who = http_identity(r);
    char actor[80], number[24];

    (void)snprintf(actor, sizeof(actor), "%s:%s", who->role == ROLE_AGENT ? "agent" : "user", who->user);
    (void)snprintf(number, sizeof(number), ",\"status\":%d", status);
    (void)buf_addstr(b, "{\"type\":\"audit\"");
    add_text(b, "actor", *who->user ? actor : NULL);
    add_text(b, "token", *who->token ? who->token : NULL);
    add_text(b, "address", http_address(r));
    add_text(b, "request_id", http_request_id(r));
    add_text(b, "method", http_method(r));
    add_text(b, "path", http_path(r));
    (void)buf_addstr(b, number);
    add_text(b, "code", code);
}

void audit_entry_begin_of(struct buf *b, const char *user, const char *what)
{
    char actor[80];

    (void)snprintf(actor, sizeof(actor), "user:%s", user);
    (void)buf_addstr(b, "{\"type\":\"audit\"");
    add_text(b, "actor", actor);
    add_text(b, "token", NULL);
    add_text(b, "address", "");
    add_text(b, "request_id", "");
    add_text(b, "method", "END");
    add_text(b, "path", what);
    (void)buf_addstr(b, ",\"status\":200");
    add_text(b, "code", NULL);
}

static int add_bytes(const char *bytes, size_t n, void *b)
{
    return buf_add(b, bytes, n);
}

static void add_value(struct buf *b, const char *name, const json_t *value)
{
    (void)buf_addstr(b, ",\"");
    (void)buf_addstr(b, name);
    (void)buf_addstr(b, "\":");
    if (!value)
        (void)buf_addstr(b, "null");
    else if (json_dump_callback(value, add_bytes, b, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY) < 0)
        b->failed = true;
}

void audit_entry_end(struct buf *b, const struct audit_entry_end *e)
{
    char at[CLOCK_RFC3339_MAX];

    add_value(b, "before", e->before);
    add_value(b, "after", e->after);
    if (e->left_out > 0)
        (void)buf_printf(b, ",\"left_out\":%llu", (unsigned long long)e->left_out);
    clock_rfc3339(e->wall_us, at);
    (void)buf_printf(b, ",\"id\":\"%llu\",\"at\":\"%s\"%s}", (unsigned long long)e->id, at,
                     e->cut ? ",\"cut\":true" : "");
}
