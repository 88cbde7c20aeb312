// The hierarchical framework HiREmate (Gusak et al. 2025) and where users put in parts of their own.
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
  OpId first_backward;            ///< ops before are forward, the loss among them
  IndexVector<OpId, OpId> layer;  ///< of every op
  Rows<OpId, OpId> backward;      ///< of a layer, ascending; rows only for forward ops
  /// Layers that come before a layer: data, `after`, and, turned round, the edges of the backward pass, so
  /// that a partition that is acyclic here is so for the backward pass too (soft dependencies).
  Rows<OpId, OpId> before;

  std::size_t num_layers() const { return static_cast<std::size_t>(first_backward.index()); }
  IdRange<OpId> layers() const { return {OpId(0), first_backward}; }
  bool is_forward(OpId op) const { return op < first_backward; }
};

/// Where the backward pass begins comes from the phases or the structure, what is paired with what from
/// `forward_of` or from what a backward op reads. Throws UsageError with the reason where the graph has no
/// backward pass. The graph must outlive it. O(edges log edges).
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

/// A tree written down: a layer, or a list of trees.
struct Nested {
  OpId layer;  ///< none for a list
  std::vector<Nested> members;
};

/// The partition that `nested` describes, members ordered so that they can run one after the other (the first
/// op decides where the edges do not). Lists of one are left out. Throws UsageError where a layer is missing,
/// unknown or named twice, or where the members of a group depend on each other in a cycle (a group that is
/// not convex), naming an op.
Partition make_partition(const TrainingGraph& training, const Nested& nested);

/// What is wrong with the partition, in one line, or nothing: every layer in one leaf, parents and members
/// agree, and in every group the members follow the edges of `training.before` between them. That is the
/// convexity of all groups. Independent of how the partition was made.
std::optional<std::string> check_partition(const TrainingGraph& training, const Partition& partition);

/// The layers of a group, in the order in which they run.
std::vector<OpId> layers_of(const Partition& partition, GroupId group);

/// The paper's Table 4(b).
struct PartitionSummary {
  std::int64_t levels = 0;    ///< a group of layers only has 1
  std::int64_t groups = 0;    ///< of more than one layer, the root included
  std::int64_t distinct = 0;  ///< groups that are not the same as another one
  std::int64_t largest = 0;   ///< members of the largest group
};
PartitionSummary summarize(const TrainingGraph& training, const Partition& partition);

/// `remat.partition` version 1: a JSON object whose "groups" are nested lists of op indices.
std::string to_json(const TrainingGraph& training, const Partition& partition);

/// Cuts a training step into a hierarchy of groups.
class Partitioner {
 public:
  virtual ~Partitioner() = default;
  virtual std::string name() const = 0;
  /// Checked by the framework (`make_partition`).
  virtual Nested partition(const TrainingGraph& training, Limits& limits) const = 0;
};

/// One way to run a group: op steps of its forward pass and, later, of its backward pass. What is kept
/// between the two follows: the values that the backward steps read before they make them again.
struct Option {
  std::vector<OpId> forward;   ///< every forward op of the group at least once; no backward op
  std::vector<OpId> backward;  ///< every backward op of the group; forward ops run again
  std::string solver;
  /// A refreshed option: forward ops that run again between the two parts, whenever the level above wants the
  /// outputs of the group, which they all make. The backward part follows at once or later and finds what
  /// they made. Empty: the option has no such stage.
  std::vector<OpId> refresh = {};
  bool refreshed() const { return !refresh.empty(); }
  friend bool operator==(const Option& a, const Option& b) {
    return a.forward == b.forward && a.backward == b.backward && a.refresh == b.refresh;
  }
};

/// A member of a level, with the ways to run it that were found below.
struct Member {
  GroupId group;
  std::vector<OpId> forward, backward;  ///< ops in an order in which they can run once each
  std::vector<Option> options;          ///< at least one; one option for a layer
};

/// What a solver gets: a group whose members are solved, between the rest of the graph before it, around it
/// (between forward and backward pass), and after it.
struct Level {
  const TrainingGraph* training = nullptr;
  GroupId group;
  bool is_root = false;
  std::vector<Member> members;          ///< in forward order
  std::vector<OpId> forward, backward;  ///< ops of all members in an order in which they can run once each
};

/// Budget for one option. Below the root it counts the values that the group makes and its workspaces, not
/// what it reads from outside; at the root it is the whole budget, resident inputs included.
struct LevelBudget {
  Bytes peak;                  ///< at every step
  std::optional<Bytes> saved;  ///< between forward and backward pass
};

/// Finds options for a group.
class LevelSolver {
 public:
  virtual ~LevelSolver() = default;
  virtual std::string name() const = 0;
  virtual bool applicable(const Level&) const { return true; }
  /// Options for some or all of the budgets, in any order. The framework checks them (an option that is no
  /// valid run of the group is an error that names the solver), measures them itself, and pools them with
  /// those of other solvers. Called from several threads at once for different groups.
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
  bool polish = true;               ///< recomputations that the budget has room for are dropped at the end
  bool search = false;              ///< what is left of the limits improves the flattened plan
  bool all_phases = false;  ///< H-ILP may run anything again in any phase, see docs/planners/hiremate.md
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
/// Any registered planner, on the ops of the group alone; it does not see the hierarchy.
std::shared_ptr<const LevelSolver> planner_solver(std::string_view planner, const Settings& settings);

/// `h_ilp`, `rk_rotor`, or a registered planner as a solver. Throws UsageError with the known names.
std::shared_ptr<const LevelSolver> solver_named(const std::string& name, const Settings& settings);

/// The settings that the options of the planner `hiremate` stand for, solvers and partitioner included.
/// Throws UsageError.
Settings settings_of(const PlanOptions& options);

/// The hierarchy that the settings stand for, checked. Throws UsageError where a partitioner of the user's
/// breaks its contract, std::logic_error where one of the framework's does.
Partition partition(const TrainingGraph& training, const Settings& settings, Limits& limits);

/// Partitions, solves bottom-up, flattens. Throws UsageError where the graph has no backward pass or a part
/// of the user's breaks its contract. The plan is the best found, also where it is over the budget.
PlanResult plan(const Problem& problem, const Settings& settings, Limits& limits);

}  // namespace REMAT_API hiremate
}  // namespace remat
