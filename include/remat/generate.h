// Graphs made to measure: random ones, chains, and the training steps of well-known models.
#pragma once

#include <cstdint>

#include "remat/graph.h"

namespace remat {

/// Random layered graphs in the manner of Gagrani et al. (Neural Topological Ordering for Computation
/// Graphs, NeurIPS 2022, appendix A), which MOCCASIN measures on: a source, layers of varying width, a
/// target; edges near the diagonal between neighbouring layers, and skips to later ones.
///
///          o---o---o
///        / | X   /   \         source -> layers -> target
///       s--o---o---o--t        skips jump over at least one layer
///        \   \___/___/
///
/// The file names of the published instances, random_layered_n100_w0.27_nlv0.75_ed0.2_scd0.14, name
/// `ops`, `width`, `width_variability`, `edge_density` and `skip_density`.
struct RandomLayeredOptions {
  std::int64_t ops = 100;           ///< source and target included, at least 3
  double width = 0.27;              ///< mean width of a layer in units of 2 sqrt(ops)
  std::int64_t layers = 0;          ///< number of layers; 0: what `width` gives
  double width_variability = 0.75;  ///< widths are uniform in mean * (1 +- this), in [0, 1]
  double edge_density = 0.2;        ///< 0: every op one neighbour before and after; 1: all pairs
  double skip_density = 0.14;       ///< skips among all edges, in [0, 1)
  std::uint64_t seed = 1;
};
/// One value per op; sizes are multiples of 10 around 2000 (a mixture of four bells), durations uniform in
/// [1, 999], none for source and target. The order is a random topological one. Nothing is kept, as in the
/// published instances. Throws UsageError.
Graph random_layered(const RandomLayeredOptions& options);

/// A chain of `length` ops and, when `training`, the loss and the backward op of each:
///   x -> f0 -> f1 -> loss -> b1 -> b0       b_i reads the gradient and the input of f_i
///     \     \____________^     ^
///      \______________________/
struct ChainOptions {
  std::int64_t length = 10;
  std::int64_t bytes = 1;     ///< of every activation and gradient
  std::int64_t duration = 1;  ///< of a forward op and the loss; a backward op takes twice as long
  bool training = true;
};
/// Input x; kept: the gradient of x, or the last activation without training. Throws UsageError.
Graph chain(const ChainOptions& options);

/// Random graphs without structure, for tests and fuzzing: ops with several outputs, workspaces,
/// forbidden recomputation, soft dependencies and kept outputs.
struct RandomDagOptions {
  std::int64_t ops = 30;
  std::int64_t inputs = 2;         ///< graph inputs
  double reads = 2;                ///< values read by an op, on average
  std::int64_t reach = 0;          ///< an op reads among the last `reach` values; 0: all
  std::int64_t max_outputs = 2;    ///< values made by an op: uniform in [1, max_outputs]
  std::int64_t max_bytes = 1000;   ///< sizes are uniform in [1, max_bytes]
  std::int64_t max_duration = 100; ///< durations are uniform in [1, max_duration]
  double workspace_share = 0.2;    ///< share of ops with a workspace, uniform in [1, max_bytes]
  double never_share = 0.05;       ///< share of ops that must not run twice
  double after_share = 0.05;       ///< share of ops with a soft dependency
  double kept_share = 0.05;        ///< share of values kept besides the last one
  std::uint64_t seed = 1;
};
/// Throws UsageError.
Graph random_dag(const RandomDagOptions& options);

}  // namespace remat
