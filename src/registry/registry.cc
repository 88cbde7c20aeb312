// The only file that names every planner.
#include <array>

#include "baselines/checkmate/checkmate_lp.h"
#include "baselines/checkmate/checkmate_milp.h"
#include "baselines/chen/chen.h"
#include "baselines/dtr/dtr.h"
#include "baselines/hiremate/hiremate.h"
#include "baselines/lower_set_dp/lower_set_dp.h"
#include "baselines/moccasin/moccasin.h"
#include "baselines/offload_all/offload_all.h"
#include "baselines/offload_only/offload_only.h"
#include "baselines/pofo/pofo.h"
#include "baselines/pw_remat/pw_remat.h"
#include "planners/auto/auto.h"
#include "planners/evict/evict.h"
#include "planners/greedy/greedy.h"
#include "planners/keep_all/keep_all.h"
#include "planners/lns/lns.h"
#include "planners/retention/retention.h"
#include "planners/rotor/rotor.h"
#include "planners/search/search.h"
#include "planners/tw_remat/tw_remat.h"
#include "remat/error.h"
#include "remat/planner.h"
#include "remat/words.h"

namespace remat {

std::span<const PlannerInfo> planners() {
  static const std::array kPlanners{
      // What `auto` runs.
      automatic::info(),
      keep_all::info(),
      retention::info(),
      rotor::info(),
      greedy::info(),
      tw_remat::info(),
      evict::info(),
      lns::info(),
      search::info(),
      // There for comparison.
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
  return kPlanners;
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
