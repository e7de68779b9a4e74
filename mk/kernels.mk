# Kernels: what their files need beyond the rules of the Makefile.

# The loops of the CPU table are vectors of eight floats, built for AVX2 with FMA and for any processor, its tiles for
# AVX-512 too; the table asks the processor before it uses them. Without AVX such vectors go through memory between
# functions, all of which are inlined here: hence no -Wpsabi. A contracted multiply-add is one rounding less, the same in
# every call.
CFLAGS_worker/kernels/cpu/loops_avx2.c    := -O3 -ffp-contract=fast $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mfma)
CFLAGS_worker/kernels/cpu/tile_avx2.c     := -O3 -ffp-contract=fast $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mfma)
CFLAGS_worker/kernels/cpu/tile_avx512.c   := -O3 -ffp-contract=fast \
    $(if $(filter x86_64,$(shell uname -m)),-mavx512f -mavx512bw -mavx512dq -mavx512vl)
CFLAGS_worker/kernels/cpu/loops_generic.c := -O3 -Wno-psabi

# Threads share out the work of a call.
TSAN_TESTS += kernels kernels_attention kernels_pool
