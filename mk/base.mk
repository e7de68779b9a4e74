# The floor of everything: what its files need beyond the rules of the Makefile.

# Vectors of four doubles go through memory between functions where there is no AVX; all of these are inlined.
CFLAGS_base/philox.c := -O3 -Wno-psabi
CFLAGS_base/philox_avx2.c := -O3 $(if $(filter x86_64,$(shell uname -m)),-mavx2)
