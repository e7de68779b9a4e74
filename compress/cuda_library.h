/* cuda_library - NVIDIA's libraries, wherever an installation of CUDA or of Python's packages has put them
 *
 * The loader is asked first. Then come the folders of $CUDA_HOME, of /usr/local/cuda and its versions, and of the
 * packages of the Python that MUSTER_CUDA_PYTHON names.
 */
#ifndef MUSTER_COMPRESS_CUDA_LIBRARY_H
#define MUSTER_COMPRESS_CUDA_LIBRARY_H

#include <limits.h>

#include "base/merr.h"

/* Names in the order in which they are tried, with a NULL at the end. What is called of them is the same in each. */
extern const char *const cuda_library_blas[], *const cuda_library_nccl[], *const cuda_library_dnn[];

/* The first of names that is there; the caller closes it. where: its path, or its name where the loader knew it; may be
 * NULL. NULL: none is, and err says where it was looked for. */
void *cuda_library_open(const char *const *names, char where[PATH_MAX], struct merr *err);

#endif
