# Kernels and training data: what their files need beyond the rules of the Makefile.
FUZZ_FOLDER_corpus := worker
