#include "worker/agent/node_cert.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/private.h"
#include "base/try.h"
#include "worker/agent/backoff.h"

#define CALL_MS 30000
#define LOOK_US INT64_C(60000000) /* between two looks at the time of day, which may be set */
#define PEM_MAX 65536

struct node_cert {
    const char *folder, *node;
    struct calls *calls;
    int64_t renew_s, until_s; /* wall */
    char *key;                /* of the renewal under way; NULL: none is */
    struct backoff backoff;
};

static char *text_of(BIO *b)
{
    char *data;
    long n = BIO_get_mem_data(b, &data);

    return n > 0 ? strndup(data, (size_t)n) : NULL;
}

static void forget_key(char **key)
{
    if (*key)
        explicit_bzero(*key, strlen(*key));
    free(*key);
    *key = NULL;
}

int node_cert_ask(char **ret_key, char request[JOIN_REQUEST_MAX], struct merr *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *key_bio = BIO_new(BIO_s_mem()), *bio = BIO_new(BIO_s_mem());
    char *key_text = NULL, *text = NULL;
    X509_REQ *q = X509_REQ_new();
    bool good = key && key_bio && bio && q && X509_REQ_set_pubkey(q, key) == 1 &&
                X509_REQ_sign(q, key, EVP_sha256()) > 0 && PEM_write_bio_X509_REQ(bio, q) == 1 &&
                PEM_write_bio_PKCS8PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                (key_text = text_of(key_bio)) && (text = text_of(bio)) && strlen(text) < JOIN_REQUEST_MAX;

    if (good) {
        (void)snprintf(request, JOIN_REQUEST_MAX, "%s", text);
        *ret_key = key_text;
        key_text = NULL;
    }
    forget_key(&key_text);
    free(text);
    X509_REQ_free(q);
    BIO_free(bio);
    BIO_free(key_bio);
    EVP_PKEY_free(key);
    return good ? 0 : merr_set(err, -ENOMEM, "cannot make a key for a certificate of this node");
}

static int64_t seconds_of(const ASN1_TIME *t)
{
    struct tm tm;

    return ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

/* Whether a PEM text has a certificate and its key; and from when on, and until when, it is good. */
static bool read_pem(const char *text, int64_t *ret_from_s, int64_t *ret_until_s)
{
    BIO *cert_bio = BIO_new_mem_buf(text, -1), *key_bio = BIO_new_mem_buf(text, -1);
    X509 *x = cert_bio ? PEM_read_bio_X509(cert_bio, NULL, NULL, (void *)"") : NULL;
    EVP_PKEY *key = key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, NULL, (void *)"") : NULL;
    bool good = x && key && X509_check_private_key(x, key) == 1;

    if (good) {
        *ret_from_s = seconds_of(X509_get0_notBefore(x));
        *ret_until_s = seconds_of(X509_get0_notAfter(x));
    }
    X509_free(x);
    EVP_PKEY_free(key);
    BIO_free(cert_bio);
    BIO_free(key_bio);
    return good && *ret_until_s > *ret_from_s;
}

static void path_of(const char *folder, int64_t until_s, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%.4000s/node-%lld.pem", folder, (long long)until_s);
}

/* The newest of the folder, by its name; all others are removed when but is not 0. 0: there is none. */
static int64_t newest(const char *folder, int64_t but)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    long long at = 0, one;
    char path[PATH_MAX];
    int end;

    while (d && (e = readdir(d))) {
        end = 0;
        if (sscanf(e->d_name, "node-%18lld.pem%n", &one, &end) != 1 || end == 0 || e->d_name[end])
            continue;
        at = one > at ? one : at;
        path_of(folder, one, path);
        if (but && one != but)
            (void)unlink(path);
    }
    if (d)
        (void)closedir(d);
    return at;
}

int node_cert_keep(const char *folder, const char *key, const char *certificate, struct merr *err)
{
    int64_t from_s, until_s;
    BUF_CLEAR_AUTO struct buf b;
    char path[PATH_MAX];
    int r;

    buf_init(&b, PEM_MAX);
    (void)buf_printf(&b, "%s%s", certificate, key);
    if (buf_failed(&b) || !read_pem(buf_text(&b), &from_s, &until_s))
        return merr_set(err, -EINVAL, "the server's certificate for this node cannot be used with its key");
    path_of(folder, until_s, path);
    r = io_publish_file(path, b.data, b.len, 0600, err);
    explicit_bzero(b.data, b.len);
    if (r == 0)
        (void)newest(folder, until_s);
    return r;
}

