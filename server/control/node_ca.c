#include "server/control/node_ca.h"

#include <errno.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/private.h"
#include "base/try.h"

#define CA_LIFE_S (10 * 365 * 86400)
#define EARLY_S 300 /* most that a certificate is good before it was made */
#define PATH_LEN 4352
#define PEM_MAX 65536

struct node_ca {
    char *pem;
    X509 *cert;
    EVP_PKEY *key;
    int life_s;
};

static char *text_of(BIO *b)
{
    char *data;
    long n = BIO_get_mem_data(b, &data);

    return n > 0 ? strndup(data, (size_t)n) : NULL;
}

/* A certificate without a signature, for a key. NULL: no memory. */
static X509 *blank(EVP_PKEY *key, int64_t from_s, int64_t until_s)
{
    unsigned char number[16];
    X509 *x = X509_new();
    BIGNUM *n = NULL;
    bool good = x && RAND_bytes(number, sizeof(number)) == 1;

    number[0] &= 0x7f;
    good = good && (n = BN_bin2bn(number, sizeof(number), NULL)) && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x)) &&
           X509_set_version(x, 2) == 1 && ASN1_TIME_set(X509_getm_notBefore(x), (time_t)from_s) &&
           ASN1_TIME_set(X509_getm_notAfter(x), (time_t)until_s) && X509_set_pubkey(x, key) == 1;
    BN_free(n);
    if (good)
        return x;
    X509_free(x);
    return NULL;
}

static bool add_name(X509 *x, const char *field, const char *value)
{
    return X509_NAME_add_entry_by_txt(X509_get_subject_name(x), field, MBSTRING_ASC, (const unsigned char *)value, -1,
                                      -1, 0) == 1;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509_EXTENSION *e;
    X509V3_CTX ctx;
    bool good;

    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    good = e && X509_add_ext(x, e, -1) == 1;
    X509_EXTENSION_free(e);
    return good;
}

/* A new authority in the folder: its key first, so that a certificate never stands without one. */
static int make(const char *cert_path, const char *key_path, int64_t now_s, struct merr *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = key ? blank(key, now_s - EARLY_S, now_s + CA_LIFE_S) : NULL;
    BIO *texts[2] = {BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem())};
    char *cert_text = NULL, *key_text = NULL;
    int r = -ENOMEM;

    if (x && texts[0] && texts[1] && add_name(x, "CN", "Muster nodes") &&
        X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
        add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        add_extension(x, x, NID_key_usage, "critical,keyCertSign") &&
        add_extension(x, x, NID_subject_key_identifier, "hash") && X509_sign(x, key, EVP_sha256()) > 0 &&
        PEM_write_bio_X509(texts[0], x) == 1 &&
        PEM_write_bio_PKCS8PrivateKey(texts[1], key, NULL, NULL, 0, NULL, NULL) == 1 &&
        (cert_text = text_of(texts[0])) && (key_text = text_of(texts[1])))
        r = 0;
    if (r == 0)
        r = io_publish_file(key_path, key_text, strlen(key_text), 0600, err);
    else
        (void)merr_set(err, r, "cannot make a key for the authority of nodes");
    if (r == 0)
        r = io_publish_file(cert_path, cert_text, strlen(cert_text), 0644, err);
    if (key_text)
        explicit_bzero(key_text, strlen(key_text));
    free(key_text);
    free(cert_text);
    BIO_free(texts[0]);
    BIO_free(texts[1]);
    X509_free(x);
    EVP_PKEY_free(key);
    return r;
}

