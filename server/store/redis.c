#include "server/store/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/redis_server.h"
#include "server/store/sentinel.h"

#define START_WAIT_S 60 /* a long log takes a while to load */
#define COMMAND_TIMEOUT_S 10
#define REDIS_PORT 6379
#define REPLICA_MS 1000

/* ARGV: epoch, batch, then for each command its number of arguments and those. GUARD is ours: key, version. A script
 * that fails midway keeps what its first commands did: so what must not fail is looked at first, and a command that
 * finds something of another kind than the server keeps there moves that out of its way and is done then. Returns the
 * names of that, a space behind each. */
static const char commit_script[] =
    "local meta = redis.call('HMGET', 'muster:meta', 'epoch', 'batch')\n"
    "if meta[1] ~= ARGV[1] then return redis.error_reply('FENCED another musterd leads') end\n"
    "local at = meta[2]\n"
    "if at == ARGV[2] then return 'AGAIN' end\n"
    "if tonumber(at) ~= tonumber(ARGV[2]) - 1 then\n"
    "  at = tostring(at) .. ', and ' .. ARGV[2] .. ' is the next'\n"
    "  return redis.error_reply('FENCED the store has lost changes: it is at ' .. at)\n"
    "end\n"
    "local later, newest = {}, {}\n"
    "local i, n = 3, #ARGV\n"
    "while i <= n do\n"
    "  local name, key = ARGV[i + 1], ARGV[i + 2]\n"
    "  if name == 'GUARD' then\n"
    "    local v = redis.pcall('HGET', key, 'v') or '0'\n"
    "    if type(v) == 'table' then return redis.error_reply('FENCED ' .. key .. ' is no hash') end\n"
    "    if v ~= ARGV[i + 3] then\n"
    "      return redis.error_reply('FENCED ' .. key .. ' has version ' .. v .. ', not ' .. ARGV[i + 3])\n"
    "    end\n"
    "  else\n"
    "    later[#later + 1] = i\n"
    "    if name == 'XADD' then\n"
    "      local id = tonumber(string.match(ARGV[i + 6], '^%d+'))\n"
    "      local later = newest[key] == nil and redis.pcall('XRANGE', key, ARGV[i + 6], '+', 'COUNT', 1)[1]\n"
    "      if later or (newest[key] and id <= newest[key]) then\n"
    "        return redis.error_reply('FENCED the event ' .. id .. ' is not newer than the newest')\n"
    "      end\n"
    "      newest[key] = id\n"
    "    end\n"
    "  end\n"
    "  i = i + ARGV[i] + 1\n"
    "end\n"
    "local told = ''\n"
    "for _, at in ipairs(later) do\n"
    "  local done = redis.pcall(unpack(ARGV, at + 1, at + ARGV[at]))\n"
    "  if type(done) == 'table' and done.err then\n"
    "    local key, field = ARGV[at + 2], ARGV[at + 3]\n"
    "    if string.match(done.err, '^WRONGTYPE') then\n"
    "      redis.call('RENAME', key, 'muster:aside:key:' .. key)\n"
    "    elseif ARGV[at + 1] == 'HINCRBY' then\n"
    "      redis.call('HSET', 'muster:aside:texts', 'key:' .. key .. ':' .. field, redis.call('HGET', key, field))\n"
    "      redis.call('HDEL', key, field)\n"
    "      key = key .. ':' .. field\n"
    "    else return redis.error_reply(done.err) end\n"
    "    told = told .. key .. ' '\n"
    "    redis.call(unpack(ARGV, at + 1, at + ARGV[at]))\n"
    "  end\n"
    "end\n"
    "redis.call('HSET', 'muster:meta', 'batch', ARGV[2])\n"
    "return told\n";

/* ARGV: who, force, milliseconds, what the epoch is to be above. Returns the new epoch; when another holds the lease,
 * what is left of it, in milliseconds below 0. */
