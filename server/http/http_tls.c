#include "server/http/http_tls.h"

#include <assert.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"

#define CHAIN_MAX 16
#define FILE_MAX_BYTES (1 << 20)
#define KEEP_US INT64_C(600000000) /* longer than a handshake may take that has the old one in hand */
#define PRIORITIES                                                                                                     \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:"    \
    "+AEAD:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA"

struct loaded {
    struct loaded *next; /* the one before */
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned n;
    gnutls_privkey_t key;
    int64_t replaced_us;
};

struct http_tls {
    const char *cert_path, *key_path; /* borrowed */
    pthread_mutex_t lock;             /* guards now, and what it points to */
    struct loaded *now;
};

/* libmicrohttpd gives its callback nothing by which to find the server. */
static struct http_tls *serving;

static void loaded_free(struct loaded *l)
{
    if (!l)
        return;
    for (unsigned i = 0; i < l->n; i++)
        gnutls_pcert_deinit(&l->chain[i]);
    if (l->key)
        gnutls_privkey_deinit(l->key);
    free(l);
}

/* Whether the key is the one that the certificate is for. */
static bool belong_together(const struct loaded *l)
{
    unsigned char id[2][64];
    size_t size[2] = {sizeof(id[0]), sizeof(id[1])};
    gnutls_pubkey_t own = NULL;
    bool same = gnutls_pubkey_init(&own) == 0 && gnutls_pubkey_import_privkey(own, l->key, 0, 0) == 0 &&
                gnutls_pubkey_get_key_id(own, GNUTLS_KEYID_USE_SHA256, id[0], &size[0]) == 0 &&
                gnutls_pubkey_get_key_id(l->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, id[1], &size[1]) == 0 &&
                size[0] == size[1] && memcmp(id[0], id[1], size[0]) == 0;

    if (own)
        gnutls_pubkey_deinit(own);
    return same;
}

static int parse(const struct http_tls *t, const struct buf *cert, const struct buf *key, struct loaded *l,
                 struct merr *err)
{
    const gnutls_datum_t cert_text = {.data = (unsigned char *)cert->data, .size = (unsigned)cert->len};
    const gnutls_datum_t key_text = {.data = (unsigned char *)key->data, .size = (unsigned)key->len};
    unsigned n = CHAIN_MAX;

    if (gnutls_pcert_list_import_x509_raw(l->chain, &n, &cert_text, GNUTLS_X509_FMT_PEM, 0) == 0)
        l->n = n;
    if (l->n > 0 && gnutls_privkey_init(&l->key) == 0 &&
        gnutls_privkey_import_x509_raw(l->key, &key_text, GNUTLS_X509_FMT_PEM, NULL, 0) == 0 && belong_together(l))
        return 0;
    return merr_set(err, -EINVAL, "cannot use TLS: are '%s' and '%s' a PEM certificate and its key?", t->cert_path,
                    t->key_path);
}

static int load(const struct http_tls *t, struct loaded **ret, struct merr *err)
{
    struct loaded *l = calloc(1, sizeof(*l));
    struct buf cert, key;
    int r;

    if (!l)
        return merr_set(err, -ENOMEM, "no memory for a certificate");
    buf_init(&cert, FILE_MAX_BYTES);
    buf_init(&key, FILE_MAX_BYTES);
    r = io_read_file(t->cert_path, &cert, err);
    if (r == 0)
        r = io_read_file(t->key_path, &key, err);
    if (r == 0)
        r = parse(t, &cert, &key, l, err);
    buf_clear(&cert);
    if (key.data)
        explicit_bzero(key.data, key.len);
    buf_clear(&key);
    if (r < 0)
        loaded_free(l);
    else
        *ret = l;
    return r;
}

/* On an HTTP thread, in a handshake. What is given stays the server's. */
static int give(gnutls_session_t session, const gnutls_datum_t *authorities, int n_authorities,
                const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **ret_chain, unsigned *ret_n,
                gnutls_privkey_t *ret_key)
{
    struct http_tls *t = serving;

    (void)session;
    (void)authorities;
    (void)n_authorities;
    (void)algorithms;
    (void)n_algorithms;
    pthread_mutex_lock(&t->lock);
    *ret_chain = t->now->chain;
    *ret_n = t->now->n;
    *ret_key = t->now->key;
    pthread_mutex_unlock(&t->lock);
    return 0;
}

int http_tls_new(const char *cert, const char *key, struct http_tls **ret, struct merr *err)
{
    struct http_tls *t;
    int r;

    if (MHD_is_feature_supported(MHD_FEATURE_HTTPS_CERT_CALLBACK) != MHD_YES)
        return merr_set(err, -ENOTSUP, "this libmicrohttpd is built without TLS; put a TLS proxy in front");
    assert(!serving);
    t = calloc(1, sizeof(*t));
    if (!t)
        return merr_set(err, -ENOMEM, "no memory for a certificate");
    *t = (struct http_tls){.cert_path = cert, .key_path = key};
    (void)pthread_mutex_init(&t->lock, NULL);
    r = load(t, &t->now, err);
    if (r < 0) {
        (void)pthread_mutex_destroy(&t->lock);
        free(t);
        return r;
    }
    serving = t;
    *ret = t;
    return 0;
}

void http_tls_free(struct http_tls *t)
{
    if (!t)
        return;
    while (t->now) {
        struct loaded *l = t->now;

        t->now = l->next;
        loaded_free(l);
    }
    (void)pthread_mutex_destroy(&t->lock);
    serving = NULL;
    free(t);
}

int http_tls_reload(struct http_tls *t, struct merr *err)
{
    int64_t now_us = clock_mono_us();
    struct loaded *l, **old;
    int r = load(t, &l, err);

    if (r < 0)
        return r;
    pthread_mutex_lock(&t->lock);
    t->now->replaced_us = now_us;
    l->next = t->now;
    t->now = l;
    old = &l->next;
    while (*old && now_us - (*old)->replaced_us < KEEP_US)
        old = &(*old)->next;
    while (*old) {
        struct loaded *gone = *old;

        *old = gone->next;
        loaded_free(gone);
    }
    pthread_mutex_unlock(&t->lock);
    return 0;
}

void http_tls_options(const struct http_tls *t, const char *authority, struct MHD_OptionItem ret[HTTP_TLS_OPTIONS])
{
    size_t n = 0;

    if (t) {
        ret[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(intptr_t)give};
        ret[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)PRIORITIES};
        if (authority)
            ret[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, (void *)(intptr_t)authority};
    }
    ret[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
}
