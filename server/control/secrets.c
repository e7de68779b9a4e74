#include "server/control/secrets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/control/records.h"
#include "server/control/sealing.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define NAME_MAX_BYTES (2 * SPEC_NAME_MAX)

struct secret {
    char of[NAME_MAX_BYTES]; /* "USER/NAME" */
    char set_at[CLOCK_RFC3339_MAX];
    char *sealed; /* owned */
};

struct secrets {
    struct secret *v; /* n of them, in no order */
    size_t n, cap;
};

struct secrets *secrets_new(void)
{
    return calloc(1, sizeof(struct secrets));
}

void secrets_free(struct secrets *all)
{
    for (size_t i = 0; all && i < all->n; i++)
        free(all->v[i].sealed);
    if (all)
        free(all->v);
    free(all);
}

static void name_of(const char *user, const char *name, char ret[NAME_MAX_BYTES])
{
    (void)snprintf(ret, NAME_MAX_BYTES, "%.63s/%.63s", user, name);
}

static struct secret *find(const struct secrets *all, const char *of)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->v[i].of, of) == 0)
            return &all->v[i];
    return NULL;
}

/* The name behind "USER/", if the secret is this user's; NULL: it is another's. */
static const char *own_name(const struct secret *s, const char *user)
{
    size_t n = strlen(user);

    return strncmp(s->of, user, n) == 0 && s->of[n] == '/' ? s->of + n + 1 : NULL;
}

/* Put one in, or in the place of the one before; sealed is taken over. 0 or -ENOMEM. */
static int insert(struct secrets *all, const char *of, const char *set_at, char *sealed)
{
    struct secret *s = find(all, of);

    if (!s && all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 16;
        struct secret *grown = realloc(all->v, cap * sizeof(*grown));

        if (!grown) {
            free(sealed);
            return -ENOMEM;
        }
        all->v = grown;
        all->cap = cap;
    }
    if (!s) {
        s = &all->v[all->n++];
        *s = (struct secret){.sealed = NULL};
        (void)snprintf(s->of, sizeof(s->of), "%s", of);
    }
    free(s->sealed);
    s->sealed = sealed;
    (void)snprintf(s->set_at, sizeof(s->set_at), "%s", set_at);
    return 0;
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = row->text ? json_loads(row->text, 0, NULL) : NULL;
    const char *set_at = json_string_value(json_object_get(o, "set_at"));
    const char *sealed = json_string_value(json_object_get(o, "sealed"));
    char *copy = sealed && c->secrets->n < SECRETS_MAX ? strdup(sealed) : NULL;

    if (copy && insert(c->secrets, row->name, set_at ? set_at : "", copy) < 0)
        return merr_set(err, -ENOMEM, "out of memory");
    return 0; /* one that cannot be read stays in the store */
}

int secrets_load(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_SECRETS, NULL, take_row, err);
}

/* --- calls --------------------------------------------------------------------------------------------- */

static json_t *view(const struct secret *s, const char *user)
{
    return json_pack("{s:s, s:s}", "name", own_name(s, user), "set_at", s->set_at);
}

/* The name of the path. NULL: the call is answered. */
static const char *asked_name(struct call *call)
{
    const char *name = http_param(call->req, 0);

    if (spec_secret_name_ok(name))
        return name;
    call_problem(call, 422, "secret-invalid", "a secret's name is 1 to %d letters, digits, '.', '_', '-'",
                 SPEC_SECRET_MAX);
    return NULL;
}

/* Whether the user may have one more. Else the call is answered. */
static bool has_room(const struct core *c, struct call *call, const char *user)
{
    size_t own = 0;

    for (size_t i = 0; i < c->secrets->n; i++)
        own += own_name(&c->secrets->v[i], user) != NULL;
    if (own < SECRETS_USER_MAX && c->secrets->n < SECRETS_MAX)
        return true;
    call_problem(call, 409, "too-many-secrets", "a user has at most %d secrets, and all together %d; delete some",
                 SECRETS_USER_MAX, SECRETS_MAX);
    return false;
}

void secrets_put(struct core *c, struct call *call)
{
    const char *user = http_identity(call->req)->user, *name = asked_name(call);
    const json_t *value = json_object_get(call->body, "value");
    char of[NAME_MAX_BYTES], set_at[CLOCK_RFC3339_MAX];
    char *sealed;
    bool is_new;

    if (!name)
        return;
    if (json_object_size(call->body) != 1 || !json_is_string(value) ||
        strlen(json_string_value(value)) != json_string_length(value) ||
        json_string_length(value) > SECRETS_VALUE_MAX) {
        call_problem(call, 422, "secret-invalid", "the body is {\"value\": TEXT}, of at most %d bytes without NUL",
                     SECRETS_VALUE_MAX);
        return;
    }
    name_of(user, name, of);
    is_new = !find(c->secrets, of);
    if (is_new && !has_room(c, call, user))
        return;
    clock_rfc3339(c->now.wall_us, set_at);
    sealed = c->cfg.secret_key ? sealing_close(c->cfg.chance, c->cfg.secret_key, of, json_string_value(value)) : NULL;
    if (!sealed ||
        !records_put_row_new(c, STORE_SECRETS, of, json_pack("{s:s, s:s}", "set_at", set_at, "sealed", sealed))) {
        free(sealed);
        call_problem(call, 503, "no-secret", "there is no key, or no memory, to seal a secret");
        return;
    }
    if (insert(c->secrets, of, set_at, sealed) < 0) {
        state_fatal(c, "out of memory for a secret");
        return;
    }
    call_answer_new(call, is_new ? 201 : 200, view(find(c->secrets, of), user));
}

