// A shared library of Remat exports what is declared in a namespace marked REMAT_API, which every public
// header opens. The compiler's option -fvisibility=hidden hides the rest.
#pragma once

/// @cond
#define REMAT_API [[gnu::visibility("default")]]
#define REMAT_HIDDEN [[gnu::visibility("hidden")]]  // internal, though declared in a public header
/// @endcond
