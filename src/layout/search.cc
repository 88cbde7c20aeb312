// The idea: fill the skyline from below. In a valley of equal floors between higher ones, the next item in a
// section either lies flat in the valley or leaves waste there. The search branches on the section with the
// fewest choices, and looks one step ahead to skip dead ends and to try choices with the least waste first.
//
// After Moffitt, MiniMalloc (ASPLOS 2023): canonical packings (nothing can move down), sections, dominated
// gaps. Ours: branching on sections instead of items, which has no permutations to break; waste as a branch
// of its own, limited in most runs (limited discrepancy search, Harvey and Ginsberg 1995); items that span a
// part go to its ceiling; `Skyline::lowest_crossing`; weights of sections that failed (Boussemart et al.
// 2004) and restarts by Luby's sequence with other preferences, since run times are heavy-tailed (Gomes et
// al. 2000); most restarts follow one of the fullest packings so far as long as possible (solution-guided
// search, Beck 2007).
//
// Squeaky wheel over first fit (Joslin and Clements 1999) is 15-27 % above the capacity on minimalloc's
// problems after 20,000 rounds, where this needs 0 %; on plans whose live peak is out of reach ejection
// chains (`EjectionSearch`) are better.
//
// Tried and lost: one machine bounds over the lows of a section (8 % of the dead ends, for a sort at each
// node); choosing always the lowest valley (10 times the nodes).
#include "layout/search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "base/numbers.h"
#include "layout/skyline.h"
#include "remat/random.h"

namespace remat::layout {
namespace {

constexpr std::int64_t kOne = 1024;  ///< fixed point: 1.0 of a score
constexpr int kNoLimit = std::numeric_limits<int>::max();

/// a / b in fixed point; b > 0.
std::int64_t ratio(std::int64_t a, std::int64_t b) {
  const int shift = std::max(0, 64 - std::countl_zero(narrow<std::uint64_t>(std::max(a, b))) - 50);
  return ((a >> shift) * kOne) / std::max<std::int64_t>(1, b >> shift);
}

std::int64_t square_root(std::int64_t x) {
  std::int64_t root = 0;
  for (std::int64_t bit = std::int64_t{1} << 31; bit > 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= x) root += bit;
  }
  return root;
}

/// 1, 1, 2, 1, 1, 2, 4, ... (Luby, Sinclair and Zuckerman 1993), from i = 1.
std::int64_t luby(std::int64_t i) {
  for (;;) {
    const auto bits = narrow<int>(std::bit_width(narrow<std::uint64_t>(i)));
    if (i == (std::int64_t{1} << bits) - 1) return std::int64_t{1} << (bits - 1);
    i -= (std::int64_t{1} << (bits - 1)) - 1;
  }
}

/// The preferences of one run, in fixed point. No single setting is good on all packings.
struct Preferences {
  /// scores of sections are divided by 1, the root of their weight, or their weight
  int section_weight = 1;
  std::int64_t waste_branch = kOne;  ///< the branch with waste counts as this many items
  std::int64_t waste = kOne;         ///< penalty for forced waste, by its share of the allowed waste
  std::int64_t edge = kOne / 2;      ///< for items that begin or end where the valley does
  std::int64_t flush = kOne;         ///< for items that end as high as the wall beside them
  std::int64_t size = kOne;          ///< for large items
  std::int64_t length = kOne;        ///< for long lives
  std::int64_t noise = 0;
  int most_waste = kNoLimit;  ///< branches with waste on one path
};

std::int64_t pick(Random& random, std::initializer_list<std::int64_t> halves) {
  return *(halves.begin() + random.below(narrow<std::int64_t>(halves.size()))) * kOne / 10;
}

Preferences random_preferences(Random& random) {
  Preferences preferences;
  preferences.section_weight = narrow<int>(random.below(3));
  preferences.edge = pick(random, {0, 3, 10, 20});
  preferences.flush = pick(random, {5, 10, 20, 40});
  preferences.size = pick(random, {0, 0, 5, 20});
  preferences.length = pick(random, {0, 0, 5, 20});
  preferences.noise = pick(random, {5, 10, 20, 30});
  preferences.waste = pick(random, {3, 5, 10});
  preferences.waste_branch = pick(random, {5, 10, 15});
  constexpr std::array<int, 8> kWaste{0, 0, 1, 2, 4, 8, kNoLimit, kNoLimit};
  preferences.most_waste = kWaste[at(random.below(kWaste.size()))];
  return preferences;
}

}  // namespace