static const char lead_script[] =
    "local holder = redis.call('GET', 'muster:lease')\n"
    "if holder and ARGV[2] == '0' then return math.min(-1, -redis.call('PTTL', 'muster:lease')) end\n"
    "local epoch = tonumber(redis.call('HGET', 'muster:meta', 'epoch') or '0') or 0\n"
    "if epoch < tonumber(ARGV[4]) then epoch = tonumber(ARGV[4]) end\n"
    "redis.call('SET', 'muster:lease', ARGV[1], 'PX', ARGV[3])\n"
    "redis.call('HSET', 'muster:meta', 'batch', '0', 'epoch', string.format('%.0f', epoch + 1))\n"
    "return epoch + 1\n";

static const char resign_script[] =
    "if redis.call('GET','muster:lease')==ARGV[1] then redis.call('DEL','muster:lease') end";

struct redis {
    redisContext *context;       /* NULL: none; store_ops.connect makes one */
    struct redis_server *server; /* owned; NULL: an outside one */
    char where[256];             /* host or path of that */
    int port;                    /* 0: a path */
    struct sentinel sentinels;   /* n 0: none; else they say where and which port, at each connect */
    int replicas;                /* that are to have a batch before it is acknowledged */
    char commits_by[41];         /* the name that Redis gave commit_script; "": it does not have it */
    _Atomic bool up;
};

int redis_url_parse(const char *url, char *ret_where, size_t size, int *ret_port, struct merr *err)
{
    const char *host, *colon;
    char *end;
    long port = REDIS_PORT;

    if (strncmp(url, "unix://", 7) == 0) {
        if (url[7] != '/' || strlen(url + 7) >= size)
            return merr_set(err, -EINVAL, "'%s' names no socket; write unix:///path/to/socket", url);
        (void)snprintf(ret_where, size, "%s", url + 7);
        *ret_port = 0;
        return 0;
    }
    if (strncmp(url, "redis://", 8) != 0)
        return merr_set(err, -EINVAL,
                        "'%s' is no address of a Redis; write unix:///path, redis://host:port or "
                        "sentinel://host:port,host:port/name",
                        url);
    host = url + 8;
    colon = strchr(host, ':');
    if (colon) {
        port = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || (*end && strcmp(end, "/") != 0) || port < 1 || port > 65535)
            return merr_set(err, -EINVAL, "'%s' has no port from 1 to 65535 after its colon", url);
    }
    size_t n = colon ? (size_t)(colon - host) : strcspn(host, "/");

    if (n == 0 || n >= size)
        return merr_set(err, -EINVAL, "'%s' names no host", url);
    memcpy(ret_where, host, n);
    ret_where[n] = '\0';
    *ret_port = (int)port;
    return 0;
}

/* --- the connection ---------------------------------------------------------------------------------- */

static redisContext *connect_once(struct redis *r)
{
    struct timeval timeout = {.tv_sec = 1};
    char path[REDIS_SERVER_PATH_MAX];
    redisContext *c;

    if (r->sentinels.n > 0 && sentinel_find(&r->sentinels, r->where, &r->port) < 0)
        return NULL;
    if (r->server) {
        redis_server_socket(r->server, path);
        c = redisConnectUnixWithTimeout(path, timeout);
    } else if (r->port == 0) {
        c = redisConnectUnixWithTimeout(r->where, timeout);
    } else {
        c = redisConnectWithTimeout(r->where, r->port, timeout);
    }
    if (c && c->err == 0) {
        (void)fcntl(c->fd, F_SETFD, FD_CLOEXEC);
        return c;
    }
    if (c)
        redisFree(c);
    return NULL;
}

static bool answers(redisContext *c)
{
    redisReply *reply = redisCommand(c, "PING");
    bool yes = reply && reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return yes;
}

static void wait_ms(void *self, int ms)
{
    (void)self;
    (void)poll(NULL, 0, ms);
}

