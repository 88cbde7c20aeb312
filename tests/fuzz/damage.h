// Seed texts and random mutations of them.
#pragma once

#include <string>
#include <vector>

#include "remat/random.h"

namespace remat::fuzz {

/// Small files of every kind: four graphs, two node-link graphs, and last a plan.
const std::vector<std::string>& seed_files();

/// One mutation: a flipped bit, a cut, a repeated part, a random byte, or a string special to a JSON reader.
void damage(std::string& text, Random& random);

}  // namespace remat::fuzz