void secrets_list(struct core *c, struct call *call)
{
    const char *user = http_identity(call->req)->user;
    json_t *list = json_array();

    for (size_t i = 0; i < c->secrets->n; i++)
        if (own_name(&c->secrets->v[i], user))
            (void)json_array_append_new(list, view(&c->secrets->v[i], user));
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "secrets", list, "next_cursor"));
}

/* Each {"secret": NAME} among a spec's variables: fn is told the variable and the name. */
static void each(const json_t *spec, void (*fn)(void *arg, const char *name), void *arg)
{
    json_t *env = json_object_get(json_object_get(spec, "command"), "env"), *value;
    const char *variable;

    json_object_foreach (env, variable, value) {
        const char *name = json_string_value(json_object_get(value, "secret"));

        if (name)
            fn(arg, name);
    }
}

struct looking {
    const char *name;
    bool found;
};

static void look(void *arg, const char *name)
{
    struct looking *l = arg;

    l->found = l->found || strcmp(l->name, name) == 0;
}

/* A job of the user's that has not ended and names the secret; 0: there is none. */
static uint64_t job_with(const struct core *c, const char *user, const char *name)
{
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);
        struct looking l = {.name = name};
        json_t *spec;

        if (!e || strcmp(e->job.user, user) != 0 || !strstr(e->spec_text, "\"secret\":"))
            continue;
        spec = json_loads(e->spec_text, 0, NULL);
        each(spec, look, &l);
        json_decref(spec);
        if (l.found)
            return e->job.id;
    }
    return 0;
}

void secrets_drop(struct core *c, struct call *call)
{
    const char *user = http_identity(call->req)->user, *name = asked_name(call);
    char of[NAME_MAX_BYTES];
    struct secret *s;
    uint64_t job;

    if (!name)
        return;
    name_of(user, name, of);
    s = find(c->secrets, of);
    if (!s) {
        call_problem(call, 404, "unknown-secret", "you have no secret '%s'; `muster secret list` shows those there are",
                     name);
        return;
    }
    job = job_with(c, user, name);
    if (job != 0) {
        call_problem(call, 409, "secret-in-use", "job 'j%llu' names secret '%s' and has not ended",
                     (unsigned long long)job, name);
        return;
    }
    records_drop_row(c, STORE_SECRETS, of);
    call_answer_new(call, 200, view(s, user));
    free(s->sealed);
    *s = c->secrets->v[--c->secrets->n];
}

/* --- for jobs ------------------------------------------------------------------------------------------ */

/* The value, new; NULL: there is none, or it does not open. */
static char *open_one(const struct core *c, const char *user, const char *name)
{
    char of[NAME_MAX_BYTES];
    struct secret *s;

    name_of(user, name, of);
    s = find(c->secrets, of);
    return s && c->cfg.secret_key ? sealing_open(c->cfg.secret_key, of, s->sealed) : NULL;
}

static void wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

bool secrets_are_there(const struct core *c, const char *user, const struct job_spec *spec, char ret_variable[64],
                       struct merr *why)
{
    for (char **one = spec->kind == JOB_COMMAND ? spec->command.env : NULL; one && *one; one++) {
        size_t n = strcspn(*one, "=@");
        char of[NAME_MAX_BYTES], *value;
        bool known;

        if ((*one)[n] != '@')
            continue;
        value = open_one(c, user, *one + n + 1);
        name_of(user, *one + n + 1, of);
        known = find(c->secrets, of) != NULL;
        if (value) {
            wipe(value);
            continue;
        }
        (void)snprintf(ret_variable, 64, "%.*s", (int)n, *one);
        if (known)
            (void)merr_set(why, -EINVAL, "names secret '%s', which does not open with the server's key: set it again",
                           *one + n + 1);
        else
            (void)merr_set(why, -ENOENT, "names secret '%s', which you have not: `muster secret set %s`", *one + n + 1,
                           *one + n + 1);
        return false;
    }
    return true;
}

struct opening {
    const struct core *c;
    const char *user;
    json_t *values;
};

static void open_for(void *arg, const char *name)
{
    struct opening *o = arg;
    char *value = open_one(o->c, o->user, name);

    if (!o->values)
        o->values = json_object();
    if (value) /* without it the node says that it was not sent */
        (void)json_object_set_new(o->values, name, json_string(value));
    wipe(value);
}

json_t *secrets_of(const struct core *c, const char *user, const json_t *spec)
{
    struct opening o = {.c = c, .user = user};

    each(spec, open_for, &o);
    return o.values;
}

void secrets_mask(json_t *spec)
{
    json_t *env = json_object_get(json_object_get(spec, "command"), "env"), *value;
    const char *variable;

    json_object_foreach (env, variable, value) {
        if (json_is_string(value))
            (void)json_object_set_new(env, variable, json_string(SPEC_MASK));
    }
}
