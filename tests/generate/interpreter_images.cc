#include <cmath>
#include <complex>
#include <numbers>

#include "generate/interpreter.h"

namespace remat::generate::testing {
namespace {

using Values = Interpreter::Values;

/// Every triple (image, weight, result) of elements that a convolution multiplies and adds.
void for_each_tap(const Shape& x, const Shape& w, const Shape& y, const Attributes& a, auto&& visit) {
  const std::int64_t stride = a.n[0], padding = a.n[1], dilation = a.n[2], groups = a.n[3];
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    const std::int64_t column = i % y[3], row = i / y[3] % y[2], out = i / (y[3] * y[2]) % y[1],
                       batch = i / (y[3] * y[2] * y[1]);
    const std::int64_t group = out / (y[1] / groups);
    for (std::int64_t c = 0; c < w[1]; ++c) {
      for (std::int64_t k = 0; k < w[2] * w[3]; ++k) {
        const std::int64_t r = row * stride - padding + k / w[3] * dilation,
                           s = column * stride - padding + k % w[3] * dilation;
        if (r < 0 || r >= x[2] || s < 0 || s >= x[3]) continue;
        const std::int64_t channel = group * w[1] + c;
        visit(at(((batch * x[1] + channel) * x[2] + r) * x[3] + s), at((out * w[1] + c) * w[2] * w[3] + k),
              at(i));
      }
    }
  }
}

/// Gradients of y = conv(image, weight): the outputs of a backward op, without the image's if attribute 4 is
/// set. `source` is the op's own input: the image of a convolution, the small side of its adjoint.
void run_conv_backward(Interpreter& run, Node n, bool transposed) {
  const Program& p = run.p;
  const Attributes& a = p.nodes[n].attributes;
  const Values &g = run.in(n, 0), &source = run.in(n, 1), &w = run.in(n, 2);
  int output = 0;
  Values nothing(source.size());
  Values& dx = a.n[4] != 0 ? nothing : run.data[p.output(n, output++)];
  Values& dw = run.data[p.output(n, output++)];
  const Shape &gs = run.in_shape(n, 0), &ss = run.in_shape(n, 1), &ws = run.in_shape(n, 2);
  if (transposed) {
    for_each_tap(gs, ws, ss, a, [&](std::size_t image, std::size_t weight, std::size_t small) {
      dx[small] += g[image] * w[weight];
      dw[weight] += g[image] * source[small];
    });
  } else {
    for_each_tap(ss, ws, gs, a, [&](std::size_t image, std::size_t weight, std::size_t small) {
      dx[image] += g[small] * w[weight];
      dw[weight] += g[small] * source[image];
    });
  }
  if (a.n[5] == 0) return;
  Values& db = run.data[p.output(n, output)];
  for (std::int64_t i = 0; i < gs.elements(); ++i) db[at(i / (gs[2] * gs[3]) % gs[1])] += g[at(i)];
}

/// Every pair (pixel, window) of a pooling.
void for_each_pooled(const Shape& x, const Shape& y, const Attributes& a, auto&& visit) {
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    const std::int64_t column = i % y[3], row = i / y[3] % y[2], plane = i / (y[3] * y[2]);
    for (std::int64_t k = 0; k < a.n[4] * a.n[4]; ++k) {
      const std::int64_t r = row * a.n[0] - a.n[1] + k / a.n[4], s = column * a.n[0] - a.n[1] + k % a.n[4];
      if (r < 0 || r >= x[2] || s < 0 || s >= x[3]) continue;
      visit(plane * x[2] * x[3], r * x[3] + s, at(i));
    }
  }
}

void run_max_pool(Interpreter& run, Node n) {
  const Program& p = run.p;
  Values &y = run.data[p.output(n, 0)], &index = run.data[p.output(n, 1)];
  y.assign(y.size(), -1e300);
  for_each_pooled(run.in_shape(n, 0), p.shape(p.output(n, 0)), p.nodes[n].attributes,
                  [&](std::int64_t plane, std::int64_t pixel, std::size_t window) {
                    const double x = run.in(n, 0)[at(plane + pixel)];
                    if (x <= y[window]) return;
                    y[window] = x;
                    index[window] = static_cast<double>(pixel);
                  });
}

/// Weights of the bilinear resize: visit(from, to, weight).
void for_each_resized(const Shape& from, const Shape& to, auto&& visit) {
  const auto place = [](std::int64_t i, std::int64_t in, std::int64_t out) {
    return std::max(
        0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5);
  };
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    const double r = place(i / to[3] % to[2], from[2], to[2]), s = place(i % to[3], from[3], to[3]);
    const auto r0 = static_cast<std::int64_t>(r), s0 = static_cast<std::int64_t>(s);
    const double fr = r - static_cast<double>(r0), fs = s - static_cast<double>(s0);
    const std::int64_t plane = i / (to[2] * to[3]) * from[2] * from[3];
    for (int corner = 0; corner < 4; ++corner) {
      const std::int64_t rr = std::min(r0 + corner / 2, from[2] - 1),
                         ss = std::min(s0 + corner % 2, from[3] - 1);
      visit(at(plane + rr * from[3] + ss), at(i),
            (corner / 2 != 0 ? fr : 1 - fr) * (corner % 2 != 0 ? fs : 1 - fs));
    }
  }
}

}  // namespace