static int reconnect(void *self, int64_t wait_us, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + wait_us;
    struct timeval timeout = {.tv_sec = COMMAND_TIMEOUT_S};
    struct redis *r = self;

    if (r->context)
        redisFree(r->context);
    r->context = NULL;
    atomic_store(&r->up, false);
    for (;;) {
        redisContext *c = connect_once(r);

        if (c && redisSetTimeout(c, timeout) == REDIS_OK && answers(c) &&
            (r->sentinels.n == 0 || sentinel_confirms(c))) {
            r->context = c;
            atomic_store(&r->up, true);
            return 0;
        }
        if (c)
            redisFree(c);
        if (clock_mono_us() >= deadline_us)
            return r->server ? merr_set(err, -ETIMEDOUT, "the store process does not answer; see '%s/redis.log'",
                                        redis_server_dir(r->server))
                   : r->sentinels.n > 0
                       ? merr_set(err, -ETIMEDOUT, "no Sentinel names a master of '%s' that answers", r->sentinels.name)
                       : merr_set(err, -ETIMEDOUT, "no Redis answers at '%s'; is it running?", r->where);
        wait_ms(r, 10);
    }
}

static bool connected(const void *self)
{
    return ((const struct redis *)self)->context != NULL;
}

static bool up(const void *self)
{
    return atomic_load(&((const struct redis *)self)->up);
}

/* --- what is sent ------------------------------------------------------------------------------------ */

static int lead(void *self, const struct store_claim *claim, uint64_t *ret_epoch, int64_t *ret_left_ms,
                struct merr *err)
{
    struct redis *r = self;
    redisReply *reply = r->context
                            ? redisCommand(r->context, "EVAL %s 0 %s %s %d %llu", lead_script, claim->who,
                                           claim->force ? "1" : "0", claim->lease_ms, (unsigned long long)claim->above)
                            : NULL;
    int status = 0;

    if (!reply)
        return -ENOTCONN;
    if (reply->type == REDIS_REPLY_ERROR)
        status = merr_set(err, -EIO, "the store answers: %s", reply->str);
    else if (reply->type != REDIS_REPLY_INTEGER)
        status = merr_set(err, -EIO, "the store answers no number to who leads");
    if (status == 0) {
        *ret_epoch = reply->integer > 0 ? (uint64_t)reply->integer : 0;
        *ret_left_ms = reply->integer < 0 ? -reply->integer : 0;
    }
    freeReplyObject(reply);
    return status;
}

static void resign(void *self, const char *who)
{
    struct redis *r = self;

    if (r->context)
        freeReplyObject(redisCommand(r->context, "EVAL %s 0 %s", resign_script, who));
}

/* Let Redis keep the commit script, so that a batch need not bring it along. */
static bool keep_script(struct redis *r)
{
    redisReply *reply = redisCommand(r->context, "SCRIPT LOAD %s", commit_script);
    bool kept = reply && reply->type == REDIS_REPLY_STRING && reply->len < (long long)sizeof(r->commits_by);

    (void)snprintf(r->commits_by, sizeof(r->commits_by), "%s", kept ? reply->str : "");
    freeReplyObject(reply);
    return kept;
}

/* Send a batch and read the answer. NULL when the connection broke. */
static redisReply *send_batch(struct redis *r, const struct store_batch *b)
{
    char head[320], epoch[24], number[24];
    void *reply = NULL;
    int n;

    if (!*r->commits_by && !keep_script(r))
        return NULL;
    (void)snprintf(epoch, sizeof(epoch), "%llu", (unsigned long long)b->epoch);
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)b->number);
    n = snprintf(head, sizeof(head), "*%zu\r\n$7\r\nEVALSHA\r\n$%zu\r\n%s\r\n$1\r\n0\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                 b->n_args + 5, strlen(r->commits_by), r->commits_by, strlen(epoch), epoch, strlen(number), number);
    if (redisAppendFormattedCommand(r->context, head, (size_t)n) != REDIS_OK ||
        redisAppendFormattedCommand(r->context, b->args, b->len) != REDIS_OK)
        return NULL;
    return redisGetReply(r->context, &reply) == REDIS_OK ? reply : NULL;
}