class CapacitySearch::Search {
 public:
  Search(const Packing& packing, std::int64_t capacity, const LayoutOptions& options)
      : skyline_(packing, {options.dominance, options.crossing}),
        options_(options),
        capacity_(capacity),
        random_(options.seed),
        weight_(packing.load.size(), kWeightStep),
        noise_(packing.items.size(), 0),
        run_end_(packing.load.size() + 1, 0),
        counts_(packing.load.size() + 1, 0),
        ends_(packing.load.size() + 1, 0) {}

  Answer run(std::int64_t most_nodes, Limits& limits) {
    // A run must be able to place all items.
    const std::int64_t run_nodes = std::max<std::int64_t>(500, 2 * narrow<std::int64_t>(skyline_.items()));
    constexpr int kCompleteRuns = 12;  // one in this many runs has no limit on waste, and may end in a proof
    limits_ = &limits;
    for (const std::int64_t stop = nodes_ + most_nodes; nodes_ < stop && !limits.reached();) {
      ++runs_;
      Preferences preferences = runs_ == 1 ? Preferences() : random_preferences(random_);
      std::int64_t budget = luby(runs_) * run_nodes;
      if (runs_ % kCompleteRuns == 1) {
        preferences.most_waste = kNoLimit;
        budget = std::max(budget, nodes_ / kCompleteRuns);
      }
      follow_one();
      const End end = run_once(preferences, std::min(budget, stop - nodes_));
      if (end == End::kFound) return Answer::kFits;
      if (end == End::kDead && !is_cut_) return Answer::kImpossible;
      skyline_.undo(0);
      remember();
    }
    return Answer::kUnknown;
  }

  std::int64_t nodes() const { return nodes_; }
  const std::vector<std::int64_t>& offsets() const { return skyline_.offsets(); }

 private:
  enum class End { kFound, kDead, kStopped };
  /// Connected unplaced items: `lists_[begin, end)`, alive in the sections [first, last), below `capacity`.
  struct Group {
    std::size_t begin = 0, end = 0;
    std::int32_t first = 0, last = 0;
    std::int64_t capacity = 0;
  };
  struct Choice {
    std::int32_t section = -1;
    std::int32_t valley_first = 0, valley_last = 0;
  };
  struct Candidate {
    std::int64_t score;
    std::int32_t item;
  };

  /// A packing that could not be completed, and its area.
  struct Partial {
    std::int64_t area = 0;
    std::vector<std::int64_t> offsets;
  };

  void keep_if_fullest() {
    if (skyline_.placed_area() <= fullest_of_run_.area) return;
    fullest_of_run_ = {skyline_.placed_area(), skyline_.offsets()};
  }

  void follow_one() {
    constexpr double kShare = 0.8;
    followed_ = -1;
    if (fullest_.size() == kKept && random_.chance(kShare)) followed_ = narrow<int>(random_.below(kKept));
  }

  /// The packing of a run replaces the one that it followed, or the least full one.
  void remember() {
    if (fullest_.size() < kKept) {
      fullest_.push_back(fullest_of_run_);
      if (fullest_.back().offsets.empty()) fullest_.back().offsets = skyline_.offsets();
      return;
    }
    const auto less = [](const Partial& a, const Partial& b) { return a.area < b.area; };
    Partial& other =
        followed_ >= 0 ? fullest_[at(followed_)] : *std::min_element(fullest_.begin(), fullest_.end(), less);
    if (fullest_of_run_.area >= other.area && !fullest_of_run_.offsets.empty()) other = fullest_of_run_;
  }

  End run_once(const Preferences& preferences, std::int64_t most_nodes) {
    preferences_ = preferences;
    waste_left_ = preferences.most_waste;
    is_cut_ = false;
    run_nodes_ = 0;
    run_limit_ = most_nodes;
    fullest_of_run_ = {};
    for (std::int64_t& noise : noise_) noise = preferences.noise > 0 ? random_.below(preferences.noise) : 0;
    for (std::int64_t& weight : weight_) weight = kWeightStep + (weight - kWeightStep) / 2;
    lists_.resize(skyline_.items());
    std::iota(lists_.begin(), lists_.end(), 0);
    return solve_groups({0, lists_.size(), 0, skyline_.sections(), capacity_}, 0);
  }

