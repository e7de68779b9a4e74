/* Built with AVX2 (mk/flags.mk): philox.c asks the processor before it calls this. */
#ifdef __x86_64__
#include "base/philox_normal.h"

void philox_normal8_avx2(const uint32_t key[2], uint64_t index, float ret[8])
{
    normal8(key, index, ret);
}
#else
typedef int philox_avx2_is_empty;
#endif
