#include <cmath>

#include "generate/interpreter.h"

namespace remat::generate::testing {
namespace {

using Values = Interpreter::Values;

/// The index of the mean and deviation that normalise an element: its channel's, or its row's.
struct Groups {
  const Shape& shape;
  bool by_channel;
  std::size_t of(std::int64_t i) const {
    return at(by_channel ? i / (shape[2] * shape[3]) % shape[1] : i / shape[-1]);
  }
  std::size_t parameter(std::int64_t i) const { return by_channel ? of(i) : at(i % shape[-1]); }
  double size() const { return static_cast<double>(by_channel ? shape.elements() / shape[1] : shape[-1]); }
};

void run_normalise(Interpreter& run, Node n, bool by_channel) {
  const Program& p = run.p;
  const Groups groups{run.in_shape(n, 0), by_channel};
  const Values &x = run.in(n, 0), &gamma = run.in(n, 1), &beta = run.in(n, 2);
  Values &y = run.data[p.output(n, 0)], &mean = run.data[p.output(n, 1)], &inverse = run.data[p.output(n, 2)];
  Values variance(mean.size(), 0);
  const std::int64_t count = groups.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) mean[groups.of(i)] += x[at(i)] / groups.size();
  for (std::int64_t i = 0; i < count; ++i)
    variance[groups.of(i)] += std::pow(x[at(i)] - mean[groups.of(i)], 2) / groups.size();
  for (std::size_t k = 0; k < mean.size(); ++k) inverse[k] = 1 / std::sqrt(variance[k] + 1e-5);
  for (std::int64_t i = 0; i < count; ++i) {
    y[at(i)] = (x[at(i)] - mean[groups.of(i)]) * inverse[groups.of(i)] * gamma[groups.parameter(i)] +
               beta[groups.parameter(i)];
  }
  if (!by_channel) return;
  for (std::size_t k = 0; k < mean.size(); ++k) {
    run.data[p.output(n, 3)][k] = 0.9 * run.in(n, 3)[k] + 0.1 * mean[k];
    run.data[p.output(n, 4)][k] = 0.9 * run.in(n, 4)[k] + 0.1 * variance[k];
  }
}

/// Reads only what the forward op saved: gradient, x, gamma, mean, inverse deviation.
void run_normalise_grad(Interpreter& run, Node n, bool by_channel) {
  const Program& p = run.p;
  const Groups groups{run.in_shape(n, 0), by_channel};
  const Values &g = run.in(n, 0), &x = run.in(n, 1), &gamma = run.in(n, 2), &mean = run.in(n, 3),
               &inverse = run.in(n, 4);
  Values &dx = run.data[p.output(n, 0)], &dgamma = run.data[p.output(n, 1)],
         &dbeta = run.data[p.output(n, 2)];
  Values sum(mean.size(), 0), product(mean.size(), 0);
  const std::int64_t count = groups.shape.elements();
  const auto unit = [&](std::int64_t i) { return (x[at(i)] - mean[groups.of(i)]) * inverse[groups.of(i)]; };
  for (std::int64_t i = 0; i < count; ++i) {
    dgamma[groups.parameter(i)] += g[at(i)] * unit(i);
    dbeta[groups.parameter(i)] += g[at(i)];
    const double scaled = g[at(i)] * gamma[groups.parameter(i)];
    sum[groups.of(i)] += scaled / groups.size();
    product[groups.of(i)] += scaled * unit(i) / groups.size();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t k = groups.of(i);
    dx[at(i)] = inverse[k] * (g[at(i)] * gamma[groups.parameter(i)] - sum[k] - unit(i) * product[k]);
  }
}

/// Scores of fused attention, scaled; far below all others where the future is hidden.
double score(const Values& q, const Values& k, const Shape& s, std::int64_t keys, std::int64_t head,
             std::int64_t i, std::int64_t j, bool causal) {
  if (causal && j > i) return -1e30;
  double sum = 0;
  for (std::int64_t d = 0; d < s[3]; ++d)
    sum += q[at((head * s[2] + i) * s[3] + d)] * k[at((head * keys + j) * s[3] + d)];
  return sum / std::sqrt(static_cast<double>(s[3]));
}

void run_attention(Interpreter& run, Node n) {
  const Program& p = run.p;
  const Shape &s = run.in_shape(n, 0), &sv = run.in_shape(n, 2);
  const bool causal = p.nodes[n].attributes.n[0] != 0;
  Values &out = run.data[p.output(n, 0)], &lse = run.data[p.output(n, 1)];
  for (std::int64_t row = 0; row < s[0] * s[1] * s[2]; ++row) {
    const std::int64_t head = row / s[2], i = row % s[2];
    double total = 0;
    for (std::int64_t j = 0; j < sv[2]; ++j)
      total += std::exp(score(run.in(n, 0), run.in(n, 1), s, sv[2], head, i, j, causal));
    lse[at(row)] = std::log(total);
    for (std::int64_t j = 0; j < sv[2]; ++j) {
      const double weight = std::exp(score(run.in(n, 0), run.in(n, 1), s, sv[2], head, i, j, causal)) / total;
      for (std::int64_t d = 0; d < sv[3]; ++d)
        out[at(row * sv[3] + d)] += weight * run.in(n, 2)[at((head * sv[2] + j) * sv[3] + d)];
    }
  }
}

void run_attention_grad(Interpreter& run, Node n) {
  const Program& p = run.p;
  const Shape &s = run.in_shape(n, 1), &sv = run.in_shape(n, 3);
  const bool causal = p.nodes[n].attributes.n[0] != 0;
  const Values &g = run.in(n, 0), &q = run.in(n, 1), &k = run.in(n, 2), &v = run.in(n, 3),
               &out = run.in(n, 4), &lse = run.in(n, 5);
  Values &dq = run.data[p.output(n, 0)], &dk = run.data[p.output(n, 1)], &dv = run.data[p.output(n, 2)];
  const double factor = 1 / std::sqrt(static_cast<double>(s[3]));
  for (std::int64_t row = 0; row < s[0] * s[1] * s[2]; ++row) {
    const std::int64_t head = row / s[2], i = row % s[2];
    double along = 0;
    for (std::int64_t d = 0; d < sv[3]; ++d) along += g[at(row * sv[3] + d)] * out[at(row * sv[3] + d)];
    for (std::int64_t j = 0; j < sv[2]; ++j) {
      const double weight = std::exp(score(q, k, s, sv[2], head, i, j, causal) - lse[at(row)]);
      double dweight = 0;
      for (std::int64_t d = 0; d < sv[3]; ++d) {
        dweight += g[at(row * sv[3] + d)] * v[at((head * sv[2] + j) * sv[3] + d)];
        dv[at((head * sv[2] + j) * sv[3] + d)] += weight * g[at(row * sv[3] + d)];
      }
      const double dscore = factor * weight * (dweight - along);
      for (std::int64_t d = 0; d < s[3]; ++d) {
        dq[at(row * s[3] + d)] += dscore * k[at((head * sv[2] + j) * s[3] + d)];
        dk[at((head * sv[2] + j) * s[3] + d)] += dscore * q[at(row * s[3] + d)];
      }
    }
  }
}

}  // namespace