  End solve(Group group, int depth) {
    if (is_stopped()) return End::kStopped;
    if (depth > kMostDepth) {
      is_cut_ = true;
      return End::kDead;
    }
    std::size_t spanning = 0;
    for (std::size_t k = group.begin; k < group.end; ++k) {
      const Item& item = skyline_.item(lists_[k]);
      if (item.first == group.first && item.end == group.last) ++spanning;
    }
    if (spanning > 0) return hang_spanning(group, spanning, depth);
    const Choice choice = choose(group);
    std::vector<Candidate> ways;
    candidates(group, choice, ways);
    if (ways.empty()) keep_if_fullest();
    const End end = place_each(group, ways, depth);
    return end == End::kDead ? leave_waste(group, choice.section, depth) : end;
  }

  /// Solves the connected groups of `whole` one after the other, small ones first: they do not depend on each
  /// other, so a group without a packing needs no second try of those before it.
  End solve_groups(Group whole, int depth) {
    if (whole.begin == whole.end) return End::kFound;
    counts_[at(whole.last)] = 0;
    for (std::int32_t s = whole.first; s < whole.last; ++s) counts_[at(s)] = 0;
    for (std::size_t k = whole.begin; k < whole.end; ++k) {
      const Item& item = skyline_.item(lists_[k]);
      if (item.first + 1 >= item.end) continue;
      ++counts_[at(item.first) + 1];
      --counts_[at(item.end)];
    }
    // counts_[s]: items that live in both s - 1 and s. ends_[s] numbers the group of section s.
    std::vector<Group> groups;
    std::int32_t open = 0;
    for (std::int32_t s = whole.first; s < whole.last; ++s) {
      open += counts_[at(s)];
      if (open == 0 || !options_.sections) {
        const bool is_new = options_.sections || groups.empty();
        if (is_new) groups.push_back({0, 0, s, s, whole.capacity});
      }
      groups.back().last = s + 1;
      ends_[at(s)] = narrow<std::int32_t>(groups.size()) - 1;
    }
    const auto group_of = [&](std::int32_t i) -> Group& {
      return groups[at(ends_[at(skyline_.item(i).first)])];
    };
    for (std::size_t k = whole.begin; k < whole.end; ++k) ++group_of(lists_[k]).end;
    const std::size_t stack = lists_.size();
    std::size_t begin = stack;
    for (Group& group : groups) {
      const std::size_t size = group.end;
      group.begin = group.end = begin;
      begin += size;
    }
    lists_.resize(begin);
    for (std::size_t k = whole.begin; k < whole.end; ++k) lists_[group_of(lists_[k]).end++] = lists_[k];
    std::erase_if(groups, [](const Group& group) { return group.begin == group.end; });
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.end - a.begin < b.end - b.begin; });
    End end = End::kFound;
    for (const Group& group : groups) {
      end = solve(group, depth);
      if (end != End::kFound) break;
    }
    lists_.resize(stack);
    return end;
  }

  /// Items alive as long as their whole group go below its ceiling: in any packing they can be lifted there,
  /// and the items above them moved down.
  End hang_spanning(Group group, std::size_t spanning, int depth) {
    const std::size_t mark = skyline_.mark(), stack = lists_.size();
    for (std::size_t k = group.begin; k < group.end; ++k) {
      const Item& item = skyline_.item(lists_[k]);
      if (item.first == group.first && item.end == group.last) {
        skyline_.hang(lists_[k], group.capacity);
        group.capacity -= item.size;
      } else {
        lists_.push_back(lists_[k]);
      }
    }
    End end = End::kDead;
    if (spanning == group.end - group.begin) {
      end = skyline_.propagate(group.capacity) ? End::kFound : End::kDead;
    } else if (skyline_.propagate(group.capacity)) {
      end = solve_groups({stack, lists_.size(), group.first, group.last, group.capacity}, depth + 1);
    } else {
      blame();
    }
    lists_.resize(stack);
    if (end == End::kDead) skyline_.undo(mark);
    return end;
  }

  End place_each(const Group& group, std::span<const Candidate> candidates, int depth) {
    const std::size_t mark = skyline_.mark(), stack = lists_.size();
    for (const Candidate& candidate : candidates) {
      if (!place(candidate.item, group.capacity)) {
        skyline_.undo(mark);
        if (candidates.size() == 1) keep_if_fullest();
        continue;
      }
      for (std::size_t k = group.begin; k < group.end; ++k) {
        if (lists_[k] != candidate.item) lists_.push_back(lists_[k]);
      }
      const End end =
          solve_groups({stack, lists_.size(), group.first, group.last, group.capacity}, depth + 1);
      lists_.resize(stack);
      if (end != End::kDead) return end;
      skyline_.undo(mark);
    }
    return End::kDead;
  }

  End leave_waste(const Group& group, std::int32_t section, int depth) {
    if (slack(group, section) <= 0) return End::kDead;
    if (waste_left_ <= 0) {
      is_cut_ = true;
      return End::kDead;
    }
    const std::int64_t next = next_floor(group, section);
    if (next > group.capacity - skyline_.rest(section)) return End::kDead;
    const std::size_t mark = skyline_.mark();
    skyline_.raise(section, next);
    if (!skyline_.propagate(group.capacity)) {
      blame();
      skyline_.undo(mark);
      return End::kDead;
    }
    --waste_left_;
    const End end = solve(group, depth + 1);
    ++waste_left_;
    if (end == End::kDead) skyline_.undo(mark);
    return end;
  }

  /// The section of a valley with the fewest branches, in relation to its weight.
  Choice choose(const Group& group) {
    count_flat(group);
    Choice best;
    std::int64_t best_branches = 0, best_weight = 1, best_slack = 0;
    for (std::int32_t s = group.first; s < group.last;) {
      const std::int32_t end = run_end_[at(s)];
      const bool is_valley = skyline_.rest(s) > 0 && (s == group.first || level(s - 1) > level(s)) &&
                             (end == group.last || level(end) > level(s));
      const std::int32_t first = s;
      for (; s < end; ++s) {
        if (!is_valley) continue;
        const std::int64_t slack_here = slack(group, s);
        const std::int64_t ways =
            counts_[at(s)] * kOne + (slack_here > 0 && waste_left_ > 0 ? preferences_.waste_branch : 0);
        const std::int64_t branches = ways <= kOne ? ways : ways * kOne;  // forced choices first
        const std::int64_t w = weight_[at(s)];
        const std::int64_t weight = preferences_.section_weight == 0   ? kWeightStep
                                    : preferences_.section_weight == 1 ? square_root(w * kWeightStep)
                                                                       : w;
        const std::int64_t here = branches * best_weight, there = best_branches * weight;
        if (best.section >= 0 && (here > there || (here == there && slack_here >= best_slack))) continue;
        best = {s, first, end};
        best_branches = branches;
        best_weight = weight;
        best_slack = slack_here;
      }
    }
    return best;
  }

  /// counts_[s]: items that may lie flat on section s. run_end_[s]: end of the run of sections with the floor
  /// of s.
  void count_flat(const Group& group) {
    run_end_[at(group.last)] = group.last;
    for (std::int32_t s = group.last; s-- > group.first;) {
      const bool is_level = s + 1 < group.last && level(s) == level(s + 1);
      run_end_[at(s)] = is_level ? run_end_[at(s) + 1] : s + 1;
      counts_[at(s)] = ends_[at(s)] = 0;
    }
    ends_[at(group.last)] = 0;
    for (std::size_t k = group.begin; k < group.end; ++k) {
      const Item& item = skyline_.item(lists_[k]);
      if (skyline_.low(lists_[k]) != skyline_.floor(item.first) || run_end_[at(item.first)] < item.end)
        continue;
      ++counts_[at(item.first)];
      ++ends_[at(item.end)];
    }
    std::int32_t open = 0;
    for (std::int32_t s = group.first; s < group.last; ++s) {
      open += counts_[at(s)] - ends_[at(s)];
      counts_[at(s)] = open;
    }
  }

  /// The items that may lie flat in the section. The best-scored ones are tried one step ahead: dead ends are
  /// dropped, and those with the least waste come first. The rest follow by score alone.
  void candidates(const Group& group, const Choice& choice, std::vector<Candidate>& into) {
    constexpr std::size_t kMostAhead = 16;
    const std::int64_t floor = skyline_.floor(choice.section);
    std::vector<std::int32_t> flat;
    for (std::int32_t i : skyline_.waiting(choice.section)) {
      if (skyline_.low(i) == floor) flat.push_back(i);
    }
    std::sort(flat.begin(), flat.end());
    for (std::int32_t i : flat) {
      if (!is_redundant(i, into)) into.push_back({preference_score(group, choice, i), i});
    }
    const auto by_score = [](const Candidate& a, const Candidate& b) {
      return std::pair(a.score, a.item) < std::pair(b.score, b.item);
    };
    if (into.size() == 1) return;  // nothing to choose
    std::sort(into.begin(), into.end(), by_score);
    const std::size_t mark = skyline_.mark(), ahead = std::min(kMostAhead, into.size());
    std::size_t alive = 0;
    for (std::size_t k = 0; k < ahead; ++k) {
      Candidate candidate = into[k];
      if (place(candidate.item, group.capacity)) {
        candidate.score += waste_score(group, candidate.item, mark);
        into[alive++] = candidate;
      }
      skyline_.undo(mark);
    }
    const auto begin = into.begin();
    into.erase(begin + narrow<std::ptrdiff_t>(alive), begin + narrow<std::ptrdiff_t>(ahead));
    std::sort(begin, begin + narrow<std::ptrdiff_t>(alive), by_score);
  }

  /// Equal items count once; of items with equal lives the smaller one lies below, then the first.
  bool is_redundant(std::int32_t i, std::span<const Candidate> before) const {
    if (!options_.symmetry) return false;
    const Item& item = skyline_.item(i);
    const auto same_life = [&](const Item& other) {
      return other.first == item.first && other.end == item.end;
    };
    for (const Candidate& candidate : before) {
      const Item& other = skyline_.item(candidate.item);
      if (same_life(other) && other.size == item.size) return true;
    }
    const std::int32_t below = skyline_.top_item(item.first);
    if (below < 0 || skyline_.top(item.first) != skyline_.floor(item.first)) return false;
    const Item& other = skyline_.item(below);
    return same_life(other) && std::pair(other.size, below) > std::pair(item.size, i);
  }

  bool place(std::int32_t item, std::int64_t capacity) {
    skyline_.place(item);
    if (skyline_.propagate(capacity)) return true;
    blame();
    return false;
  }

  /// The score of an item before it is placed; low scores are tried first.
  std::int64_t preference_score(const Group& group, const Choice& choice, std::int32_t i) const {
    const Item& item = skyline_.item(i);
    const std::int64_t offset = skyline_.low(i), end = offset + item.size;
    std::int64_t sum = noise_[at(i)];
    if (item.first == choice.valley_first) {
      sum -= preferences_.edge;
      if (item.first > group.first && skyline_.floor(item.first - 1) == end) sum -= preferences_.flush;
    }
    if (item.end == choice.valley_last) {
      sum -= preferences_.edge;
      if (item.end < group.last && skyline_.floor(item.end) == end) sum -= preferences_.flush;
    }
    sum -= preferences_.size * ratio(item.size, capacity_) / kOne;
    sum -= preferences_.length * (item.end - item.first) / (choice.valley_last - choice.valley_first);
    if (followed_ >= 0 && fullest_[at(followed_)].offsets[at(i)] == offset) sum -= kFollow;
    return sum;
  }

  /// The penalty of an item placed at `mark`: the waste that follows, by its share of what each section can
  /// afford, weighted by earlier failures there.
  std::int64_t waste_score(const Group& group, std::int32_t i, std::size_t mark) const {
    const Item& item = skyline_.item(i);
    const std::int64_t end = skyline_.offset(i) + item.size;
    std::int64_t sum = 0;
    skyline_.rises_since(mark, [&](std::int32_t s, std::int64_t before) {
      if (skyline_.rest(s) == 0 || before == skyline_.floor(s)) return;
      const bool is_inside = item.first <= s && s < item.end;
      if (is_inside && before < end) return;  // its own height, not waste
      const std::int64_t waste = skyline_.floor(s) - before;
      const auto failures =
          narrow<std::int64_t>(std::bit_width(narrow<std::uint64_t>(weight_[at(s)] / kWeightStep)));
      sum += ratio(waste, slack(group, s) + waste + 1) * (4 + failures) / 4;
    });
    return sum * preferences_.waste / kOne;
  }

  /// The lowest floor of a section in which nothing lies flat: the next item there rests on an item yet to be
  /// placed beside the section, or could not lie flat anyway.
  std::int64_t next_floor(const Group& group, std::int32_t section) {
    constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    const std::int64_t floor = skyline_.floor(section);
    std::int64_t next = kNever;
    beneath_.assign(at(group.last), kNever);
    for (std::size_t k = group.begin; k < group.end; ++k) {
      const Item& item = skyline_.item(lists_[k]);
      if (item.first <= section && section < item.end) continue;
      const std::int64_t end = skyline_.low(lists_[k]) + item.size;
      for (std::int32_t s = item.first; s < item.end; ++s) beneath_[at(s)] = std::min(beneath_[at(s)], end);
    }
    for (std::int32_t i : skyline_.waiting(section)) {
      const Item& item = skyline_.item(i);
      std::int64_t least = skyline_.low(i);
      if (least == floor) {
        least = *std::min_element(beneath_.begin() + item.first, beneath_.begin() + item.end);
      }
      next = std::min(next, least);
    }
    return next;
  }

  bool is_stopped() {
    const std::int64_t work = skyline_.work();
    const std::int64_t units = (work - work_seen_) / 32 + 1;
    work_seen_ = work;
    ++nodes_;
    return limits_->spend(units) || ++run_nodes_ > run_limit_;
  }

  void blame() {
    if (skyline_.dead_end() >= 0) weight_[at(skyline_.dead_end())] += kWeightStep;
  }

  /// The floor, or an infinite wall if all items of the section are placed.
  std::int64_t level(std::int32_t s) const {
    return skyline_.rest(s) == 0 ? std::numeric_limits<std::int64_t>::max() : skyline_.floor(s);
  }
  std::int64_t slack(const Group& group, std::int32_t s) const {
    return group.capacity - skyline_.floor(s) - skyline_.rest(s);
  }

  static constexpr std::int64_t kWeightStep = 16;
  static constexpr std::size_t kKept = 4;
  static constexpr int kMostDepth = 4000;
  static constexpr std::int64_t kFollow = 1000 * kOne;  ///< outweighs all preferences

  Skyline skyline_;
  LayoutOptions options_;
  std::int64_t capacity_;
  Limits* limits_ = nullptr;
  Random random_;
  Preferences preferences_;
  std::vector<std::int64_t> weight_;  ///< of sections, more for those that failed
  std::vector<std::int64_t> noise_;   ///< of items, drawn for each run
  std::vector<std::int32_t> lists_;   ///< a stack of the items of all open groups
  int waste_left_ = kNoLimit;
  std::vector<Partial> fullest_;  ///< of all runs
  Partial fullest_of_run_;
  int followed_ = -1;    ///< the one of `fullest_` that this run follows, or -1
  bool is_cut_ = false;  ///< a branch was skipped without proof
  std::int64_t runs_ = 0, nodes_ = 0, run_nodes_ = 0, run_limit_ = 0, work_seen_ = 0;

  // Scratch of one node.
  std::vector<std::int32_t> run_end_, counts_, ends_;
  std::vector<std::int64_t> beneath_;
};

CapacitySearch::CapacitySearch(const Packing& packing, std::int64_t capacity, const LayoutOptions& options)
    : capacity_(capacity), search_(std::make_unique<Search>(packing, capacity, options)) {}
CapacitySearch::~CapacitySearch() = default;
CapacitySearch::CapacitySearch(CapacitySearch&&) noexcept = default;
CapacitySearch& CapacitySearch::operator=(CapacitySearch&&) noexcept = default;

Answer CapacitySearch::run(std::int64_t most_nodes, Limits& limits) {
  return search_->run(most_nodes, limits);
}
std::int64_t CapacitySearch::nodes() const { return search_->nodes(); }
const std::vector<std::int64_t>& CapacitySearch::offsets() const { return search_->offsets(); }

}  // namespace remat::layout
