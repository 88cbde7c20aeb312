// Values of planners' options, drawn from what their tables list.
#pragma once

#include <string>

#include "remat/planner.h"
#include "remat/random.h"

namespace remat::testing {

/// A value that the option takes, either end of its range among them. Of texts, one that hiremate takes.
std::string random_value(const OptionInfo& option, Random& random);

}  // namespace remat::testing
