#include "server/control/auth.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
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
#include "server/cluster/cluster.h"

#define TOKEN_BYTES 24
#define PLACE_MAX 4400 /* of a file, with its host */
#define ENTRIES_MAX (2 + AUTH_TOKENS_MAX + CLUSTER_NODES_MAX)
#define KEEP_US INT64_C(600000000) /* between two records of when a token was used */

struct entry {
    char hash[AUTH_HASH_MAX];
    char made_at[CLOCK_RFC3339_MAX]; /* "": a file's */
    int64_t expires_us;              /* wall; 0: never */
    _Atomic int64_t used_us;         /* wall, of its last use; 0: none is known */
    int64_t kept_us;                 /* the same as the store has it */
    bool elsewhere;                  /* a file's, of another server */
    struct http_identity who;
};

struct auth {
    char run_key[AUTH_TOKEN_MAX];
    bool shared;           /* agents may use the token of the file */
    pthread_rwlock_t lock; /* guards all below */
    struct entry *v;       /* n of them, in order of their hashes */
    size_t n, cap;
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
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        ret[2 * i] = digits[raw[i] >> 4];
        ret[2 * i + 1] = digits[raw[i] & 15];
    }
    ret[2 * n] = '\0';
}

int auth_hash(const char *text, char ret[AUTH_HASH_MAX])
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned int n = 0;

    if (EVP_Digest(text, strlen(text), raw, &n, EVP_sha256(), NULL) != 1 || n != 32)
        return -EIO;
    to_hex(raw, n, ret);
    return 0;
}

int auth_secret(const char *prefix, char ret[AUTH_TOKEN_MAX], struct merr *err)
{
    unsigned char raw[TOKEN_BYTES];

    if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
        return merr_set(err, -EIO, "no random bytes for a token");
    (void)snprintf(ret, AUTH_TOKEN_MAX, "%.4s", prefix);
    to_hex(raw, sizeof(raw), ret + 4);
    return 0;
}

/* --- the table ----------------------------------------------------------------------------------------- */

/* Where a hash is, or would have to be. */
static size_t place_of(const struct auth *a, const char *hash)
{
    size_t low = 0, high = a->n;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (strcmp(a->v[mid].hash, hash) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct entry *find(const struct auth *a, const char *hash)
{
    size_t i = place_of(a, hash);

    return i < a->n && strcmp(a->v[i].hash, hash) == 0 ? &a->v[i] : NULL;
}

/* Put an entry in. 0, -EEXIST, -ENOSPC, -ENOMEM. */
static int insert(struct auth *a, const struct entry *e)
{
    size_t at = place_of(a, e->hash), cap = a->cap ? a->cap * 2 : 64;
    struct entry *grown = a->v;

    if (find(a, e->hash))
        return -EEXIST;
    if (a->n == ENTRIES_MAX)
        return -ENOSPC;
    (void)pthread_rwlock_wrlock(&a->lock);
    if (a->n == a->cap && (grown = realloc(a->v, cap * sizeof(*grown)))) {
        a->v = grown;
        a->cap = cap;
    }
    if (grown) {
        memmove(&a->v[at + 1], &a->v[at], (a->n++ - at) * sizeof(*e));
        memcpy(&a->v[at], e, sizeof(*e));
    }
    (void)pthread_rwlock_unlock(&a->lock);
    return grown ? 0 : -ENOMEM;
}

static void drop(struct auth *a, struct store *store, size_t i)
{
    store_drop(store, STORE_TOKENS, a->v[i].hash);
    (void)pthread_rwlock_wrlock(&a->lock);
    memmove(&a->v[i], &a->v[i + 1], (--a->n - i) * sizeof(a->v[0]));
    (void)pthread_rwlock_unlock(&a->lock);
}

static bool is_of_node(const struct entry *e, const char *node)
{
    return *e->who.node && strcmp(e->who.node, node) == 0;
}

static void entry_init(struct entry *e, const char *hash, const struct http_identity *who)
{
    memset(e, 0, sizeof(*e));
    e->who = *who;
    (void)snprintf(e->hash, sizeof(e->hash), "%s", hash);
    (void)snprintf(e->who.token, sizeof(e->who.token), "%.*s", (int)sizeof(e->who.token) - 1, hash);
}

/* --- files and records --------------------------------------------------------------------------------- */

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
    if (r == -ENOENT && (r = auth_secret("mst_", fresh, err)) == 0) {
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
static void keep_file(struct store *store, const char *path, const struct entry *e)
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
        struct entry e;

        if (strncmp(rows.v[i].name, own, strlen(own)) == 0 && rows.v[i].name[strlen(own)] == '/')
            continue; /* this server's own, as they were */
        if (role == ROLE_NONE) {
            log_warn("the store's record of the token in '%s' cannot be read: it is not good", rows.v[i].name);
            continue;
        }
        (void)snprintf(who.user, sizeof(who.user), "%s", http_role_name(role));
        (void)snprintf(hash, sizeof(hash), "%s", text);
        entry_init(&e, hash, &who);
        e.elsewhere = true;
        (void)insert(a, &e);
    }
    store_rows_clear(&rows);
    return 0;
}

static int add_file(struct auth *a, const char *state_dir, const char *file, bool make, const struct http_identity *who,
                    struct store *store, struct merr *err)
{
    char path[4200], token[512], hash[AUTH_HASH_MAX];
    struct entry e;
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", state_dir, file);
    r = read_token(path, make, token, sizeof(token), err);
    if (r < 0 || !*token)
        return r;
    if (auth_hash(token, hash) < 0)
        return merr_set(err, -EIO, "cannot hash a token");
    entry_init(&e, hash, who);
    r = insert(a, &e);
    if (r < 0)
        return merr_set(err, r, "cannot take the token in '%s': %s", path, strerror(-r));
    keep_file(store, path, &e);
    return 0;
}

static json_t *time_of(int64_t wall_us)
{
    char text[CLOCK_RFC3339_MAX];

    if (wall_us == 0)
        return json_null();
    clock_rfc3339(wall_us, text);
    return json_string(text);
}

static json_t *view(const struct entry *e)
{
    return json_pack("{s:s, s:s, s:s, s:s?, s:o, s:o, s:s?, s:s?, s:b}", "id", e->who.token, "user", e->who.user,
                     "role", http_role_name(e->who.role), "made_at", *e->made_at ? e->made_at : NULL, "expires_at",
                     time_of(e->expires_us), "last_used_at", time_of(atomic_load(&e->used_us)), "node",
                     *e->who.node ? e->who.node : NULL, "unix_user", *e->who.unix_user ? e->who.unix_user : NULL,
                     "file", !*e->made_at);
}

static int keep(struct store *store, const struct entry *e)
{
    json_t *o = view(e);
    char *record = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (!record)
        return -ENOMEM;
    store_put(store, STORE_TOKENS, e->hash, record);
    free(record);
    return 0;
}

/* A token that was made, from its record; false when that is none. */
static bool read_record(const char *hash, const char *text, struct entry *e)
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
        entry_init(e, hash, &who);
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
    struct entry e;

    return read_record(row->name, row->text, &e) || is_old(row->text);
}

