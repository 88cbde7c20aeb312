// Generators of graphs: random ones, chains, and training steps of well-known models.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/ids.h"
#include "remat/layout.h"

namespace REMAT_API remat {

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
  std::int64_t layers = 0;          ///< number of layers; 0: derived from `width`
  double width_variability = 0.75;  ///< widths are uniform in mean * (1 +- this), in [0, 1]
  double edge_density = 0.2;        ///< 0: every op one neighbour before and after; 1: all pairs
  double skip_density = 0.14;       ///< share of skips among all edges, in [0, 1)
  std::uint64_t seed = 1;
};
/// Calls visit(name, option, description) for each option, by the name that users give it.
template <class Visit>
void visit_settings(RandomLayeredOptions& o, Visit&& visit) {
  visit("nodes", o.ops, "ops, source and target included");
  visit("width", o.width, "mean width of a layer in units of 2 sqrt(nodes)");
  visit("layers", o.layers, "number of layers; 0: derived from the width");
  visit("width_variability", o.width_variability, "widths vary by this share of the mean");
  visit("edge_density", o.edge_density, "0: one neighbour each; 1: all pairs of neighbouring layers");
  visit("skip_density", o.skip_density, "share of edges that skip layers");
  visit("seed", o.seed, "seed");
}
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
/// All but `training`.
template <class Visit>
void visit_settings(ChainOptions& o, Visit&& visit) {
  visit("length", o.length, "forward ops");
  visit("bytes", o.bytes, "bytes of every value");
  visit("duration", o.duration, "duration of a forward op");
}
/// Input x; kept: the gradient of x, or the last activation without training. Throws UsageError.
Graph chain(const ChainOptions& options);

/// Random graphs without structure, for tests and fuzzing: ops with several outputs, workspaces,
/// forbidden recomputation, soft dependencies and kept outputs.
struct RandomDagOptions {
  std::int64_t ops = 30;
  std::int64_t inputs = 2;          ///< graph inputs
  double reads = 2;                 ///< values read by an op, on average
  std::int64_t reach = 0;           ///< an op reads among the last `reach` values; 0: all
  std::int64_t max_outputs = 2;     ///< values made by an op: uniform in [1, max_outputs]
  std::int64_t max_bytes = 1000;    ///< sizes are uniform in [1, max_bytes]
  std::int64_t max_duration = 100;  ///< durations are uniform in [1, max_duration]
  double workspace_share = 0.2;     ///< share of ops with a workspace, uniform in [1, max_bytes]
  double never_share = 0.05;        ///< share of ops that must not run twice
  double after_share = 0.05;        ///< share of ops with a soft dependency
  double kept_share = 0.05;         ///< share of values kept besides the last one
  double over_share = 0;            ///< share of outputs that may be written over an input
  double random_share = 0;          ///< share of ops that draw random numbers
  std::uint64_t seed = 1;
};
template <class Visit>
void visit_settings(RandomDagOptions& o, Visit&& visit) {
  visit("nodes", o.ops, "ops");
  visit("inputs", o.inputs, "graph inputs");
  visit("reads", o.reads, "values read by an op on average");
  visit("reach", o.reach, "an op reads among the last REACH values; 0: all");
  visit("max_outputs", o.max_outputs, "most values made by an op");
  visit("max_bytes", o.max_bytes, "largest value");
  visit("max_duration", o.max_duration, "longest op");
  visit("workspace_share", o.workspace_share, "share of ops with a workspace");
  visit("never_share", o.never_share, "share of ops that must not run twice");
  visit("after_share", o.after_share, "share of ops with a soft dependency");
  visit("kept_share", o.kept_share, "share of values kept");
  visit("over_share", o.over_share, "share of outputs that may be written over an input");
  visit("random_share", o.random_share, "share of ops that draw random numbers");
  visit("seed", o.seed, "seed");
}
/// Throws UsageError.
Graph random_dag(const RandomDagOptions& options);

