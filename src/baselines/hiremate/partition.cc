// Partitions: made from nested lists, checked, written out.
#include <algorithm>
#include <compare>
#include <nlohmann/json.hpp>
#include <queue>

#include "base/numbers.h"
#include "base/sorted.h"
#include "base/topological.h"
#include "remat/error.h"
#include "remat/hiremate.h"

namespace remat::hiremate {
namespace {

std::string name_of(const TrainingGraph& training, OpId op) { return describe(*training.graph, op); }

/// An edge between two members of one group.
struct MemberEdge {
  GroupId group, before, after;
  friend auto operator<=>(const MemberEdge&, const MemberEdge&) = default;
};

/// Leaf of each layer and depth of each group; members come after their group in `groups`.
struct Places {
  IndexVector<OpId, GroupId> leaf;
  IndexVector<GroupId, std::int32_t> depth;
};

Places places_of(const TrainingGraph& training, const Partition& partition) {
  Places places{IndexVector<OpId, GroupId>(training.num_layers()),
                IndexVector<GroupId, std::int32_t>(partition.groups.size(), 0)};
  for (GroupId g : partition.groups.ids()) {
    const Group& group = partition.groups[g];
    if (group.parent) places.depth[g] = places.depth[group.parent] + 1;
    if (group.layer) places.leaf[group.layer] = g;
  }
  return places;
}

/// Where the two ends of each edge part: the members of their smallest common group. Sorted.
std::vector<MemberEdge> member_edges(const TrainingGraph& training, const Partition& partition) {
  const Places places = places_of(training, partition);
  std::vector<MemberEdge> edges;
  for (OpId after : training.layers()) {
    for (OpId before : training.before[after]) {
      GroupId a = places.leaf[before], b = places.leaf[after];
      const auto up = [&](GroupId g) { return partition.groups[g].parent; };
      while (places.depth[a] > places.depth[b]) a = up(a);
      while (places.depth[b] > places.depth[a]) b = up(b);
      while (up(a) != up(b)) {
        a = up(a);
        b = up(b);
      }
      edges.push_back({up(a), a, b});
    }
  }
  sort_unique(edges);
  return edges;
}

/// Smallest layer of each group.
IndexVector<GroupId, OpId> first_layers(const Partition& partition) {
  IndexVector<GroupId, OpId> first(partition.groups.size());
  for (GroupId g(std::ssize(partition.groups) - 1); g; g = g.prev()) {
    const Group& group = partition.groups[g];
    first[g] = group.layer;
    for (GroupId member : group.members) {
      if (!first[g] || first[member] < first[g]) first[g] = first[member];
    }
  }
  return first;
}

/// The members of each group in an order in which they can run, the smallest first layer first.
void order_members(const TrainingGraph& training, Partition& partition) {
  const std::vector<MemberEdge> edges = member_edges(training, partition);
  const IndexVector<GroupId, OpId> first = first_layers(partition);
  IndexVector<GroupId, std::int32_t> place(partition.groups.size(), 0);  // among the members of its group
  auto edge = edges.begin();
  for (GroupId g : partition.groups.ids()) {
    std::vector<GroupId>& members = partition.groups[g].members;
    for (int i : indices(members)) place[members[at(i)]] = i;
    std::vector<std::vector<std::int32_t>> after(members.size());
    for (; edge != edges.end() && edge->group == g; ++edge) {
      after[at(place[edge->before])].push_back(place[edge->after]);
    }
    std::vector<GroupId> ordered;
    for (int i : topological_order(after, [&](int m) { return first[members[at(m)]]; })) {
      ordered.push_back(members[at(i)]);
    }
    for (std::size_t i = 0; ordered.size() < members.size() && i < members.size(); ++i) {
      const GroupId member = members[i];
      if (std::ranges::find(ordered, member) != ordered.end()) continue;
      throw UsageError("partition: the group of " + name_of(training, first[member]) +
                       " and other groups of its level depend on each other (a group is not convex)");
    }
    members = std::move(ordered);
  }
}

void require_every_layer_once(const TrainingGraph& training, const Partition& partition) {
  std::vector<bool> seen(training.num_layers(), false);
  for (const Group& group : partition.groups) {
    if (!group.layer) continue;
    const auto i = narrow<std::size_t>(group.layer.index());
    if (i >= training.num_layers()) {
      throw UsageError("partition: op " + std::to_string(group.layer.index()) +
                       " is no forward op; those are 0 to " + std::to_string(training.num_layers() - 1));
    }
    if (seen[i]) throw UsageError("partition: " + name_of(training, group.layer) + " is in two groups");
    seen[i] = true;
  }
  for (OpId layer : training.layers()) {
    if (!seen[at(layer)]) throw UsageError("partition: " + name_of(training, layer) + " is in no group");
  }
}

nlohmann::json nested_json(const Partition& partition, GroupId g) {
  const Group& group = partition.groups[g];
  if (group.layer) return group.layer.index();
  nlohmann::json list = nlohmann::json::array();
  for (GroupId member : group.members) list.push_back(nested_json(partition, member));
  return list;
}

}  // namespace

Partition make_partition(const TrainingGraph& training, const Nested& nested) {
  Partition partition;
  struct Todo {
    const Nested* nested;
    GroupId parent;
  };
  std::queue<Todo> todo;
  todo.push({&nested, GroupId()});
  while (!todo.empty()) {
    auto [tree, parent] = todo.front();
    todo.pop();
    const bool is_root = !parent;
    while (!tree->layer && tree->members.size() == 1 && !(is_root && tree->members.front().layer))
      tree = &tree->members.front();
    if (!tree->layer && tree->members.empty() && !is_root) continue;
    const GroupId g = partition.groups.push_back({});
    partition.groups[g].parent = parent;
    if (parent) partition.groups[parent].members.push_back(g);
    partition.groups[g].layer = tree->layer;
    for (const Nested& member : tree->members) todo.push({&member, g});
  }
  partition.root = GroupId(0);
  if (partition.groups[partition.root].layer)
    throw UsageError("partition: the root must be a list of groups");
  require_every_layer_once(training, partition);
  for (GroupId g(std::ssize(partition.groups) - 1); g; g = g.prev()) {
    Group& group = partition.groups[g];
    if (!group.layer) group.num_layers = 0;
    for (GroupId member : group.members) group.num_layers += partition.groups[member].num_layers;
  }
  order_members(training, partition);
  return partition;
}

std::optional<std::string> check_partition(const TrainingGraph& training, const Partition& partition) {
  // Position of each layer in the order that the tree spells out, and of each group's first and last layer.
  const std::vector<OpId> order = layers_of(partition, partition.root);
  if (order.size() != training.num_layers()) {
    return "the partition holds " + std::to_string(order.size()) + " layers, the graph has " +
           std::to_string(training.num_layers());
  }
  std::vector<std::int64_t> position(training.num_layers(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const OpId layer = order[i];
    if (!layer || layer >= training.first_backward)
      return "op " + std::to_string(layer.index()) + " is no layer";
    auto& place = position[at(layer)];
    if (place >= 0) return name_of(training, layer) + " is in two groups";
    place = static_cast<std::int64_t>(i);
  }
  for (GroupId g : partition.groups.ids()) {
    for (GroupId member : partition.groups[g].members) {
      if (partition.groups[member].parent != g)
        return "group " + std::to_string(member.index()) + " is a member of another group than its parent";
    }
  }
  // Every group is an interval of this order; if all edges go forward in it, no cycle can lead through one.
  for (OpId after : training.layers()) {
    for (OpId before : training.before[after]) {
      if (position[at(before)] < position[at(after)]) continue;
      return "the group of " + name_of(training, after) + " runs before that of " +
             name_of(training, before) + ", which it depends on";
    }
  }
  return std::nullopt;
}

std::vector<OpId> layers_of(const Partition& partition, GroupId group) {
  std::vector<OpId> layers;
  std::vector<GroupId> stack{group};
  while (!stack.empty()) {
    const Group& top = partition.groups[stack.back()];
    stack.pop_back();
    if (top.layer) layers.push_back(top.layer);
    stack.insert(stack.end(), top.members.rbegin(), top.members.rend());
  }
  return layers;
}

std::string to_json(const TrainingGraph& training, const Partition& partition) {
  nlohmann::ordered_json json{{"format", "remat.partition"},
                              {"version", 1},
                              {"graph", training.graph->name},
                              {"graph_hash", graph_hash(*training.graph)},
                              {"groups", nested_json(partition, partition.root)}};
  return json.dump();
}

}  // namespace remat::hiremate
