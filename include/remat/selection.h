// Which of many things to keep in memory, each for a stretch of time and for a gain: for executors that take
// a set of saved results and no order. And one way to run for each of several parts that share a memory.
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

/// What may be selected.
///
///   room |~~~~~\__________/~~~~~~   of each moment: the budget less what is there anyway
///        |     [--- a ---]
///        |  [------- b -------]     a and b together must stay below it
///        +------------------------ moments
struct Selectable {
  Duration gain;                   ///< time that selecting it saves; below 0: it costs, and others need it
  std::vector<Stretch> lives;      ///< what it takes; it may be away in between
  std::vector<int> excludes = {};  ///< that cannot be selected beside it
  std::vector<int> needs = {};     ///< that must be selected too
};

struct SelectionProblem {
  std::vector<Bytes> room;  ///< of each moment; below 0: nothing can be selected that is there then
  std::vector<Selectable> items;
};

struct Selection {
  std::vector<int> items;  ///< what is selected, rising; it keeps all rows of the problem
  Duration gain;           ///< of all of them
  Duration bound;          ///< no selection gains more
  std::optional<StoppedBy> stopped_by;
};

/// The selection with the greatest gain: a knapsack over time, as an integer program of HiGHS, beside a
/// greedy one by gain for byte and moment, which is what is left where a limit is reached. Throws UsageError
/// for stretches and items out of range.
Selection select_within(const SelectionProblem& problem, Limits& limits);

/// A way to run a part.
struct SplitChoice {
  Duration cost;
  std::vector<Bytes> bytes;  ///< that it takes of each moment's room
};

/// Parts that share the room of several moments: a moment may be the highest step of one of them, which
/// others hold something beside.
struct SplitProblem {
  std::vector<Bytes> room;
  std::vector<std::vector<SplitChoice>> parts;  ///< the choices of each
};

struct Split {
  std::vector<int> choices;  ///< of each part; empty: none found
  Duration cost;             ///< of all of them
  Duration bound;            ///< nothing within the room costs less
  bool proved = false;       ///< nothing costs less, or nothing is within the room
};

/// One choice for each part within the room of all moments, at the least cost: where choices are dense, the
/// price for a byte is the same in all parts. A multiple-choice knapsack of several rows, as an integer
/// program of HiGHS. Throws UsageError for choices that do not name each moment, and in a build without
/// HiGHS.
Split split_within(const SplitProblem& problem, Limits& limits);

}  // namespace REMAT_API remat
