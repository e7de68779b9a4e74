#include "worker/agent/join.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/client/calls.h"
#include "api/protocol/join.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/private.h"
#include "base/try.h"
#include "worker/agent/backoff.h"
#include "worker/agent/node_cert.h"

#define CALL_MS 30000
#define LINE_MAX_BYTES 512

struct trade {
    const struct join_cfg *cfg;
    struct calls *calls;
    struct join what;
    bool ended;
    int status; /* of the answer, or why there was none (calls.h) */
    char why[MERR_TEXT_MAX];
    char node[JOIN_NODE_MAX];
    char *key, *certificate; /* of the node; certificate NULL: the server asks for none */
};

static void path_of(const struct join_cfg *cfg, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%.4000s/%s", cfg->state, name);
}

/* What a code is remembered by: it is as long as chance is, so nothing is learned of it. */
static int mark_of(const char *code, char ret[33], struct merr *err)
{
    struct hash128 *h = hash128_new();

    if (!h)
        return merr_set(err, -ENOMEM, "out of memory");
    hash128_add(h, code, strlen(code));
    hash128_hex(h, ret);
    hash128_free(h);
    return 0;
}

/* A file of two words. 0; -ENOENT: it is not there, or holds something else; -EPERM: others have it. */
static int read_words(const struct join_cfg *cfg, const char *name, char a[LINE_MAX_BYTES], char b[LINE_MAX_BYTES],
                      struct merr *err)
{
    BUF_CLEAR_AUTO struct buf text;
    char path[PATH_MAX];

    buf_init(&text, LINE_MAX_BYTES);
    path_of(cfg, name, path);
    TRY(private_read_file(path, &text, err));
    if (sscanf(buf_text(&text), "%511s %511s", a, b) != 2)
        return merr_set(err, -ENOENT, "'%s' cannot be read", path);
    return 0;
}

static int write_text(const struct join_cfg *cfg, const char *name, const char *text, struct merr *err)
{
    char path[PATH_MAX];

    path_of(cfg, name, path);
    return io_write_file(path, text, strlen(text), 0600, err);
}

/* The token of a trade of this code that was begun before, else a new one; it is kept before anybody hears of it. */
static int keep_token(struct trade *t, const char *mark, struct merr *err)
{
    char a[LINE_MAX_BYTES], b[LINE_MAX_BYTES], text[LINE_MAX_BYTES];
    unsigned char bytes[24];

    if (read_words(t->cfg, "joining", a, b, NULL) == 0 && strcmp(a, mark) == 0 && join_secret_ok(b, "mst_")) {
        (void)snprintf(t->what.token, sizeof(t->what.token), "%.*s", JOIN_SECRET_LENGTH, b);
        return 0;
    }
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return merr_errno(err, -errno, "cannot get random bytes for a token");
    (void)snprintf(t->what.token, sizeof(t->what.token), "mst_");
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(t->what.token + 4 + 2 * i, 3, "%02x", bytes[i]);
    (void)snprintf(text, sizeof(text), "%s %s\n", mark, t->what.token);
    return write_text(t->cfg, "joining", text, err);
}

static void take_end(void *arg, int status, const char *body, size_t len, const char *why)
{
    struct trade *t = arg;
    json_auto_t *doc = json_loadb(body, len, 0, NULL);
    const char *detail = json_string_value(json_object_get(doc, "detail"));
    struct join_answer answer;

    t->ended = true;
    t->status = status;
    (void)snprintf(t->why, sizeof(t->why), "%s", detail ? detail : why);
    if (status == 200 || status == 201) {
        if (join_answer_read(doc, &answer, NULL) == 0) {
            (void)snprintf(t->node, sizeof(t->node), "%s", answer.node);
            t->certificate = answer.certificate ? strdup(answer.certificate) : NULL;
        } else
            t->status = -EPROTO;
    }
}

static int ask_once(struct trade *t, struct merr *err)
{
    json_auto_t *doc = join_write(&t->what);
    char *body = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    int r;

    if (!body)
        return merr_set(err, -ENOMEM, "out of memory");
    t->ended = false;
    r = calls_begin(t->calls,
                    &(struct call){.method = "POST",
                                   .path = "/v1/agents/join",
                                   .body = body,
                                   .len = strlen(body),
                                   .timeout_ms = CALL_MS,
                                   .done = take_end,
                                   .arg = t},
                    err);
    explicit_bzero(body, strlen(body));
    free(body);
    return r;
}

static bool told_to_end(const struct join_cfg *cfg, int wait_ms)
{
    struct pollfd p = {.fd = cfg->signal_fd, .events = POLLIN};

    return poll(&p, 1, wait_ms) > 0;
}

