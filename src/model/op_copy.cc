#include "model/op_copy.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat {

void OpCopy::reuse_elsewhere(std::int64_t output) {
  for (std::size_t i = over_.size(); i-- > 0;) {
    if (over_[i][1] != output) continue;
    costs_.workspace = std::max(Bytes(), costs_.workspace - reused_[i]);
    over_.erase(over_.begin() + narrow<std::ptrdiff_t>(i));
    reused_.erase(reused_.begin() + narrow<std::ptrdiff_t>(i));
  }
}

}  // namespace remat