int auth_take(struct auth *a, struct store *store, const struct store_row *row, struct merr *err)
{
    struct entry e;
    int r;

    if (!read_record(row->name, row->text, &e))
        return merr_set(err, -EINVAL, "the store's record of the token cannot be read");
    r = insert(a, &e);
    if (r < 0)
        return merr_set(err, r, "cannot add a token: %s", strerror(-r));
    store_put(store, STORE_TOKENS, row->name, row->text);
    return 0;
}

static int load_made(struct auth *a, struct store *store, struct merr *err)
{
    struct store_rows rows;
    int r = store_read_rows(store, STORE_TOKENS, &rows, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < rows.n; i++) {
        struct entry e;

        if (read_record(rows.v[i].name, rows.v[i].text, &e))
            r = insert(a, &e) == -ENOMEM ? merr_set(err, -ENOMEM, "out of memory") : r;
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
    r = auth_secret("mrk_", a->run_key, err);
    if (r == 0)
        store_put(store, STORE_KEYS, "runs", a->run_key);
    return r;
}

const char *auth_run_key(const struct auth *a)
{
    return a->run_key;
}

int auth_start(const char *state_dir, bool shared, struct store *store, struct auth **ret, struct merr *err)
{
    static const struct http_identity admin = {.role = ROLE_ADMIN, .user = "admin"};
    static const struct http_identity agent = {.role = ROLE_AGENT, .user = "agent"};
    struct auth *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return merr_set(err, -ENOMEM, "out of memory");
    a->shared = shared;
    (void)pthread_rwlock_init(&a->lock, NULL);
    r = add_file(a, state_dir, "token", true, &admin, store, err);
    if (r == 0)
        r = add_file(a, state_dir, "agent-token", shared, &agent, store, err);
    if (r == 0)
        r = load_files(a, state_dir, store, err);
    if (r == 0)
        r = load_made(a, store, err);
    if (r == 0)
        r = load_key(a, store, err);
    if (r < 0) {
        auth_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    (void)pthread_rwlock_destroy(&a->lock);
    free(a->v);
    free(a);
}

/* --- any thread ---------------------------------------------------------------------------------------- */

enum http_auth auth_look_up(struct auth *a, const char *token, int64_t wall_us, struct http_identity *ret)
{
    enum http_auth answer = HTTP_AUTH_UNKNOWN;
    char hash[AUTH_HASH_MAX];
    struct entry *e;

    if (!token || auth_hash(token, hash) < 0)
        return answer;
    (void)pthread_rwlock_rdlock(&a->lock);
    e = find(a, hash); /* a hash tells nothing of the token: plain comparison is safe */
    if (e && e->expires_us != 0 && wall_us >= e->expires_us) {
        answer = HTTP_AUTH_EXPIRED;
    } else if (e) {
        answer = HTTP_AUTH_KNOWN;
        *ret = e->who;
        if (wall_us - atomic_load_explicit(&e->used_us, memory_order_relaxed) >= AUTH_USED_US)
            atomic_store_explicit(&e->used_us, wall_us, memory_order_relaxed);
    }
    (void)pthread_rwlock_unlock(&a->lock);
    return answer;
}

enum agent_verdict auth_agent_may(struct auth *a, const struct http_identity *who, const char *node)
{
    struct agent_ask ask = {.bound = who->node, .node = node};

    if (*who->node)
        return agent_may_speak(&ask);
    (void)pthread_rwlock_rdlock(&a->lock);
    ask.shared = a->shared;
    for (size_t i = 0; i < a->n && !ask.enrolled; i++)
        ask.enrolled = is_of_node(&a->v[i], node);
    (void)pthread_rwlock_unlock(&a->lock);
    return agent_may_speak(&ask);
}

/* --- by an admin --------------------------------------------------------------------------------------- */

/* Put it into the table and the store's batch. */
static int add(struct auth *a, struct store *store, struct entry *e, int64_t wall_us, json_t **ret_view,
               struct merr *err)
{
    json_t *seen;
    int r;

    clock_rfc3339(wall_us, e->made_at);
    seen = view(e);
    r = seen ? insert(a, e) : -ENOMEM;
    if (r == 0)
        r = keep(store, e);
    if (r < 0) {
        json_decref(seen);
        return merr_set(err, r, "cannot add a token: %s", strerror(-r));
    }
    *ret_view = seen;
    return 0;
}

int auth_make(struct auth *a, struct store *store, const struct auth_wanted *wanted, int64_t wall_us,
              char ret_token[AUTH_TOKEN_MAX], json_t **ret_view, struct merr *err)
{
    char hash[AUTH_HASH_MAX];
    struct entry e;
    size_t made = 0;
    int r;

    for (size_t i = 0; i < a->n; i++)
        made += !*a->v[i].who.node;
    if (made >= AUTH_TOKENS_MAX)
        return merr_set(err, -ENOSPC, "there are %d tokens, as many as can be; revoke some", AUTH_TOKENS_MAX);
    r = auth_secret("mst_", ret_token, err);
    if (r < 0)
        return r;
    if (auth_hash(ret_token, hash) < 0)
        return merr_set(err, -EIO, "cannot hash a token");
    entry_init(&e, hash, &wanted->who);
    e.expires_us = wanted->expires_us;
    return add(a, store, &e, wall_us, ret_view, err);
}

int auth_bind(struct auth *a, struct store *store, const char *node, const char hash[AUTH_HASH_MAX], int64_t wall_us,
              struct merr *err)
{
    struct http_identity who = {.role = ROLE_AGENT, .user = "agent"};
    json_t *seen = NULL;
    struct entry e;
    int before, r;

    if (find(a, hash))
        return merr_set(err, -EEXIST, "this token is somebody's already; make a new one");
    (void)snprintf(who.node, sizeof(who.node), "%s", node);
    entry_init(&e, hash, &who);
    before = (int)auth_revoke_node(a, store, node);
    r = add(a, store, &e, wall_us, &seen, err);
    json_decref(seen);
    return r < 0 ? r : before;
}

/* Until its server leads again, and has the file still. */
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

int auth_revoke(struct auth *a, struct store *store, const char *id, json_t **ret_view, struct merr *err)
{
    size_t i = 0;

    while (i < a->n && strcmp(a->v[i].who.token, id) != 0)
        i++;
    if (i == a->n)
        return merr_set(err, -ENOENT, "no token '%s'; `muster token list` shows those there are", id);
    if (a->v[i].elsewhere)
        forget_file(store, a->v[i].hash);
    else if (!*a->v[i].made_at)
        return merr_set(err, -EPERM,
                        "the token of '%s' is in a file of the server's state folder; remove the file and "
                        "start musterd anew",
                        a->v[i].who.user);
    *ret_view = view(&a->v[i]);
    drop(a, store, i);
    return 0;
}

size_t auth_revoke_node(struct auth *a, struct store *store, const char *node)
{
    size_t n = 0;

    for (size_t i = a->n; i-- > 0;)
        if (is_of_node(&a->v[i], node)) {
            drop(a, store, i);
            n++;
        }
    return n;
}

json_t *auth_list(struct auth *a)
{
    json_t *all = json_array();

    for (int made = 0; made < 2; made++)
        for (size_t i = 0; i < a->n; i++)
            if ((*a->v[i].made_at != '\0') == made)
                (void)json_array_append_new(all, view(&a->v[i]));
    return all;
}

void auth_keep_used(struct auth *a, struct store *store)
{
    for (size_t i = 0; i < a->n; i++) {
        struct entry *e = &a->v[i];

        if (*e->made_at && atomic_load(&e->used_us) - e->kept_us >= KEEP_US && keep(store, e) == 0)
            e->kept_us = atomic_load(&e->used_us);
    }
}

bool auth_sees(const struct http_identity *who, const char *user)
{
    return who->role == ROLE_ADMIN || who->role == ROLE_VIEWER || strcmp(who->user, user) == 0;
}
