#include "worker/agent/nic.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

int nic_parse(const char *text, struct nic *ret, struct merr *err)
{
    const char *at = strchr(text, '@');
    struct nic nic = {.gbit_s = 0};
    char family[16] = "", *end = "";

    if ((at ? (size_t)(at - text) : strlen(text)) < sizeof(family))
        (void)snprintf(family, sizeof(family), "%.*s", at ? (int)(at - text) : (int)strlen(text), text);
    nic.family = plan_nic_parse(family);
    if (at)
        nic.gbit_s = strtod(at + 1, &end);
    if (nic.family == PLAN_NIC_UNKNOWN || *end || (at && !(nic.gbit_s > 0 && nic.gbit_s <= PLAN_NIC_GBIT_MAX)))
        return merr_set(err, -EINVAL, "'%s' is no NIC: want infiniband, roce or ethernet, with @ and Gbit/s if known",
                        text);
    *ret = nic;
    return 0;
}

/* The first line of DEVICE/ports/PORT/NAME below the folder; "" when it cannot be read. */
static const char *attribute(const char *folder, const char *device, const char *port, const char *name, char *ret,
                             size_t size)
{
    char path[PATH_MAX];
    struct buf text;

    buf_init(&text, 4096);
    (void)snprintf(path, sizeof(path), "%.1000s/%.255s/ports/%.255s/%s", folder, device, port, name);
    ret[0] = '\0';
    if (io_read_file(path, &text, NULL) == 0)
        (void)snprintf(ret, size, "%.*s", (int)strcspn(buf_text(&text), "\n"), buf_text(&text));
    buf_clear(&text);
    return ret;
}

/* "4: ACTIVE", "100 Gb/sec (4X EDR)", "InfiniBand" or, of RoCE, "Ethernet". */
static struct nic port_of(const char *folder, const char *device, const char *port)
{
    char text[64];
    struct nic nic = {.gbit_s = 0};

    if (strncmp(attribute(folder, device, port, "state", text, sizeof(text)), "4:", 2) != 0)
        return nic;
    (void)attribute(folder, device, port, "link_layer", text, sizeof(text));
    nic.family = strcmp(text, "InfiniBand") == 0 ? PLAN_NIC_INFINIBAND
                 : strcmp(text, "Ethernet") == 0 ? PLAN_NIC_ROCE
                                                 : PLAN_NIC_UNKNOWN;
    nic.gbit_s = strtod(attribute(folder, device, port, "rate", text, sizeof(text)), NULL);
    nic.gbit_s = nic.gbit_s > 0 && nic.gbit_s <= PLAN_NIC_GBIT_MAX ? nic.gbit_s : 0;
    return nic;
}

static void look_at_ports(const char *folder, const char *device, struct nic *best)
{
    char path[PATH_MAX];
    struct dirent *port;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%.1000s/%.255s/ports", folder, device);
    dir = opendir(path);
    while (dir && (port = readdir(dir)) != NULL) {
        struct nic nic = {.gbit_s = 0};

        if (port->d_name[0] != '.')
            nic = port_of(folder, device, port->d_name);
        if (nic.family > best->family || (nic.family == best->family && nic.gbit_s > best->gbit_s))
            *best = nic;
    }
    if (dir)
        (void)closedir(dir);
}

struct nic nic_find(const char *folder)
{
    struct nic best = {.family = PLAN_NIC_UNKNOWN};
    DIR *dir = opendir(folder);
    struct dirent *device;

    while (dir && (device = readdir(dir)) != NULL)
        if (device->d_name[0] != '.')
            look_at_ports(folder, device->d_name, &best);
    if (dir)
        (void)closedir(dir);
    return best;
}
