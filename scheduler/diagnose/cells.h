/* cells - which link, or which end of links, has become slow: from a matrix of transfer rates
 *
 * A cell (i, j) is what goes from i to j; not all cells need be known. One hot cell is that connection; a hot row what
 * i sends, a hot column what j receives, both of one node its NIC or its port; many cells that no node explains are the
 * fabric that all share. After C4 (HPCA 2025), whose matrix is of delays. Plain numbers in, a finding out.
 */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_CELLS_H
#define MUSTER_SCHEDULER_DIAGNOSE_CELLS_H

#include <stddef.h>
#include <stdint.h>

#define CELLS_NODES_MAX 256

enum cells_class {
    CELLS_WELL,
    CELLS_CELL,   /* one connection: any of its two ends */
    CELLS_ROW,    /* all that one sends */
    CELLS_COLUMN, /* all that one receives */
    CELLS_NODE,   /* both */
    CELLS_FABRIC, /* what they share: no node is to be blamed */
    CELLS_CLASSES,
};

struct cells_finding {
    enum cells_class class_;
    uint32_t from, to; /* of a cell; else both are the node. None: 0 */
    double factor;     /* so many times as long for each byte as it should take */
    size_t hot, known; /* cells of the matrix */
};

/* rate, usual: n × n, row by row, bytes a second, 0: not known; the diagonal is passed over. Where a cell's usual rate
 * is not known, it is compared with the median of all, of four cells at least. Without memory all is well. */
void cells_judge(const double *rate, const double *usual, size_t n, struct cells_finding *ret);

const char *cells_class_name(enum cells_class class_); /* "well", "link", "sends", "receives", "node", "fabric" */

#endif