/// Buffers to lay out, as in compilers: many with short live ranges and a few with long ones, in phases.
///
///        ____________________________
///       |____________________________|      few that live through phases
///        _ _    __  |   _  _  __  _
///       |_| |__|  |_|  | || ||  || |        many that live within one; how many at a time and how large
///       |__|______|_|  |_||_||__||_|        they are differs from phase to phase
///          phase 1         phase 2
struct RandomBuffersOptions {
  std::int64_t count = 10'000;       ///< buffers, and steps of time
  std::int64_t phases = 8;           ///< parts of time of equal length, in [1, count]
  std::int64_t life = 20;            ///< mean length of a short live range, in steps; none outlasts its phase
  double long_share = 0.005;         ///< share of buffers that live for a phase or longer
  std::int64_t max_bytes = 1 << 20;  ///< the largest size, at least 64; sizes spread over three decades
  std::uint64_t seed = 1;
};
template <class Visit>
void visit_settings(RandomBuffersOptions& o, Visit&& visit) {
  visit("count", o.count, "buffers, and steps of time");
  visit("phases", o.phases, "number of phases; short lives stay within one");
  visit("life", o.life, "mean of a short life, in steps");
  visit("long_share", o.long_share, "share of buffers that live for a phase or longer");
  visit("max_bytes", o.max_bytes, "the largest size");
  visit("seed", o.seed, "seed");
}
/// Sorted by first step; sizes are multiples of 64. Throws UsageError.
IndexVector<BufferId, Buffer> random_buffers(const RandomBuffersOptions& options);

/// What one op of a training graph stands for.
enum class Granularity {
  kOp,         ///< a kernel as a framework launches it, with several outputs where it has them
  kLayer,      ///< a layer's forward or backward half
  kPrimitive,  ///< a node of a TensorFlow 1 graph, bookkeeping included (docs/generate.md)
};

/// kBf16: parameters, activations and gradients take two bytes, and matrix products run on tensor cores;
/// moments and running statistics, and the ops that update them, stay at four bytes.
enum class DataType { kFloat32, kBf16 };

/// kNone: the gradients are kept outputs; else what the optimizer updates is.
enum class Optimizer { kNone, kSgd, kMomentum, kAdam };

/// What the roofline needs to know: an op takes launch + max(flops / peak, bytes / bandwidth).
struct Device {
  std::string name;
  double flops_per_second = 1e12;  ///< peak, 32-bit floats
  double bytes_per_second = 1e11;  ///< memory bandwidth
  double launch_seconds = 0;
  double bf16_flops_per_second = 0;  ///< peak of the tensor cores, 16-bit floats; 0: it has none
};
std::span<const Device> devices();
/// "a100", or "flops=19.5e12,bandwidth=1.5e12,launch=4e-6" (launch may be left out). Throws UsageError.
Device parse_device(std::string_view text);

/// Sizes of a model, in pixels, tokens or channels; -1 takes the model's own default.
struct ModelSettings {
  std::int64_t batch = -1;
  std::int64_t resolution = -1;  ///< height and width of the images
  std::int64_t sequence = -1;    ///< tokens of a sequence
  std::int64_t depth = -1;
  std::int64_t width = -1;
  std::int64_t heads = -1;
  std::int64_t classes = -1;  ///< classes, or channels of the output
  std::int64_t vocabulary = -1;
  double dropout = -1;
  friend bool operator==(const ModelSettings&, const ModelSettings&) = default;
};

/// Calls visit(name, member, description) for each size.
template <class Visit>
void visit_sizes(Visit&& visit) {
  visit("batch", &ModelSettings::batch, "samples");
  visit("resolution", &ModelSettings::resolution, "height and width of the images");
  visit("sequence", &ModelSettings::sequence, "tokens of a sample");
  visit("depth", &ModelSettings::depth, "depth");
  visit("width", &ModelSettings::width, "width");
  visit("heads", &ModelSettings::heads, "attention heads");
  visit("classes", &ModelSettings::classes, "classes, or channels of the output");
  visit("vocabulary", &ModelSettings::vocabulary, "tokens known");
  visit("dropout", &ModelSettings::dropout, "dropout rate");
}

/// A model by name. The settings of a variant hold -1 where the model has no such size.
struct ModelInfo {
  struct Variant {
    std::string_view name;
    ModelSettings settings;
  };
  std::string_view name;
  std::string_view description;
  std::vector<Variant> variants;  ///< the first is the default
};
std::span<const ModelInfo> models();
/// The sizes of a model that the largest one can be searched for, by name: those of its data, depth and
/// width.
std::map<std::string, std::int64_t ModelSettings::*> searched_sizes(const ModelInfo& model);

struct TrainingOptions {
  std::string model = "ffn";
  std::string variant;  ///< empty: the model's first
  ModelSettings settings;
  Granularity granularity = Granularity::kOp;
  Optimizer optimizer = Optimizer::kNone;
  DataType dtype = DataType::kFloat32;
  std::optional<Device> device;     ///< none: every op takes one unit
  bool random_recomputable = true;  ///< false: ops that draw random numbers must not run twice
};
/// One training step of a model: forward, loss, backward by reverse-mode differentiation, updates. Inputs:
/// batch, parameters, moments and running statistics. Kept: the loss, the gradients or what the optimizer
/// updates, and new running statistics. Throws UsageError naming the setting.
Graph training_graph(const TrainingOptions& options);

}  // namespace REMAT_API remat
