#include "planners/auto/rounds.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::automatic {
namespace {

constexpr double kMost = 1e9;  ///< as lengths of the first

template <class T>
std::optional<T> total(std::optional<T> left, T spent) {
  return left ? std::optional(*left + spent) : std::nullopt;
}

}  // namespace

Rounds::Rounds(const Options& options, const Limits& limits, bool several)
    : limits_(limits),
      work_(total(limits.work_left(), limits.work())),
      seconds_(total(limits.seconds_left(), limits.seconds())) {
  if (!several || (!work_ && !seconds_)) return;
  double length = work_ ? real(*work_) / (kWorkPerSecond * options.round_seconds) : kMost;
  if (seconds_) length = std::min(length, *seconds_ / options.round_seconds);
  for (; length >= 2; length /= 2) ++count_;
}

void Rounds::end(Limits& part, int round) const {
  const std::int64_t share = std::int64_t{1} << (count_ - round);
  if (work_) part.set_work(std::max<std::int64_t>(0, *work_ / share - limits_.work()));
  if (seconds_) part.set_time(*seconds_ / real(share) - limits_.seconds());
}

}  // namespace remat::automatic
