// Reports for a terminal: numbers with units, tables that fit its width.
#pragma once

#include <string>
#include <vector>

#include "common.h"

namespace remat::cli {

/// Columns of the terminal at standard output; 0 for a file or a pipe, where numbers are written without
/// units, for scripts. REMAT_COLUMNS overrides it.
int terminal_columns();

/// TERM=dumb: a terminal without colours and cursor movement.
bool is_dumb_terminal();

/// Three digits, in the unit that fits: "206 ms".
std::string format_seconds(double seconds);
/// The value of this key with its unit: "3.56 GiB", "13.58 %", "206 ms".
std::string for_people(const std::string& key, const Report& value, const std::string& time_unit);
/// Head of a table's column.
std::string head_for_people(const std::string& key);
/// Characters that a text takes on a terminal.
std::size_t width_of(const std::string& text);
/// The text with spaces before it.
std::string flush_right(const std::string& text, std::size_t width);
/// Characters of the longest word.
std::size_t longest_word(const std::string& text);
/// The text in lines of at most `width`, broken at spaces, and within words that are longer.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

}  // namespace remat::cli
