// Two optimisation problems of executors: which items to keep in memory, each with a gain and live ranges (a
// knapsack over time); and one choice for each of several parts that share memory.
#pragma once

#include <optional>
#include <vector>

#include "remat/export.h"
#include "remat/limits.h"
#include "remat/quantity.h"

namespace REMAT_API remat {

/// Bytes at the moments [begin, end).
struct Stretch {
  int begin = 0, end = 0;
  Bytes bytes;
};

/// An item that may be selected.
///
///   room |~~~~~\__________/~~~~~~   of each moment: the budget less fixed memory
///        |     [--- a ---]
///        |  [------- b -------]     a and b together must stay below it
///        +------------------------ moments
struct Selectable {
  Duration gain;                   ///< time saved; negative: a cost, which others may need
  std::vector<Stretch> lives;      ///< bytes over its live ranges
  std::vector<int> excludes = {};  ///< items that cannot be selected together with it
  std::vector<int> needs = {};     ///< items that must be selected with it
};

struct SelectionProblem {
  std::vector<Bytes> room;  ///< of each moment; negative: no item alive then can be selected
  std::vector<Selectable> items;
};

struct Selection {
  std::vector<int> items;  ///< selected items, ascending; feasible
  Duration gain;           ///< of all of them
  Duration bound;          ///< upper bound on the gain of any selection
  std::optional<StoppedBy> stopped_by;
};

/// The selection with the greatest gain: a knapsack over time, as an integer program of HiGHS, with a greedy
/// one by gain per byte and moment as the start and as the answer when a limit is reached. Throws UsageError
/// for stretches and items out of range.
Selection select_within(const SelectionProblem& problem, Limits& limits);

/// A way to run a part.
struct SplitChoice {
  Duration cost;
  std::vector<Bytes> bytes;  ///< needed at each moment
};

/// Parts that share the room of several moments, such as the peak steps of each part.
struct SplitProblem {
  std::vector<Bytes> room;
  std::vector<std::vector<SplitChoice>> parts;  ///< the choices of each
};

struct Split {
  std::vector<int> choices;  ///< of each part; empty: none found
  Duration cost;             ///< of all of them
  Duration bound;            ///< lower bound on the cost of any split
  bool proved = false;       ///< no split costs less, or none fits the room
};

/// One choice for each part within the room of all moments, at the least cost: a multiple-choice knapsack
/// with several rows, as an integer program of HiGHS. Throws UsageError for choices without bytes for every
/// moment, and in a build without HiGHS.
Split split_within(const SplitProblem& problem, Limits& limits);

}  // namespace REMAT_API remat
