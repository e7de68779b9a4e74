#include "server/control/auth.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/private.h"

#define HEX_MAX 65
#define TOKEN_BYTES 24

struct entry {
    char hash[HEX_MAX];
    char made_at[CLOCK_RFC3339_MAX]; /* "": a file's */
    struct http_identity who;
};

struct auth {
    pthread_rwlock_t lock; /* guards all below */
    struct entry v[AUTH_TOKENS_MAX];
    size_t n;
};

enum http_role auth_role(const char *name)
{
    for (int i = ROLE_VIEWER; i <= ROLE_AGENT; i++)
        if (strcmp(http_role_name((enum http_role)i), name) == 0)
            return (enum http_role)i;
    return ROLE_NONE;
}

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

static int fresh_token(char ret[AUTH_TOKEN_MAX], struct merr *err)
{
    unsigned char raw[TOKEN_BYTES];

    if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
        return merr_set(err, -EIO, "no random bytes for a token");
    (void)snprintf(ret, AUTH_TOKEN_MAX, "mst_");
    to_hex(raw, sizeof(raw), ret + 4);
    return 0;
}

/* The token in a file, or a new one put there. */
static int read_token(const char *path, char *ret, size_t size, struct merr *err)
{
    char fresh[AUTH_TOKEN_MAX];
    struct buf b;
    int r;

    buf_init(&b, 4096);
    r = private_read_file(path, &b, err);
    if (r == -ENOENT && (r = fresh_token(fresh, err)) == 0) {
        buf_reset(&b);
        (void)buf_printf(&b, "%s\n", fresh);
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

static int entry_init(struct entry *e, const char *token, const char *user, enum http_role role, struct merr *err)
{
    *e = (struct entry){.who.role = role};
    if (hash_token(token, e->hash) < 0)
        return merr_set(err, -EIO, "cannot hash a token");
    (void)snprintf(e->who.user, sizeof(e->who.user), "%s", user);
    (void)snprintf(e->who.token, sizeof(e->who.token), "%.*s", (int)sizeof(e->who.token) - 1, e->hash);
    return 0;
}

static int add_file(struct auth *a, const char *state_dir, const char *file, const char *user, enum http_role role,
                    struct merr *err)
{
    char path[4200], token[512];
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", state_dir, file);
    r = read_token(path, token, sizeof(token), err);
    return r < 0 ? r : entry_init(&a->v[a->n++], token, user, role, err);
}

/* A token that was made, from its record; false when that is none. */
static bool read_record(const char *hash, const char *text, struct entry *e)
{
    const char *user, *role, *made_at;
    json_t *o = json_loads(text, 0, NULL);
    bool good = json_unpack(o, "{s:s, s:s, s:s}", "user", &user, "role", &role, "made_at", &made_at) == 0;

    if (good) {
        *e = (struct entry){.who.role = auth_role(role)};
        (void)snprintf(e->hash, sizeof(e->hash), "%s", hash);
        (void)snprintf(e->made_at, sizeof(e->made_at), "%s", made_at);
        (void)snprintf(e->who.user, sizeof(e->who.user), "%s", user);
        (void)snprintf(e->who.token, sizeof(e->who.token), "%.*s", (int)sizeof(e->who.token) - 1, hash);
        good = e->who.role != ROLE_NONE;
    }
    json_decref(o);
    return good;
}

/* Whether an older musterd kept the token of a file there. */
static bool is_old(const char *text)
{
    json_auto_t *o = json_loads(text, 0, NULL);

    return json_is_string(json_object_get(o, "user")) && !json_object_get(o, "made_at");
}

bool auth_reads(const struct store_row *row)
{
    struct entry e;

    return read_record(row->name, row->text, &e) || is_old(row->text);
}

int auth_take(struct auth *a, struct store *store, const struct store_row *row, struct merr *err)
{
    struct entry e;

    if (!read_record(row->name, row->text, &e))
        return merr_set(err, -EINVAL, "the store's record of the token cannot be read");
    if (a->n == AUTH_TOKENS_MAX)
        return merr_set(err, -ENOSPC, "there are %d tokens, as many as can be; revoke some", AUTH_TOKENS_MAX);
    store_put(store, STORE_TOKENS, row->name, row->text);
    (void)pthread_rwlock_wrlock(&a->lock);
    a->v[a->n++] = e;
    (void)pthread_rwlock_unlock(&a->lock);
    return 0;
}

static int load_made(struct auth *a, struct store *store, struct merr *err)
{
    struct store_rows rows;
    int r = store_read_rows(store, STORE_TOKENS, &rows, err);

    for (size_t i = 0; r == 0 && i < rows.n && a->n < AUTH_TOKENS_MAX; i++)
        if (read_record(rows.v[i].name, rows.v[i].text, &a->v[a->n]))
            a->n++;
        else if (is_old(rows.v[i].text))
            store_drop(store, STORE_TOKENS, rows.v[i].name);
    if (r == 0)
        store_rows_clear(&rows);
    return r;
}

int auth_start(const char *state_dir, struct store *store, struct auth **ret, struct merr *err)
{
    struct auth *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return merr_set(err, -ENOMEM, "out of memory");
    (void)pthread_rwlock_init(&a->lock, NULL);
    r = add_file(a, state_dir, "token", "admin", ROLE_ADMIN, err);
    if (r == 0)
        r = add_file(a, state_dir, "agent-token", "agent", ROLE_AGENT, err);
    if (r == 0)
        r = load_made(a, store, err);
    if (r < 0) {
        auth_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (a)
        (void)pthread_rwlock_destroy(&a->lock);
    free(a);
}

bool auth_look_up(struct auth *a, const char *token, struct http_identity *ret)
{
    char hash[HEX_MAX];
    bool found = false;

    if (!token || hash_token(token, hash) < 0)
        return false;
    (void)pthread_rwlock_rdlock(&a->lock);
    for (size_t i = 0; i < a->n && !found; i++) /* a hash tells nothing of the token: plain comparison is safe */
        if (strcmp(a->v[i].hash, hash) == 0) {
            *ret = a->v[i].who;
            found = true;
        }
    (void)pthread_rwlock_unlock(&a->lock);
    return found;
}

/* --- by an admin --------------------------------------------------------------------------------------- */

static json_t *view(const struct entry *e)
{
    return json_pack("{s:s, s:s, s:s, s:s?, s:b}", "id", e->who.token, "user", e->who.user, "role",
                     http_role_name(e->who.role), "made_at", *e->made_at ? e->made_at : NULL, "file", !*e->made_at);
}

int auth_make(struct auth *a, struct store *store, const struct http_identity *who, int64_t wall_us,
              char ret_token[AUTH_TOKEN_MAX], json_t **ret_view, struct merr *err)
{
    struct entry e;
    char *record;
    int r;

    if (a->n == AUTH_TOKENS_MAX)
        return merr_set(err, -ENOSPC, "there are %d tokens, as many as can be; revoke some", AUTH_TOKENS_MAX);
    r = fresh_token(ret_token, err);
    if (r == 0)
        r = entry_init(&e, ret_token, who->user, who->role, err);
    if (r < 0)
        return r;
    clock_rfc3339(wall_us, e.made_at);
    *ret_view = view(&e);
    record = json_dumps(*ret_view, JSON_COMPACT);
    if (!record) {
        json_decref(*ret_view);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    store_put(store, STORE_TOKENS, e.hash, record);
    free(record);
    (void)pthread_rwlock_wrlock(&a->lock);
    a->v[a->n++] = e;
    (void)pthread_rwlock_unlock(&a->lock);
    return 0;
}

int auth_revoke(struct auth *a, struct store *store, const char *id, json_t **ret_view, struct merr *err)
{
    size_t i = 0;

    while (i < a->n && strcmp(a->v[i].who.token, id) != 0)
        i++;
    if (i == a->n)
        return merr_set(err, -ENOENT, "no token '%s'; `muster token list` shows those there are", id);
    if (!*a->v[i].made_at)
        return merr_set(err, -EPERM,
                        "the token of '%s' is in a file of the server's state folder; remove the file and "
                        "start musterd anew",
                        a->v[i].who.user);
    *ret_view = view(&a->v[i]);
    store_drop(store, STORE_TOKENS, a->v[i].hash);
    (void)pthread_rwlock_wrlock(&a->lock);
    memmove(&a->v[i], &a->v[i + 1], (--a->n - i) * sizeof(a->v[0]));
    (void)pthread_rwlock_unlock(&a->lock);
    return 0;
}

json_t *auth_list(struct auth *a)
{
    json_t *all = json_array();

    for (size_t i = 0; i < a->n; i++)
        (void)json_array_append_new(all, view(&a->v[i]));
    return all;
}

bool auth_sees(const struct http_identity *who, const char *user)
{
    return who->role == ROLE_ADMIN || who->role == ROLE_VIEWER || strcmp(who->user, user) == 0;
}