bool run_images(Interpreter& run, Node n) {
  const Program& p = run.p;
  const Attributes& a = p.nodes[n].attributes;
  Values& out = run.data[p.output(n, 0)];
  const Shape& to = p.shape(p.output(n, 0));
  const auto in = [&](int i) -> const Values& { return run.in(n, i); };
  const auto shape = [&](int i) -> const Shape& { return run.in_shape(n, i); };
  const auto add_bias = [&] {
    if (p.inputs[n].size() < 3) return;
    for (std::int64_t i = 0; i < to.elements(); ++i) out[at(i)] += in(2)[at(i / (to[2] * to[3]) % to[1])];
  };
  switch (p.nodes[n].code) {
    case Code::kConv:
      for_each_tap(shape(0), shape(1), to, a,
                   [&](std::size_t x, std::size_t w, std::size_t y) { out[y] += in(0)[x] * in(1)[w]; });
      add_bias();
      return true;
    case Code::kConvTranspose:
      for_each_tap(to, shape(1), shape(0), a,
                   [&](std::size_t x, std::size_t w, std::size_t y) { out[x] += in(0)[y] * in(1)[w]; });
      add_bias();
      return true;
    case Code::kConvInputGrad:
      for_each_tap(to, shape(1), shape(0), a,
                   [&](std::size_t x, std::size_t w, std::size_t y) { out[x] += in(0)[y] * in(1)[w]; });
      return true;
    case Code::kConvWeightGrad:
      for_each_tap(shape(1), to, shape(0), a,
                   [&](std::size_t x, std::size_t w, std::size_t y) { out[w] += in(0)[y] * in(1)[x]; });
      return true;
    case Code::kConvBackward:
      run_conv_backward(run, n, false);
      return true;
    case Code::kConvTransposeBackward:
      run_conv_backward(run, n, true);
      return true;
    case Code::kMaxPool:
      run_max_pool(run, n);
      return true;
    case Code::kMaxPoolGrad:
    case Code::kUnpool: {
      const std::int64_t small = shape(0)[2] * shape(0)[3], large = to[2] * to[3];
      for (std::int64_t i = 0; i < shape(0).elements(); ++i)
        out[at(i / small * large + static_cast<std::int64_t>(in(1)[at(i)]))] += in(0)[at(i)];
      return true;
    }
    case Code::kUnpoolGrad: {
      const std::int64_t small = to[2] * to[3], large = shape(0)[2] * shape(0)[3];
      for (std::int64_t i = 0; i < to.elements(); ++i)
        out[at(i)] = in(0)[at(i / small * large + static_cast<std::int64_t>(in(1)[at(i)]))];
      return true;
    }
    case Code::kAvgPool:
      for_each_pooled(shape(0), to, a, [&](std::int64_t plane, std::int64_t pixel, std::size_t y) {
        out[y] += in(0)[at(plane + pixel)] / (a.n[4] * a.n[4]);
      });
      return true;
    case Code::kAvgPoolGrad:
      for_each_pooled(to, shape(0), a, [&](std::int64_t plane, std::int64_t pixel, std::size_t y) {
        out[at(plane + pixel)] += in(0)[y] / (a.n[4] * a.n[4]);
      });
      return true;
    case Code::kResize:
      for_each_resized(shape(0), to, [&](std::size_t x, std::size_t y, double w) { out[y] += w * in(0)[x]; });
      return true;
    case Code::kResizeGrad:
      for_each_resized(to, shape(0), [&](std::size_t x, std::size_t y, double w) { out[x] += w * in(0)[y]; });
      return true;
    default:
      return false;
  }
}

namespace {

/// Digits of `number` in the mixed radix of dimensions [first, end) of a shape, the last one fastest.
std::vector<std::int64_t> digits(std::int64_t number, const Shape& shape, int first, int end) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(end - first));
  for (int i = end - 1; i >= first; number /= shape[i--]) result[at(i - first)] = number % shape[i];
  return result;
}

