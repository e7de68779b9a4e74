# Folding vectors is worth the compiler's vectorizer, which -O2 leaves half off.
CFLAGS_worker/engine/comm/reduce.c := $(if $(SANITIZE),,-O3)
