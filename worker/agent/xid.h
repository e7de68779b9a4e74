/* xid - what the GPU driver's numbered errors (Xid) say, and what becomes of the device
 *
 * By NVIDIA's catalogue of Xid errors; the levels are ours. The driver tells them through NVML or in the kernel's log.
 */
#ifndef MUSTER_WORKER_AGENT_XID_H
#define MUSTER_WORKER_AGENT_XID_H

#include <stdbool.h>
#include <stddef.h>

enum xid_level {
    XID_WATCH, /* it is told and counted */
    XID_DRAIN, /* the device gets no new work; what runs there goes on */
    XID_STOP,  /* nor that: the attempt that runs there is ended */
    XID_LEVELS
};

enum xid_class {
    XID_NODE,      /* the machine is at fault: it is taken out as a whole */
    XID_GPU,       /* the device is, until it is reset */
    XID_LINK,      /* a link between devices; two within a day drain the device */
    XID_APP,       /* the program, most likely */
    XID_SECONDARY, /* follows another one, or only tells */
};

struct xid {
    unsigned int code;
    enum xid_class class_;
    enum xid_level level;
    int blame; /* thousandths of an incident that it is evidence against the node */
    const char *meaning;
};

/* What is known of a code; one that is not in the table is told and nothing else. */
const struct xid *xid_find(unsigned int code);

/* The whole table, for tests. */
const struct xid *xid_at(size_t i); /* NULL past the end */

/* A line of the kernel's log: "NVRM: Xid (PCI:0000:1b:00): 79, …". False: it is none. ret_pci: "0000:1b:00". */
bool xid_parse(const char *line, char ret_pci[32], unsigned int *ret_code);

/* Whether a PCI address as NVML has it ("00000000:1B:00.0") is the one of such a line. */
bool xid_is_of(const char *pci, const char *line_pci);

extern const char *const xid_level_names[XID_LEVELS]; /* "watch", "drain", "stop" */

#endif