const char *node_cert_newest(const char *folder, char ret[4096])
{
    int64_t at = newest(folder, 0);

    if (at == 0)
        return NULL;
    path_of(folder, at, ret);
    return ret;
}

/* Show the newest certificate from now on. -ENOENT: there is none. */
static int use_newest(struct node_cert *c, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf b;
    int64_t at = newest(c->folder, 0), from_s;
    char path[PATH_MAX];
    bool good;

    buf_init(&b, PEM_MAX);
    if (at == 0)
        return -ENOENT;
    path_of(c->folder, at, path);
    TRY(private_read_file(path, &b, err));
    good = read_pem(buf_text(&b), &from_s, &c->until_s);
    explicit_bzero(b.data, b.len);
    if (!good)
        return merr_set(err, -EINVAL, "'%s' is no certificate with its key; trade another join code", path);
    c->renew_s = c->until_s - (c->until_s - from_s) / 3;
    return calls_show_certificate(c->calls, path, err);
}

int node_cert_new(const char *folder, const char *node, struct calls *calls, struct node_cert **ret, struct merr *err)
{
    struct node_cert *c = calloc(1, sizeof(*c));
    int r;

    *ret = NULL;
    if (!c)
        return merr_set(err, -ENOMEM, "no memory for a certificate");
    *c = (struct node_cert){.folder = folder, .node = node, .calls = calls};
    (void)getrandom(c->backoff.key, sizeof(c->backoff.key), 0);
    r = use_newest(c, err);
    if (r < 0)
        node_cert_free(c);
    else
        *ret = c;
    return r == -ENOENT ? 0 : r;
}

void node_cert_free(struct node_cert *c)
{
    if (c)
        forget_key(&c->key);
    free(c);
}

static void renewed(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct node_cert *c = arg;
    json_auto_t *doc = status == 200 ? json_loadb(body, len, 0, NULL) : NULL;
    struct join_renewed answer;
    struct merr err;
    int r = -EPROTO;

    if (status == 404) { /* this server asks for none any more */
        forget_key(&c->key);
        c->renew_s = INT64_MAX / 2000000;
        return;
    }
    if (status != 200)
        (void)merr_set(&err, r, "the server answers %d%s%s", status > 0 ? status : 0, *why ? ": " : "", why);
    else
        r = join_renewed_read(doc, &answer, &err);
    if (r == 0)
        r = node_cert_keep(c->folder, c->key, answer.certificate, &err);
    if (r == 0)
        r = use_newest(c, &err);
    forget_key(&c->key);
    if (r == 0) {
        backoff_worked(&c->backoff);
        log_info("the certificate of node %s was renewed", c->node);
        return;
    }
    if (c->backoff.failures % 16 == 0)
        log_warn("cannot renew the certificate of node %s: %s; trying again", c->node, err.text);
    backoff_failed(&c->backoff, clock_mono_us());
}

static void renew(struct node_cert *c)
{
    struct join_renewal ask;
    struct merr err;
    int r = node_cert_ask(&c->key, ask.request, &err);
    json_auto_t *doc = r == 0 ? join_renewal_write(&ask) : NULL;
    char *body = doc ? json_dumps(doc, JSON_COMPACT) : NULL, path[256];

    (void)snprintf(path, sizeof(path), "/v1/agents/%s/certificate", c->node);
    if (!body || calls_begin(c->calls,
                             &(struct call){.method = "POST",
                                            .path = path,
                                            .body = body,
                                            .len = strlen(body),
                                            .timeout_ms = CALL_MS,
                                            .done = renewed,
                                            .arg = c},
                             &err) < 0) {
        forget_key(&c->key);
        backoff_failed(&c->backoff, clock_mono_us());
    }
    free(body);
}

int64_t node_cert_tick(struct node_cert *c, int64_t now_us)
{
    int64_t due_us;

    if (!c || c->key)
        return INT64_MAX;
    due_us = c->renew_s * 1000000 - clock_wall_us() + now_us;
    if (due_us < c->backoff.until_us)
        due_us = c->backoff.until_us;
    if (due_us > now_us)
        return due_us < now_us + LOOK_US ? due_us : now_us + LOOK_US;
    renew(c);
    return c->key ? INT64_MAX : c->backoff.until_us;
}
