/* Built for AVX-512 (mk/flags.mk): nothing here may run before the processor was asked. */
#ifdef __x86_64__
#define TILE_TABLE cpu_tile_avx512
#define WIDTH 16
#define ROWS 12  /* 24 sums of 32 registers: with 14 rows, panels of A would not divide blocks of attention */
#define AHEAD 16 /* a panel of B does not fit the first cache: 3 to 7 % of a product */
#include "worker/engine/kernels/cpu/tile_body.h"
#else
typedef int tile_avx512_is_empty;
#endif
