// Rows over unions of stages: what the model of fewer, longer stages says, said of the same columns.
#include <bit>

#include "exact/stage_row.h"

namespace remat {
namespace {

/// Up to so many stages every union, then those of powers of two and those that reach to the end.
constexpr int kMostForAll = 8;

bool is_union(int from, int to, int stages) {
  if (to == stages - 1 || stages <= kMostForAll) return true;
  const int length = to - from + 1;
  return std::has_single_bit(narrow<unsigned>(length)) && from % (length / 2) == 0;
}

}  // namespace

void StageModel::add_unions() {
  for (int from = 1; from < stages_; ++from) {
    for (int to = from + 1; to < stages_; ++to) {
      if (is_union(from, to, stages_)) add_union(from, to);
    }
  }
}

/// again(p) = 1: p runs again somewhere in the stages. That follows from the reruns where these are whole
/// numbers; where they are not, one half of a rerun in either of two stages counts as a whole one here.
void StageModel::add_union(int from, int to) {
  IndexVector<OpId, lp::Column> again(graph_.num_ops(), -1);
  for (OpId op : IdRange<OpId>(OpId(0), begin_of(from))) {
    std::vector<lp::Column> parts;
    for (int s = from; s <= to; ++s) {
      if (const lp::Column c = rerun_column(s, op); c >= 0) parts.push_back(c);
    }
    if (parts.empty()) continue;
    again[op] = parts.size() == 1 ? parts.front() : fraction();
    if (parts.size() == 1) continue;
    Row sum(model_);
    for (lp::Column c : parts) {
      Row(model_).add(again[op], 1).add(c, -1).at_least(0);
      sum.add(c, 1);
    }
    sum.add(again[op], -1).at_least(0);
  }
  const auto is_inside = [&](OpId op) { return op >= begin_of(from) && op < end_of(to); };
  for (ValueId v : graph_.values()) {
    if (!made_by_op(v) || !before(from, v)) continue;
    const auto readers = graph_.readers[v];
    const auto available = [&]() {
      return Row(model_).add(held(from, v), 1).add(again[graph_.producer[v]], 1);
    };
    if (std::any_of(readers.begin(), readers.end(), is_inside) || held(to + 1, v).is_one()) {
      available().at_least(1);
      continue;
    }
    for (OpId reader : readers) {
      if (reader < begin_of(from) && again[reader] >= 0) available().add(again[reader], -1).at_least(0);
    }
    for (int s = from; s <= to; ++s) {
      if (!held(s + 1, v).is_zero()) available().add(held(s + 1, v), -1).at_least(0);
    }
  }
}

}  // namespace remat
