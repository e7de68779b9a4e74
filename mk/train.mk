# Training: what its tests need beyond the rules of the Makefile.
FUZZ_FOLDER_assignment := worker
