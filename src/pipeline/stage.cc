#include "pipeline/stage.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/numbers.h"

namespace remat::pipeline {
namespace {

constexpr std::size_t kMostLabels = 3'000'000;

/// Time and bytes in one sum: per_time x time + per_byte x bytes.
struct Rate {
  std::int64_t per_time = 1, per_byte = 0;
  Wide sum(std::int64_t time, std::int64_t bytes) const {
    return Wide(per_time) * time + Wide(per_byte) * bytes;
  }
};

class Chooser {
 public:
  Chooser(std::span<const StageBlock> blocks, Bytes room, bool joined, Limits& limits)
      : blocks_(blocks), room_(room.count()), joined_(joined), limits_(limits) {}

  std::optional<StageChoices> run() {
    if (!relax()) return std::nullopt;
    // Mostly at most one step of the hull above the relaxation.
    for (std::int64_t slack = std::max<std::int64_t>(1, step_ / 8);; slack = std::max(slack * 4, slack + 1)) {
      const bool all = slack >= most_time_;
      threshold_ = rate_.sum(all ? most_time_ : slack, 0) + least_;
      auto found = search(all);
      if (all || stopped_) return found;
      if (!found) continue;
      const Wide time = rate_.sum(found->extra.count(), 0);
      if (time <= threshold_) return found;
      threshold_ = time;
      return search(false);
    }
  }

 private:
  /// For blocks c, c + 1, ...: saved bytes times k, working bytes of the highest block, time.
  struct Label {
    std::int64_t bytes, work, time;
    std::int32_t before, choice;
  };

  const std::vector<BlockChoice>& choices(std::size_t b) const { return blocks_[b].curve->choices; }
  std::int64_t weight(std::size_t b, const BlockChoice& choice) const {
    return blocks_[b].in_flight * choice.saved.count();
  }

  /// Finds the price per byte of the relaxation in which only the last block has working bytes; false if not
  /// even that fits.
  bool relax() {
    struct Step {
      std::int64_t time, bytes;
    };
    std::vector<Step> steps;
    std::int64_t bytes = 0;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      std::vector<Step> hull;
      for (const BlockChoice& choice : choices(b)) {
        std::int64_t taken = weight(b, choice);
        if (b + 1 == blocks_.size()) taken += choice.need.count() - choice.saved.count();
        hull.push_back({choice.extra.count(), taken});
      }
      bytes += to_hull(hull, steps);
      most_time_ += std::ranges::max(choices(b), {}, &BlockChoice::extra).extra.count();
    }
    std::ranges::sort(
        steps, [](const Step& a, const Step& b) { return Wide(a.time) * b.bytes < Wide(b.time) * a.bytes; });
    for (const Step& step : steps) {
      if (bytes <= room_) break;
      bytes -= step.bytes;
      rate_ = {step.bytes, step.time};
      step_ = step.time;
    }
    if (bytes > room_) return false;
    rest_.assign(blocks_.size() + 1, 0);
    rest_bytes_.assign(blocks_.size() + 1, 0);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      Wide least = rate_.sum(choices(b).front().extra.count(), weight(b, choices(b).front()));
      std::int64_t fewest = weight(b, choices(b).front());
      for (const BlockChoice& choice : choices(b)) {
        least = std::min(least, rate_.sum(choice.extra.count(), weight(b, choice)));
        fewest = std::min(fewest, weight(b, choice));
      }
      rest_[b + 1] = rest_[b] + least;
      rest_bytes_[b + 1] = rest_bytes_[b] + fewest;
    }
    least_ = relaxation();
    return true;
  }

  /// Reduces `points` to the lower hull, adds its steps to `steps`, and returns its fastest point's bytes.
  template <class Steps>
  static std::int64_t to_hull(Steps& points, Steps& steps) {
    std::ranges::sort(points, [](const auto& a, const auto& b) {
      return std::pair(a.time, a.bytes) < std::pair(b.time, b.bytes);
    });
    Steps hull;
    for (const auto& point : points) {
      if (!hull.empty() && point.bytes >= hull.back().bytes) continue;
      while (hull.size() > 1) {
        const auto &a = hull[hull.size() - 2], &b = hull.back();
        // b is above the line from a to the point.
        if (Wide(b.time - a.time) * (a.bytes - point.bytes) < Wide(point.time - a.time) * (a.bytes - b.bytes))
          break;
        hull.pop_back();
      }
      hull.push_back(point);
    }
    for (std::size_t i = 1; i < hull.size(); ++i) {
      steps.push_back({hull[i].time - hull[i - 1].time, hull[i - 1].bytes - hull[i].bytes});
    }
    return hull.front().bytes;
  }

