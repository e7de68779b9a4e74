/* Built for AVX-512 (mk/flags.mk): nothing here may run before the processor was asked. */
#ifdef __x86_64__
#define GROUP_TABLE group_avx512
#define GROUP_NAME "avx512"
#include "compress/vector_avx512.h"
#include "compress/group_body.h"
#else
typedef int group_avx512_is_empty;
#endif
