#include "worker/agent/solo_plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "scheduler/plan/layout.h"

int solo_plan_read(const char *file, struct job_spec **ret, struct faults *f, struct merr *err)
{
    struct buf text;
    int r;

    buf_init(&text, SPEC_TEXT_MAX);
    r = io_read_file(file, &text, err);
    if (r == 0) {
        r = spec_from_text(buf_text(&text), text.len, ret, f);
        if (r < 0)
            merr_set(err, r, "'%s' is no usable spec", file);
    }
    buf_clear(&text);
    return r;
}

static int choose_layout(const struct job_spec *spec, int devices, struct layout *ret, struct merr *err)
{
    struct plan_facts facts = {
        .tp = spec->parallel.tp, .pp = spec->parallel.pp, .cp = spec->parallel.cp,
        .virtual_workers = spec->parallel.virtual_workers, .sequences = spec->train.batch.sequences,
        .micro = spec->train.batch.micro, .layers = spec->train.model.layers, .heads = spec->train.model.heads,
    };

    if (spec->kind == JOB_COMMAND) {
        *ret = (struct layout){ .tp = 1, .pp = 1, .cp = 1, .dp = devices, .world = devices };
        return 0;
    }
    return plan_layout(&facts, devices, ret, NULL, err);
}

/* A port that is free now. The rank that takes it fails if another is faster: then the next attempt gets
 * another one. */
static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    IO_CLOSE_AUTO int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(a);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        return 29500;
    return ntohs(a.sin_port);
}

int solo_plan_assign(const struct job_spec *spec, int devices, uint64_t generation, const char *dir, json_t **ret,
                    int *ret_world, struct merr *err)
{
    json_t *ranks, *doc, *text;
    struct layout layout;
    int r = choose_layout(spec, devices, &layout, err);

    if (r < 0)
        return r;
    ranks = json_array();
    for (int i = 0; ranks && i < layout.world; i++)
        (void)json_array_append_new(ranks, json_pack("{s:i,s:s,s:i,s:s,s:s}", "rank", i, "node", RUN_NODE, "slot", i,
                                                     "class", "cpu", "address", "127.0.0.1"));
    text = spec_to_json(spec);
    doc = json_pack("{s:s,s:I,s:s,s:i,s:s,s:{s:i,s:i,s:i,s:i},s:i,s:o,s:i,s:o}", "job", RUN_JOB, "generation",
                    (json_int_t)generation, "order", "run", "grace_s",
                    spec->kind == JOB_COMMAND ? spec->command.grace_s : 10, "dir", dir, "layout", "tp", layout.tp, "pp",
                    layout.pp, "cp", layout.cp, "dp", layout.dp, "world", layout.world, "ranks", ranks, "master_port",
                    free_port(), "spec", text);
    if (!doc)
        return merr_set(err, -ENOMEM, "no memory for an assignment of %d ranks", layout.world);
    *ret = doc;
    *ret_world = layout.world;
    return 0;
}
