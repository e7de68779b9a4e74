# Codecs. The loops of group_body.h are built for each width where the processor family has it; codec.c asks the processor
# before it calls them. A contracted multiply-add would round once less than the plain twin: only where a product is exact
# is there one.
CFLAGS_compress/group_avx2.c   := -O3 $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mfma)
CFLAGS_compress/group_avx512.c := -O3 $(if $(filter x86_64,$(shell uname -m)),-mavx512f -mavx512bw -mavx512dq -mavx512vl)

# Byte planes, raw values and Huffman codes are worth what -O2 leaves off: PLANE is twice as fast.
CFLAGS_compress/codec.c := $(if $(SANITIZE),,-O3)
CFLAGS_compress/chunk.c := $(if $(SANITIZE),,-O3)
CFLAGS_compress/huffman.c := $(if $(SANITIZE),,-O3)

# How they do on gradients and activations of a model trained for it; needs PyTorch.
.PHONY: bench-real-values
bench-real-values: all $(BUILD)/bench/compress  ## codecs on gradients and activations of a real run (REAL_FLAGS=--quick)
	@MUSTER_BUILD=$(abspath $(BUILD)) $(PYTHON) tests/bench/real_values.py $(REAL_FLAGS)

.PHONY: codec-pictures
codec-pictures: $(BUILD)/bench/compress  ## the pictures of docs/compression.md, with errors measured anew
	@$< --only errors | $(PYTHON) tests/bench/codec_pictures.py

# Its benchmark needs nothing above it.
$(BUILD)/bench/compress: $(BUILD)/obj/tests/bench/compress.o $(call libs_of,compress)
	@mkdir -p $(@D)
	@echo "  ld  $@"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(call external_of,compress)
