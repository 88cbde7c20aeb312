#include "baselines/checkmate/stage_support.h"

#include "exact/stage_solve.h"
#include "lp/highs.h"

namespace remat {

std::optional<std::string> why_no_stage_model(const Problem& problem, std::int64_t most_columns) {
  if (const auto reason = lp::unavailable()) return reason;
  if (problem.order == OrderMode::kFree) return "it plans in fixed order only";
  if (problem.objective == Objective::kPeak) return "it has no objective 'peak'";
  const std::int64_t columns = full_columns(*problem.graph);
  if (columns <= most_columns) return std::nullopt;
  return "its model would have " + std::to_string(columns) + " columns, more than " +
         std::to_string(most_columns);
}

}  // namespace remat
