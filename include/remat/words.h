// Words that are not known, and what was probably meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"

namespace REMAT_API remat {

/// The known word that takes the fewest changes from `word`: a letter changed, left out, added, or swapped
/// with its neighbour. Case does not count, nor `-` for `_`. Nothing where more than a third of the letters
/// would change; of equals the first. A word that a single known one begins with is that one.
std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& known);

/// ": did you mean 'auto'?", or nothing where no known word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

/// "unknown planner 'ato': did you mean 'auto'? known: auto, keep_all". `what` is "planner".
std::string unknown_word(std::string_view what, std::string_view word, const std::vector<std::string>& known);

/// "auto, keep_all".
std::string listed(const std::vector<std::string>& words, std::string_view between = ", ");

}  // namespace REMAT_API remat
