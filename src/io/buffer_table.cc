// Tables of buffers as CSV, with the columns that minimalloc reads.
#include <algorithm>
#include <charconv>

#include "base/numbers.h"
#include "remat/error.h"
#include "remat/io.h"
#include "remat/layout_io.h"

namespace remat {
namespace {

/// The fields of one line, quotes included. Quoted fields may hold commas. Empty if a quote is not closed.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (char c : line) {
    if (c == '"') is_quoted = !is_quoted;
    if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (is_quoted) fields.clear();
  return fields;
}

/// Without blanks and quotes around it.
std::string_view bare(std::string_view field) {
  const auto strip = [&](std::string_view what) {
    field.remove_prefix(std::min(field.find_first_not_of(what), field.size()));
    field.remove_suffix(field.size() - (field.find_last_not_of(what) + 1));
  };
  strip(" \t\r\n");
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"') strip("\"");
  return field;
}

class TableReader {
 public:
  TableReader(std::string_view text, std::string_view place) : text_(text), place_(place) {}

  BufferTable read() {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    std::string_view line;
    if (bare(text_).starts_with('{')) fail("is JSON, not a table of buffers; a graph needs a plan beside it");
    if (!next_line(line)) fail("is empty; its first line must name the columns id, lower, upper and size");
    table_.header = read_fields(line);
    read_header();
    while (next_line(line)) read_row(read_fields(line));
    return std::move(table_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(std::string(place_) + ":" + std::to_string(std::max<std::int64_t>(1, line_)) + ": " +
                     what);
  }

  /// The next line that is not blank.
  bool next_line(std::string_view& line) {
    while (!text_.empty()) {
      const std::size_t end = text_.find('\n');
      line = text_.substr(0, end);
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!bare(line).empty()) return true;
    }
    return false;
  }

  std::vector<std::string> read_fields(std::string_view line) const {
    std::vector<std::string> fields = fields_of(line);
    if (fields.empty()) fail("a double quote is not closed");
    return fields;
  }

  int column_of(std::string_view name) const {
    int found = -1;
    for (std::size_t c = 0; c < table_.header.size(); ++c) {
      if (bare(table_.header[c]) != name) continue;
      if (found >= 0) fail("the column '" + std::string(name) + "' appears twice");
      found = narrow<int>(c);
    }
    return found;
  }

  void read_header() {
    const auto needed = [&](std::string_view name) {
      const int column = column_of(name);
      if (column < 0) fail("the column '" + std::string(name) + "' is missing");
      return column;
    };
    needed("id");
    lower_ = needed("lower");
    upper_ = needed("upper");
    size_ = needed("size");
    offset_ = column_of("offset");
    if (offset_ >= 0) table_.offsets.emplace();
    // Constraints in these columns of minimalloc must not be ignored silently.
    for (std::string_view name : {"alignment", "gaps", "hint"}) {
      if (column_of(name) < 0) continue;
      table_.warnings.push_back(std::string(place_) + ": the column '" + std::string(name) +
                                "' is kept and not read");
    }
  }

  std::int64_t number(const std::vector<std::string>& fields, int column, std::string_view name) const {
    const std::string_view field = bare(fields[at(column)]);
    std::int64_t value = 0;
    const auto [at, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || at != field.data() + field.size()) {
      fail(std::string(name) + " '" + std::string(field) + "' is not an integer of 64 bits");
    }
    return value;
  }

  Bytes amount(const std::vector<std::string>& fields, int column, std::string_view name) const {
    const std::int64_t value = number(fields, column, name);
    if (value < 0 || value >= kMaxCount) {
      fail(std::string(name) + " " + std::to_string(value) + " is outside [0, " + std::to_string(kMaxCount) +
           ")");
    }
    return Bytes(value);
  }

  void read_row(std::vector<std::string> fields) {
    if (fields.size() != table_.header.size()) {
      fail(std::to_string(fields.size()) + " fields, but the first line names " +
           std::to_string(table_.header.size()) + " columns");
    }
    Buffer buffer{number(fields, lower_, "lower"), number(fields, upper_, "upper"),
                  amount(fields, size_, "size")};
    if (buffer.first >= buffer.end) {
      fail("upper " + std::to_string(buffer.end) + " is not above lower " + std::to_string(buffer.first));
    }
    if (table_.offsets) table_.offsets->push_back(amount(fields, offset_, "offset"));
    table_.buffers.push_back(buffer);
    table_.rows.push_back(std::move(fields));
  }

  std::string_view text_, place_;
  std::int64_t line_ = 0;
  BufferTable table_;
  int lower_ = 0, upper_ = 0, size_ = 0, offset_ = -1;
};

}  // namespace

BufferTable parse_buffers(std::string_view text, std::string_view place) {
  return TableReader(text, place).read();
}

BufferTable load_buffers(const std::filesystem::path& path) {
  return parse_buffers(read_file(path, FileKind::kBuffers), path.string());
}

void save_buffers(const BufferTable& table, const std::vector<Bytes>& offsets,
                  const std::filesystem::path& path) {
  write_file(path, format_buffers(table, offsets), FileKind::kBuffers);
}

std::string format_buffers(const BufferTable& table, const std::vector<Bytes>& offsets) {
  std::size_t column = table.header.size();
  std::string text;
  for (std::size_t c = 0; c < table.header.size(); ++c) {
    if (bare(table.header[c]) == "offset") column = c;
    text += (c == 0 ? "" : ",") + table.header[c];
  }
  text += column == table.header.size() ? ",offset\n" : "\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const std::string offset = std::to_string(offsets[r].count());
    for (std::size_t c = 0; c < table.header.size(); ++c) {
      text += (c == 0 ? "" : ",") + (c == column ? offset : table.rows[r][c]);
    }
    text += column == table.header.size() ? "," + offset + "\n" : "\n";
  }
  return text;
}

std::string format_buffers(const IndexVector<BufferId, Buffer>& buffers) {
  std::string text = "id,lower,upper,size\n";
  for (BufferId id : buffers.ids()) {
    const Buffer& buffer = buffers[id];
    text += std::to_string(id.index()) + ',' + std::to_string(buffer.first) + ',' +
            std::to_string(buffer.end) + ',' + std::to_string(buffer.size.count()) + '\n';
  }
  return text;
}

}  // namespace remat
