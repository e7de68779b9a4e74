#include "server/control/sealing.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/private.h"

#define NONCE 12
#define TAG 16

static void to_hex(const unsigned char *raw, size_t n, char *ret)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", raw[i]);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool from_hex(const char *text, size_t n, unsigned char *ret)
{
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        ret[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

int sealing_read_key(const char *path, struct sealing_key *ret, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf b;
    char text[2 * SEALING_KEY_BYTES + 2];
    int r;

    buf_init(&b, 4096);
    r = private_read_file(path, &b, err);
    if (r == -ENOENT) {
        if (!chance_draw(chance_real(), ret->bytes, sizeof(ret->bytes)))
            return merr_set(err, -EIO, "no random bytes for a key");
        to_hex(ret->bytes, sizeof(ret->bytes), text);
        text[2 * SEALING_KEY_BYTES] = '\n';
        return io_write_file(path, text, 2 * SEALING_KEY_BYTES + 1, 0600, err);
    }
    if (r < 0)
        return r;
    if (strcspn(buf_text(&b), "\r\n") != (size_t)2 * SEALING_KEY_BYTES ||
        !from_hex(buf_text(&b), SEALING_KEY_BYTES, ret->bytes))
        return merr_set(err, -EINVAL, "'%s' holds no key: want %d hexadecimal digits, as they were written there", path,
                        2 * SEALING_KEY_BYTES);
    explicit_bzero(b.data, b.len);
    return 0;
}

char *sealing_close(const struct chance *chance, const struct sealing_key *key, const char *of, const char *text)
{
    size_t len = strlen(text), whole = NONCE + len + TAG;
    unsigned char *raw = malloc(whole);
    char *hex = malloc(2 * whole + 1);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n;
    bool good = raw && hex && ctx && chance_draw(chance, raw, NONCE) &&
                EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, raw) == 1 &&
                EVP_EncryptUpdate(ctx, NULL, &n, (const unsigned char *)of, (int)strlen(of)) == 1 &&
                EVP_EncryptUpdate(ctx, raw + NONCE, &n, (const unsigned char *)text, (int)len) == 1 &&
                EVP_EncryptFinal_ex(ctx, raw + NONCE + n, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, raw + NONCE + len) == 1;

    if (good)
        to_hex(raw, whole, hex);
    EVP_CIPHER_CTX_free(ctx);
    free(raw);
    if (good)
        return hex;
    free(hex);
    return NULL;
}

char *sealing_open(const struct sealing_key *key, const char *of, const char *sealed)
{
    size_t whole = strlen(sealed) / 2, len = whole > NONCE + TAG ? whole - NONCE - TAG : 0;
    unsigned char *raw = malloc(whole + 1);
    char *text = malloc(len + 1);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n = 0, last;
    bool good = raw && text && ctx && whole >= NONCE + TAG && strlen(sealed) % 2 == 0 && from_hex(sealed, whole, raw) &&
                EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, raw) == 1 &&
                EVP_DecryptUpdate(ctx, NULL, &n, (const unsigned char *)of, (int)strlen(of)) == 1 &&
                EVP_DecryptUpdate(ctx, (unsigned char *)text, &n, raw + NONCE, (int)len) == 1 &&
                EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, raw + NONCE + len) == 1 &&
                EVP_DecryptFinal_ex(ctx, (unsigned char *)text + n, &last) == 1;

    EVP_CIPHER_CTX_free(ctx);
    free(raw);
    if (good) {
        text[len] = '\0';
        return text;
    }
    if (text)
        explicit_bzero(text, len);
    free(text);
    return NULL;
}