static int load(struct node_ca *ca, const char *cert_path, const char *key_path, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf cert, key;
    BIO *cert_bio, *key_bio;
    int r;

    buf_init(&cert, PEM_MAX);
    buf_init(&key, PEM_MAX);
    r = io_read_file(cert_path, &cert, err);
    if (r == 0)
        r = private_read_file(key_path, &key, err);
    if (r < 0)
        return r;
    cert_bio = BIO_new_mem_buf(cert.data, (int)cert.len);
    key_bio = BIO_new_mem_buf(key.data, (int)key.len);
    if (cert_bio && key_bio) {
        ca->cert = PEM_read_bio_X509(cert_bio, NULL, NULL, (void *)"");
        ca->key = PEM_read_bio_PrivateKey(key_bio, NULL, NULL, (void *)"");
    }
    BIO_free(cert_bio);
    BIO_free(key_bio);
    explicit_bzero(key.data, key.len);
    if (!ca->cert || !ca->key || X509_check_private_key(ca->cert, ca->key) != 1 || X509_check_ca(ca->cert) != 1)
        return merr_set(err, -EINVAL, "'%s' and '%s' are no authority: want a PEM certificate with CA:TRUE and its key",
                        cert_path, key_path);
    ca->pem = strdup(buf_text(&cert));
    return ca->pem ? 0 : merr_set(err, -ENOMEM, "no memory for the authority of nodes");
}

int node_ca_open(const char *folder, int life_s, int64_t wall_us, struct node_ca **ret, struct merr *err)
{
    char cert[PATH_LEN], key[PATH_LEN];
    struct node_ca *ca;
    int r;

    TRY(io_mkdirs(folder, 0700, err));
    TRY(private_check_folder(folder, err));
    (void)snprintf(cert, sizeof(cert), "%.4096s/ca.pem", folder);
    (void)snprintf(key, sizeof(key), "%.4096s/ca-key.pem", folder);
    if (access(cert, F_OK) < 0 && errno == ENOENT)
        TRY(make(cert, key, wall_us / 1000000, err));
    ca = calloc(1, sizeof(*ca));
    if (!ca)
        return merr_set(err, -ENOMEM, "no memory for the authority of nodes");
    ca->life_s = life_s;
    r = load(ca, cert, key, err);
    if (r < 0)
        node_ca_close(ca);
    else
        *ret = ca;
    return r;
}

void node_ca_close(struct node_ca *ca)
{
    if (!ca)
        return;
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    free(ca->pem);
    free(ca);
}

const char *node_ca_certificate(const struct node_ca *ca)
{
    return ca->pem;
}

/* The key of a request that is signed by it. NULL: none of the kind that is taken. */
static EVP_PKEY *key_of(const char *request)
{
    BIO *b = BIO_new_mem_buf(request, -1);
    X509_REQ *q = b ? PEM_read_bio_X509_REQ(b, NULL, NULL, (void *)"") : NULL;
    EVP_PKEY *key = q ? X509_REQ_get_pubkey(q) : NULL;
    char group[32] = "";
    size_t len;

    BIO_free(b);
    if (key &&
        (EVP_PKEY_get_base_id(key) != EVP_PKEY_EC || EVP_PKEY_get_group_name(key, group, sizeof(group), &len) != 1 ||
         strcmp(group, "prime256v1") != 0 || X509_REQ_verify(q, key) != 1)) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    X509_REQ_free(q);
    return key;
}

int node_ca_sign(const struct node_ca *ca, const char *request, const char *node, const char *token, int64_t wall_us,
                 char **ret, struct merr *err)
{
    int64_t now_s = wall_us / 1000000, early_s = ca->life_s / 100 < EARLY_S ? ca->life_s / 100 : EARLY_S;
    EVP_PKEY *key = key_of(request);
    char *pem = NULL;
    BIO *b;
    X509 *x;

    if (!key)
        return merr_set(err, -EINVAL,
                        "want a certificate request (PKCS #10, PEM) signed by its key, which is EC P-256");
    x = blank(key, now_s - early_s, now_s + ca->life_s);
    b = BIO_new(BIO_s_mem());
    if (x && b && add_name(x, "CN", node) && add_name(x, "OU", token) &&
        X509_set_issuer_name(x, X509_get_subject_name(ca->cert)) == 1 &&
        add_extension(x, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(x, ca->cert, NID_key_usage, "critical,digitalSignature") &&
        add_extension(x, ca->cert, NID_ext_key_usage, "clientAuth") && X509_sign(x, ca->key, EVP_sha256()) > 0 &&
        PEM_write_bio_X509(b, x) == 1)
        pem = text_of(b);
    BIO_free(b);
    X509_free(x);
    EVP_PKEY_free(key);
    if (!pem)
        return merr_set(err, -ENOMEM, "cannot sign a certificate");
    *ret = pem;
    return 0;
}