/* Wait until as many replicas as are wanted have all that this connection wrote. 0, -EAGAIN with words, -ENOTCONN. */
static int wait_for_replicas(const struct redis *r, struct merr *err)
{
    redisReply *reply = redisCommand(r->context, "WAIT %d %d", r->replicas, REPLICA_MS);
    int status = !reply                                   ? -ENOTCONN
                 : reply->type == REDIS_REPLY_ERROR       ? merr_set(err, -EAGAIN, "%s", reply->str)
                 : reply->integer >= (int64_t)r->replicas ? 0
                                                          : -EAGAIN;

    if (reply && reply->type == REDIS_REPLY_INTEGER && status < 0)
        (void)merr_set(err, status, "%lld of %d replicas have it (--replicas)", reply->integer, r->replicas);
    freeReplyObject(reply);
    return status;
}

static int commit(void *self, const struct store_batch *b, struct merr *err)
{
    struct redis *r = self;
    redisReply *reply = r->context ? send_batch(r, b) : NULL;
    int status = 0;

    if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        freeReplyObject(reply); /* another Redis took over, or somebody let it forget */
        r->commits_by[0] = '\0';
        reply = send_batch(r, b);
    }
    if (!reply)
        status = -ENOTCONN;
    else if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "FENCED", 6) == 0)
        status = merr_set(err, -ESTALE, "%s", reply->str + 7);
    else if (reply->type == REDIS_REPLY_ERROR)
        status = merr_set(err, -EAGAIN, "%s", reply->str);
    else if (reply->type == REDIS_REPLY_STRING && reply->len > 0 && strcmp(reply->str, "AGAIN") != 0) {
        (void)merr_set(err, 0, "%s", reply->str);
        status = 1;
    }
    if (status >= 0 && r->replicas > 0) {
        int waited = wait_for_replicas(r, err);

        status = waited < 0 ? waited : status;
    }
    if (status == -EAGAIN || status == -ENOTCONN)
        atomic_store(&r->up, false);
    if (reply)
        freeReplyObject(reply);
    return status;
}

static int ask(void *self, const char *command, size_t len)
{
    struct redis *r = self;

    if (!r->context)
        return -ENOTCONN;
    return redisAppendFormattedCommand(r->context, command, len) == REDIS_OK ? 0 : -ENOMEM;
}

static int answer(void *self, struct redisReply **ret)
{
    struct redis *r = self;
    void *reply = NULL;

    if (!r->context || redisGetReply(r->context, &reply) != REDIS_OK || !reply)
        return -ENOTCONN;
    *ret = reply;
    return 0;
}

struct store_backend redis_backend(struct redis *r)
{
    static const struct store_ops ops = {
        .lead = lead,
        .resign = resign,
        .commit = commit,
        .ask = ask,
        .answer = answer,
        .connected = connected,
        .connect = reconnect,
        .wait = wait_ms,
        .up = up,
    };

    return (struct store_backend){.ops = &ops, .self = r, .clock = clock_real()};
}

/* --- beginning and end -------------------------------------------------------------------------------- */

int redis_start(const char *dir, const char *url, int replicas, struct redis **ret, struct merr *err)
{
    struct redis *r = calloc(1, sizeof(*r));
    int status;

    if (!r)
        return merr_set(err, -ENOMEM, "out of memory");
    status = url ? sentinel_parse(url, &r->sentinels, err) : redis_server_start(dir, &r->server, err);
    if (status == -ENOENT)
        status = redis_url_parse(url, r->where, sizeof(r->where), &r->port, err);
    r->replicas = replicas >= 0 ? replicas : r->sentinels.n > 0;
    if (status == 0)
        status = reconnect(r, START_WAIT_S * INT64_C(1000000), err);
    if (status < 0) {
        redis_stop(r);
        return status;
    }
    *ret = r;
    return 0;
}

void redis_stop(struct redis *r)
{
    if (!r)
        return;
    if (r->context)
        redisFree(r->context);
    redis_server_stop(r->server);
    free(r);
}
