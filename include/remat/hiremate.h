// The hierarchical framework HiREmate (Gusak et al. 2025), with interfaces for user-defined parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/limits.h"
#include "remat/planner.h"

namespace remat {
namespace REMAT_API hiremate {

/// A training step as layers: each forward op together with the backward ops that are paired with it. The
/// layer is named by its forward op.
struct TrainingGraph {
  const Graph* graph = nullptr;
  OpId first_backward;            ///< all earlier ops are forward, the loss included
  IndexVector<OpId, OpId> layer;  ///< of every op
  Rows<OpId, OpId> backward;      ///< of a layer, ascending; rows only for forward ops
  /// Layers that must precede a layer: by data, by `after`, and by the reversed edges of the backward pass,
  /// so that a partition that is acyclic here is also acyclic in the backward pass (soft dependencies).
  Rows<OpId, OpId> before;

  std::size_t num_layers() const { return static_cast<std::size_t>(first_backward.index()); }
  IdRange<OpId> layers() const { return {OpId(0), first_backward}; }
  bool is_forward(OpId op) const { return op < first_backward; }
};

/// The begin of the backward pass comes from the phases or the structure; the pairs come from `forward_of` or
/// from what a backward op reads. Throws UsageError with the reason if the graph has no backward pass. The
/// graph must outlive the result. O(edges log edges).
TrainingGraph pair_layers(const Graph& graph);

using GroupId = Id<struct GroupTag>;

/// A group of layers: one layer, or other groups.
struct Group {
  OpId layer;                    ///< none where the group has members
  std::vector<GroupId> members;  ///< in an order in which they can run forward
  GroupId parent;                ///< none for the root
  std::int64_t num_layers = 1;
};

/// The hierarchy: a tree of groups whose leaves are the layers.
struct Partition {
  IndexVector<GroupId, Group> groups;
  GroupId root;
};

/// A hierarchy as nested lists: a layer, or a list of hierarchies.
struct Nested {
  OpId layer;  ///< none for a list
  std::vector<Nested> members;
};

/// The partition that `nested` describes, members in an order in which they can run (by first op where the
/// edges leave a choice). Lists of one are left out. Throws UsageError where a layer is missing, unknown or
/// named twice, or where the members of a group depend on each other in a cycle (a group that is not convex),
/// naming an op.
Partition make_partition(const TrainingGraph& training, const Nested& nested);

/// What is wrong with the partition, in one line, or nothing. Checks that every layer is in one leaf, that
/// parents and members agree, and that the members of each group follow the edges of `training.before`
/// between them (so all groups are convex). Independent of the code that makes partitions.
std::optional<std::string> check_partition(const TrainingGraph& training, const Partition& partition);

/// The layers of a group, in the order in which they run.
std::vector<OpId> layers_of(const Partition& partition, GroupId group);

/// The paper's Table 4(b).
struct PartitionSummary {
  std::int64_t levels = 0;    ///< 1: the root's members are layers
  std::int64_t groups = 0;    ///< of more than one layer, the root included
  std::int64_t distinct = 0;  ///< groups up to equality
  std::int64_t largest = 0;   ///< members of the largest group
};
PartitionSummary summarize(const TrainingGraph& training, const Partition& partition);

/// `remat.partition` version 1: a JSON object whose "groups" are nested lists of op indices.
std::string to_json(const TrainingGraph& training, const Partition& partition);

/// Interface: cuts a training step into a hierarchy of groups.
class Partitioner {
 public:
  virtual ~Partitioner() = default;
  virtual std::string name() const = 0;
  /// Checked by the framework (`make_partition`).
  virtual Nested partition(const TrainingGraph& training, Limits& limits) const = 0;
};

/// One way to run a group: the steps of its forward pass and, later, of its backward pass. The values saved
/// between the two are those that the backward steps read before they recompute them.
struct Option {
  std::vector<OpId> forward;   ///< every forward op of the group at least once; no backward op
  std::vector<OpId> backward;  ///< every backward op of the group, and recomputed forward ops
  std::string solver;
  /// Refresh stage: forward ops recomputed between the two passes whenever the level above wants the outputs
  /// of the group; they make all of these. The backward steps, at once or later, find the values that it
  /// made. Empty: the option has no such stage.
  std::vector<OpId> refresh = {};
  bool refreshed() const { return !refresh.empty(); }
  friend bool operator==(const Option& a, const Option& b) {
    return a.forward == b.forward && a.backward == b.backward && a.refresh == b.refresh;
  }
};

/// A member of a level, with its options, which the level below found.
struct Member {
  GroupId group;
  std::vector<OpId> forward, backward;  ///< ops in an order in which they can run once each
  std::vector<Option> options;          ///< at least one; one option for a layer
};

/// The input of a solver: a group whose members are solved, and the rest of the graph before it, after it,
/// and between its forward and backward pass.
struct Level {
  const TrainingGraph* training = nullptr;
  GroupId group;
  bool is_root = false;
  std::vector<Member> members;          ///< in forward order
  std::vector<OpId> forward, backward;  ///< ops of all members in an order in which they can run once each
};

/// Budget for one option. Below the root it bounds the values that the group makes and its workspaces,
/// without values read from outside; at the root it is the whole budget, resident inputs included.
struct LevelBudget {
  Bytes peak;                  ///< at every step
  std::optional<Bytes> saved;  ///< between forward and backward pass
};

/// Interface: finds options for a group.
class LevelSolver {
 public:
  virtual ~LevelSolver() = default;
  virtual std::string name() const = 0;
  virtual bool applicable(const Level&) const { return true; }
  /// Options for some or all of the budgets, in any order. The framework checks them (an invalid option is an
  /// error that names the solver), measures them itself, and pools them with those of other solvers. Called
  /// from several threads at once for different groups.
  virtual std::vector<Option> options(const Level& level, const std::vector<LevelBudget>& budgets,
                                      Limits& limits) const = 0;
};

/// Defaults are those of the planner `hiremate`.
struct Settings {
  std::int64_t most_top = 24;       ///< M_t: members of the root
  std::int64_t most_lower = 8;      ///< M_l: members of other groups
  double alpha = 0.5;               ///< of the score, eq. (1)
  std::int64_t budgets = 24;        ///< O: budgets per group below the root
  std::int64_t most_options = 120;  ///< N_o: options of all members of a level together
  double gap = 1e-3;                ///< of H-ILP, as a share of one run of the group
  bool polish = true;               ///< removes recomputations that the budget has room to avoid
  bool search = false;              ///< improves the flattened plan within the rest of the limits
  bool all_phases = false;          ///< H-ILP may recompute anything in any phase; docs/planners/hiremate.md
  std::uint64_t seed = 0;
  int threads = 1;
  std::shared_ptr<const Partitioner> partitioner;              ///< none: h_partition
  std::vector<std::shared_ptr<const LevelSolver>> lower, top;  ///< empty: those of the planner `hiremate`
};

/// H-Partition (Algorithm 1).
std::shared_ptr<const Partitioner> h_partition(const Settings& settings);
/// A chain of groups cut where a single layer lies on all paths (ROCKMATE).
std::shared_ptr<const Partitioner> sequence();
/// No groups at all.
std::shared_ptr<const Partitioner> single_level();

/// H-ILP (appendix B) on HiGHS.
std::shared_ptr<const LevelSolver> h_ilp(const Settings& settings);
/// Dynamic programming over a chain of members, each with several options.
std::shared_ptr<const LevelSolver> rk_rotor();
/// Any registered planner, run on the ops of the group without the hierarchy.
std::shared_ptr<const LevelSolver> planner_solver(std::string_view planner, const Settings& settings);

/// `h_ilp`, `rk_rotor`, or a registered planner as a solver. Throws UsageError with the known names.
std::shared_ptr<const LevelSolver> solver_named(const std::string& name, const Settings& settings);

/// The settings for the options of planner `hiremate`, solvers and partitioner included. Throws UsageError.
Settings settings_of(const PlanOptions& options);

/// The hierarchy by these settings, checked. Throws UsageError if a user's partitioner breaks its contract,
/// std::logic_error if one of the framework's does.
Partition partition(const TrainingGraph& training, const Settings& settings, Limits& limits);

/// Partitions, solves bottom-up, flattens. Throws UsageError if the graph has no backward pass or a user's
/// part breaks its contract. The plan is the best found, even if it is over the budget.
PlanResult plan(const Problem& problem, const Settings& settings, Limits& limits);

}  // namespace REMAT_API hiremate
}  // namespace remat