/* Until the server takes the code or refuses it. */
static int ask(struct trade *t, struct merr *err)
{
    struct backoff b = {.failures = 0};

    (void)getrandom(b.key, sizeof(b.key), 0);
    for (;;) {
        TRY(ask_once(t, err));
        while (!t->ended) {
            calls_wait(t->calls, &t->cfg->signal_fd, 1, clock_mono_us() + CALL_MS * INT64_C(1000));
            if (!t->ended && told_to_end(t->cfg, 0))
                return merr_set(err, -EINTR, "told to end before the code was traded");
        }
        if (t->status == 200 || t->status == 201)
            return 0;
        if (t->status >= 400 && t->status < 500 && t->status != 429)
            return merr_set(err, -EPERM, "the server does not take the join code: %s", t->why);
        if (t->status == -EINVAL || t->status == -EACCES)
            return merr_set(err, t->status, "cannot trade the join code at '%s': %s", t->cfg->server, t->why);
        if (b.failures % 16 == 0)
            log_warn("cannot trade the join code at '%s': %s; trying again", t->cfg->server, t->why);
        backoff_failed(&b, clock_mono_us());
        if (told_to_end(t->cfg, clock_poll_ms(b.until_us)))
            return merr_set(err, -EINTR, "told to end before the code was traded");
    }
}

/* What was traded is the node's: from here on the code is not needed. */
static int settle(const struct trade *t, const char *mark, struct merr *err)
{
    char text[LINE_MAX_BYTES], path[PATH_MAX];

    if (t->certificate)
        TRY(node_cert_keep(t->cfg->state, t->key, t->certificate, err));
    (void)snprintf(text, sizeof(text), "%s\n", t->what.token);
    TRY(write_text(t->cfg, "token", text, err));
    (void)snprintf(text, sizeof(text), "%s %s\n", t->node, mark);
    TRY(write_text(t->cfg, "joined", text, err));
    path_of(t->cfg, "joining", path);
    (void)unlink(path);
    return 0;
}

static int trade(const struct join_cfg *cfg, const char *mark, char ret_node[JOIN_NODE_MAX], struct merr *err)
{
    struct trade t = {.cfg = cfg};
    int r;

    (void)snprintf(t.what.code, sizeof(t.what.code), "%s", cfg->code);
    TRY(calls_new(&(struct calls_cfg){.url = cfg->server, .ca_file = cfg->ca_file}, &t.calls, err));
    r = keep_token(&t, mark, err);
    if (r == 0)
        r = node_cert_ask(&t.key, t.what.request, err);
    if (r == 0)
        r = ask(&t, err);
    calls_free(t.calls);
    if (r == 0)
        r = settle(&t, mark, err);
    if (t.key)
        explicit_bzero(t.key, strlen(t.key));
    free(t.key);
    free(t.certificate);
    explicit_bzero(&t.what, sizeof(t.what));
    if (r < 0)
        return r;
    log_info("joined as node %s", t.node);
    (void)snprintf(ret_node, JOIN_NODE_MAX, "%s", t.node);
    return 0;
}

int join_token(const struct join_cfg *cfg, char ret_file[PATH_MAX], char ret_node[JOIN_NODE_MAX], struct merr *err)
{
    char node[LINE_MAX_BYTES] = "", before[LINE_MAX_BYTES] = "", mark[33] = "";
    int r = read_words(cfg, "joined", node, before, err);

    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0 && !join_node_ok(node))
        r = merr_set(err, -ENOENT, "'%.3000s/joined' names no node", cfg->state);
    if (cfg->code) {
        if (!join_secret_ok(cfg->code, "mjc_"))
            return merr_set(err, -EINVAL, "that is no join code: want what `muster node enroll` prints, mjc_...");
        TRY(mark_of(cfg->code, mark, err));
        if (r < 0 || strcmp(mark, before) != 0)
            TRY(trade(cfg, mark, ret_node, err));
        else
            (void)snprintf(ret_node, JOIN_NODE_MAX, "%.*s", JOIN_NODE_MAX - 1, node);
    } else if (r < 0) {
        return merr_set(err, -ENOENT,
                        "this machine is no node yet: give --join with a code of `muster node enroll NAME`, or "
                        "--token-file where all agents share a token");
    } else {
        (void)snprintf(ret_node, JOIN_NODE_MAX, "%.*s", JOIN_NODE_MAX - 1, node);
    }
    path_of(cfg, "token", ret_file);
    return 0;
}
