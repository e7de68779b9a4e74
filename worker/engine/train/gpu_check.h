/* gpu_check - what training on a GPU takes of this machine, and whether it is there */
#ifndef MUSTER_WORKER_TRAIN_GPU_CHECK_H
#define MUSTER_WORKER_TRAIN_GPU_CHECK_H

#include <stdio.h>

#define GPU_CHECK_NONE 77 /* something that training takes is missing */

/* Print a line for each part of it. Returns 0 or GPU_CHECK_NONE. */
int gpu_check(FILE *out);

#endif
