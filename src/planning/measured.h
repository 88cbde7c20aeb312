// Plans for a request whose budget is on another measure than live bytes, which has been checked.
#pragma once

#include "remat/request.h"

namespace remat {

/// Sizes are rounded up to the alignment, since these are what an arena holds, and plans are laid out.
Answer answer_on_arena(const Request& request, Limits& limits);

/// Sizes are rounded up as the allocator does, and plans are run through it.
Answer answer_on_reserved(const Request& request, Limits& limits);

}  // namespace remat