bool run_layers(Interpreter& run, Node n) {
  const Program& p = run.p;
  const Attributes& a = p.nodes[n].attributes;
  Values& out = run.data[p.output(n, 0)];
  switch (p.nodes[n].code) {
    case Code::kBatchNorm:
      run_normalise(run, n, true);
      return true;
    case Code::kLayerNorm:
      run_normalise(run, n, false);
      return true;
    case Code::kBatchNormGrad:
      run_normalise_grad(run, n, true);
      return true;
    case Code::kLayerNormGrad:
      run_normalise_grad(run, n, false);
      return true;
    case Code::kAttention:
      run_attention(run, n);
      return true;
    case Code::kAttentionGrad:
      run_attention_grad(run, n);
      return true;
    case Code::kDropout:
      for (std::size_t i = 0; i < out.size(); ++i) {
        const bool keeps = repeatable_random(n.index(), static_cast<std::int64_t>(i)) >= a.x;
        run.data[p.output(n, 1)][i] = keeps;
        out[i] = keeps ? run.in(n, 0)[i] / (1 - a.x) : 0;
      }
      return true;
    case Code::kDropoutGrad:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = run.in(n, 0)[i] * run.in(n, 1)[i] / (1 - a.x);
      return true;
    case Code::kEmbedding: {
      const std::int64_t width = run.in_shape(n, 0)[1];
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto row = static_cast<std::int64_t>(run.in(n, 1)[i / at(width)]);
        out[i] = run.in(n, 0)[at(row * width) + i % at(width)];
      }
      return true;
    }
    case Code::kEmbeddingGrad: {
      const std::int64_t width = p.shape(p.output(n, 0))[1];
      for (std::size_t i = 0; i < run.in(n, 0).size(); ++i) {
        const auto row = static_cast<std::int64_t>(run.in(n, 1)[i / at(width)]);
        out[at(row * width) + i % at(width)] += run.in(n, 0)[i];
      }
      return true;
    }
    default:
      return false;
  }
}

