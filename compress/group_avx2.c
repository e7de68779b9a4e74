/* Built for AVX2 and FMA (mk/flags.mk): nothing here may run before the processor was asked. */
#ifdef __x86_64__
#define GROUP_TABLE group_avx2
#define GROUP_NAME "avx2"
#include "compress/vector_avx2.h"
#include "compress/group_body.h"
#else
typedef int group_avx2_is_empty;
#endif
