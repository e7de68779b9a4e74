# Kernels: what their files need beyond the rules of the Makefile.

# The loops of the CPU table are vectors of eight or sixteen floats, built for any processor, for AVX2 with FMA and for
# AVX-512, its tiles for the latter two; the table asks the processor before it uses them. Without AVX such vectors go
# through memory between functions, all of which are inlined here: hence no -Wpsabi. A contracted multiply-add is one
# rounding less, the same in every call.
avx512_flags := $(if $(filter x86_64,$(shell uname -m)),-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma \
    -mprefer-vector-width=512)
CFLAGS_worker/engine/kernels/cpu/loops_avx2.c    := -O3 -ffp-contract=fast $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mfma)
CFLAGS_worker/engine/kernels/cpu/tile_avx2.c     := -O3 -ffp-contract=fast $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mfma)
CFLAGS_worker/engine/kernels/cpu/loops_avx512.c  := -O3 -ffp-contract=fast $(avx512_flags)
CFLAGS_worker/engine/kernels/cpu/tile_avx512.c   := -O3 -ffp-contract=fast $(avx512_flags)
CFLAGS_worker/engine/kernels/cpu/loops_generic.c := -O3 -Wno-psabi

# Threads share out the work of a call.
TSAN_TESTS += kernels kernels_attention kernels_pool
