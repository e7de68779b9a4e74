/* Built with AVX2 and FMA (mk/flags.mk): nothing here may run before the processor was asked. */
#ifdef __x86_64__
#define TILE_TABLE cpu_tile_avx2
#define WIDTH 8
#define ROWS 6  /* twelve sums, two vectors of B and one number of A fill the sixteen registers */
#define AHEAD 0 /* a panel of B fits the first cache */
#include "worker/engine/kernels/cpu/tile_body.h"
#else
typedef int tile_avx2_is_empty;
#endif
