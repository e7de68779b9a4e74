#include "server/control/webhook_text.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buf.h"

#define TEXT_MAX 500 /* bytes of what an event says */
#define BODY_MAX 4096
#define MAIL_MAX 8192
#define KEY_MAX 96
#define SECRET_HEAD "whsec_"

/* So many bytes of a text, of whole characters. */
static int cut(const char *text, size_t most)
{
    size_t n = strnlen(text, most + 1);

    if (n <= most)
        return (int)n;
    n = most;
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    return (int)n;
}

static char *as_json(const struct webhook_news *n)
{
    char event[24];
    json_t *o;
    char *text;

    (void)snprintf(event, sizeof(event), "%llu", (unsigned long long)n->event);
    o = json_pack("{s:s, s:s, s:{s:s, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s%}}", "type",
                  webhook_kind_name(n->kind), "timestamp", n->at, "data", "event", event, "job", n->job, "name",
                  n->name, "user", n->user, "project", n->project, "node", n->node, "code", n->code, "class", n->class_,
                  "text", n->text ? n->text : "", (size_t)cut(n->text ? n->text : "", TEXT_MAX));
    text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

/* Plain text of a text of others: control characters as spaces. slack: nothing of it calls people or makes links. */
static void add_plain(struct buf *b, const char *text, bool slack)
{
    int n = cut(text, TEXT_MAX);

    for (int i = 0; i < n; i++) {
        if (slack && text[i] == '&')
            (void)buf_addstr(b, "&amp;");
        else if (slack && text[i] == '<')
            (void)buf_addstr(b, "&lt;");
        else if (slack && text[i] == '>')
            (void)buf_addstr(b, "&gt;");
        else
            (void)buf_add(b, (unsigned char)text[i] < ' ' || text[i] == 0x7f ? " " : text + i, 1);
    }
}

/* "job j17 'name' of ann has failed: words" */
static void add_sentence(struct buf *b, const struct webhook_news *n, bool slack)
{
    if (n->kind == WEBHOOK_TEST) {
        (void)buf_addstr(b, "this is a test of your webhook");
    } else if (n->job) {
        (void)buf_printf(b, "job %s '", n->job);
        add_plain(b, n->name ? n->name : "", slack);
        (void)buf_printf(b, "' of %s %s", n->user ? n->user : "?", webhook_kinds[n->kind].says);
    } else {
        (void)buf_addstr(b, "node ");
        add_plain(b, n->node ? n->node : "?", slack);
        (void)buf_printf(b, " %s", webhook_kinds[n->kind].says);
    }
    if (n->text && *n->text && (!n->code || strcmp(n->text, n->code) != 0)) {
        (void)buf_addstr(b, ": ");
        add_plain(b, n->text, slack);
    }
}

char *webhook_text(enum webhook_format format, const struct webhook_news *n)
{
    struct buf b;
    char *text = NULL;

    if (format == WEBHOOK_JSON)
        return as_json(n);
    buf_init(&b, BODY_MAX);
    if (format == WEBHOOK_MAIL)
        (void)buf_printf(&b, "Subject: [muster] %s %s\r\n\r\n", webhook_kind_name(n->kind),
                         n->job    ? n->job
                         : n->node ? n->node
                                   : "");
    add_sentence(&b, n, format == WEBHOOK_SLACK);
    if (format == WEBHOOK_MAIL) {
        (void)buf_printf(&b, "\r\n\r\nat %s\r\n", n->at);
        if (n->job)
            (void)buf_printf(&b, "muster show %s\r\nmuster explain %s\r\n", n->job, n->job);
    }
    if (!buf_failed(&b) && format == WEBHOOK_SLACK) {
        json_t *o = json_pack("{s:s}", "text", buf_text(&b));

        text = o ? json_dumps(o, JSON_COMPACT) : NULL;
        json_decref(o);
    } else if (!buf_failed(&b)) {
        text = strdup(buf_text(&b));
    }
    buf_clear(&b);
    return text;
}

char *webhook_mail(const char *from, const char *to, const char *id, int64_t wall_us, const char *body)
{
    time_t seconds = (time_t)(wall_us / 1000000);
    char date[64], *text = NULL;
    struct buf b;
    struct tm tm;

    if (!gmtime_r(&seconds, &tm) || strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S +0000", &tm) == 0)
        return NULL;
    buf_init(&b, MAIL_MAX);
    (void)buf_printf(&b,
                     "Date: %s\r\nFrom: %s\r\nTo: %s\r\nMessage-ID: <%s@muster>\r\nAuto-Submitted: auto-generated\r\n"
                     "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
                     "Content-Transfer-Encoding: 8bit\r\n%s",
                     date, from, to, id, body);
    if (!buf_failed(&b))
        text = strdup(buf_text(&b));
    buf_clear(&b);
    return text;
}

bool webhook_sign(const char *secret, const char *id, int64_t seconds, const char *body,
                  char ret[WEBHOOK_SIGNATURE_MAX])
{
    unsigned char key[KEY_MAX], mac[EVP_MAX_MD_SIZE], text[WEBHOOK_SIGNATURE_MAX];
    const char *code = secret + sizeof(SECRET_HEAD) - 1;
    unsigned int n_mac = 0;
    struct buf signed_;
    int n;
    bool ok;

    if (strncmp(secret, SECRET_HEAD, sizeof(SECRET_HEAD) - 1) != 0 || strlen(code) % 4 != 0 ||
        strlen(code) / 4 * 3 > sizeof(key))
        return false;
    n = EVP_DecodeBlock(key, (const unsigned char *)code, (int)strlen(code));
    for (size_t i = strlen(code); n > 0 && i > 0 && code[i - 1] == '='; i--)
        n--; /* filled up */
    if (n < 24)
        return false;
    buf_init(&signed_, MAIL_MAX);
    (void)buf_printf(&signed_, "%s.%lld.%s", id, (long long)seconds, body);
    ok = !buf_failed(&signed_) &&
         HMAC(EVP_sha256(), key, n, (const unsigned char *)buf_text(&signed_), signed_.len, mac, &n_mac);
    buf_clear(&signed_);
    explicit_bzero(key, sizeof(key));
    if (ok)
        (void)snprintf(ret, WEBHOOK_SIGNATURE_MAX, "v1,%.*s", EVP_EncodeBlock(text, mac, (int)n_mac), text);
    return ok;
}

bool webhook_address_ok(const char *address, const char *domains)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    size_t local = strcspn(address, "@"), domain;
    const char *at = address + local;

    for (size_t i = 0; i < local; i++)
        if (!strchr(letters, address[i]) && !strchr("_+%", address[i]))
            return false;
    if (local == 0 || local > 64 || *at != '@' || address[0] == '-')
        return false;
    domain = strlen(++at);
    if (domain == 0 || domain > 190 || strspn(at, letters) != domain || *at == '.' || *at == '-')
        return false;
    for (size_t len; domains && *domains; domains += len + (domains[len] == ',')) {
        len = strcspn(domains, ",");
        if (len == domain && strncasecmp(domains, at, len) == 0)
            return true;
    }
    return !domains;
}
