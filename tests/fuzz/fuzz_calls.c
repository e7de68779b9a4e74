/* Any bytes as bodies of what agents and strangers send to a whole server: a line a call
 *
 * The first letter says which: r registers, p reports as node n1, j trades a join code, s sets a secret, w makes a
 * webhook, c changes it, t lets a second pass. The server has one node and one job that runs there. Whatever comes, it
 * answers and goes on.
 */
#include "tests/unit/server/control/scene.h"

#include <assert.h>

#include "base/log.h"
#include "server/control/auth_load.h"
#include "server/control/enroll.h"
#include "server/control/sealing.h"
#include "server/control/secrets.h"
#include "server/control/webhook_calls.h"

#define CALLS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct auth *start(struct scene *s)
{
    static char folder[] = "/tmp/muster-fuzz.XXXXXX";
    static bool made;
    static const struct sealing_key key = {"0123456789abcdef"};
    struct auth *auth = NULL;
    struct merr err;

    log_init("fuzz", LOG_LEVEL_ERROR);
    if (!made && !mkdtemp(folder))
        abort();
    made = true;
    if (auth_start(folder, true, s->store, &auth, &err) < 0)
        abort();
    s->core->cfg.auth = auth;
    s->core->cfg.secret_key = &key;
    assert(scene_register(s, "n1", "cpu", 2) == 200);
    (void)scene_submit(s, "{\"command\": {\"argv\": [\"true\"]}}");
    scene_wait(s, 1);
    return auth;
}

static void call(struct scene *s, const char *line, size_t len)
{
    json_t *body = json_loadb(line + 1, len - 1, JSON_REJECT_DUPLICATES, NULL);
    scene_fn *fn = *line == 'r'   ? agents_register
                   : *line == 'p' ? reports_take
                   : *line == 'j' ? enroll_join
                   : *line == 'w' ? webhook_calls_add
                   : *line == 'c' ? webhook_calls_patch
                                  : secrets_put;

    if (*line == 't' || !json_is_object(body)) { /* others are refused before they come so far */
        json_decref(body);
        scene_wait(s, 1);
        return;
    }
    assert(scene_call(s, fn, scene_request("n1", NULL, NULL), body).status >= 200);
    assert(!s->fatal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = (const char *)data, *end = line + size;
    struct scene *s = NULL;
    struct auth *auth;

    (void)scene_start((void **)&s);
    auth = start(s);
    for (int n = 0; line < end && n < CALLS_MAX; n++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));

        stop = stop ? stop : end;
        if (stop > line)
            call(s, line, (size_t)(stop - line));
        line = stop + 1;
    }
    s->core->cfg.auth = NULL;
    (void)scene_stop((void **)&s);
    auth_free(auth);
    return 0;
}
