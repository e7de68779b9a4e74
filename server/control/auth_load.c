#include "server/control/auth_load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/private.h"
#include "base/try.h"
#include "server/control/auth_priv.h"

#define PLACE_MAX 4400 /* of a file, with its host */

/* --- files ------------------------------------------------------------------------------------------- */

/* The token in a file, or a new one put there; "": there is none and none is to be made. */
static int read_token(const char *path, bool make, char *ret, size_t size, struct merr *err)
{
    char fresh[AUTH_TOKEN_MAX];
    struct buf b;
    int r;

    buf_init(&b, 4096);
    r = private_read_file(path, &b, err);
    if (r == -ENOENT && !make) {
        *ret = '\0';
        return 0;
    }
    if (r == -ENOENT && (r = auth_secret(chance_real(), "mst_", fresh, err)) == 0) {
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

/* Where a file is, among all of the servers that take over from each other. */
static void place_of_file(const char *path, char ret[PLACE_MAX])
{
    char host[64] = "";

    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(ret, PLACE_MAX, "%s:%s", host, path);
}

/* So that the token stays good when another server takes over. */
static void keep_file(struct store *store, const char *path, const struct auth_entry *e)
{
    char place[PLACE_MAX], text[AUTH_HASH_MAX + 16];

    place_of_file(path, place);
    (void)snprintf(text, sizeof(text), "%s %s", e->hash, http_role_name(e->who.role));
    store_put(store, STORE_FILE_TOKENS, place, text);
}

/* Tokens in files of other servers, which led before this one. */
static int load_files(struct auth *a, const char *state_dir, struct store *store, struct merr *err)
{
    char own[PLACE_MAX];
    struct store_rows rows;
    int r = store_read_rows(store, STORE_FILE_TOKENS, &rows, err);

    if (r < 0)
        return r;
    place_of_file(state_dir, own);
    for (size_t i = 0; i < rows.n; i++) {
        const char *text = rows.v[i].text, *space = strchr(text, ' ');
        enum http_role role = space && space - text == AUTH_HASH_MAX - 1 ? auth_role(space + 1) : ROLE_NONE;
        struct http_identity who = {.role = role};
        char hash[AUTH_HASH_MAX];
        struct auth_entry e;

        if (strncmp(rows.v[i].name, own, strlen(own)) == 0 && rows.v[i].name[strlen(own)] == '/')
            continue; /* this server's own, as they were */
        if (role == ROLE_NONE) {
            log_warn("the store's record of the token in '%s' cannot be read: it is not good", rows.v[i].name);
            continue;
        }
        (void)snprintf(who.user, sizeof(who.user), "%s", http_role_name(role));
        (void)snprintf(hash, sizeof(hash), "%s", text);
        auth_entry_init(&e, hash, &who);
        e.elsewhere = true;
        (void)auth_insert(a, &e);
    }
    store_rows_clear(&rows);
    return 0;
}

static int add_file(struct auth *a, const char *state_dir, const char *file, bool make, const struct http_identity *who,
                    struct store *store, struct merr *err)
{
    char path[4200], token[512], hash[AUTH_HASH_MAX];
    struct auth_entry e;
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", state_dir, file);
    r = read_token(path, make, token, sizeof(token), err);
    if (r < 0 || !*token)
        return r;
    if (auth_hash(token, hash) < 0)
        return merr_set(err, -EIO, "cannot hash a token");
    auth_entry_init(&e, hash, who);
    r = auth_insert(a, &e);
    if (r < 0)
        return merr_set(err, r, "cannot take the token in '%s': %s", path, strerror(-r));
    keep_file(store, path, &e);
    return 0;
}

/* --- records ----------------------------------------------------------------------------------------- */

static int keep(struct store *store, const struct auth_entry *e)
{
    json_t *o = auth_view(e);
    char *record = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (!record)
        return -ENOMEM;
    store_put(store, STORE_TOKENS, e->hash, record);
    free(record);
    return 0;
}

/* A token in a file of another server, until that leads again and has the file still. */
static void forget_file(struct store *store, const char *hash)
{
    struct store_rows rows;

    if (store_read_rows(store, STORE_FILE_TOKENS, &rows, NULL) < 0)
        return;
    for (size_t i = 0; i < rows.n; i++)
        if (strncmp(rows.v[i].text, hash, strlen(hash)) == 0)
            store_drop(store, STORE_FILE_TOKENS, rows.v[i].name);
    store_rows_clear(&rows);
}

int auth_keep(struct auth *a, struct store *store)
{
    for (size_t i = 0; i < a->n_gone; i++)
        if (a->gone[i].file)
            forget_file(store, a->gone[i].hash);
        else
            store_drop(store, STORE_TOKENS, a->gone[i].hash);
    a->n_gone = 0;
    for (size_t i = 0; i < a->n; i++) {
        struct auth_entry *e = &a->v[i];

        if (!e->changed)
            continue;
        if (keep(store, e) < 0)
            return -ENOMEM;
        e->changed = false;
        e->kept_us = atomic_load(&e->used_us);
    }
    return a->lost ? -ENOMEM : 0;
}

/* A token that was made, from its record; false when that is none. */
static bool read_record(const char *hash, const char *text, struct auth_entry *e)
{
    const char *user, *role, *made_at;
    struct http_identity who = {.role = ROLE_NONE};
    json_t *o = json_loads(text, 0, NULL);
    const char *expires_at = json_string_value(json_object_get(o, "expires_at"));
    const char *used_at = json_string_value(json_object_get(o, "last_used_at"));
    const char *node = json_string_value(json_object_get(o, "node"));
    const char *unix_user = json_string_value(json_object_get(o, "unix_user"));
    int64_t used_us = 0;
    bool good = strlen(hash) == AUTH_HASH_MAX - 1 &&
                json_unpack(o, "{s:s, s:s, s:s}", "user", &user, "role", &role, "made_at", &made_at) == 0;

    if (good) {
        who.role = auth_role(role);
        (void)snprintf(who.user, sizeof(who.user), "%s", user);
        (void)snprintf(who.node, sizeof(who.node), "%s", node ? node : "");
        (void)snprintf(who.unix_user, sizeof(who.unix_user), "%s", unix_user ? unix_user : "");
        auth_entry_init(e, hash, &who);
        (void)snprintf(e->made_at, sizeof(e->made_at), "%s", made_at);
        if (used_at && clock_read_rfc3339(used_at, &used_us) == 0)
            e->kept_us = used_us;
        atomic_store(&e->used_us, e->kept_us);
        good = who.role != ROLE_NONE && (!expires_at || clock_read_rfc3339(expires_at, &e->expires_us) == 0);
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
    struct auth_entry e;

    return read_record(row->name, row->text, &e) || is_old(row->text);
}

int auth_take(struct auth *a, const struct store_row *row, struct merr *err)
{
    struct auth_entry e;
    int r;

    if (!read_record(row->name, row->text, &e))
        return merr_set(err, -EINVAL, "the store's record of the token cannot be read");
    e.changed = true;
    r = auth_insert(a, &e);
    return r < 0 ? merr_set(err, r, "cannot add a token: %s", strerror(-r)) : 0;
}

static int load_made(struct auth *a, struct store *store, struct merr *err)
{
    struct store_rows rows;
    int r = store_read_rows(store, STORE_TOKENS, &rows, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < rows.n; i++) {
        struct auth_entry e;

        if (read_record(rows.v[i].name, rows.v[i].text, &e))
            r = auth_insert(a, &e) == -ENOMEM ? merr_set(err, -ENOMEM, "out of memory") : r;
        else if (is_old(rows.v[i].text))
            store_drop(store, STORE_TOKENS, rows.v[i].name);
    }
    store_rows_clear(&rows);
    return r;
}

static int load_key(struct auth *a, struct store *store, struct merr *err)
{
    struct store_rows rows;
    int r = store_read_rows(store, STORE_KEYS, &rows, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < rows.n; i++)
        if (rows.v[i].text && strcmp(rows.v[i].name, "runs") == 0)
            (void)snprintf(a->run_key, sizeof(a->run_key), "%s", rows.v[i].text);
    store_rows_clear(&rows);
    if (*a->run_key)
        return 0;
    r = auth_secret(chance_real(), "mrk_", a->run_key, err);
    if (r == 0)
        store_put(store, STORE_KEYS, "runs", a->run_key);
    return r;
}

static int load(struct auth *a, const char *state_dir, struct store *store, struct merr *err)
{
    static const struct http_identity admin = {.role = ROLE_ADMIN, .user = "admin"};
    static const struct http_identity agent = {.role = ROLE_AGENT, .user = "agent"};

    TRY(add_file(a, state_dir, "token", true, &admin, store, err));
    TRY(add_file(a, state_dir, "agent-token", a->shared, &agent, store, err));
    TRY(load_files(a, state_dir, store, err));
    TRY(load_made(a, store, err));
    return load_key(a, store, err);
}

int auth_start(const char *state_dir, bool shared, struct store *store, struct auth **ret, struct merr *err)
{
    struct auth *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return merr_set(err, -ENOMEM, "out of memory");
    a->shared = shared;
    (void)pthread_rwlock_init(&a->lock, NULL);
    r = load(a, state_dir, store, err);
    if (r < 0) {
        auth_free(a);
        return r;
    }
    *ret = a;
    return 0;
}
