// Messages for unknown words, with the word that was probably meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"

namespace REMAT_API remat {

/// The known word that takes the fewest changes from `word`: a letter changed, left out, added, or swapped
/// with its neighbour. Case does not count, nor `-` for `_`. Nothing if more than a third of the letters
/// would change; of equally near words, the first. A prefix of a single known word counts as that word.
std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& known);

/// ": did you mean 'auto'?", or nothing where no known word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

/// "unknown planner 'ato': did you mean 'auto'? known: auto, keep_all". `what` is "planner".
std::string unknown_word(std::string_view what, std::string_view word, const std::vector<std::string>& known);

/// "auto, keep_all".
std::string listed(const std::vector<std::string>& words, std::string_view between = ", ");

}  // namespace REMAT_API remat
