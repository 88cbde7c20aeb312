#include "generate/autodiff.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/numbers.h"
#include "generate/backward.h"
#include "generate/ops.h"
#include "remat/check.h"

namespace remat::generate {

Backward::Backward(Program& program, Tensor loss)
    : p(program), loss_(loss), num_forward_(program.nodes.size()) {
  mark_needed();
  gradient_.assign(p.tensors.size(), Tensor::none());
  pending_.assign(p.primitives() ? p.tensors.size() : 0, -1);
}

/// Needed: on a path from a parameter. Shapes carry no gradient.
void Backward::mark_needed() {
  needed_.assign(p.tensors.size(), false);
  for (Tensor t : p.parameters) needed_[t] = true;
  for (Node n : p.nodes.ids()) {
    if (p.nodes[n].code == Code::kShapeOf || p.nodes[n].code == Code::kIndices) continue;
    const auto ins = p.inputs[n];
    const bool any = std::any_of(ins.begin(), ins.end(), [&](Tensor t) { return needed_[t]; });
    if (!any) continue;
    for (Tensor t : p.outputs[n]) needed_[t] = true;
  }
}

bool Backward::has_gradient(Node n) const {
  const auto outs = p.outputs[n];
  return std::any_of(outs.begin(), outs.end(),
                     [&](Tensor t) { return gradient_[t] || (!pending_.empty() && pending_[t] >= 0); });
}

/// Primitive programs: one op adds up what all readers contributed to each output of `n`.
void Backward::collect(Node n) {
  if (!p.primitives()) return;
  for (Tensor t : p.outputs[n]) {
    if (pending_[t] < 0) continue;
    std::vector<Tensor> parts;
    for (std::int32_t link = pending_[t]; link >= 0; link = links_[at(link)].next) {
      parts.push_back(links_[at(link)].gradient);
    }
    std::reverse(parts.begin(), parts.end());
    gradient_[t] = parts.size() == 1 ? parts[0] : p.emit(Code::kAddN, parts, p.shape(t));
  }
}

void Backward::accumulate(Tensor to, Tensor gradient) {
  REMAT_ASSERT(p.shape(to) == p.shape(gradient), p.shape(to), p.shape(gradient));
  if (p.primitives()) {
    links_.push_back({gradient, pending_[to]});
    pending_[to] = narrow<std::int32_t>(links_.size()) - 1;
  } else {
    gradient_[to] = gradient_[to] ? binary(p, Code::kAdd, gradient_[to], gradient) : gradient;
  }
}

/// TensorFlow passes on the gradients of an op with several inputs together: a group waits for all of
/// them, an identity hands on each.
void Backward::deliver() {
  if (p.primitives() && given_.size() > 1) {
    std::vector<Tensor> all;
    for (const Given& g : given_) all.push_back(g.gradient);
    const Tensor group = p.emit(Code::kGroup, all, Shape{}, {}, 0);
    for (Given& g : given_) g.gradient = p.emit(Code::kIdentity, {g.gradient, group}, p.shape(g.gradient));
  }
  for (const Given& g : given_) accumulate(g.to, g.gradient);
  given_.clear();
}

void Backward::differentiate_node(Node n) {
  node = n;
  const NodeInfo& info = p.nodes[n];
  p.place = {Phase::kBackward, info.module, info.layer, n};
  collect(n);
  const bool known = differentiate_elementwise(*this) || differentiate_shapes(*this) ||
                     differentiate_algebra(*this) || differentiate_images(*this) ||
                     differentiate_layers(*this);
  if (!known) throw std::logic_error("no gradient of " + std::string(to_string(p.nodes[n].code)));
  deliver();
}

std::vector<Tensor> Backward::run() {
  const Program::Place before = p.place;
  const Node last = p.tensors[loss_].producer;
  p.place = {Phase::kBackward, p.nodes[last].module, p.nodes[last].layer, last};
  accumulate(loss_, constant(p, 1));
  for (auto i = static_cast<std::int64_t>(num_forward_) - 1; i >= 0; --i) {
    const Node n(i);
    const auto outs = p.outputs[n];
    const auto ins = p.inputs[n];
    const auto is_needed = [&](Tensor t) { return needed_[t]; };
    if (std::none_of(outs.begin(), outs.end(), is_needed) || !has_gradient(n)) continue;
    if (std::none_of(ins.begin(), ins.end(), is_needed)) {
      p.place = {Phase::kBackward, p.nodes[n].module, p.nodes[n].layer, n};
      collect(n);  // a parameter read by an op: its gradient ends here
    } else {
      differentiate_node(n);
    }
  }
  std::vector<Tensor> result;
  for (Tensor t : p.parameters) {
    // Parameters that are program inputs have no op at which their contributions would have been added.
    if (p.primitives() && !gradient_[t] && pending_[t] >= 0) {
      throw std::logic_error("a parameter of a primitive program is read by an op");
    }
    result.push_back(gradient_[t]);
  }
  p.place = before;
  return result;
}

std::vector<Tensor> differentiate(Program& program, Tensor loss) { return Backward(program, loss).run(); }

}  // namespace remat::generate
