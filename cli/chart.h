// A small chart of memory over steps, for people at a terminal.
#pragma once

#include <string>
#include <vector>

#include "remat/graph.h"
#include "remat/plan.h"

namespace remat::cli {

/// Lines of `columns` characters at most, each with its end; empty where there are fewer than 60 columns or
/// no steps. Each character stands for some steps and shows their fullest, the scale ends at `top`. With
/// colours: the peak apart from the rest.
std::string memory_chart(const Graph& graph, const Plan& plan, Bytes top, int columns, bool colours);

/// The lines of `left`, filled up to `width` characters, each with one of `right` behind it.
std::string beside(const std::string& left, std::size_t width, const std::vector<std::string>& right);

/// Standard output is a terminal that knows colours, and nobody set NO_COLOR (https://no-color.org).
bool wants_colours();

}  // namespace remat::cli
