// Plans for checked requests with a budget on other measures than live bytes.
#pragma once

#include "remat/request.h"

namespace remat {

/// Rounds sizes up to the alignment, as the arena holds them, and lays plans out.
Answer answer_on_arena(const Request& request, Limits& limits);

/// Rounds sizes up as the allocator does, and runs plans through it.
Answer answer_on_reserved(const Request& request, Limits& limits);

}  // namespace remat
