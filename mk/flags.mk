# What single files need of the compiler beyond the rules of the Makefile.

x86_64 := $(filter x86_64,$(shell uname -m))
avx2_flags   := $(if $(x86_64),-mavx2)
fma_flags    := $(if $(x86_64),-mavx2 -mfma)
avx512_flags := $(if $(x86_64),-mavx512f -mavx512bw -mavx512dq -mavx512vl)

# Vectors of four doubles go through memory between functions where there is no AVX; all of these are inlined: hence no
# -Wpsabi, here and with the kernels.
CFLAGS_base/philox.c      := -O3 -Wno-psabi
CFLAGS_base/philox_avx2.c := -O3 $(avx2_flags)

# Codecs. The loops of group_body.h are built for each width where the processor family has it; codec.c asks the
# processor before it calls them. A contracted multiply-add would round once less than the plain twin: only where a
# product is exact is there one.
CFLAGS_compress/group_avx2.c   := -O3 $(fma_flags)
CFLAGS_compress/group_avx512.c := -O3 $(avx512_flags)

# Byte planes, raw values and Huffman codes are worth what -O2 leaves off: PLANE is twice as fast.
CFLAGS_compress/codec.c   := $(if $(SANITIZE),,-O3)
CFLAGS_compress/chunk.c   := $(if $(SANITIZE),,-O3)
CFLAGS_compress/huffman.c := $(if $(SANITIZE),,-O3)

# Folding vectors is worth the compiler's vectorizer, which -O2 leaves half off.
CFLAGS_worker/engine/comm/reduce.c := $(if $(SANITIZE),,-O3)

# Kernels. The loops of the CPU table are vectors of eight or sixteen floats, built for any processor, for AVX2 with FMA
# and for AVX-512, its tiles for the latter two; the table asks the processor before it uses them. A contracted
# multiply-add is one rounding less, the same in every call.
kernel_avx2_flags   := -O3 -ffp-contract=fast $(fma_flags)
kernel_avx512_flags := -O3 -ffp-contract=fast $(avx512_flags) $(if $(x86_64),-mfma -mprefer-vector-width=512)
CFLAGS_worker/engine/kernels/cpu/loops_avx2.c    := $(kernel_avx2_flags)
CFLAGS_worker/engine/kernels/cpu/tile_avx2.c     := $(kernel_avx2_flags)
CFLAGS_worker/engine/kernels/cpu/loops_avx512.c  := $(kernel_avx512_flags)
CFLAGS_worker/engine/kernels/cpu/tile_avx512.c   := $(kernel_avx512_flags)
CFLAGS_worker/engine/kernels/cpu/loops_generic.c := -O3 -Wno-psabi

# Medians, of all ranks side by side, are worth the vectorizer, which takes no choice between floats that could trap.
CFLAGS_scheduler/diagnose/lag_ranks.c  := $(if $(SANITIZE),,-O3 -fno-trapping-math)
CFLAGS_scheduler/diagnose/lag_shared.c := $(if $(SANITIZE),,-O3 -fno-trapping-math)
