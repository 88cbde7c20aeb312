#include "chart.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "people.h"
#include "remat/io.h"

namespace remat::cli {
namespace {

constexpr int kLeastColumns = 60;
constexpr std::size_t kRows = 6, kMostWide = 100;
/// A character's height in eighths.
constexpr std::array<std::string_view, 9> kBlocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// The peak of each bucket of steps.
std::vector<std::int64_t> fullest(const IndexVector<StepId, Bytes>& memory, std::size_t buckets) {
  std::vector<std::int64_t> most(buckets, 0);
  std::size_t i = 0;
  for (Bytes bytes : memory) {
    std::int64_t& here = most[i++ * buckets / memory.size()];
    here = std::max(here, bytes.count());
  }
  return most;
}

/// Characters that a line takes on a terminal, which shows no colours' codes.
std::size_t shown_width(const std::string& line) {
  std::string shown;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\033') {
      at = line.find('m', at);
    } else {
      shown += line[at];
    }
  }
  return width_of(shown);
}

}  // namespace

bool wants_colours() {
  const char* no = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && !is_dumb_terminal() && (no == nullptr || *no == '\0');
}

std::string memory_chart(const Graph& graph, const Plan& plan, Bytes top, int columns, bool colours) {
  if (columns < kLeastColumns || plan.steps.empty()) return "";
  IndexVector<StepId, Bytes> memory;
  const Simulation cost = simulate(graph, plan, memory);
  const Bytes highest = std::max({top, cost.peak, Bytes(1)});
  constexpr std::size_t kLabel = 10;
  const std::size_t room = std::min(kMostWide, static_cast<std::size_t>(columns) - kLabel - 2);
  const std::size_t wide = std::min(room, memory.size());
  const std::vector<std::int64_t> most = fullest(memory, wide);
  const double unit = 8.0 * kRows / static_cast<double>(highest.count());
  std::string text;
  for (std::size_t row = kRows; row-- > 0;) {
    const std::string label = row + 1 == kRows ? format_bytes(highest) : row == 0 ? "0" : "";
    std::string line = flush_right(label, kLabel) + " ";
    for (std::int64_t bytes : most) {
      const auto eighths =
          static_cast<long>(static_cast<double>(bytes) * unit + 0.5) - 8 * static_cast<long>(row);
      const auto block = kBlocks[static_cast<std::size_t>(std::clamp(eighths, 0L, 8L))];
      const bool is_peak = colours && bytes == cost.peak.count() && block != " ";
      line += is_peak ? "\033[31m" + std::string(block) + "\033[0m" : std::string(block);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const std::string last = "step " + std::to_string(memory.size() - 1);
  return text + flush_right("", kLabel) + " 0" + flush_right(last, std::max(wide, last.size() + 2) - 1) +
         "\n";
}

std::string beside(const std::string& left, std::size_t width, const std::vector<std::string>& right) {
  std::istringstream lines(left);
  std::string text, line;
  for (std::size_t row = 0; std::getline(lines, line) || row < right.size(); ++row, line.clear()) {
    text += line;
    if (row < right.size()) text += std::string(width - std::min(width, shown_width(line)), ' ') + right[row];
    text += "\n";
  }
  return text;
}

}  // namespace remat::cli
