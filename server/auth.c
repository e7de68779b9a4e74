#include "server/auth.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/io.h"

#define HEX_MAX 65
#define TOKEN_BYTES 24

struct auth {
    struct {
        char hash[HEX_MAX];
        struct http_identity who;
    } v[AUTH_TOKENS_MAX];
    size_t n;
};

static void to_hex(const unsigned char *raw, size_t n, char *ret)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", raw[i]);
}

static int hash_token(const char *token, char ret[HEX_MAX])
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned int n = 0;

    if (EVP_Digest(token, strlen(token), raw, &n, EVP_sha256(), NULL) != 1 || n != 32)
        return -EIO;
    to_hex(raw, n, ret);
    return 0;
}

/* The token in a file, or a new one put there. */
static int read_token(const char *path, char *ret, size_t size, struct merr *err)
{
    unsigned char raw[TOKEN_BYTES];
    struct buf b;
    int r;

    buf_init(&b, 4096);
    r = io_read_file(path, &b, err);
    if (r == -ENOENT) {
        char text[sizeof(raw) * 2 + 8] = "mst_";

        if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw)) {
            buf_clear(&b);
            return merr_set(err, -EIO, "no random bytes for a token");
        }
        to_hex(raw, sizeof(raw), text + 4);
        buf_reset(&b);
        (void)buf_printf(&b, "%s\n", text);
        r = io_write_file(path, b.data, b.len, 0600, err);
    }
    if (r == 0) {
        size_t n = strcspn(buf_text(&b), " \t\r\n");

        if (n == 0 || n >= size)
            r = merr_set(err, -EINVAL, "'%s' holds no token; remove it and a new one is made", path);
        else
            (void)snprintf(ret, size, "%.*s", (int)n, b.data);
    }
    buf_clear(&b);
    return r;
}

static int add(struct auth *a, const char *state_dir, const char *file, const char *user, enum http_role role,
               struct store *store, struct merr *err)
{
    static const _Atomic int go_on = 0;
    char path[4200], token[512], record[128];
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", state_dir, file);
    r = read_token(path, token, sizeof(token), err);
    if (r == 0 && (r = hash_token(token, a->v[a->n].hash)) < 0)
        return merr_set(err, r, "cannot hash a token");
    if (r < 0)
        return r;
    a->v[a->n].who.role = role;
    (void)snprintf(a->v[a->n].who.user, sizeof(a->v[a->n].who.user), "%s", user);
    (void)snprintf(record, sizeof(record), "{\"user\":\"%s\",\"role\":\"%s\"}", user,
                   role == ROLE_ADMIN ? "admin" : "agent");
    store_add(store, "HSET", "muster:tokens", a->v[a->n].hash, record, NULL);
    a->n++;
    return store_commit(store, &go_on, err);
}

int auth_start(const char *state_dir, struct store *store, struct auth **ret, struct merr *err)
{
    struct auth *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return merr_set(err, -ENOMEM, "out of memory");
    store_add(store, "DEL", "muster:tokens", NULL);
    r = add(a, state_dir, "token", "admin", ROLE_ADMIN, store, err);
    if (r == 0)
        r = add(a, state_dir, "agent-token", "agent", ROLE_AGENT, store, err);
    if (r < 0) {
        free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    free(a);
}

bool auth_look_up(const struct auth *a, const char *token, struct http_identity *ret)
{
    char hash[HEX_MAX];
    bool found = false;

    if (!token)
        return false;
    if (hash_token(token, hash) < 0)
        return false;
    for (size_t i = 0; i < a->n; i++) /* a hash tells nothing of the token: plain comparison is safe */
        if (strcmp(a->v[i].hash, hash) == 0) {
            *ret = a->v[i].who;
            found = true;
        }
    return found;
}