/// Every pair of a point of [N, C, sizes ...] and a frequency of the same with half the last size, by the
/// angle between them.
void for_each_wave(const Shape& real, auto&& visit) {
  const std::int64_t planes = real[0] * real[1], points = real.elements() / planes;
  Shape half = real;
  half[-1] = real[-1] / 2 + 1;
  const std::int64_t waves = half.elements() / planes;
  for (std::int64_t point = 0; point < points; ++point) {
    const auto place = digits(point, real, 2, real.rank);
    for (std::int64_t wave = 0; wave < waves; ++wave) {
      const auto frequency = digits(wave, half, 2, real.rank);
      double turns = 0;
      for (int i = 2; i < real.rank; ++i)
        turns += static_cast<double>(place[at(i - 2)] * frequency[at(i - 2)]) / static_cast<double>(real[i]);
      const std::int64_t v = frequency.back();
      const double copies = v == 0 || 2 * v == real[-1] ? 1 : 2;  // the mirrored half is not stored
      for (std::int64_t plane = 0; plane < planes; ++plane) {
        visit(at(plane * points + point), at(2 * (plane * waves + wave)), 2 * std::numbers::pi * turns,
              copies / static_cast<double>(points));
      }
    }
  }
}

/// visit(x, weight, y): first numbers of the complex elements that mode_mix multiplies. Dimensions of the
/// weight: channels in, channels out, modes ..., 2; those between the channels and the last modes hold both
/// ends of the frequencies.
void for_each_mode(const Shape& x, const Shape& w, const Shape& y, auto&& visit) {
  const int last = w.rank - 2;
  const std::int64_t modes = w[last];
  const std::int64_t pairs = w[0] * w[1], kept = w.elements() / (2 * pairs);
  for (std::int64_t k = 0; k < kept; ++k) {
    std::int64_t from = 0, to = 0;
    const auto place = digits(k, w, 2, w.rank - 1);
    for (int i = 2; i <= last; ++i) {
      const std::int64_t r = place[at(i - 2)];
      const auto next = [&](std::int64_t wave, std::int64_t size) {
        return wave * size + (i == last || r < modes ? r : size - 2 * modes + r);
      };
      from = next(from, x[i]);
      to = next(to, y[i]);
    }
    const std::int64_t waves = x.elements() / (2 * x[0] * x[1]);
    const std::int64_t waves_out = y.elements() / (2 * y[0] * y[1]);
    for (std::int64_t batch = 0; batch < x[0]; ++batch) {
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        const std::int64_t in = pair / w[1], out = pair % w[1];
        visit(at(2 * ((batch * x[1] + in) * waves + from)), at(2 * (pair * kept + k)),
              at(2 * ((batch * y[1] + out) * waves_out + to)));
      }
    }
  }
}

std::complex<double> pair(const Values& v, std::size_t i) { return {v[i], v[i + 1]}; }
void add_pair(Values& v, std::size_t i, std::complex<double> z) {
  v[i] += z.real();
  v[i + 1] += z.imag();
}

}  // namespace

bool run_spectral(Interpreter& run, Node n) {
  const Program& p = run.p;
  Values& out = run.data[p.output(n, 0)];
  const Shape& to = p.shape(p.output(n, 0));
  const Values& x = run.in(n, 0);
  const auto shape = [&](int i) -> const Shape& { return run.in_shape(n, i); };
  switch (p.nodes[n].code) {
    case Code::kRfft:
      for_each_wave(shape(0), [&](std::size_t pixel, std::size_t wave, double angle, double) {
        add_pair(out, wave, std::polar(1.0, -angle) * x[pixel]);
      });
      return true;
    case Code::kRfftGrad:
      for_each_wave(to, [&](std::size_t pixel, std::size_t wave, double angle, double) {
        out[pixel] += (pair(x, wave) * std::polar(1.0, angle)).real();
      });
      return true;
    case Code::kIrfft:
      for_each_wave(to, [&](std::size_t pixel, std::size_t wave, double angle, double weight) {
        out[pixel] += weight * (pair(x, wave) * std::polar(1.0, angle)).real();
      });
      return true;
    case Code::kIrfftGrad:
      for_each_wave(shape(0), [&](std::size_t pixel, std::size_t wave, double angle, double weight) {
        add_pair(out, wave, weight * x[pixel] * std::polar(1.0, -angle));
      });
      return true;
    case Code::kModeMix:
      for_each_mode(shape(0), shape(1), to, [&](std::size_t a, std::size_t w, std::size_t y) {
        add_pair(out, y, pair(x, a) * pair(run.in(n, 1), w));
      });
      return true;
    case Code::kModeMixInputGrad:
      for_each_mode(to, shape(1), shape(0), [&](std::size_t a, std::size_t w, std::size_t y) {
        add_pair(out, a, pair(x, y) * std::conj(pair(run.in(n, 1), w)));
      });
      return true;
    case Code::kModeMixWeightGrad:
      for_each_mode(shape(1), to, shape(0), [&](std::size_t a, std::size_t w, std::size_t y) {
        add_pair(out, w, pair(x, y) * std::conj(pair(run.in(n, 1), a)));
      });
      return true;
    default:
      return false;
  }
}

}  // namespace remat::generate::testing
