// Random values of planners' options, from their tables.
#pragma once

#include <string>

#include "remat/planner.h"
#include "remat/random.h"

namespace remat::testing {

/// A valid value of the option, sometimes an end of its range. Of texts, one that hiremate accepts.
std::string random_value(const OptionInfo& option, Random& random);

}  // namespace remat::testing
