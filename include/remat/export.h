// What a shared library of Remat exports: what is declared in a namespace marked REMAT_API, which every
// public header opens. All else is hidden by the compiler's option -fvisibility=hidden.
#pragma once

/// @cond
#define REMAT_API [[gnu::visibility("default")]]
#define REMAT_HIDDEN [[gnu::visibility("hidden")]]  // part of a header, and nobody else's business
/// @endcond
