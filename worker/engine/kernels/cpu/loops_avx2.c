/* Built with AVX2 and FMA (mk/flags.mk): nothing here may run before the processor was asked. */
#ifdef __x86_64__
#define LOOPS_TABLE cpu_loops_avx2
#define LOOPS_NAME "avx2"
#include "worker/engine/kernels/cpu/loops_body.h"
#else
typedef int loops_avx2_is_empty;
#endif
