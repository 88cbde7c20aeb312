#include "generate/training.h"

#include <vector>

#include "generate/autodiff.h"
#include "generate/layers.h"

namespace remat::generate {
namespace {

/// Numbers that all updates of a primitive program share: rate, decays and the like.
std::vector<Tensor> update_constants(Program& p, Optimizer optimizer) {
  std::vector<double> values{0.001};
  if (optimizer == Optimizer::kMomentum) values = {0.1, 0.9};
  if (optimizer == Optimizer::kAdam) values = {0.001, 0.9, 0.997, 0.9, 0.997, 1e-9};
  std::vector<Tensor> result;
  for (double value : values) result.push_back(constant(p, value));
  return result;
}

int moments_of(Optimizer optimizer) {
  return optimizer == Optimizer::kAdam ? 2 : optimizer == Optimizer::kMomentum ? 1 : 0;
}

Code code_of(Optimizer optimizer) {
  return optimizer == Optimizer::kAdam       ? Code::kAdam
         : optimizer == Optimizer::kMomentum ? Code::kMomentum
                                             : Code::kSgd;
}

void update(Program& p, std::size_t which, Tensor gradient, Optimizer optimizer,
            std::span<const Tensor> constants) {
  const Tensor parameter = p.parameters[which];
  const std::string& name = p.parameter_names[which];
  std::vector<Tensor> inputs{parameter, gradient};
  std::vector<Output> outputs{{p.shape(parameter)}};
  for (int moment = 0; moment < moments_of(optimizer); ++moment) {
    inputs.push_back(state(p, name + (moment == 0 ? ".moment1" : ".moment2"), p.shape(parameter)));
    outputs.push_back({p.shape(parameter)});
  }
  inputs.insert(inputs.end(), constants.begin(), constants.end());
  const Tensor first = p.emit_all(code_of(optimizer), inputs, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    p.keep(Tensor(first.index() + static_cast<std::int64_t>(i)));
}

}  // namespace

void finish_training(Program& p, Tensor loss, Optimizer optimizer) {
  p.keep(loss);
  const std::vector<Tensor> gradients = differentiate(p, loss);
  const Program::Place before = p.place;
  p.place = {Phase::kUpdate, 0, p.new_layer(), Node::none()};
  std::vector<Tensor> constants;
  if (p.primitives() && optimizer != Optimizer::kNone) constants = update_constants(p, optimizer);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i]) continue;
    if (optimizer == Optimizer::kNone) {
      p.keep(gradients[i]);
    } else {
      p.place.layer = p.new_layer();
      update(p, i, gradients[i], optimizer, constants);
    }
  }
  p.place = before;
}

}  // namespace remat::generate