namespace {

/// Log of the sum of exponentials of each row.
Values row_sums(const Values& x, std::int64_t width) {
  Values sums(x.size() / at(width), 0);
  for (std::size_t i = 0; i < x.size(); ++i) sums[i / at(width)] += std::exp(x[i]);
  for (double& s : sums) s = std::log(s);
  return sums;
}

/// Sum over each row of a[i] * b[i].
Values row_products(const Values& a, const Values& b, std::int64_t width) {
  Values sums(a.size() / at(width), 0);
  for (std::size_t i = 0; i < a.size(); ++i) sums[i / at(width)] += a[i] * b[i];
  return sums;
}

}  // namespace

bool run_losses(Interpreter& run, Node n) {
  const Program& p = run.p;
  Values& out = run.data[p.output(n, 0)];
  const auto in = [&](int i) -> const Values& { return run.in(n, i); };
  const Shape shape = p.inputs[n].empty() ? Shape{} : run.in_shape(n, 0);
  const std::int64_t width = shape.rank > 0 ? shape[-1] : 1;
  switch (p.nodes[n].code) {
    case Code::kSoftmax:
    case Code::kLogSoftmax: {
      const Values sums = row_sums(in(0), width);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double log = in(0)[i] - sums[i / at(width)];
        out[i] = p.nodes[n].code == Code::kSoftmax ? std::exp(log) : log;
      }
      return true;
    }
    case Code::kSoftmaxGrad: {
      const Values sums = row_products(in(0), in(1), width);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = in(1)[i] * (in(0)[i] - sums[i / at(width)]);
      return true;
    }
    case Code::kLogSoftmaxGrad: {
      const Values sums = row_products(in(0), Values(in(0).size(), 1), width);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = in(0)[i] - std::exp(in(1)[i]) * sums[i / at(width)];
      return true;
    }
    case Code::kNllLoss: {
      const auto rows = static_cast<double>(in(1).size());
      for (std::size_t r = 0; r < in(1).size(); ++r)
        out[0] -= in(0)[r * at(width) + static_cast<std::size_t>(in(1)[r])] / rows;
      run.data[p.output(n, 1)][0] = rows;
      return true;
    }
    case Code::kNllLossGrad: {
      const std::int64_t classes = p.shape(p.output(n, 0))[-1];
      for (std::size_t r = 0; r < in(1).size(); ++r)
        out[r * at(classes) + static_cast<std::size_t>(in(1)[r])] = -in(0)[0] / in(2)[0];
      return true;
    }
    case Code::kSoftmaxXent: {
      const Values sums = row_sums(in(0), width);
      Values& gradient = run.data[p.output(n, 1)];
      for (std::size_t i = 0; i < in(0).size(); ++i) {
        const std::size_t row = i / at(width);
        const bool hit = i % at(width) == static_cast<std::size_t>(in(1)[row]);
        if (hit) out[row] = sums[row] - in(0)[i];
        gradient[i] = std::exp(in(0)[i] - sums[row]) - (hit ? 1 : 0);
      }
      return true;
    }
    case Code::kMseLoss:
      for (std::size_t i = 0; i < in(0).size(); ++i)
        out[0] += std::pow(in(0)[i] - in(1)[i], 2) / static_cast<double>(in(0).size());
      return true;
    case Code::kMseLossGrad:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = in(0)[0] * 2 * (in(1)[i] - in(2)[i]) / static_cast<double>(out.size());
      return true;
    case Code::kL2Loss:
      for (double x : in(0)) out[0] += x * x / 2;
      return true;
    default:
      return false;
  }
}

}  // namespace remat::generate::testing
