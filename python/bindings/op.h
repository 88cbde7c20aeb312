// remat.Op: one op in Python, with the field names of the file format.
#pragma once

#include <optional>
#include <utility>

#include "bindings.h"

namespace remat::python {

struct BoundOp {
  std::string name;
  std::int64_t duration = 0;
  std::vector<std::int64_t> inputs, outputs;
  std::int64_t workspace = 0;
  std::int64_t generator_state = 0;
  std::string kind, module, source;
  std::string recompute = "allowed";
  std::vector<std::int64_t> after;
  std::string phase;
  std::optional<std::int64_t> forward_of;
  std::vector<std::pair<std::int64_t, std::int64_t>> over;

  friend bool operator==(const BoundOp&, const BoundOp&) = default;
};

/// Sets a field of an op, by its name in the file format. Returns false for an unknown name; throws
/// InputError starting with `place` for a value of the wrong type.
bool set_field(BoundOp& op, const std::string& field, nb::handle value, const std::string& place);
/// Throws InputError if `recompute` or `phase` is none of the known words.
void add_op(GraphBuilder& builder, const BoundOp& op, const std::string& place);
BoundOp op_of(const Graph& graph, OpId op);
template <class Ids>
std::vector<std::int64_t> indices(const Ids& ids) {
  std::vector<std::int64_t> result;
  for (auto id : ids) result.push_back(id.index());
  return result;
}
/// Pairs of an input and an output.
std::vector<std::pair<std::int64_t, std::int64_t>> over_of(const Graph& graph, OpId op);
/// "op 3 'mm'", or "op 3" where the name is empty.
std::string op_place(std::size_t index, const std::string& name);

void bind_op(nb::module_& m);

}  // namespace remat::python
