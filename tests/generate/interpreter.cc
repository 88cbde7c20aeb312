#include "generate/interpreter.h"

#include <cmath>
#include <stdexcept>

#include "remat/random.h"

namespace remat::generate::testing {
namespace {

using Values = Interpreter::Values;

constexpr double kGelu = 0.7978845608028654;  // sqrt(2 / pi)

double gelu(double x) { return 0.5 * x * (1 + std::tanh(kGelu * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(kGelu * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGelu * (1 + 3 * 0.044715 * x * x);
}

double apply_unary(Code code, double x, const Attributes& a) {
  switch (code) {
    case Code::kNeg:
      return -x;
    case Code::kSquare:
      return x * x;
    case Code::kFloor:
      return std::floor(x);
    case Code::kRsqrt:
      return 1 / std::sqrt(x);
    case Code::kScale:
      return x * a.x;
    case Code::kRelu:
      return a.n[0] == 0 ? std::max(x, 0.0) : std::min(std::max(x, 0.0), static_cast<double>(a.n[0]));
    case Code::kGelu:
      return gelu(x);
    default:
      return x;
  }
}

double apply_binary(Code code, double x, double y, const Attributes& a) {
  switch (code) {
    case Code::kAdd:
      return x + y;
    case Code::kSub:
      return x - y;
    case Code::kMul:
      return x * y;
    case Code::kDiv:
      return x / y;
    case Code::kRsqrtGrad:
      return -0.5 * x * x * x * y;
    case Code::kReluGrad:
      return y > 0 && (a.n[0] == 0 || y < a.n[0]) ? x : 0;
    case Code::kGeluGrad:
      return x * gelu_slope(y);
    case Code::kMovingAverage:
      return x - y;
    default:
      throw std::logic_error("not binary");
  }
}

}  // namespace

double repeatable_random(std::int64_t a, std::int64_t b) {
  return Random(static_cast<std::uint64_t>(a * 1000003 + b)).unit();
}

std::int64_t stretched_index(const Shape& whole, std::int64_t index, const Shape& shape) {
  std::int64_t result = 0, stride = 1;
  for (int i = 1; i <= shape.rank; ++i) {
    const std::int64_t position = i <= whole.rank ? index % whole[-i] : 0;
    if (i <= whole.rank) index /= whole[-i];
    if (shape[-i] != 1) result += stride * position;
    stride *= shape[-i];
  }
  return result;
}

void Interpreter::run(std::size_t end) {
  for (const auto& [t, values] : forced_) data[t] = values;
  for (Node n : p.nodes.ids()) {
    if (static_cast<std::size_t>(n.index()) >= end) return;
    for (Tensor t : p.outputs[n]) data[t].assign(at(p.shape(t).elements()), 0);
    const bool known = run_elementwise(*this, n) || run_shapes(*this, n) || run_algebra(*this, n) ||
                       run_images(*this, n) || run_layers(*this, n) || run_losses(*this, n) ||
                       run_spectral(*this, n);
    if (!known) throw std::logic_error("no meaning for " + std::string(to_string(p.nodes[n].code)));
    for (Tensor t : p.outputs[n]) {
      if (const auto forced = forced_.find(t); forced != forced_.end()) data[t] = forced->second;
    }
  }
}

bool run_elementwise(Interpreter& run, Node n) {
  const Program& p = run.p;
  const NodeInfo& info = p.nodes[n];
  const Shape& shape = p.shape(p.output(n, 0));
  Values& out = run.data[p.output(n, 0)];
  switch (info.code) {
    case Code::kAdd:
    case Code::kSub:
    case Code::kMul:
    case Code::kDiv:
    case Code::kRsqrtGrad:
    case Code::kReluGrad:
    case Code::kGeluGrad:
    case Code::kMovingAverage:
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        out[at(i)] =
            apply_binary(info.code, run.in(n, 0)[at(stretched_index(shape, i, run.in_shape(n, 0)))],
                         run.in(n, 1)[at(stretched_index(shape, i, run.in_shape(n, 1)))], info.attributes);
      }
      return true;
    case Code::kNeg:
    case Code::kSquare:
    case Code::kFloor:
    case Code::kRsqrt:
    case Code::kScale:
    case Code::kRelu:
    case Code::kGelu:
    case Code::kIdentity:
    case Code::kAssign:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = apply_unary(info.code, run.in(n, 0)[i], info.attributes);
      return true;
    case Code::kAddN:
      for (Tensor t : p.inputs[n]) {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += run.data[t][i];
      }
      return true;
    case Code::kConstant:
      out.assign(out.size(), info.attributes.x);
      return true;
    case Code::kFill:
      out.assign(out.size(), run.in(n, 0)[0]);
      return true;
    case Code::kRandom:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = repeatable_random(n.index(), static_cast<std::int64_t>(i));
      return true;
    case Code::kShapeOf:
    case Code::kIndices:
    case Code::kGroup:
    case Code::kVariable:
      return true;
    default:
      return false;
  }
}

namespace {

void copy_slice(const Shape& whole, const Shape& part, int dimension, std::int64_t begin, auto&& visit) {
  std::int64_t inner = 1;
  for (int i = dimension + 1; i < part.rank; ++i) inner *= part[i];
  const std::int64_t run = part[dimension] * inner;
  for (std::int64_t i = 0; i < part.elements(); ++i)
    visit(i / run * whole[dimension] * inner + begin * inner + i % run, i);
}

void run_transpose(Interpreter& run, Node n) {
  const Program& p = run.p;
  const Shape &from = run.in_shape(n, 0), &to = p.shape(p.output(n, 0));
  std::array<std::int64_t, 6> stride{};
  std::int64_t step = 1;
  for (int i = from.rank - 1; i >= 0; --i) {
    stride[at(i)] = step;
    step *= from[i];
  }
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    std::int64_t rest = i, source = 0;
    for (int d = to.rank - 1; d >= 0; --d) {
      source += rest % to[d] * stride[at(p.nodes[n].attributes.n[at(d)])];
      rest /= to[d];
    }
    run.data[p.output(n, 0)][at(i)] = run.in(n, 0)[at(source)];
  }
}

}  // namespace

bool run_shapes(Interpreter& run, Node n) {
  const Program& p = run.p;
  const Attributes& a = p.nodes[n].attributes;
  const Tensor result = p.output(n, 0);
  Values& out = run.data[result];
  const Shape& to = p.shape(result);
  switch (p.nodes[n].code) {
    case Code::kReshape:
      out = run.in(n, 0);
      return true;
    case Code::kTranspose:
      run_transpose(run, n);
      return true;
    case Code::kBroadcastTo:
      for (std::int64_t i = 0; i < to.elements(); ++i)
        out[at(i)] = run.in(n, 0)[at(stretched_index(to, i, run.in_shape(n, 0)))];
      return true;
    case Code::kSumTo:
    case Code::kReduceSum:
    case Code::kReduceMean: {
      const Shape& from = run.in_shape(n, 0);
      const double factor = p.nodes[n].code == Code::kReduceMean
                                ? static_cast<double>(to.elements()) / static_cast<double>(from.elements())
                                : 1;
      for (std::int64_t i = 0; i < from.elements(); ++i)
        out[at(stretched_index(from, i, to))] += factor * run.in(n, 0)[at(i)];
      return true;
    }
    case Code::kConcat: {
      std::int64_t begin = 0;
      for (Tensor t : p.inputs[n]) {
        copy_slice(to, p.shape(t), a.n[0], begin,
                   [&](std::int64_t w, std::int64_t i) { out[at(w)] = run.data[t][at(i)]; });
        begin += p.shape(t)[a.n[0]];
      }
      return true;
    }
    case Code::kSlice:
      copy_slice(run.in_shape(n, 0), to, a.n[0], a.n[1],
                 [&](std::int64_t w, std::int64_t i) { out[at(i)] = run.in(n, 0)[at(w)]; });
      return true;
    case Code::kSlicePad:
      copy_slice(to, run.in_shape(n, 0), a.n[0], a.n[1],
                 [&](std::int64_t w, std::int64_t i) { out[at(w)] = run.in(n, 0)[at(i)]; });
      return true;
    default:
      return false;
  }
}

bool run_algebra(Interpreter& run, Node n) {
  const Program& p = run.p;
  const Attributes& a = p.nodes[n].attributes;
  const Shape& to = p.shape(p.output(n, 0));
  Values& out = run.data[p.output(n, 0)];
  const auto product = [&](bool ta, bool tb) {
    const Values &x = run.in(n, 0), &y = run.in(n, 1);
    const std::int64_t rows = to[-2], columns = to[-1], inner = run.in_shape(n, 0)[ta ? -2 : -1];
    for (std::int64_t i = 0; i < to.elements(); ++i) {
      const std::int64_t batch = i / (rows * columns), r = i / columns % rows, c = i % columns;
      for (std::int64_t k = 0; k < inner; ++k) {
        const std::int64_t left = ta ? k * rows + r : r * inner + k,
                           right = tb ? c * inner + k : k * columns + c;
        out[at(i)] += x[at(batch * rows * inner + left)] * y[at(batch * inner * columns + right)];
      }
    }
  };
  const auto channel = [&](const Shape& shape, std::int64_t i) {
    for (int d = shape.rank - 1; d > a.n[0]; --d) i /= shape[d];
    return at(i % shape[a.n[0]]);
  };
  switch (p.nodes[n].code) {
    case Code::kDot:
      product(a.n[0] != 0, a.n[1] != 0);
      return true;
    case Code::kLinear:
      product(false, false);
      for (std::int64_t i = 0; i < to.elements(); ++i) out[at(i)] += run.in(n, 2)[at(i % to[-1])];
      return true;
    case Code::kBiasAdd:
      for (std::int64_t i = 0; i < to.elements(); ++i)
        out[at(i)] = run.in(n, 0)[at(i)] + run.in(n, 1)[channel(to, i)];
      return true;
    case Code::kBiasGrad: {
      const Shape& from = run.in_shape(n, 0);
      for (std::int64_t i = 0; i < from.elements(); ++i) out[channel(from, i)] += run.in(n, 0)[at(i)];
      return true;
    }
    default:
      return false;
  }
}

}  // namespace remat::generate::testing
