// Exact sizes of the shared instances.
#include <gtest/gtest.h>

#include <filesystem>

#include "helpers/places.h"
#include "remat/bounds.h"
#include "remat/io.h"

namespace remat {
namespace {

struct Instance {
  std::string name;
  std::size_t ops;
  std::int64_t keep_all_peak, floor;
};
void PrintTo(const Instance& instance, std::ostream* out) { *out << instance.name; }

class SharedInstance : public ::testing::TestWithParam<Instance> {};

TEST_P(SharedInstance, HasItsKeepAllPeakAndFloor) {
  const std::filesystem::path path = testing::shared_graph(GetParam().name);
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << path << " is not there: the shared instances are not part of the repository";
  const LoadedGraph loaded = load_graph(path);
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_EQ(loaded.graph.num_ops(), GetParam().ops);
  EXPECT_EQ(simulate(loaded.graph, keep_all_plan(loaded.graph)).peak.count(), GetParam().keep_all_peak);
  EXPECT_EQ(floor_bound(loaded.graph).peak.count(), GetParam().floor);
  // Written as remat.graph it is the same graph.
  EXPECT_EQ(parse_graph(format_graph(loaded.graph), "copy").graph, loaded.graph);
}

INSTANTIATE_TEST_SUITE_P(All, SharedInstance,
                         ::testing::Values(Instance{"random_layered_n100", 100, 46319, 20020},
                                           Instance{"random_layered_n500", 500, 284439, 49399},
                                           Instance{"fcn8_vgg_train", 73, 13484795520, 8287944704},
                                           Instance{"mobilenet_train", 185, 34701056000, 6635651072},
                                           Instance{"segnet_train", 77, 19943884288, 8287944704},
                                           Instance{"vgg16_train", 45, 15825108992, 13153337344},
                                           Instance{"torch_unet", 158, 6151531320, 1479276956},
                                           Instance{"torch_resnet50", 407, 2869235560, 421816756},
                                           Instance{"torch_gpt2_12", 675, 7403570184, 2968056836},
                                           Instance{"torch_transformer_6", 1001, 11136540680, 543563780}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace remat
