/* parts - checkpoints below the whole: data files, their indexes and ranges, and the folder in which they meet
 *
 * For those who carry data files from node to node, keep them in memory, put them together or look into them. Who
 * writes and reads whole checkpoints needs checkpoint.h alone.
 */
#ifndef MUSTER_CHECKPOINT_PARTS_H
#define MUSTER_CHECKPOINT_PARTS_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/format/input.h"     /* reading files that come from outside */
#include "checkpoint/format/folder.h"    /* names, attempts and fences */
#include "checkpoint/format/part.h"      /* one data file; with it index.h, box.h, format.h: tables and boxes */
#include "checkpoint/read/scan.h"        /* chunks, verified; with it read.h: a data file opened by itself */
#include "checkpoint/write/collect.h"    /* steps removed */
#include "checkpoint/write/coordinate.h" /* data files waited for, merged and committed */

#endif
