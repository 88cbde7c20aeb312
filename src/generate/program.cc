#include "generate/program.h"

#include <algorithm>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::generate {

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape out;
  out.rank = std::max(a.rank, b.rank);
  for (int i = 1; i <= out.rank; ++i) {
    const std::int64_t da = i <= a.rank ? a[-i] : 1, db = i <= b.rank ? b[-i] : 1;
    REMAT_ASSERT(da == db || da == 1 || db == 1, a, b);
    out[-i] = da == 1 ? db : da;
  }
  return out;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Tensor Program::add_input(Role role, const Shape& shape, std::string_view name, std::int8_t element_bytes) {
  const Tensor t = tensors.push_back({shape, element_bytes, role, Node::none()});
  program_inputs.push_back(t);
  input_names.emplace_back(name);
  return t;
}

Tensor Program::emit(Code code, std::span<const Tensor> ins, const Shape& shape, const Attributes& attributes,
                     std::int8_t element_bytes) {
  const Output out[] = {{shape, element_bytes}};
  return emit_all(code, ins, out, attributes);
}

Tensor Program::emit_all(Code code, std::span<const Tensor> ins, std::span<const Output> outs,
                         const Attributes& attributes) {
  const Node node =
      nodes.push_back({code, place.phase, attributes, place.forward_of, place.module, place.layer});
  const Tensor first(std::ssize(tensors));
  inputs.append_row(ins);
  for (const Output& out : outs) {
    outputs.push(tensors.push_back({out.shape, out.element_bytes, Role::kComputed, node}));
  }
  outputs.end_row();
  return first;
}

Scope::Scope(Program& program, std::string_view name) : program_(program), outer_(program.place) {
  const std::string& outer = program.modules[at(outer_.module)];
  std::string path = outer.empty() ? std::string(name) : outer;
  if (!outer.empty()) path.append(1, '.').append(name);
  program.modules.push_back(std::move(path));
  program.place.module = narrow<std::int32_t>(program.modules.size()) - 1;
  program.place.layer = program.new_layer();
}

}  // namespace remat::generate
