#include "helpers/chains.h"

#include <cstdint>

namespace remat::testing {

rotor::Chain random_chain(Random& random, int most_options) {
  rotor::Chain chain;
  for (std::int64_t n = random.between(1, 5); n > 0; --n) {
    rotor::Stage stage;
    stage.output = random.between(0, 6);
    stage.pass_time = random.between(0, 9);
    stage.first_time = random.between(0, 9);
    stage.pass_need = stage.output + random.below(4);
    stage.first_need = stage.output + random.below(6);
    for (std::int64_t o = random.between(1, most_options); o > 0; --o) {
      rotor::StageOption option;
      option.saved = stage.output + random.below(8);
      option.extra_time = most_options == 1 ? 0 : random.below(6);
      option.forward_need = option.saved + random.below(3);
      option.first_need = option.saved + random.below(3);
      option.backward_need = option.saved + random.below(8);
      stage.options.push_back(option);
    }
    chain.stages.push_back(stage);
    chain.around.push_back(random.below(5));
  }
  return chain;
}

}  // namespace remat::testing
