#include "worker/agent/xid.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const xid_level_names[XID_LEVELS] = {"watch", "drain", "stop"};

#define NODE(code, meaning)                                                                                            \
    {                                                                                                                  \
        code, XID_NODE, XID_STOP, 1000, meaning                                                                        \
    }
#define GPU(code, meaning)                                                                                             \
    {                                                                                                                  \
        code, XID_GPU, XID_STOP, 500, meaning                                                                          \
    }
#define LINK(code, meaning)                                                                                            \
    {                                                                                                                  \
        code, XID_LINK, XID_WATCH, 700, meaning                                                                        \
    }
#define APP(code, meaning)                                                                                             \
    {                                                                                                                  \
        code, XID_APP, XID_WATCH, 100, meaning                                                                         \
    }
#define SECONDARY(code, blame, meaning)                                                                                \
    {                                                                                                                  \
        code, XID_SECONDARY, XID_WATCH, blame, meaning                                                                 \
    }

static const struct xid table[] = {
    APP(8, "GPU stopped processing"),
    APP(11, "invalid or corrupted push buffer"),
    APP(13, "graphics engine exception"),
    APP(25, "invalid or illegal push buffer"),
    APP(31, "memory page fault"),
    APP(32, "corrupted push buffer"),
    SECONDARY(38, 0, "driver firmware error"),
    APP(39, "copy engine exception"),
    APP(40, "copy engine exception"),
    APP(41, "copy engine exception"),
    SECONDARY(43, 0, "its program's work was reset"),
    SECONDARY(44, 0, "graphics engine fault during a context switch"),
    SECONDARY(45, 0, "its program's work was removed"),
    GPU(46, "GPU stopped"),
    GPU(48, "double-bit ECC error"),
    NODE(54, "its power cable is not plugged in"),
    GPU(62, "internal micro-controller halt"),
    SECONDARY(63, 0, "a row of its memory was replaced; it is to be reset"),
    GPU(64, "a row could not be remapped"),
    SECONDARY(66, 0, "illegal access by the driver"),
    SECONDARY(67, 0, "illegal access by the driver"),
    APP(69, "graphics engine class error"),
    LINK(74, "NVLink error"),
    NODE(79, "fallen off the bus"),
    APP(80, "corrupted data sent to the GPU"),
    SECONDARY(92, 200, "high rate of single-bit ECC errors"),
    APP(94, "contained ECC error"),
    GPU(95, "uncontained ECC error"),
    GPU(109, "context switch timed out"),
    GPU(110, "security fault"),
    GPU(119, "GSP does not answer"),
    GPU(120, "GSP error"),
    LINK(121, "C2C link error"),
    GPU(136, "a link could not be trained"),
    LINK(137, "NVLink access without the right to it"),
    GPU(140, "unrecovered ECC error"),
    SECONDARY(141, 0, "a request of the driver was refused"),
    GPU(143, "it could not be initialised"),
    LINK(144, "NVLink error"),
    LINK(145, "NVLink error"),
    LINK(146, "NVLink error"),
    LINK(147, "NVLink error"),
    LINK(148, "NVLink error"),
    LINK(149, "NVLink error"),
    LINK(150, "NVLink error"),
    NODE(151, "key rotation failed"),
    SECONDARY(154, 0, "its recovery action has changed"),
    GPU(155, "NVLink error found by software"),
    GPU(156, "resource retired"),
    GPU(158, "fatal timeout"),
    NODE(167, "fatal PCIe timeout"),
};

const struct xid *xid_at(size_t i)
{
    return i < sizeof(table) / sizeof(table[0]) ? &table[i] : NULL;
}

const struct xid *xid_find(unsigned int code)
{
    static const struct xid unknown = {.class_ = XID_SECONDARY, .level = XID_WATCH, .meaning = "not in our table"};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].code == code)
            return &table[i];
    return &unknown;
}

bool xid_parse(const char *line, char ret_pci[32], unsigned int *ret_code)
{
    const char *p = strstr(line, "NVRM: Xid (PCI:");
    unsigned long code;
    char *end;
    size_t n;

    if (!p)
        return false;
    p += strlen("NVRM: Xid (PCI:");
    n = strspn(p, "0123456789abcdefABCDEF:.");
    if (n == 0 || n > 31 || strncmp(p + n, "): ", 3) != 0 || !isdigit((unsigned char)p[n + 3]))
        return false;
    memcpy(ret_pci, p, n);
    ret_pci[n] = '\0';
    code = strtoul(p + n + 3, &end, 10);
    if (code > 100000)
        return false;
    *ret_code = (unsigned int)code;
    return true;
}

/* The parts of an address that say which device it is, without leading zeros of its domain and its function. */
static bool read_pci(const char *text, unsigned long ret[3])
{
    char *end;

    for (int i = 0; i < 3; i++) {
        ret[i] = strtoul(text, &end, 16);
        if (end == text || (i < 2 && *end != ':'))
            return false;
        text = end + 1;
    }
    return true;
}

bool xid_is_of(const char *pci, const char *line_pci)
{
    unsigned long a[3], b[3];

    return read_pci(pci, a) && read_pci(line_pci, b) && memcmp(a, b, sizeof(a)) == 0;
}
