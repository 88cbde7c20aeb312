#include <map>
#include <utility>
#include <vector>

#include "model/step.h"
#include "remat/check.h"
#include "remat/layout.h"

namespace remat {
namespace {

class Collector {
 public:
  explicit Collector(PlanBuffers& into) : into_(into) {}

  /// `place`: none for a buffer of its own.
  void add(ValueId value, Buffer life, BufferId place = {}) {
    if (life.size == Bytes()) return;
    if (place) {
      into_.problem.buffers[place].end = life.end;
    } else {
      place = into_.problem.buffers.push_back(life);
    }
    into_.pieces.push_back({value, life, place});
    if (!value) return;
    const auto [known, is_new] = ending_.try_emplace({value, life.end}, place);
    if (!is_new) known->second = BufferId();  // two instances alive at a time: with copies
  }

  /// The buffer of the instance of `value` that is read for the last time at `step`, if it has these bytes.
  BufferId ending_at(ValueId value, StepId step, Bytes size) const {
    const auto found = ending_.find({value, step.next().index()});
    if (found == ending_.end() || !found->second) return {};
    return into_.problem.buffers[found->second].size == size ? found->second : BufferId();
  }

 private:
  PlanBuffers& into_;
  std::map<std::pair<ValueId, std::int64_t>, BufferId> ending_;
};

}  // namespace

PlanBuffers plan_buffers(const Graph& graph, const Plan& plan, std::int64_t alignment) {
  PlanBuffers result;
  result.problem.alignment = alignment;
  result.resident = graph.resident;
  Collector collector(result);
  const std::vector<Overwrite> written = overwrites(graph, plan);
  std::map<std::pair<StepId, ValueId>, ValueId> old;
  for (const Overwrite& one : written) old[{one.step, one.pair.output}] = one.pair.input;
  for (const InstanceLife& life : instance_lives(graph, plan)) {
    const Buffer buffer{life.first.index(), life.end.index(), graph.bytes[life.value]};
    const auto before = old.find({life.first, life.value});
    const BufferId place =
        before == old.end() ? BufferId() : collector.ending_at(before->second, life.first, buffer.size);
    collector.add(life.value, buffer, place);
  }
  for (const Extra& extra : extras(graph, plan)) {
    collector.add(ValueId(), {extra.first.index(), extra.end.index(), extra.bytes});
  }
  REMAT_ASSERT_HEAVY(live_peak(result.problem) + graph.resident >= simulate(graph, plan).peak, alignment);
  return result;
}

}  // namespace remat
