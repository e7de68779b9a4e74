/* A spec as text: what is read and printed must read back to the same. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job_spec *spec, *again;
    struct faults f = {.n = 0};

    if (spec_from_text((const char *)data, size, &spec, &f) == 0) {
        json_t *doc = spec_to_json(spec), *same;

        assert(doc && spec_from_json(doc, &again, &f) == 0);
        same = spec_to_json(again);
        assert(same && json_equal(doc, same));
        spec_check_paths(doc, &f);
        spec_free(again);
        spec_free(spec);
        json_decref(doc);
        json_decref(same);
    } else {
        json_t *all = faults_json(&f);

        assert(all && f.n > 0);
        json_decref(all);
    }
    faults_clear(&f);
    return 0;
}
