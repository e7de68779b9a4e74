# Codecs. The loops for AVX2 are built for it where the processor family has it; codec.c asks the processor before it calls
# them. A contracted multiply-add would round once less than the plain twin.
CFLAGS_compress/group_avx2.c := -O3 $(if $(filter x86_64,$(shell uname -m)),-mavx2)
