// Reports as lines and tables: as they are for scripts, in units and fitted to the width for people.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <numeric>

#include "common.h"
#include "people.h"

namespace remat::cli {

std::string cell(const Report& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return one_line(value.get<std::string>());
  if (value.is_number_float()) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.6g", value.get<double>());
    return text.data();
  }
  return value.dump();
}

namespace {

constexpr std::size_t kBetween = 2;     // spaces before each column
constexpr std::size_t kLeastWrap = 16;  // narrower columns of text are not wrapped

/// A table as texts, column by column.
struct Column {
  std::string key;
  std::vector<std::string> cells;  ///< the head first
  bool right = false;              ///< numbers flush right, texts flush left
  std::size_t width = 0;

  void measure() {
    width = 0;
    for (const std::string& text : cells) width = std::max(width, width_of(text));
  }
};

std::vector<Column> columns_of(const Report& rows, const std::string& time_unit, bool people) {
  std::vector<Column> columns;
  for (const auto& [key, value] : rows.front().items()) {
    Column column{.key = key, .cells = {people ? head_for_people(key) : key}};
    for (const Report& row : rows) {
      column.cells.push_back(people ? for_people(key, row.at(key), time_unit) : cell(row.at(key)));
      if (row.at(key).is_number()) column.right = true;
    }
    column.measure();
    columns.push_back(std::move(column));
  }
  return columns;
}

std::size_t table_width(const std::vector<Column>& columns) {
  return std::accumulate(columns.begin(), columns.end(), std::size_t{0},
                         [](std::size_t sum, const Column& column) { return sum + kBetween + column.width; });
}

/// A column that says nothing, as it is empty in all rows.
bool is_blank(const Column& column) {
  return std::all_of(column.cells.begin() + 1, column.cells.end(),
                     [](const std::string& text) { return text.empty() || text == "-"; });
}

/// Leaves out what is blank, then what can be spared, until the table fits; the last column of texts is
/// wrapped into what is left.
void fit(std::vector<Column>& columns, std::size_t room, const std::vector<std::string>& spare) {
  std::erase_if(columns, is_blank);
  const auto least = [&] {
    const bool wraps = !columns.empty() && !columns.back().right;
    return table_width(columns) -
           (wraps ? columns.back().width - std::min(columns.back().width, kLeastWrap) : 0);
  };
  for (const std::string& key : spare) {
    if (least() <= room) break;
    std::erase_if(columns, [&](const Column& column) { return column.key == key; });
  }
  if (columns.empty() || columns.back().right || table_width(columns) <= room) return;
  const std::size_t others = table_width(columns) - columns.back().width;
  columns.back().width = room > others + kLeastWrap ? room - others : kLeastWrap;
}

/// One row, in as many lines as its last cell takes; nothing behind the last text.
void print_row(const std::vector<Column>& columns, std::size_t row) {
  const std::vector<std::string> last = wrapped(columns.back().cells[row], columns.back().width);
  for (std::size_t line = 0; line < last.size(); ++line) {
    std::string text;
    for (const Column& column : columns) {
      const bool is_last = &column == &columns.back();
      const std::string& said = is_last ? last[line] : line == 0 ? column.cells[row] : "";
      const std::size_t used = width_of(said);
      const std::string padding(column.width > used ? column.width - used : 0, ' ');
      text += std::string(kBetween, ' ') + (column.right ? padding + said : said + padding);
    }
    std::cout << text.substr(0, text.find_last_not_of(' ') + 1) << "\n";
  }
}

void print_table(const std::string& title, const Report& rows, const Look& look, int width) {
  if (rows.empty()) return;
  std::cout << "\n" << (width > 0 ? head_for_people(title) : title) << ":\n";
  std::vector<Column> columns = columns_of(rows, look.time_unit, width > 0);
  if (width > 0) fit(columns, static_cast<std::size_t>(width), look.spare);
  for (std::size_t row = 0; row <= rows.size(); ++row) print_row(columns, row);
}

/// " (60 %)" behind amounts that are a share of the keep-all peak.
std::string share_of(const Report& report, const std::string& key, const Report& value) {
  const bool is_share = key == "budget" || key == "peak" || key == "floor" || key == "peak_lower_bound" ||
                        key.starts_with("smallest_") || key == "best_peak" || key == "allocated_peak" ||
                        key == "reserved_peak" || key == "best_reserved";
  const auto whole = report.find("keep_all_peak");
  if (!is_share || whole == report.end() || !value.is_number_integer() || *whole == 0) return "";
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), " (%.1f %% of keep-all)",
                100 * value.get<double>() / whole->get<double>());
  return text.data();
}

}  // namespace

void print(const Report& report, bool as_json, const Look& look) {
  if (as_json) {
    std::cout << report.dump(2, ' ', false, Report::error_handler_t::replace) << "\n";
    return;
  }
  const int width = terminal_columns();
  for (const auto& [key, value] : report.items()) {
    if (value.is_structured()) continue;
    std::cout << key << " = "
              << (width > 0 ? for_people(key, value, look.time_unit) + share_of(report, key, value)
                            : cell(value))
              << "\n";
  }
  for (const auto& [key, value] : report.items()) {
    if (value.is_array() && (value.empty() || value.front().is_object())) {
      print_table(key, value, look, width);
    } else if (value.is_array()) {
      for (const Report& one : value) std::cout << key << " = " << cell(one) << "\n";
    }
  }
}

}  // namespace remat::cli