  /// A lower bound on every solution, in units of the rate, less the room.
  Wide relaxation() const {
    Wide last = 0;
    bool first = true;
    for (const BlockChoice& choice : choices(blocks_.size() - 1)) {
      const std::int64_t work = choice.need.count() - choice.saved.count();
      const Wide sum = rate_.sum(choice.extra.count(), weight(blocks_.size() - 1, choice) + work);
      last = first ? sum : std::min(last, sum);
      first = false;
    }
    return rest_[blocks_.size() - 1] + last - rate_.sum(0, room_);
  }

  /// The fastest solution below the threshold, or without a threshold if `all`.
  std::optional<StageChoices> search(bool all) {
    std::vector<std::vector<Label>> layers{{{0, 0, 0, -1, -1}}};
    std::size_t count = 0;
    for (std::size_t b = blocks_.size(); b-- > 0;) {
      std::vector<Label> next;
      for (std::size_t i = 0; i < layers.back().size(); ++i) {
        const Label& from = layers.back()[i];
        for (std::size_t o = 0; o < choices(b).size(); ++o) {
          const Label label = extended(from, b, narrow<std::int32_t>(i), narrow<std::int32_t>(o));
          if (label.bytes + label.work + rest_bytes_[b] > room_) continue;
          const Wide bound = rate_.sum(label.time, label.bytes + label.work - room_) + rest_[b];
          if (!all && bound > threshold_) continue;
          next.push_back(label);
        }
      }
      keep_best(next);
      count += next.size();
      if (limits_.spend(1 + narrow<std::int64_t>(next.size()) / 8) || count > kMostLabels) {
        stopped_ = true;
        return stopped_answer();
      }
      layers.push_back(std::move(next));
    }
    return best_of(layers);
  }

  Label extended(const Label& from, std::size_t b, std::int32_t before, std::int32_t o) const {
    const BlockChoice& choice = choices(b)[at(o)];
    const std::int64_t bytes = from.bytes + weight(b, choice);
    // The running micro-batch does not hold saved bytes of later blocks.
    const std::int64_t after = joined_ ? from.bytes / blocks_[b].in_flight : 0;
    const std::int64_t work = choice.need.count() - choice.saved.count() - after;
    const std::int64_t highest = from.choice < 0 ? work : std::max(from.work, work);
    return {bytes, highest, from.time + choice.extra.count(), before, o};
  }

  /// Joined: a label's bytes also lower the working bytes of blocks to come, so among labels with more bytes
  /// the sum of both decides.
  void keep_best(std::vector<Label>& labels) const {
    const auto highest = [](const Label& l) { return l.bytes + l.work; };
    std::ranges::sort(labels, [&](const Label& a, const Label& b) {
      return std::tuple(a.time, a.bytes, highest(a)) < std::tuple(b.time, b.bytes, highest(b));
    });
    // The least working bytes of the labels so far, by bytes.
    std::map<std::int64_t, std::int64_t> stairs;
    std::vector<Label> kept;
    for (const Label& label : labels) {
      auto above = stairs.upper_bound(label.bytes);
      if (above != stairs.begin() && std::prev(above)->second <= highest(label)) continue;
      while (above != stairs.end() && above->second >= highest(label)) above = stairs.erase(above);
      stairs[label.bytes] = highest(label);
      kept.push_back(label);
    }
    labels = std::move(kept);
  }

  std::optional<StageChoices> best_of(const std::vector<std::vector<Label>>& layers) const {
    const auto& last = layers.back();
    if (last.empty()) return std::nullopt;
    const auto best = std::ranges::min_element(last, {}, &Label::time);
    StageChoices found{Duration(best->time), {}, true};
    const Label* label = &*best;
    for (std::size_t layer = layers.size() - 1; layer > 0; --layer) {
      found.choices.push_back(label->choice);
      label = &layers[layer - 1][at(label->before)];
    }
    return found;
  }

  /// The answer at the limits: all blocks with the choice that saves least, if that fits.
  std::optional<StageChoices> stopped_answer() const {
    StageChoices found{{}, {}, false};
    Label label{0, 0, 0, 0, -1};
    for (std::size_t b = blocks_.size(); b-- > 0;) {
      const auto least = narrow<std::int32_t>(choices(b).size()) - 1;
      label = extended(label, b, 0, least);
      found.choices.insert(found.choices.begin(), least);
    }
    if (label.bytes + label.work > room_) return std::nullopt;
    found.extra = Duration(label.time);
    return found;
  }

  std::span<const StageBlock> blocks_;
  std::int64_t room_;
  bool joined_;
  Limits& limits_;
  Rate rate_;
  std::int64_t step_ = 0, most_time_ = 0;
  Wide least_ = 0, threshold_ = 0;
  std::vector<Wide> rest_;                ///< of blocks 0 ... b - 1: least sum at the rate
  std::vector<std::int64_t> rest_bytes_;  ///< and fewest bytes
  bool stopped_ = false;
};

}  // namespace

std::optional<StageChoices> choose(std::span<const StageBlock> blocks, Bytes room, bool joined,
                                   Limits& limits) {
  return Chooser(blocks, room, joined, limits).run();
}

}  // namespace remat::pipeline
