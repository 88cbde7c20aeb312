#include "fuzz/damage.h"

#include <iterator>
#include <string_view>

#include "helpers/graphs.h"
#include "remat/io.h"

namespace remat::fuzz {
namespace {

/// Strings that are special to a JSON reader.
constexpr std::string_view kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "\\u0000",
                                        "\\ud800",
                                        "null",
                                        "true",
                                        "-",
                                        "1e5",
                                        "-1",
                                        "0.5",
                                        "9223372036854775807",
                                        "4611686018427387904",
                                        "1e999",
                                        "\xff",
                                        "\xef\xbb\xbf",
                                        "[[[[",
                                        "\"format\":\"remat.graph\",",
                                        "\"nodes\":",
                                        "\"ops\":[",
                                        "\"forward_of\":0,",
                                        "\"after\":[0],"};

}  // namespace

const std::vector<std::string>& seed_files() {
  static const std::vector<std::string> kSeeds = [] {
    Random random(5);
    std::vector<std::string> texts;
    for (int i = 0; i < 4; ++i) texts.push_back(format_graph(testing::random_graph(random)));
    texts.emplace_back(
        R"({"graph":{"name":"n","order":["b",1,0]},"nodes":[{"id":0,"cost_ram":3,"cost_cpu":1.5,"backward":true},)"
        R"({"id":1,"cost_ram":2},{"name":"b","out_cost":9,"duration":4}],"links":[{"source":"b","target":1},)"
        R"({"0":1,"1":0}]})");
    texts.emplace_back(R"({"graph":[["order",[1,0]],["name","p"]],"nodes":[{"id":0},{"id":1}],"edges":[]})");
    PlanRecord plan;
    plan.peak = Bytes(3);
    plan.overhead = 0.5;
    plan.status = "feasible";
    plan.steps = {0, 1, 0, 2};
    texts.push_back(format_plan(plan));
    return texts;
  }();
  return kSeeds;
}

void damage(std::string& text, Random& random) {
  const auto at = [&] {
    return static_cast<std::size_t>(random.below(static_cast<std::int64_t>(text.size()) + 1));
  };
  const std::size_t begin = at(), count = static_cast<std::size_t>(random.below(12));
  switch (random.below(6)) {
    case 0:
      if (begin < text.size()) text[begin] = static_cast<char>(text[begin] ^ (1 << random.below(8)));
      break;
    case 1:
      text.resize(begin);
      break;
    case 2:
      text.insert(begin, kPieces[static_cast<std::size_t>(random.below(std::size(kPieces)))]);
      break;
    case 3:
      text.erase(begin, count);
      break;
    case 4:
      text.insert(at(), text.substr(begin, count * 8));
      break;
    case 5:
      if (begin < text.size()) text[begin] = static_cast<char>(random.below(256));
      break;
  }
}

}  // namespace remat::fuzz
