/* Built for AVX-512 (mk/flags.mk): nothing here may run before the processor was asked. */
#ifdef __x86_64__
#define LOOPS_TABLE cpu_loops_avx512
#define LOOPS_NAME "avx512"
#define LANES 16
#include "worker/engine/kernels/cpu/loops_body.h"
#else
typedef int loops_avx512_is_empty;
#endif
