#include "worker/engine/comm/transport/fabric.h"

#include "base/try.h"
#include "worker/engine/comm/transport/nccl.h"

static const struct fabric_ops *const maker = &nccl_fabric;

const char *fabric_name(void)
{
    return maker->name;
}

int fabric_load(int *ret_version, struct merr *err)
{
    return maker->load(ret_version, err);
}

int fabric_id(struct failure *f, char ret[FABRIC_ID_BYTES])
{
    return maker->id(f, ret);
}

int fabric_open(const struct fabric_cfg *cfg, struct fabric **ret)
{
    return maker->open(cfg, ret);
}

void fabric_leave(struct fabric *c)
{
    c->ops->leave(c);
}

void fabric_free(struct fabric *c)
{
    if (c)
        c->ops->free(c);
}

int fabric_look(struct fabric *c)
{
    return c->ops->look(c);
}

int fabric_settle(struct fabric *c, const char *what)
{
    return c->ops->settle(c, what);
}

int fabric_begin(struct fabric *c)
{
    return c->ops->begin(c);
}

int fabric_send(struct fabric *c, int member, const void *buf, size_t bytes)
{
    return c->ops->send(c, member, buf, bytes);
}

int fabric_recv(struct fabric *c, int member, void *buf, size_t bytes)
{
    return c->ops->recv(c, member, buf, bytes);
}

int fabric_all_gather(struct fabric *c, const void *in, size_t bytes, void *out)
{
    return c->ops->all_gather(c, in, bytes, out);
}

int fabric_broadcast(struct fabric *c, void *buf, size_t bytes, int root)
{
    return c->ops->broadcast(c, buf, bytes, root);
}

int fabric_start(struct fabric *c)
{
    return c->ops->start(c);
}

int fabric_end(struct fabric *c)
{
    TRY(fabric_start(c));
    return fabric_settle(c, "start");
}

int fabric_finish(struct fabric *c)
{
    return c->ops->finish(c);
}
