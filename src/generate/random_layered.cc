// The published instances were measured to find the rules below: with ops n and layer widths a, b they hold
// max(a, b) + density * (a b - max(a, b)) edges between neighbouring layers, to the rounded unit, close to
// the diagonal; skips are `skip_density` of all edges.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "base/sorted.h"
#include "generate/checks.h"
#include "remat/generate.h"
#include "remat/random.h"

namespace remat {
namespace {

using generate::kMaxOps;
using generate::require_between;

/// Half-open ranges of op numbers by layer; the source is layer 0, the target the last.
struct Layers {
  std::vector<std::int64_t> begin;
  std::int64_t count() const { return std::ssize(begin) - 1; }
  std::int64_t width(std::int64_t layer) const { return at(layer + 1) - at(layer); }
  std::int64_t at(std::int64_t layer) const { return begin[remat::at(layer)]; }
};

void check(const RandomLayeredOptions& o) {
  require_between<std::int64_t>("ops", o.ops, 3, kMaxOps);
  require_between<std::int64_t>("layers", o.layers, 0, o.ops - 2);
  require_between("width", o.width, 1e-6, 1e6);
  require_between("width variability", o.width_variability, 0.0, 1.0);
  require_between("edge density", o.edge_density, 0.0, 1.0);
  require_between("skip density", o.skip_density, 0.0, 0.99);
}

/// Widths of the inner layers. With a given number of layers the widths drawn are stretched to fit.
std::vector<std::int64_t> draw_widths(const RandomLayeredOptions& o, Random& random) {
  const std::int64_t inner = o.ops - 2;
  const double mean =
      o.layers > 0 ? real(inner) / real(o.layers) : std::max(1.0, 2 * o.width * std::sqrt(real(o.ops)));
  const auto draw = [&] { return mean * (1 + o.width_variability * (2 * random.unit() - 1)); };
  std::vector<std::int64_t> widths;
  if (o.layers == 0) {
    for (std::int64_t left = inner; left > 0; left -= widths.back()) {
      const auto width = std::max<std::int64_t>(1, std::lround(draw()));
      widths.push_back(std::min(width, left));
    }
    return widths;
  }
  std::vector<double> share(narrow<std::size_t>(o.layers));
  for (double& s : share) s = std::max(draw(), 1e-9);
  const double total = std::accumulate(share.begin(), share.end(), 0.0);
  // One op per layer first; the rest by the shares, rounded on the running sum.
  const auto free = real(inner - o.layers);
  double sum = 0;
  std::int64_t given = 0;
  for (std::size_t layer = 0; layer < share.size(); ++layer) {
    sum += share[layer];
    const std::int64_t upto = layer + 1 == share.size() ? inner - o.layers : std::lround(free * sum / total);
    widths.push_back(1 + upto - given);
    given = upto;
  }
  return widths;
}

Layers draw_layers(const RandomLayeredOptions& o, Random& random) {
  Layers layers{{0, 1}};
  for (std::int64_t width : draw_widths(o, random)) layers.begin.push_back(layers.begin.back() + width);
  layers.begin.push_back(layers.begin.back() + 1);
  return layers;
}

/// A bell of mean 0 and deviation 1 as the sum of twelve uniform numbers: no library function whose last
/// digit differs between machines.
double draw_bell(Random& random) {
  double sum = -6;
  for (int k = 0; k < 12; ++k) sum += random.unit();
  return sum;
}

/// Thousands: 30 % around 0.5, 30 % around 1, 30 % around 3, 10 % around 5; drawn again until positive.
std::int64_t draw_bytes(Random& random) {
  const double u = random.unit();
  const double mean = u < 0.3 ? 0.5 : u < 0.6 ? 1 : u < 0.9 ? 3 : 5;
  const double deviation = u < 0.3 ? 0.5 : 1;
  std::int64_t bytes = 0;
  while (bytes <= 0) bytes = 10 * std::lround(100 * (mean + deviation * draw_bell(random)));
  return bytes;
}

struct Edge {
  std::int64_t from, to;
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

/// The edges between two neighbouring layers of widths a and b: every op on the wider side has the op
/// opposite, then the pairs nearest to the diagonal by distance and a little noise. Only a band around the
/// diagonal is visited, so that the cost is proportional to the edges made.
void connect_neighbours(const Layers& layers, std::int64_t layer, double density, Random& random,
                        std::vector<Edge>& edges) {
  const std::int64_t a = layers.width(layer), b = layers.width(layer + 1), wide = std::max(a, b);
  const auto free = real(a * b - wide);
  const std::int64_t extra = std::lround(density * free);
  const auto opposite = [&](std::int64_t i, std::int64_t from, std::int64_t to) {
    return (2 * i + 1) * to / (2 * from);
  };
  const std::size_t first = edges.size();
  for (std::int64_t i = 0; i < wide; ++i) {
    const std::int64_t from = a >= b ? i : opposite(i, b, a), to = a >= b ? opposite(i, a, b) : i;
    edges.push_back({layers.at(layer) + from, layers.at(layer + 1) + to});
  }
  if (extra == 0) return;
  std::sort(edges.begin() + static_cast<std::ptrdiff_t>(first), edges.end());
  struct Pair {
    double distance;
    Edge edge;
  };
  std::vector<Pair> pairs;
  const double band = std::min(1.0, density + 3.0 / real(std::min(a, b)));
  for (std::int64_t i = 0; i < a; ++i) {
    const double centre = (real(i) + 0.5) / real(a);
    const auto lo = static_cast<std::int64_t>(std::max(0.0, (centre - band) * real(b)));
    const auto hi = std::min(b, static_cast<std::int64_t>((centre + band) * real(b)) + 1);
    for (std::int64_t j = lo; j < hi; ++j) {
      const Edge edge{layers.at(layer) + i, layers.at(layer + 1) + j};
      if (std::binary_search(edges.begin() + static_cast<std::ptrdiff_t>(first),
                             edges.begin() + static_cast<std::ptrdiff_t>(first) + wide, edge))
        continue;
      const double distance = std::abs((real(j) + 0.5) / real(b) - centre);
      pairs.push_back({distance + 0.05 * density * draw_bell(random), edge});
    }
  }
  const auto take = std::min<std::ptrdiff_t>(extra, static_cast<std::ptrdiff_t>(pairs.size()));
  std::sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) {
    return std::pair(x.distance, x.edge) < std::pair(y.distance, y.edge);
  });
  for (std::ptrdiff_t k = 0; k < take; ++k) edges.push_back(pairs[at(k)].edge);
}

std::vector<Edge> draw_edges(const Layers& layers, const RandomLayeredOptions& o, Random& random) {
  std::vector<Edge> edges;
  const std::int64_t last = layers.count() - 1;
  for (std::int64_t layer = 0; layer < last; ++layer) {
    const bool ends = layer == 0 || layer + 1 == last;
    connect_neighbours(layers, layer, ends ? 1.0 : o.edge_density, random, edges);
  }
  const std::int64_t inner_layers = layers.count() - 2;
  if (inner_layers >= 3) {
    const auto skips = std::lround(real(edges.size()) * o.skip_density / (1 - o.skip_density));
    std::vector<std::int64_t> layer_of(narrow<std::size_t>(o.ops));
    for (std::int64_t layer = 0; layer <= last; ++layer) {
      for (std::int64_t v = layers.at(layer); v < layers.at(layer + 1); ++v) layer_of[at(v)] = layer;
    }
    for (long k = 0; k < skips; ++k) {
      const std::int64_t from = random.between(layers.at(1), layers.at(inner_layers - 1) - 1);
      const std::int64_t layer = random.between(layer_of[at(from)] + 2, inner_layers);
      edges.push_back({from, random.between(layers.at(layer), layers.at(layer + 1) - 1)});
    }
  }
  sort_unique(edges);
  return edges;
}

/// A depth-first topological order (a stack of ready ops, new entries shuffled), like the published orders.
std::vector<std::int64_t> draw_order(std::int64_t ops, const std::vector<Edge>& edges, Random& random) {
  std::vector<std::int64_t> missing(narrow<std::size_t>(ops), 0), begin(narrow<std::size_t>(ops) + 1, 0);
  for (const Edge& e : edges) {
    ++missing[at(e.to)];
    ++begin[narrow<std::size_t>(e.from) + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<std::int64_t> order, ready{0};
  while (!ready.empty()) {
    const std::int64_t op = ready.back();
    ready.pop_back();
    order.push_back(op);
    const std::size_t before = ready.size();
    for (auto k = begin[at(op)]; k < begin[narrow<std::size_t>(op) + 1]; ++k) {
      const std::int64_t to = edges[at(k)].to;
      if (--missing[at(to)] == 0) ready.push_back(to);
    }
    random.shuffle(std::span(ready).subspan(before));
  }
  return order;
}

std::string describe_options(const RandomLayeredOptions& o) {
  const auto number = [](double x) {
    std::string text = std::to_string(x);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
  };
  const std::string shape = o.layers > 0 ? "_l" + std::to_string(o.layers) : "_w" + number(o.width);
  return "random_layered_n" + std::to_string(o.ops) + shape + "_nlv" + number(o.width_variability) + "_ed" +
         number(o.edge_density) + "_scd" + number(o.skip_density) + "_seed" + std::to_string(o.seed);
}

}  // namespace

Graph random_layered(const RandomLayeredOptions& options) {
  check(options);
  Random random(options.seed);
  const Layers layers = draw_layers(options, random);
  const std::vector<Edge> edges = draw_edges(layers, options, random);
  const std::vector<std::int64_t> order = draw_order(options.ops, edges, random);
  std::vector<std::int64_t> place(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) place[at(order[k])] = static_cast<std::int64_t>(k);
  Rows<OpId, OpId> by_source;
  std::size_t next = 0;
  for (std::int64_t v = 0; v < options.ops; ++v) {
    for (; next < edges.size() && edges[next].from == v; ++next) by_source.push(OpId(edges[next].to));
    by_source.end_row();
  }
  const auto reads = Rows<OpId, OpId>::transpose(by_source, order.size());

  GraphBuilder builder(describe_options(options));
  std::vector<std::int64_t> inputs;
  for (std::int64_t k = 0; k < options.ops; ++k) {
    const std::int64_t v = order[at(k)];
    const bool end = v == 0 || v == options.ops - 1;
    inputs.clear();
    for (OpId from : reads[OpId(v)]) inputs.push_back(place[at(from)]);
    const std::int64_t outputs[] = {builder.add_value(Bytes(draw_bytes(random)))};
    const std::string name = std::to_string(v);
    OpSpec op;
    op.name = name;
    op.duration = Duration(end ? 0 : random.between(1, 999));
    op.inputs = inputs;
    op.outputs = outputs;
    builder.add_op(op);
  }
  return builder.build();
}

}  // namespace remat
