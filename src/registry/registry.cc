// The only file that names every planner.
#include <algorithm>
#include <cctype>
#include <vector>

#include "remat/error.h"
#include "remat/planner.h"
#include "remat/words.h"

namespace remat {

// Each in the source of its name.
namespace automatic { PlannerInfo info(); }
namespace keep_all { PlannerInfo info(); }
namespace retention { PlannerInfo info(); }
namespace rotor { PlannerInfo info(); }
namespace greedy { PlannerInfo info(); }
namespace tw_remat { PlannerInfo info(); }
namespace evict { PlannerInfo info(); }
namespace lns { PlannerInfo info(); }
namespace search { PlannerInfo info(); }
namespace dtr { PlannerInfo info(); }
namespace chen { PlannerInfo info(); }
namespace lower_set_dp { PlannerInfo info(); }
namespace pw_remat { PlannerInfo info(); }
namespace checkmate_lp { PlannerInfo info(); }
namespace checkmate_milp { PlannerInfo info(); }
namespace moccasin { PlannerInfo info(); }
namespace hiremate { PlannerInfo info(); }
namespace offload_only { PlannerInfo info(); }
namespace offload_all { PlannerInfo info(); }
namespace pofo { PlannerInfo info(); }

namespace {

std::vector<PlannerInfo> own_planners() {
  return {
      // Run by `auto`.
      automatic::info(),
      keep_all::info(),
      retention::info(),
      rotor::info(),
      greedy::info(),
      tw_remat::info(),
      evict::info(),
      lns::info(),
      search::info(),
      // For comparison.
      dtr::info(),
      chen::info(),
      lower_set_dp::info(),
      pw_remat::info(),
      checkmate_lp::info(),
      checkmate_milp::info(),
      moccasin::info(),
      hiremate::info(),
      // With a host, for comparison.
      offload_only::info(),
      offload_all::info(),
      pofo::info(),
  };
}

/// Remat's planners, then those that users registered. Never grows beyond its reserved capacity, so that
/// references to planners stay valid.
struct Registry {
  std::vector<PlannerInfo> all = own_planners();
  std::size_t own = all.size();
  Registry() { all.reserve(own + kMostRegistered); }
};

Registry& registry() {
  static Registry registry;
  return registry;
}

bool is_name(std::string_view name) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && std::ranges::all_of(name, is_allowed);
}

}  // namespace

std::span<const PlannerInfo> planners() { return registry().all; }

void register_planner(PlannerInfo planner) {
  if (!is_name(planner.name)) {
    throw UsageError("a planner's name has letters, digits, '_', '-' and '.' only: '" + planner.name + "'");
  }
  auto& [all, own] = registry();
  const auto found = std::ranges::find(all, planner.name, &PlannerInfo::name);
  if (found != all.end() && found < all.begin() + static_cast<std::ptrdiff_t>(own)) {
    throw UsageError("planner '" + planner.name + "' is one of Remat's: give yours another name");
  }
  if (found != all.end()) {
    *found = std::move(planner);
  } else if (all.size() == own + kMostRegistered) {
    throw UsageError("planner '" + planner.name + "': " + std::to_string(kMostRegistered) +
                     " are registered, and no more can be");
  } else {
    all.push_back(std::move(planner));
  }
}

const PlannerInfo& find_planner(std::string_view name) {
  std::vector<std::string> known;
  for (const PlannerInfo& planner : planners()) {
    if (planner.name == name) return planner;
    known.emplace_back(planner.name);
  }
  throw UsageError(unknown_word("planner", name, known));
}

}  // namespace remat
