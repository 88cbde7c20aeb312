// Layout files: the offsets of a plan (remat.layout, JSON) and tables of buffers (CSV). Formats:
// docs/formats.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/layout.h"
#include "remat/plan.h"

namespace REMAT_API remat {

/// One buffer of a plan in a layout file.
struct LayoutEntry {
  std::optional<std::int64_t> value;  ///< as in the file, unchecked; none for a workspace
  std::int64_t first = 0, end = 0;    ///< steps
  Bytes bytes, offset;
};

/// The contents of a layout file. What a file does not state is empty and not checked.
struct LayoutRecord {
  std::string graph_name, graph_hash;
  std::string status;
  std::int64_t alignment = 1;
  std::optional<Bytes> arena;     ///< resident plus pool
  std::optional<Bytes> resident;  ///< of the graph's inputs, which are not laid out
  std::optional<Bytes> pool;      ///< of all buffers
  std::optional<Bytes> peak;      ///< of the plan
  std::optional<Bytes> bound;     ///< no arena is smaller
  std::vector<LayoutEntry> buffers;
  std::vector<std::string> warnings;  ///< what the reader wants to say; never written
};

LayoutRecord make_layout_record(const Graph& graph, const Plan& plan, const PlanBuffers& buffers,
                                const LayoutResult& result);
LayoutRecord load_layout(const std::filesystem::path& path);
LayoutRecord parse_layout(std::string_view text, std::string_view place);
void save_layout(const LayoutRecord& layout, const std::filesystem::path& path);
std::string format_layout(const LayoutRecord& layout);

/// Recomputes everything from the plan and the offsets alone. Returns one line per difference, a broken rule
/// first; empty if the record is right. `plan` must be valid.
std::vector<std::string> check_layout_record(const Graph& graph, const Plan& plan,
                                             const LayoutRecord& layout);

/// A CSV table of buffers with the columns `id`, `lower`, `upper` and `size`, and any others.
struct BufferTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  ///< fields as they are spelled in the file
  IndexVector<BufferId, Buffer> buffers;
  std::optional<std::vector<Bytes>> offsets;  ///< where the table has a column `offset`
  std::vector<std::string> warnings;          ///< what the reader wants to say; never written
};

BufferTable load_buffers(const std::filesystem::path& path);
/// Throws InputError naming `place`, line and column, and both numbers.
BufferTable parse_buffers(std::string_view text, std::string_view place);
void save_buffers(const BufferTable& table, const std::vector<Bytes>& offsets,
                  const std::filesystem::path& path);
/// The table with these offsets in its column `offset`, which is added last if the table has none.
std::string format_buffers(const BufferTable& table, const std::vector<Bytes>& offsets);
/// A table of buffers that have no offsets yet; `id` is the number of each.
std::string format_buffers(const IndexVector<BufferId, Buffer>& buffers);

}  // namespace REMAT_API remat
