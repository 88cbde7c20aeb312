// Seed texts, and random damage to them.
#pragma once

#include <string>
#include <vector>

#include "remat/random.h"

namespace remat::fuzz {

/// Small files of every kind that is read: four graphs, two node-link graphs, and last a plan.
const std::vector<std::string>& seed_files();

/// One flipped bit, cut, repeated part, odd byte, or a piece that matters to a JSON reader.
void damage(std::string& text, Random& random);

}  // namespace remat::fuzz
