#include "server/control/auth_priv.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/cluster/cluster.h"

#define TOKEN_BYTES 24
#define ENTRIES_MAX (2 + AUTH_TOKENS_MAX + CLUSTER_NODES_MAX)
#define KEEP_US INT64_C(600000000) /* between two records of when a token was used */

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

int auth_secret(const struct chance *chance, const char *prefix, char ret[AUTH_TOKEN_MAX], struct merr *err)
{
    unsigned char raw[TOKEN_BYTES];

    if (!chance_draw(chance, raw, sizeof(raw)))
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

static struct auth_entry *find(const struct auth *a, const char *hash)
{
    size_t i = place_of(a, hash);

    return i < a->n && strcmp(a->v[i].hash, hash) == 0 ? &a->v[i] : NULL;
}

int auth_insert(struct auth *a, const struct auth_entry *e)
{
    size_t at = place_of(a, e->hash), cap = a->cap ? a->cap * 2 : 64;
    struct auth_entry *grown = a->v;

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

/* The store hears of it from auth_keep(). */
static void drop(struct auth *a, size_t i)
{
    struct auth_gone *grown = realloc(a->gone, (a->n_gone + 1) * sizeof(*grown));

    a->lost = a->lost || !grown;
    if (grown) {
        a->gone = grown;
        grown[a->n_gone].file = a->v[i].elsewhere;
        memcpy(grown[a->n_gone++].hash, a->v[i].hash, AUTH_HASH_MAX);
    }
    (void)pthread_rwlock_wrlock(&a->lock);
    memmove(&a->v[i], &a->v[i + 1], (--a->n - i) * sizeof(a->v[0]));
    (void)pthread_rwlock_unlock(&a->lock);
}

static bool is_of_node(const struct auth_entry *e, const char *node)
{
    return *e->who.node && strcmp(e->who.node, node) == 0;
}

void auth_entry_init(struct auth_entry *e, const char *hash, const struct http_identity *who)
{
    memset(e, 0, sizeof(*e));
    e->who = *who;
    (void)snprintf(e->hash, sizeof(e->hash), "%s", hash);
    (void)snprintf(e->who.token, sizeof(e->who.token), "%.*s", (int)sizeof(e->who.token) - 1, hash);
}

static json_t *time_of(int64_t wall_us)
{
    char text[CLOCK_RFC3339_MAX];

    if (wall_us == 0)
        return json_null();
    clock_rfc3339(wall_us, text);
    return json_string(text);
}

json_t *auth_view(const struct auth_entry *e)
{
    return json_pack("{s:s, s:s, s:s, s:s?, s:o, s:o, s:s?, s:s?, s:b}", "id", e->who.token, "user", e->who.user,
                     "role", http_role_name(e->who.role), "made_at", *e->made_at ? e->made_at : NULL, "expires_at",
                     time_of(e->expires_us), "last_used_at", time_of(atomic_load(&e->used_us)), "node",
                     *e->who.node ? e->who.node : NULL, "unix_user", *e->who.unix_user ? e->who.unix_user : NULL,
                     "file", !*e->made_at);
}

const char *auth_run_key(const struct auth *a)
{
    return a->run_key;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    (void)pthread_rwlock_destroy(&a->lock);
    free(a->gone);
    free(a->v);
    free(a);
}

/* --- any thread ---------------------------------------------------------------------------------------- */

enum http_auth auth_look_up(struct auth *a, const char *token, int64_t wall_us, struct http_identity *ret)
{
    enum http_auth answer = HTTP_AUTH_UNKNOWN;
    char hash[AUTH_HASH_MAX];
    struct auth_entry *e;

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

bool auth_user(struct auth *a, const char *user, int64_t wall_us, struct http_identity *ret)
{
    bool found = false;

    (void)pthread_rwlock_rdlock(&a->lock);
    for (size_t i = 0; i < a->n; i++) {
        const struct auth_entry *e = &a->v[i];

        if (*e->who.node || e->who.role == ROLE_AGENT || strcmp(e->who.user, user) != 0 ||
            (e->expires_us != 0 && wall_us >= e->expires_us) || (found && e->who.role <= ret->role))
            continue;
        *ret = e->who;
        found = true;
    }
    (void)pthread_rwlock_unlock(&a->lock);
    return found;
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

/* Put it into the table, to be stored with this turn. */
static int add(struct auth *a, struct auth_entry *e, int64_t wall_us, json_t **ret_view, struct merr *err)
{
    json_t *seen;
    int r;

    clock_rfc3339(wall_us, e->made_at);
    e->changed = true;
    seen = auth_view(e);
    r = seen ? auth_insert(a, e) : -ENOMEM;
    if (r < 0) {
        json_decref(seen);
        return merr_set(err, r, "cannot add a token: %s", strerror(-r));
    }
    *ret_view = seen;
    return 0;
}

int auth_make(struct auth *a, const struct chance *chance, const struct auth_wanted *wanted, int64_t wall_us,
              char ret_token[AUTH_TOKEN_MAX], json_t **ret_view, struct merr *err)
{
    char hash[AUTH_HASH_MAX];
    struct auth_entry e;
    size_t made = 0;
    int r;

    for (size_t i = 0; i < a->n; i++)
        made += !*a->v[i].who.node;
    if (made >= AUTH_TOKENS_MAX)
        return merr_set(err, -ENOSPC, "there are %d tokens, as many as can be; revoke some", AUTH_TOKENS_MAX);
    r = auth_secret(chance, "mst_", ret_token, err);
    if (r < 0)
        return r;
    if (auth_hash(ret_token, hash) < 0)
        return merr_set(err, -EIO, "cannot hash a token");
    auth_entry_init(&e, hash, &wanted->who);
    e.expires_us = wanted->expires_us;
    return add(a, &e, wall_us, ret_view, err);
}

int auth_bind(struct auth *a, const char *node, const char hash[AUTH_HASH_MAX], int64_t wall_us, struct merr *err)
{
    struct http_identity who = {.role = ROLE_AGENT, .user = "agent"};
    json_t *seen = NULL;
    struct auth_entry e;
    int before, r;

    if (find(a, hash))
        return merr_set(err, -EEXIST, "this token is somebody's already; make a new one");
    (void)snprintf(who.node, sizeof(who.node), "%s", node);
    auth_entry_init(&e, hash, &who);
    before = (int)auth_revoke_node(a, node);
    r = add(a, &e, wall_us, &seen, err);
    json_decref(seen);
    return r < 0 ? r : before;
}

int auth_revoke(struct auth *a, const char *id, json_t **ret_view, struct merr *err)
{
    size_t i = 0;

    while (i < a->n && strcmp(a->v[i].who.token, id) != 0)
        i++;
    if (i == a->n)
        return merr_set(err, -ENOENT, "no token '%s'; `muster token list` shows those there are", id);
    if (!a->v[i].elsewhere && !*a->v[i].made_at)
        return merr_set(err, -EPERM,
                        "the token of '%s' is in a file of the server's state folder; remove the file and "
                        "start musterd anew",
                        a->v[i].who.user);
    *ret_view = auth_view(&a->v[i]);
    drop(a, i);
    return 0;
}

size_t auth_revoke_node(struct auth *a, const char *node)
{
    size_t n = 0;

    for (size_t i = a->n; i-- > 0;)
        if (is_of_node(&a->v[i], node)) {
            drop(a, i);
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
                (void)json_array_append_new(all, auth_view(&a->v[i]));
    return all;
}

void auth_keep_used(struct auth *a)
{
    for (size_t i = 0; i < a->n; i++)
        a->v[i].changed =
            a->v[i].changed || (*a->v[i].made_at && atomic_load(&a->v[i].used_us) - a->v[i].kept_us >= KEEP_US);
}

bool auth_sees(const struct http_identity *who, const char *user)
{
    return who->role == ROLE_ADMIN || who->role == ROLE_VIEWER || strcmp(who->user, user) == 0;
}
