// H-ILP (appendix B): the schedule of one level as an integer program.
#pragma once

#include <optional>
#include <vector>

#include "base/numbers.h"
#include "baselines/hiremate/level_graph.h"
#include "lp/model.h"

namespace remat::hiremate {

struct HilpSpec {
  double peak = 0;              ///< bytes at every step, of what the group makes (and at the root holds)
  std::optional<double> saved;  ///< bytes between forward and backward pass
  /// Every node may run again in every phase, as the paper writes it. Without, forward nodes run again only
  /// after the turn and backward nodes never: what runs again before the loss or twice in the backward pass
  /// does not help where gradients are read once.
  bool all_phases = false;
};

/// Phase t ends with the first run of node t. Columns by name of appendix B.2:
///   run(t, k, o)    R   node k runs in phase t with option o. Forward nodes have more options than their
///                       member's n: option n saves nothing, option n + 1 + o makes the outputs again from
///                       what option o saved
///   held(t, d)      P   data node d is in memory before phase t
///   saved(t, j, o)  Sp  member j's phantom node of option o is in memory before phase t
///   after(t, j, o)      the same once the refresh of a refreshed option has run: option n + 1 + o then turns
///                       one phantom node into the other, exactly once and before the backward part
///   alive(t, k, d)  A   d is in memory after node k in phase t, for d that k makes or reads
/// C (created) and D (deleted) are the differences of A along a phase and are left out: A is a column, at
/// least as large as the need for d after k (the next reader, or the next phase). That is D's "if and only
/// if" without its big-M rows, because memory is only ever bounded from above. S is P, since a data node has
/// one maker. Constants are folded; columns that cannot change over a phase are shared by its two ends.
class HilpModel {
 public:
  HilpModel(const LevelGraph& level, const HilpSpec& spec);

  const lp::Model& model() const { return model_; }
  /// Duration of the solution beyond one run of every node (at its cheapest), times `scale()`.
  double scale() const { return cost_scale_; }

  struct Run {
    int phase, node, option;
  };
  /// Runs of a solution, in order.
  std::vector<Run> runs_of(const std::vector<double>& x) const;
  /// Integer columns that these runs take, data kept from phase to phase wherever it is read again before it
  /// is made again; NaN for the rest.
  std::vector<double> start_from(const std::vector<Run>& runs) const;

 private:
  /// A column, or a constant where column is -1.
  struct Literal {
    lp::Column column = -1;
    double constant = 0;
    bool is(double c) const { return column < 0 && constant == c; }
  };
  class Row;

  std::size_t num_nodes() const { return narrow<std::size_t>(level_.num_nodes()); }
  const MemberShape& member(int node) const { return level_.members[at(level_.member_of[at(node)])]; }
  int member_index(int node) const { return level_.member_of[at(node)]; }
  int options_of(int node) const;
  const RunShape& shape(int node, int option) const;
  bool saves(int node, int option) const;
  bool refreshes(int node, int option) const;
  bool refreshed(int node, int option) const;
  std::size_t option_index(int node, int option) const;
  bool may_run(int t, int k) const { return may_run_[at(t)][at(k)]; }

  std::vector<Literal>& run(int t, int k) { return run_[at(t)][at(k)]; }
  const std::vector<Literal>& run(int t, int k) const { return run_[at(t)][at(k)]; }
  Literal& held(int t, int d) { return held_[at(t)][at(d)]; }
  Literal held(int t, int d) const { return held_[at(t)][at(d)]; }
  std::vector<Literal>& saved(int t, int j) { return saved_[at(t)][at(j)]; }
  std::vector<Literal>& after(int t, int j) { return after_[at(t)][at(j)]; }
  const DataNode& data(int d) const { return level_.data[at(d)]; }

  void find_phases();
  void add_runs();
  void add_held();
  void add_saved();
  void add_dependencies(int t);
  void add_phantoms(int t);
  void add_stages(int t, int j, int o);
  void add_alive(int t);
  void add_memory(int t);
  void add_moments(int t, int k, const Row& usage);
  void finish_phase(int t, int k, Row& usage);
  void add_reads(int t, int k, int d, Row& row, double factor) const;
  Literal binary() { return {model_.add_column(0, 0, 1, true), 0}; }

  const LevelGraph& level_;
  const HilpSpec spec_;
  lp::Model model_;
  double memory_scale_ = 1, cost_scale_ = 1;
  std::vector<std::vector<bool>> may_run_;                ///< phase by node
  std::vector<std::vector<std::vector<Literal>>> run_;    ///< phase by node by option
  std::vector<std::vector<Literal>> held_;                ///< phase (one more for the end) by data node
  std::vector<std::vector<std::vector<Literal>>> saved_;  ///< phase (one more) by member by option
  std::vector<std::vector<std::vector<Literal>>> after_;  ///< the same, of refreshed options
  std::vector<std::vector<int>> related_;                 ///< data nodes that a node makes or reads, by node
  std::vector<std::vector<Literal>> alive_;               ///< of the phase at hand: by node, as in related_
  std::vector<Literal> statuses_;  ///< of the phase at hand: status of each data node at the node at hand
};

}  // namespace remat::hiremate
