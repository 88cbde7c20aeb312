// Which of the options found for a group go up (section 3.2, schedule selection).
#pragma once

#include <vector>

#include "baselines/hiremate/level_graph.h"

namespace remat::hiremate {

/// An option and what it costs.
struct Costed {
  Option option;
  OptionCost cost;
};

/// Without doubles and dominated options: those that another one beats or equals in duration, saved bytes,
/// both peaks and what it reads. By rising saved bytes.
std::vector<Costed> undominated(std::vector<Costed> all);

/// At most `most` of them, spread over memory: the one that needs most, the one that needs least, then
/// always the one farthest from those chosen, in saved bytes and peak. The fastest is always among them.
std::vector<Option> spread(const std::vector<Costed>& all, std::size_t most);

}  // namespace remat::hiremate
