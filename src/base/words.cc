#include "remat/words.h"

#include <algorithm>

namespace remat {
namespace {

char folded(char c) {
  if (c == '-') return '_';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string folded(std::string_view word) {
  std::string result;
  for (char c : word) result += folded(c);
  return result;
}

/// Letters changed, left out, added or swapped with a neighbour (optimal string alignment), row by row.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLeastBeginning = 3, kLettersPerChange = 3;
  const std::string meant = folded(word);
  std::optional<std::string> nearest;
  std::size_t least = 0, begun = 0;
  const std::string* beginning = nullptr;
  for (const std::string& one : known) {
    const std::string other = folded(one);
    if (meant.size() >= kLeastBeginning && other.starts_with(meant)) {
      beginning = &one;
      ++begun;
    }
    const std::size_t changes = distance(meant, other);
    const std::size_t most =
        std::max<std::size_t>(1, std::max(meant.size(), other.size()) / kLettersPerChange);
    if (changes > most || changes >= std::min(meant.size(), other.size())) continue;
    if (nearest && changes >= least) continue;
    nearest = one;
    least = changes;
  }
  if (begun == 1 && (!nearest || least > 1)) return *beginning;
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const auto nearest = nearest_word(word, known);
  return nearest ? ": did you mean '" + *nearest + "'?" : "";
}

std::string listed(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between).append(word);
  return text;
}

std::string unknown_word(std::string_view what, std::string_view word,
                         const std::vector<std::string>& known) {
  const std::string hint = did_you_mean(word, known);
  return "unknown " + std::string(what) + " '" + std::string(word) + "'" + (hint.empty() ? ";" : hint) +
         " known: " + listed(known);
}

}  // namespace remat
