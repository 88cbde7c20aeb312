// One binary for every x86-64: the loader picks the widest version of a function that the machine supports.
// Only for functions on integers, so that all versions give equal results, and of internal linkage, since gcc
// exports the dispatcher of any other function even if it is hidden.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define REMAT_VECTOR __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define REMAT_VECTOR
#endif
