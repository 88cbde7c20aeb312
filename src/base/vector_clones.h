// One binary for every x86-64: the loader picks the widest version of a function that the machine runs. For
// functions on integers only, so that all versions agree; of internal linkage, since gcc exports the choice
// between versions of all others, hidden or not.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define REMAT_VECTOR __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define REMAT_VECTOR
#endif
